"""Produce, InitProducerId and Fetch through the listener, without a socket."""

from __future__ import annotations

import asyncio
import errno
import struct
from typing import Any

import pytest

from core.errors import ErrorCode
from core.listeners.connection import RefusedError
from core.listeners.kafka.listener import KafkaListener
from core.listeners.kafka.produce import WhenDurable
from core.log import files
from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from core.records.batch import build_batch, decode_all
from core.records.conversion import down_convert
from core.records.record import NewRecord
from core.types import TopicPartition

from .conftest import Client, produce_request


def fetch_request(offset: int = 0, topic: str = "t", partition: int = 0, **changes: Any) -> FetchRequest:
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000, **changes}
    max_bytes = fields.pop("partition_max_bytes", 1_000_000)
    one = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(topics=[FetchTopic(topic, partitions=[one])], **fields)


def values(partition: Any) -> list[bytes | None]:
    return [r.value for r in decode_all(bytes(partition.records), max_bytes=1_000_000)]


async def fetch(client: Client, version: int = 11, **changes: Any) -> Any:
    answer = await client.ask(1, version, fetch_request(**changes))
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("acks", [1, -1])
async def test_what_is_produced_is_fetched_with_dense_offsets(client: Client, acks: int) -> None:
    await client.create("t")
    for batch in range(3):
        done = await client.produce("t", [b"%d" % batch, b"x"], acks=acks)
        assert (done.error_code, done.base_offset) == (0, batch * 2)
    got = await fetch(client)
    assert values(got) == [b"0", b"x", b"1", b"x", b"2", b"x"]
    assert (got.high_watermark, got.last_stable_offset, got.log_start_offset) == (6, 6, 0)
    assert values(await fetch(client, offset=3)) == [b"1", b"x", b"2", b"x"], "the batch that holds it, whole"


def pipelined(client: Client, partition: int, number: int) -> Any:
    """What the session answers to one acks=all request; those before it need not be answered yet."""
    header = encode_request_header(0, 9, number, "test")
    batch = bytes(build_batch([NewRecord(value=b"%d" % number)], now_ms=1))
    request = produce_request("t", batch, acks=-1, partition=partition)
    return client.session.handle(memoryview(bytearray(header + encode_request(0, 9, request))))


async def test_requests_with_acks_all_begin_before_the_one_before_is_durable(client: Client) -> None:
    await client.create("t", 2)
    answers = [pipelined(client, number % 2, number) for number in range(10)]
    logs = [client.listener.broker.partitions.log(TopicPartition("t", partition)) for partition in (0, 1)]
    assert [log.offsets.log_end_offset for log in logs] == [5, 5]
    assert [log.flushed_offset for log in logs] == [0, 0]
    for number, deferred in enumerate(answers):
        data = await client.taken(deferred)
        assert data is not None
        correlation_id, position = decode_response_header(0, 9, data)
        done = decode_response(0, 9, data, position).responses[0].partition_responses[0]
        assert (correlation_id, done.error_code, done.base_offset) == (number, 0, number // 2)
        assert logs[number % 2].flushed_offset > number // 2
    assert client.listener.requests[0].count == 10


async def test_a_failed_fsync_is_the_answer_to_all_that_waited_for_it_and_to_no_other(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t", 2)
    bad = client.listener.broker.partitions.log(TopicPartition("t", 0))
    answers = [pipelined(client, number % 2, number) for number in range(6)]
    refused = bad.segments.active.log.reading().fd
    sync = files.sync

    def fail(fd: int) -> None:
        if fd == refused:
            raise OSError(errno.EIO, "Input/output error")
        sync(fd)

    monkeypatch.setattr(files, "sync", fail)
    codes = []
    for deferred in answers:
        data = await client.taken(deferred)
        assert data is not None
        _, position = decode_response_header(0, 9, data)
        done = decode_response(0, 9, data, position).responses[0].partition_responses[0]
        codes.append(done.error_code)
        assert (done.base_offset == -1) == (done.error_code != 0)
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, 0] * 3
    assert client.listener.counters.errors[0, ErrorCode.KAFKA_STORAGE_ERROR] == 3


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_a_wait_that_ends_otherwise_acknowledges_nothing(how: str) -> None:
    durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answer = PartitionProduceResponse(base_offset=7)
    answered: list[ProduceResponse] = []
    WhenDurable(ProduceResponse(), [(durable, answer)]).then(answered.append)
    if how == "cancelled":
        durable.cancel()
    else:
        durable.set_exception(ValueError("unexpected"))
    await asyncio.sleep(0)
    assert len(answered) == 1
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


async def test_acks_0_has_no_answer_and_closes_on_an_error(client: Client) -> None:
    await client.create("t")
    assert await client.produce("t", [b"a"], acks=0) is None
    assert values(await fetch(client)) == [b"a"]
    with pytest.raises(RefusedError, match="acks=0"):
        await client.produce("unknown", [b"a"], acks=0)


@pytest.mark.parametrize("acks", [2, -2, 32767])
async def test_acks_that_mean_nothing_are_refused(client: Client, acks: int) -> None:
    await client.create("t")
    assert (await client.produce("t", [b"a"], acks=acks)).error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize(("topic", "partition"), [("unknown", 0), ("t", 1), ("t", -1)])
async def test_unknown_partitions_are_told_per_partition(client: Client, topic: str, partition: int) -> None:
    await client.create("t")
    done = await client.produce(topic, [b"a"], partition=partition)
    assert done.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and done.base_offset == -1
    answer = await client.ask(1, 11, fetch_request(topic=topic, partition=partition))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_bad_batches_are_refused_each_for_its_reason(client: Client) -> None:
    await client.create("t", max_message_bytes="2000")
    good = build_batch([NewRecord(value=b"a")], now_ms=client.listener.broker.clock.wall_ms())
    flipped = bytearray(good)
    flipped[-1] ^= 1
    large = build_batch([NewRecord(value=b"a" * 3000)], now_ms=client.listener.broker.clock.wall_ms())
    for data, code in [
        (bytes(flipped), ErrorCode.CORRUPT_MESSAGE),
        (bytes(good[:-1]), ErrorCode.CORRUPT_MESSAGE),
        (bytes(large), ErrorCode.MESSAGE_TOO_LARGE),
        (None, ErrorCode.INVALID_RECORD),
    ]:
        answer = await client.ask(0, 9, produce_request("t", data))
        refused = answer.responses[0].partition_responses[0]
        assert refused.error_code == code and refused.error_message
    assert (await fetch(client)).high_watermark == 0


async def test_topics_go_by_id_from_version_13_on(client: Client) -> None:
    await client.create("t")
    topic_id = client.listener.broker.topics.get("t").topic_id
    data = memoryview(build_batch([NewRecord(value=b"a")], now_ms=client.listener.broker.clock.wall_ms()))
    for wanted, code in [(topic_id, 0), (client.listener.broker.clock.uuid4(), ErrorCode.UNKNOWN_TOPIC_ID)]:
        topic = TopicProduceData("", wanted, [PartitionProduceData(0, data)])
        answer = await client.ask(0, 13, ProduceRequest(acks=1, topic_data=[topic]))
        assert answer.responses[0].topic_id == wanted
        assert answer.responses[0].partition_responses[0].error_code == code
        request = fetch_request()
        request.topics[0].topic_id = wanted
        answer = await client.ask(1, 16, request)
        assert answer.responses[0].topic_id == wanted
        assert answer.responses[0].partitions[0].error_code == code


async def test_an_idempotent_retry_appends_once_and_a_gap_is_refused(client: Client) -> None:
    await client.create("t")
    given = await client.newest(22, InitProducerIdRequest(transactional_id=None))
    assert given.error_code == 0 and given.producer_epoch == 0
    producer = {"producer_id": given.producer_id, "producer_epoch": 0}
    for _ in range(3):
        done = await client.produce("t", [b"a", b"b"], base_sequence=0, **producer)
        assert (done.error_code, done.base_offset) == (0, 0)
    assert (await client.produce("t", [b"c"], base_sequence=2, **producer)).base_offset == 2
    gap = await client.produce("t", [b"e"], base_sequence=9, **producer)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values(await fetch(client)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("control", [False, True])
async def test_a_transactional_batch_without_a_transactional_id_is_refused(
    client: Client, version: int, control: bool
) -> None:
    """If it were stored, every reader of committed records would wait without an end."""
    await client.create("t")
    broker = client.listener.broker
    data = memoryview(
        build_batch(
            [NewRecord(key=b"k", value=b"a")],
            now_ms=broker.clock.wall_ms(),
            transactional=True,
            control=control,
        )
    )
    topic = TopicProduceData("t", broker.topics.get("t").topic_id, [PartitionProduceData(0, data)])
    for acks in (1, -1):
        answer = await client.ask(0, version, ProduceRequest(acks=acks, topic_data=[topic]))
        refused = answer.responses[0].partition_responses[0]
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with pytest.raises(RefusedError, match=r"has no transactional\.id"):
        await client.ask(0, version, ProduceRequest(acks=0, topic_data=[topic]))
    assert (await fetch(client)).high_watermark == 0


async def test_init_producer_id_6_is_not_served(client: Client) -> None:
    """KIP-939 is unfinished: the answer is the correlation id alone, as for every version that is not served."""
    v5 = encode_request_header(22, 5, 9, "test") + encode_request(22, 5, InitProducerIdRequest(None))
    v6 = bytearray(v5[:-1] + b"\0\0\0")  # two switches before the tagged fields
    v6[3] = 6
    assert await client.raw(bytes(v6)) == b"\0\0\0\x09"


async def test_acks_all_is_refused_when_the_topic_wants_more_replicas_than_there_are(client: Client) -> None:
    await client.create("t", min_insync_replicas="2")
    assert (await client.produce("t", [b"a"], acks=-1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await client.produce("t", [b"a"], acks=1)).error_code == 0


async def test_a_long_poll_wakes_on_an_append_and_not_before(client: Client, listener: KafkaListener) -> None:
    await client.create("t")
    poll = asyncio.create_task(fetch(client, max_wait_ms=30_000))
    await asyncio.sleep(0.01)
    assert not poll.done() and len(listener.broker.purgatory) == 1
    await Client(listener).produce("t", [b"now"])
    assert values(await asyncio.wait_for(poll, 60)) == [b"now"]


async def test_a_long_poll_waits_for_min_bytes_then_for_its_time(
    client: Client, listener: KafkaListener
) -> None:
    await client.create("t")
    await client.produce("t", [b"small"])
    assert values(await fetch(client, max_wait_ms=20, min_bytes=10_000)) == [b"small"]
    poll = asyncio.create_task(fetch(client, max_wait_ms=30_000, min_bytes=1000))
    await asyncio.sleep(0.01)
    await Client(listener).produce("t", [b"more"])
    await asyncio.sleep(0.01)
    assert not poll.done()
    await Client(listener).produce("t", [b"x" * 1000])
    assert len(values(await asyncio.wait_for(poll, 60))) == 3


async def test_a_drain_answers_a_long_poll_empty(client: Client, listener: KafkaListener) -> None:
    await client.create("t")
    poll = asyncio.create_task(fetch(client, max_wait_ms=30_000))
    await asyncio.sleep(0.01)
    listener.broker.drain()
    assert values(await asyncio.wait_for(poll, 60)) == []


async def test_a_long_poll_on_a_topic_that_is_deleted_is_told_so(
    client: Client, listener: KafkaListener
) -> None:
    await client.create("t")
    poll = asyncio.create_task(fetch(client, max_wait_ms=30_000))
    await asyncio.sleep(0.01)
    await listener.broker.topics.delete("t")
    got = await asyncio.wait_for(poll, 60)
    assert got.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_out_of_range_are_told_with_the_log_start(client: Client) -> None:
    await client.create("t")
    await client.produce("t", [b"a"])
    for offset in (2, 100, -1):
        got = await fetch(client, offset=offset, max_wait_ms=30_000)
        assert got.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and got.high_watermark == -1
    assert (await fetch(client, offset=1)).error_code == 0


async def test_a_first_batch_above_the_limits_comes_whole_and_others_stay_within(client: Client) -> None:
    await client.create("t", 2)
    for _ in range(3):
        await client.produce("t", [b"x" * 1000])
        await client.produce("t", [b"y" * 1000], partition=1)
    assert len(values(await fetch(client, partition_max_bytes=1))) == 1
    assert len(values(await fetch(client, max_bytes=1))) == 1
    assert len(values(await fetch(client, partition_max_bytes=2500))) == 2
    partitions = [FetchPartition(p, partition_max_bytes=1) for p in (0, 1)]
    answer = await client.ask(1, 11, FetchRequest(topics=[FetchTopic("t", partitions=partitions)]))
    assert [len(values(p)) for p in answer.responses[0].partitions] == [1, 0]


async def test_a_session_answers_only_what_is_new(client: Client) -> None:
    await client.create("t", 3)
    partitions = [FetchPartition(p, partition_max_bytes=1_000_000) for p in range(3)]
    full = FetchRequest(session_epoch=0, topics=[FetchTopic("t", partitions=partitions)])
    first = await client.ask(1, 11, full)
    assert first.session_id > 0 and len(first.responses[0].partitions) == 3

    async def again(epoch: int, **changes: Any) -> Any:
        request = FetchRequest(session_id=first.session_id, session_epoch=epoch, **changes)
        return await client.ask(1, 11, request)

    assert (await again(1)).responses == []
    await client.produce("t", [b"a"], partition=1)
    news = await again(2)
    assert [(p.partition_index, values(p)) for p in news.responses[0].partitions] == [(1, [b"a"])]
    await client.produce("t", [b"b"], partition=2)
    moved = FetchTopic("t", partitions=[FetchPartition(1, fetch_offset=1, partition_max_bytes=1_000_000)])
    news = await again(3, topics=[moved], forgotten_topics_data=[ForgottenTopic("t", partitions=[2])])
    assert news.responses == []
    assert (await again(9)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    other = FetchRequest(session_id=first.session_id + 1, session_epoch=1)
    assert (await client.ask(1, 11, other)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_client_with_another_leader_epoch_is_fenced(client: Client) -> None:
    await client.create("t")
    request = fetch_request()
    request.topics[0].partitions[0].current_leader_epoch = 5
    answer = await client.ask(1, 11, request)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_what_is_malformed_closes_the_connection(client: Client) -> None:
    for frame in (b"", b"\x00\x01", struct.pack(">hhih", 0, 9, 1, -1) + b"\x00\xff\xff\xff\xff\xff"):
        with pytest.raises(RefusedError, match="malformed"):
            await client.raw(frame)


# --- old formats -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
async def test_old_producers_and_consumers_meet_today_s(client: Client, version: int, magic: int) -> None:
    await client.create("t")
    await client.produce("t", [b"new-1", b"new-2"])
    (batch,) = [data async for data in _stored(client)]
    old = down_convert(batch, magic, first_offset=0, max_bytes=1_000_000)
    request = produce_request("t", old)
    answer = await client.ask(0, version, request)
    done = answer.responses[0].partition_responses[0]
    assert (done.error_code, done.base_offset) == (0, 2)
    assert values(await fetch(client)) == [b"new-1", b"new-2", b"new-1", b"new-2"]
    answer = await client.ask(1, version, fetch_request(offset=1))
    records = bytes(answer.responses[0].partitions[0].records)
    assert records[16] == magic and b"new-2" in records


async def _stored(client: Client) -> Any:
    yield bytes((await fetch(client)).records)


async def test_an_empty_message_set_is_answered_as_kafka_does(client: Client) -> None:
    await client.create("t")
    answer = await client.ask(0, 1, produce_request("t", b""))
    done = answer.responses[0].partition_responses[0]
    assert (done.error_code, done.base_offset) == (0, -1)


async def test_an_old_fetch_is_cut_at_its_limit(client: Client) -> None:
    await client.create("t")
    await client.produce("t", [b"x" * 500, b"y" * 500])
    answer = await client.ask(1, 2, fetch_request(partition_max_bytes=100))
    assert len(answer.responses[0].partitions[0].records) == 100
