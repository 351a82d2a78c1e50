"""The producer against an embedded broker: order, merging, refusals of single records, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from core.client.cluster import ClusterClient
from core.client.producer import Part, Producer
from core.client.settings import ClientSettings
from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.records.batch import batches, build_batch
from core.records.record import NewRecord, Record
from core.types import AppendResult, TopicPartition
from core.vocabulary.records import FetchRead
from tests.core.client.conftest import Served

TP = TopicPartition("t", 0)
NOW = 1_700_000_000_000


@pytest.fixture
async def producer(cluster: ClusterClient) -> AsyncIterator[Producer]:
    made = Producer(cluster)
    yield made
    await made.close()
    assert made.waiting_bytes == 0


def values(served: Served, tp: TopicPartition = TP) -> list[bytes | None]:
    return [record.value for record in records(served, tp)]


def records(served: Served, tp: TopicPartition = TP) -> list[Record]:
    return served.broker.records.read_now(tp, 0, max_bytes=2**25, max_records=100_000).records


def batch_count(served: Served, tp: TopicPartition = TP) -> int:
    (read,) = served.broker.partitions.fetch_now([FetchRead(tp, 0, 2**25)], max_bytes=2**25).answers
    assert read.read is not None and read.read.slice is not None
    return sum(1 for _ in batches(read.read.slice.read()))


def of(*texts: bytes) -> list[NewRecord]:
    return [NewRecord(value=text) for text in texts]


async def test_records_of_one_caller(served: Served, producer: Producer) -> None:
    await served.broker.topics.create("t")
    assert await producer.send(TP, of(b"a", b"b"), now_ms=NOW) == [Part(0, 2, AppendResult(0, 1, -1, 0))]
    assert await producer.send(TP, of(b"c"), now_ms=NOW, acks=1) == [Part(0, 1, AppendResult(2, 2, -1, 0))]
    assert values(served) == [b"a", b"b", b"c"]


async def test_records_of_many_callers_share_batches_and_keep_their_order(
    served: Served, producer: Producer
) -> None:
    await served.broker.topics.create("t")
    sent = [producer.send(TP, of(b"%d" % number), now_ms=NOW + number) for number in range(500)]
    parts = [(await one)[0] for one in sent]
    assert [part.result.base_offset for part in parts if part.result] == list(range(500))
    assert [record.timestamp for record in records(served)] == [NOW + number for number in range(500)]
    assert values(served) == [b"%d" % number for number in range(500)]
    assert batch_count(served) == 1


async def test_large_records_of_many_callers_are_pipelined_in_order(
    served: Served, client_settings: ClientSettings
) -> None:
    await served.broker.topics.create("t")
    cluster = ClusterClient(replace(client_settings, max_batch_bytes=1_200), Clock())
    await cluster.open()
    producer = Producer(cluster)
    sent = [producer.send(TP, of(b"%09d" % number * 50), now_ms=NOW) for number in range(200)]
    parts = [(await one)[0] for one in sent]
    assert [part.result.base_offset for part in parts if part.result] == list(range(200))
    assert batch_count(served) == 100
    await producer.close()
    await cluster.close()


async def test_partitions_of_many_topics_share_requests(served: Served, producer: Producer) -> None:
    tps = [TopicPartition(topic, number) for topic in ("a", "b") for number in range(10)]
    for topic in ("a", "b"):
        await served.broker.topics.create(topic, partitions=10)
    sent = [producer.send(tp, of(b"x"), now_ms=NOW, acks=-1 if tp.topic == "a" else 1) for tp in tps]
    for one in sent:
        assert (await one)[0].error is None
    produces = [m.count for key, m in served.broker.counters.requests.items() if key == 0]
    assert sum(produces) == 2, "one for each acks"
    assert [values(served, tp) for tp in tps] == [[b"x"]] * 20


async def test_a_record_at_fault_does_not_hit_other_callers(served: Served, producer: Producer) -> None:
    await served.broker.topics.create("t", configs={"cleanup.policy": "compact"})
    good = [NewRecord(key=b"k", value=b"good")]
    bad = [NewRecord(key=b"k", value=b"first"), NewRecord(value=b"no key")]
    sent = [producer.send(TP, one, now_ms=NOW) for one in (good, bad, good, good)]
    parts = [(await one)[0] for one in sent]
    assert [part.result and part.result.base_offset for part in parts] == [0, None, 1, 2]
    error = parts[1].error
    assert error is not None and error.code is ErrorCode.INVALID_RECORD
    assert [position for position, _ in error.details["record_errors"]] == [1]  # type: ignore[attr-defined]
    assert values(served) == [b"good"] * 3
    assert (await producer.send(TP, good, now_ms=NOW))[0].result == AppendResult(3, 3, -1, 0)


async def test_a_merged_batch_that_is_too_large_is_split_down_to_the_record_at_fault(
    served: Served, producer: Producer
) -> None:
    await served.broker.topics.create("t", configs={"max.message.bytes": "300"})
    sent = [producer.send(TP, of(b"%02d" % number * 40), now_ms=NOW) for number in range(10)]
    large = producer.send(TP, of(b"a" * 100, b"b" * 1_000, b"c" * 100), now_ms=NOW)
    assert [(await one)[0].error for one in sent] == [None] * 10
    parts = await large
    assert [(part.first, part.count) for part in parts] == [(0, 1), (1, 1), (2, 1)]
    assert [part.error and part.error.code for part in parts] == [None, ErrorCode.MESSAGE_TOO_LARGE, None]
    assert [len(value or b"") for value in values(served)] == [80] * 10 + [100, 100]


async def test_a_topic_that_does_not_exist_is_refused_at_once(producer: Producer) -> None:
    ((part),) = await producer.send(TP, of(b"a"), now_ms=NOW)
    assert part.error is not None and part.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_batch_as_it_is(served: Served, producer: Producer) -> None:
    await served.broker.topics.create("t")
    plain = build_batch(of(b"a", b"b"), now_ms=NOW, codec=4)
    assert await producer.append(TP, plain) == AppendResult(0, 1, -1, 0)
    own = bytes(build_batch(of(b"c"), now_ms=NOW, producer_id=77, producer_epoch=0, base_sequence=0))
    assert await producer.append(TP, bytearray(own)) == AppendResult(2, 2, -1, 0)
    assert (await producer.append(TP, bytearray(own)))[:2] == (2, 2), "a duplicate gets the first offset"
    gap = build_batch(of(b"d"), now_ms=NOW, producer_id=77, producer_epoch=0, base_sequence=5)
    with pytest.raises(BrokerError) as caught:
        await producer.append(TP, gap)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(served) == [b"a", b"b", b"c"]


async def test_memory_is_bounded(served: Served, client_settings: ClientSettings) -> None:
    await served.broker.topics.create("t")
    cluster = ClusterClient(replace(client_settings, buffer_memory=10_000), Clock())
    await cluster.open()
    producer = Producer(cluster)
    first = producer.send(TP, of(b"a" * 9_000), now_ms=NOW)
    with pytest.raises(BrokerError) as caught:
        producer.send(TP, of(b"b" * 2_000), now_ms=NOW)
    assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert (await first)[0].error is None
    assert (await producer.send(TP, of(b"b" * 20_000), now_ms=NOW))[0].error is None, (
        "one alone may be larger"
    )
    await producer.close()
    await cluster.close()


async def test_a_caller_that_is_cancelled_before_the_request_writes_nothing(
    served: Served, producer: Producer
) -> None:
    await served.broker.topics.create("t")
    one = producer.send(TP, of(b"a"), now_ms=NOW)
    two = producer.send(TP, of(b"b"), now_ms=NOW)
    one.cancel()
    assert (await two)[0].result == AppendResult(0, 0, -1, 0)
    assert values(served) == [b"b"]


async def test_a_broker_that_restarts_gets_each_record_once_and_in_order(
    served: Served, producer: Producer
) -> None:
    await served.broker.topics.create("t")
    assert (await producer.send(TP, of(b"first"), now_ms=NOW))[0].error is None
    sent = []
    for number in range(30):
        sent.append(producer.send(TP, of(b"%d" % number), now_ms=NOW))
        await asyncio.sleep(0.002)
        if number == 10:
            await served.stop()
        if number == 20:
            await served.start()
    parts = [(await one)[0] for one in sent]
    assert [part.error for part in parts] == [None] * 30
    assert values(served) == [b"first", *(b"%d" % number for number in range(30))]
    assert [part.result.base_offset for part in parts if part.result] == list(range(1, 31))
