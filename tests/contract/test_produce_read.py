"""Produce and read: every client reads what another one wrote, byte for byte, and errors agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.contract.clients import ClientError, KafkaClient, having

writers = pytest.mark.parametrize("client", having("produce", "read"), indirect=True, ids=lambda d: d.name)
Names = Callable[[], str]
BROKER_SCHEMES = ("text",)

RECORDS: list[tuple[bytes | None, bytes | None]] = [
    (b"k", b"plain"),
    (None, b"no key"),
    (b"tombstone", None),
    (b"", b""),
    (bytes(range(256)), bytes(reversed(range(256)))),
    ("ключ".encode(), "☃".encode()),
    (b"json", b'{"a": [1, 2.5, null]}'),
]


@writers
def test_every_client_reads_what_this_one_wrote(
    client: Any, broker: BrokerProcess, kafka: KafkaClient, name: Names
) -> None:
    topic = name()
    kafka.create_topic(topic, 2)
    assert client.produce(topic, 1, RECORDS) == list(range(len(RECORDS)))
    assert client.produce(topic, 1, [(b"k", b"next")]) == [len(RECORDS)]
    expected = [(i, *record) for i, record in enumerate([*RECORDS, (b"k", b"next")])]
    for kind in having("read"):
        other = kind(broker)
        assert other.read(topic, 1, 0) == expected, kind.name
        assert other.read(topic, 1, 3) == expected[3:], kind.name
        assert other.read(topic, 1, len(expected)) == [], kind.name
        assert other.bounds(topic, 1) == (0, len(expected)), kind.name
        assert other.read(topic, 0, 0) == [], kind.name
        other.close()


@writers
@pytest.mark.parametrize("partition", [1, 99])
def test_a_partition_that_is_not_there_is_told_so(
    client: Any, kafka: KafkaClient, name: Names, partition: int
) -> None:
    topic = name()
    kafka.create_topic(topic, 1)
    for refused in (
        lambda: client.produce(topic, partition, [(None, b"a")]),
        lambda: client.read(topic, partition, 0),
        lambda: client.bounds(topic, partition),
        lambda: client.read(name(), 0, 0),
    ):
        with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            refused()


@pytest.mark.parametrize("client", having("write"), indirect=True, ids=lambda d: d.name)
def test_limits_of_the_topic_hold_over_every_protocol(client: Any, kafka: KafkaClient, name: Names) -> None:
    topic = name()
    kafka.create_topic(topic, 1, {"max.message.bytes": "2000"})
    with pytest.raises(ClientError, match="MESSAGE_TOO_LARGE"):
        client.produce(topic, 0, [(b"k", b"x" * 3000)])
    compacted = name()
    kafka.create_topic(compacted, 1, {"cleanup.policy": "compact"})
    with pytest.raises(ClientError, match="INVALID_RECORD"):
        client.produce(compacted, 0, [(None, b"without a key")])
    replicated = name()
    kafka.create_topic(replicated, 1, {"min.insync.replicas": "2"})
    with pytest.raises(ClientError, match="NOT_ENOUGH_REPLICAS"):
        client.produce(replicated, 0, [(None, b"a")])
    for one in (topic, compacted, replicated):
        assert kafka.bounds(one, 0) == (0, 0)


@writers
def test_offsets_out_of_range_are_refused(client: Any, kafka: KafkaClient, name: Names) -> None:
    topic = name()
    kafka.create_topic(topic, 1)
    kafka.produce(topic, 0, RECORDS)
    with pytest.raises(ClientError, match="OFFSET_OUT_OF_RANGE"):
        client.read(topic, 0, len(RECORDS) + 1)
    kafka.truncate(topic, 0, 3)
    with pytest.raises(ClientError, match="OFFSET_OUT_OF_RANGE"):
        client.read(topic, 0, 2)
    assert [r.offset for r in client.read(topic, 0, 3)] == list(range(3, len(RECORDS)))
    assert client.bounds(topic, 0) == (3, len(RECORDS))


@pytest.mark.parametrize("client", having("truncate"), indirect=True, ids=lambda d: d.name)
def test_records_are_deleted_below_an_offset(client: Any, kafka: KafkaClient, name: Names) -> None:
    topic = name()
    kafka.create_topic(topic, 1)
    kafka.produce(topic, 0, RECORDS)
    client.truncate(topic, 0, 4)
    assert client.bounds(topic, 0) == (4, len(RECORDS))
    with pytest.raises(ClientError, match="OFFSET_OUT_OF_RANGE"):
        client.truncate(topic, 0, len(RECORDS) + 1)
