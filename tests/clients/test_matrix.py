"""What one client wrote, every other reads: keys, values, headers, timestamps, nulls, byte for byte."""

from __future__ import annotations

import pytest

from core.records.batch import batches
from core.records.partitioner import partition_for_key
from tests.broker_process import BrokerProcess
from tests.clients.driver import Driver, Message
from tests.clients.every_client import DRIVERS, OLD_DRIVERS, GetClient, able, case
from tests.clients.wire import NOW, Wire

CODEC_NUMBERS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
START = NOW

# Names sort in the order in which they are written: one client keeps headers in a map.
SAMPLES = (
    Message(b"k-1", b"plain", (), START),
    Message("ключ".encode(), "значение ☃".encode(), (("type", b"text"),), START + 1),
    Message(None, b"no key", (), START + 2),
    Message(b"gone", None, (("why", b"tombstone"),), START + 3),
    Message(b"", b"", (("empty", b""),), START + 4),
    Message(bytes(range(256)), bytes(reversed(range(256))), (), START + 5),
    Message(b"h", b"headers", (("a", b"1"), ("a", b"2"), ("b", b"\xfe\xff")), START + 6),
    Message(b"null", b"in a header", (("c", None),), START + 7),
    Message(b"late", b"a clock that went back", (), START - 60_000),
    Message(b"large", b"sluice " * 15_000, (), START + 8),
    *(Message(b"k-%d" % i, b"message number %d" % i, (), START + 1000 * i) for i in range(1, 40)),
)


def _sayable(writer: type[Driver]) -> list[Message]:
    """The samples as far as a client can say them, with the timestamps that it can set."""
    messages = []
    for message in SAMPLES:
        parts = [message.key, message.value, *(value for _, value in message.headers)]
        if not writer.binary_safe and any(_is_binary(part) for part in parts):
            continue
        if not writer.writes_empty and b"" in parts:
            continue
        if message.value is None and not writer.writes_null:
            continue
        if not writer.writes_null_headers and None in parts[2:]:
            continue
        if not writer.repeats_headers and len(dict(message.headers)) < len(message.headers):
            continue
        if writer.message_format < 2:
            message = message._replace(headers=())
        messages.append(message if writer.sets_timestamps else message._replace(timestamp=None))
    return messages


def _is_binary(part: bytes | None) -> bool:
    try:
        return part is not None and not part.decode().isprintable()
    except UnicodeDecodeError:
        return True


_written: dict[tuple[str, str], list[Message]] = {}


def _write_once(client: GetClient, wire: Wire, writer: type[Driver], codec: str) -> tuple[str, list[Message]]:
    """The topic that a client wrote with a codec, and what lies there as the broker's own decoder sees it."""
    topic = f"by-{writer.name}-{codec}"
    if (writer.name, codec) not in _written:
        messages = _sayable(writer)
        # The samples are of 2023: a topic with a retention time would lose them within a minute.
        wire.create_topic(topic, retention_ms="-1")
        client(writer).write(topic, 0, messages, codec)
        stored = wire.read_all(topic)
        expected = [
            message._replace(
                offset=i, timestamp=found.timestamp if message.timestamp is None else message.timestamp
            )
            for i, (message, found) in enumerate(zip(messages, stored, strict=True))
        ]
        assert stored == expected
        _written[writer.name, codec] = stored
    return topic, _written[writer.name, codec]


@pytest.fixture(scope="module", autouse=True)
def _forget(broker: BrokerProcess) -> None:
    _written.clear()


WRITERS = [(writer, codec) for writer in DRIVERS for codec in writer.codecs]
OLD_WRITERS = [(writer, codec) for writer in OLD_DRIVERS for codec in writer.codecs]
# What an old client wrote is stored like all other records. So three clients read it, not all of them.
ORDINARY = (DRIVERS[0], DRIVERS[-1])


def _writer_for(reader: type[Driver]) -> type[Driver]:
    """The first of today's clients that writes nothing that this one dies of."""
    return next(w for w in DRIVERS if reader.reads_null_headers or not w.writes_null_headers)


@pytest.mark.parametrize(
    ("writer", "codec", "reader"),
    [
        *[
            case(writer, codec, reader)
            for writer, codec in WRITERS
            for reader in DRIVERS
            if reader.reads_null_headers or not writer.writes_null_headers
        ],
        *[
            case(_writer_for(reader), codec, reader)
            for reader in OLD_DRIVERS
            for codec in _writer_for(reader).codecs
            if codec in reader.reads_codecs
        ],
        *[case(writer, codec, reader) for writer, codec in OLD_WRITERS for reader in (writer, *ORDINARY)],
    ],
)
def test_what_one_wrote_the_others_read(
    client: GetClient, wire: Wire, writer: type[Driver], codec: str, reader: type[Driver]
) -> None:
    topic, expected = _write_once(client, wire, writer, codec)
    assert client(reader).read(topic, 0, 0, len(expected)) == [reader.sees(one) for one in expected]


@pytest.mark.parametrize(
    ("writer", "codec"), [case(writer, codec) for writer, codec in WRITERS + OLD_WRITERS]
)
def test_batches_are_stored_in_the_codec_that_the_client_chose(
    client: GetClient, wire: Wire, writer: type[Driver], codec: str
) -> None:
    topic, _ = _write_once(client, wire, writer, codec)
    codecs = {header.codec for _, header in batches(wire.fetch(topic))}
    # A client may leave a batch that would not shrink as it is.
    assert CODEC_NUMBERS[codec] in codecs
    assert codecs <= {0, CODEC_NUMBERS[codec]}


@pytest.mark.parametrize("writer", able("write"))
def test_an_idempotent_producer_numbers_what_it_writes(
    client: GetClient, wire: Wire, writer: type[Driver]
) -> None:
    topic, expected = _write_once(client, wire, writer, writer.codecs[-1])
    found = [header for _, header in batches(wire.fetch(topic))]
    if not writer.idempotent:
        assert {header.producer_id for header in found} == {-1}
        return
    assert len({header.producer_id for header in found}) == 1
    assert min(header.producer_id for header in found) >= 0
    # A producer that wrote to other topics before begins here at 0 all the same.
    assert [header.base_sequence for header in found] == [header.base_offset for header in found]
    assert sum(header.record_count for header in found) == len(expected)


@pytest.mark.parametrize("reader", able("read", among=(*DRIVERS, *OLD_DRIVERS)))
def test_a_read_may_start_inside_a_batch(client: GetClient, wire: Wire, reader: type[Driver]) -> None:
    topic, expected = _write_once(client, wire, _writer_for(reader), "zstd")
    middle = len(expected) // 2
    assert client(reader).read(topic, 0, middle, 5) == [
        reader.sees(message) for message in expected[middle : middle + 5]
    ]


@pytest.mark.parametrize("reader", able("offset_for_time", among=(*DRIVERS, *OLD_DRIVERS)))
def test_a_time_leads_to_the_first_record_that_is_not_older(
    client: GetClient, wire: Wire, reader: type[Driver]
) -> None:
    topic = "by-time"
    if topic not in wire.topics():
        wire.create_topic(topic)
        client(DRIVERS[0]).write(
            topic, 0, [Message(None, b"%d" % i, (), START + 1000 * i) for i in range(20)]
        )
    found = [client(reader).offset_for_time(topic, 0, START + at) for at in (-5000, 0, 1, 7000, 7001, 19_000)]
    assert found == [0, 0, 1, 7, 8, 19]
    assert client(reader).offset_for_time(topic, 0, START + 19_001) is None


@pytest.mark.parametrize("driver", able("bounds", among=(*DRIVERS, *OLD_DRIVERS)))
def test_the_bounds_of_a_partition_are_seen(client: GetClient, wire: Wire, driver: type[Driver]) -> None:
    topic, expected = _write_once(client, wire, DRIVERS[0], "none")
    assert client(driver).bounds(topic, 0) == (0, len(expected))


@pytest.mark.parametrize("driver", able("choose_partition"))
def test_a_key_chooses_the_partition_of_the_java_client(
    client: GetClient, wire: Wire, driver: type[Driver]
) -> None:
    topic = f"by-key-{driver.name}"
    wire.create_topic(topic, partitions=7)
    keys = [b"a", b"sluice", "ключ".encode(), bytes(range(40)), *(b"key-%d" % i for i in range(20))]
    chosen = [client(driver).choose_partition(topic, key) for key in keys]
    assert chosen == [partition_for_key(key, 7) for key in keys]
