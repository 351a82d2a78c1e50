"""core.broker.records: produce and read for listeners without batches; bounds; durability."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.records.batch import build_batch
from core.records.partitioner import partition_for_key
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.records import FetchedAll

T0 = TopicPartition("t", 0)


async def everything(broker: Broker, tp: TopicPartition = T0) -> list[bytes | None]:
    result = await broker.records.read(tp, 0, max_bytes=10_000_000, max_records=1000)
    return [r.value for r in result.records]


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_each_record_gets_its_result_in_order(broker: Broker, acks: int) -> None:
    await broker.topics.create("t", partitions=3)
    records = [NewRecord(key=b"%d" % i, value=b"v%d" % i, timestamp=5000 + i) for i in range(20)]
    results = await broker.records.produce("t", records, acks=acks)
    assert [r.partition for r in results] == [partition_for_key(b"%d" % i, 3) for i in range(20)]
    assert [r.timestamp for r in results] == [5000 + i for i in range(20)]
    for record, result in zip(records, results, strict=True):
        tp = TopicPartition("t", result.partition)
        got = await broker.records.read(tp, result.offset, max_bytes=1, max_records=1)
        assert (got.records[0].key, got.records[0].value) == (record.key, record.value)
        assert got.next_offset == result.offset + 1


async def test_records_without_a_key_go_together_and_the_partition_rotates(broker: Broker) -> None:
    await broker.topics.create("t", partitions=3)
    seen = []
    for _ in range(6):
        results = await broker.records.produce("t", [NewRecord(value=b"a")] * 5)
        (partition,) = {r.partition for r in results}
        seen.append(partition)
    assert sorted(seen) == [0, 0, 1, 1, 2, 2]


async def test_the_partition_of_the_record_wins_over_that_of_the_call(broker: Broker) -> None:
    await broker.topics.create("t", partitions=3)
    records = [NewRecord(key=b"k", value=b"a", partition=2), NewRecord(key=b"k", value=b"b")]
    assert [r.partition for r in await broker.records.produce("t", records, partition=1)] == [2, 1]


async def test_a_wrong_partition_refuses_its_record_only(broker: Broker) -> None:
    await broker.topics.create("t", partitions=2)
    records = [NewRecord(value=b"a", partition=7), NewRecord(value=b"b", partition=1)]
    bad, good = await broker.records.produce("t", records)
    assert bad.error is not None and bad.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert good.error is None and good.offset == 0
    with pytest.raises(BrokerError) as refused:
        await broker.records.produce("t", records, partition=9)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_records_are_split_into_batches_below_the_limit(broker: Broker) -> None:
    await broker.topics.create("t", configs={"max.message.bytes": "5000"})
    values = [bytes([65 + i]) * 900 for i in range(20)]
    results = await broker.records.produce("t", [NewRecord(value=v) for v in values])
    assert [r.offset for r in results] == list(range(20))
    assert await everything(broker) == values


async def test_a_record_above_the_limit_is_refused_and_its_neighbours_are_not(broker: Broker) -> None:
    await broker.topics.create("t", configs={"max.message.bytes": "5000"})
    sizes = [10, 9000, 20]
    results = await broker.records.produce("t", [NewRecord(value=b"x" * n) for n in sizes])
    codes = [r.error and r.error.code for r in results]
    assert codes == [None, ErrorCode.MESSAGE_TOO_LARGE, None]


async def test_a_record_without_a_key_on_a_compacted_topic_is_named(broker: Broker) -> None:
    await broker.topics.create("t", configs={"cleanup.policy": "compact"})
    good, bad = await broker.records.produce(
        "t", [NewRecord(key=b"k", value=b"a"), NewRecord(value=b"b")], partition=0
    )
    assert bad.error is not None and bad.error.code is ErrorCode.INVALID_RECORD
    assert "key" in bad.error.message
    assert good.error is not None and "another record" in good.error.message.lower()


async def test_a_missing_topic_is_created_once_by_many_writers_or_refused(
    broker: Broker, tmp_path: Path
) -> None:
    results = await asyncio.gather(
        *(broker.records.produce("new", [NewRecord(value=b"a")]) for _ in range(20))
    )
    assert sorted(r[0].offset for r in results) == list(range(20))
    broker.topics._config = replace(broker.config, auto_create_topics=False)
    with pytest.raises(BrokerError) as refused:
        await broker.records.produce("other", [NewRecord(value=b"a")])
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_log_append_time_is_answered_and_stored(broker: Broker, clock: ManualClock) -> None:
    await broker.topics.create("t", configs={"message.timestamp.type": "LogAppendTime"})
    (result,) = await broker.records.produce("t", [NewRecord(value=b"a", timestamp=5)])
    assert result.timestamp == clock.wall_ms()
    (record,) = (await broker.records.read(T0, 0, max_bytes=1000, max_records=1)).records
    assert (record.timestamp, record.timestamp_type) == (clock.wall_ms(), 1)


async def test_the_topic_s_compression_is_applied(broker: Broker) -> None:
    await broker.topics.create("t", configs={"compression.type": "zstd"})
    await broker.records.produce("t", [NewRecord(value=b"z" * 10_000)])
    assert broker.partitions.info(T0).size < 500
    assert await everything(broker) == [b"z" * 10_000]


async def test_acks_all_is_on_disk_when_it_is_answered_and_acks_1_need_not_be(broker: Broker) -> None:
    await broker.topics.create("t")
    log = broker.partitions.log(T0)
    await broker.records.produce("t", [NewRecord(value=b"a")], acks=1)
    assert log.flushed_offset == 0
    await broker.records.produce("t", [NewRecord(value=b"a")], acks=-1)
    assert log.flushed_offset == 2


async def test_flush_messages_makes_even_acks_1_durable(broker: Broker) -> None:
    await broker.topics.create("t", configs={"flush.messages": "1"})
    await broker.records.produce("t", [NewRecord(value=b"a")], acks=1)
    assert broker.partitions.log(T0).flushed_offset == 1


async def test_a_failed_fsync_is_never_acknowledged(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.topics.create("t")

    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("core.log.files.sync", fail)
    (result,) = await broker.records.produce("t", [NewRecord(value=b"a")])
    assert result.error is not None and result.error.code is ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    (result,) = await broker.records.produce("t", [NewRecord(value=b"b")])
    assert result.error is not None and result.error.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_read_stops_at_its_limit_and_continues_from_there(broker: Broker) -> None:
    await broker.topics.create("t")
    for start in (0, 7):
        await broker.records.produce("t", [NewRecord(value=b"%d" % i) for i in range(start, start + 7)])
    seen: list[bytes | None] = []
    offset = 0
    while True:
        result = await broker.records.read(T0, offset, max_bytes=100_000, max_records=3)
        assert len(result.records) <= 3
        if not result.records:
            break
        seen += [r.value for r in result.records]
        offset = result.next_offset
    assert seen == [b"%d" % i for i in range(14)] and offset == 14


async def test_a_batch_with_garbage_inside_is_named_and_can_be_passed(broker: Broker) -> None:
    await broker.topics.create("t")
    await broker.records.produce("t", [NewRecord(value=b"before")])
    import crc32c

    batch = build_batch([NewRecord(value=b"x" * 50)], now_ms=broker.clock.wall_ms())
    batch[61:70] = b"\xff" * 9
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    broker.partitions.append(T0, memoryview(batch))
    await broker.records.produce("t", [NewRecord(value=b"after")])
    first = await broker.records.read(T0, 0, max_bytes=100_000, max_records=10)
    assert [r.value for r in first.records] == [b"before"] and first.next_offset == 1
    with pytest.raises(BrokerError) as refused:
        await broker.records.read(T0, 1, max_bytes=100_000, max_records=10)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE and refused.value.details["next_offset"] == 2
    rest = await broker.records.read(T0, 2, max_bytes=100_000, max_records=10)
    assert [r.value for r in rest.records] == [b"after"]


@pytest.mark.parametrize("offset", [-1, 3])
async def test_a_read_out_of_range_tells_the_bounds(broker: Broker, offset: int) -> None:
    await broker.topics.create("t")
    await broker.records.produce("t", [NewRecord(value=b"a")] * 2)
    with pytest.raises(BrokerError) as refused:
        await broker.records.read(T0, offset, max_bytes=1000, max_records=1)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refused.value.details["log_start_offset"] == 0 and refused.value.details["high_watermark"] == 2


async def test_a_poll_whose_caller_ends_leaves_nothing(broker: Broker) -> None:
    await broker.topics.create("t")
    poll = asyncio.create_task(broker.records.read(T0, 0, max_bytes=1000, max_records=1, wait_ms=60_000))
    await asyncio.sleep(0.01)
    assert len(broker.purgatory) == 1
    poll.cancel()
    await asyncio.sleep(0.01)
    assert len(broker.purgatory) == 0


async def test_deleted_records_stay_deleted_after_a_crash(tmp_path: Path, clock: ManualClock) -> None:
    first = Broker(Config(data_dir=tmp_path), clock)
    await first.open()
    await first.topics.create("t")
    await first.records.produce("t", [NewRecord(value=b"%d" % i) for i in range(5)])
    assert await first.partitions.delete_records([(T0, 3)]) == [3]
    # No close: the second broker finds what a killed one leaves.
    second = Broker(Config(data_dir=tmp_path), clock)
    await second.open()
    assert second.partitions.info(T0).offsets.log_start_offset == 3
    assert second.partitions.info(T0).offsets.log_end_offset == 5
    await second.close()
    await first.close()


async def test_a_batch_that_the_disk_has_changed_is_not_served_as_records(broker: Broker) -> None:
    await broker.topics.create("t")
    await broker.records.produce("t", [NewRecord(value=b"a" * 100)])
    (segment,) = (broker.config.data_dir / "t-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[-5] ^= 1
    segment.write_bytes(data)
    with pytest.raises(BrokerError) as refused:
        await broker.records.read(T0, 0, max_bytes=1000, max_records=1)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


async def test_a_poll_that_waits_begins_with_the_read_that_found_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.topics.create("t", partitions=1)
    await broker.topics.create("u", partitions=1)
    reads = 0
    real = broker.partitions.fetch_now

    def counted(*args: Any, **named: Any) -> FetchedAll:
        nonlocal reads
        reads += 1
        return real(*args, **named)

    monkeypatch.setattr(broker.partitions, "fetch_now", counted)
    first = broker.records.read_now(T0, 0, max_bytes=1000, max_records=10)
    await broker.records.produce("u", [NewRecord(value=b"of another topic")])
    waiting = asyncio.ensure_future(
        broker.records.read(T0, 0, max_bytes=1000, max_records=10, wait_ms=60_000, first=first)
    )
    await asyncio.sleep(0)
    assert len(broker.purgatory) == 1 and reads == 1
    await broker.records.produce("t", [NewRecord(value=b"a")])
    result = await waiting
    assert [record.value for record in result.records] == [b"a"] and reads == 2


@pytest.mark.parametrize("deleted", [False, True])
async def test_what_happens_between_the_first_read_and_the_wait_is_not_missed(
    broker: Broker, deleted: bool
) -> None:
    await broker.topics.create("t", partitions=1)
    first = broker.records.read_now(T0, 0, max_bytes=1000, max_records=10)
    if deleted:
        await broker.topics.delete("t")
    else:
        await broker.records.produce("t", [NewRecord(value=b"a")])
    reading = broker.records.read(T0, 0, max_bytes=1000, max_records=10, wait_ms=60_000, first=first)
    async with asyncio.timeout(60):
        if deleted:
            with pytest.raises(BrokerError):
                await reading
        else:
            assert [record.value for record in (await reading).records] == [b"a"]
