"""core.consumers.reading: where consumers begin, sweeps, the same batch once more."""

from __future__ import annotations

import crc32c
import pytest

from core.broker.broker import Broker
from core.consumers.consumer import Consumer
from core.consumers.reading import Found, Reading, size_of
from core.errors import BrokerError, ErrorCode
from core.records.batch import build_batch
from core.records.record import NewRecord, Record
from core.types import TopicPartition as Tp
from core.vocabulary.consumers import ConsumerOptions, Range, Seek, Subscription
from core.vocabulary.groups import Commit, CommitRequest
from tests.core.consumers.consumer_world import detached
from tests.core.transactional_log import TransactionalLog

P0, P1 = Tp("t", 0), Tp("t", 1)


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    await broker.topics.create("t", partitions=2)
    return broker


@pytest.fixture
def reading(broker: Broker) -> Reading:
    return Reading(broker, broker.groups)


def consumer(*assigned: Tp, start: str | int = "earliest", level: str = "read_committed") -> Consumer:
    options = ConsumerOptions(start=start, isolation_level=level)
    made = Consumer("g", "c", "abcd", Subscription(("t",)), options, 0, detached)
    made.assigned = assigned or (P0,)
    return made


async def fill(broker: Broker, count: int, partition: int = 0, size: int = 10) -> None:
    records = [NewRecord(value=b"x" * size, timestamp=1000 * i) for i in range(count)]
    await broker.records.produce("t", records, partition=partition, acks=1)


def found(result: Found) -> dict[int, list[int]]:
    return {address.partition: [r.offset for r in records] for address, records in result.records}


@pytest.mark.parametrize(
    ("start", "position"), [("earliest", 1), ("latest", 5), (3000, 3), (9_999_999, 5), ("none", None)]
)
async def test_without_a_commit_the_start_decides(
    broker: Broker, reading: Reading, start: str | int, position: int | None
) -> None:
    await fill(broker, 5)
    await broker.partitions.delete_records([(P0, 1)])

    def begins(tp: Tp) -> int | None:
        made = consumer(start=start)
        reading.begin(made, [tp])
        return made.positions.get(tp)

    assert begins(P0) == position
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, 2)]))
    assert begins(P0) == 2
    assert begins(Tp("t", 9)) is None


async def test_without_a_position_and_a_start_the_reader_is_told(broker: Broker, reading: Reading) -> None:
    await fill(broker, 5)
    lost = consumer(start="none")
    assert reading.ready(lost, 1)
    with pytest.raises(BrokerError) as refused:
        reading.sweep(lost, 10, 1000)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (refused.value.details["topic"], refused.value.details["high_watermark"]) == ("t", 5)


@pytest.mark.parametrize(("start", "after"), [("earliest", [3, 4]), ("latest", [3, 4]), ("none", None)])
async def test_what_retention_has_taken_is_passed_over_unless_the_start_is_none(
    broker: Broker, reading: Reading, start: str, after: list[int] | None
) -> None:
    await fill(broker, 5)
    behind = consumer(start=start)
    behind.move(P0, 1)
    await broker.partitions.delete_records([(P0, 3)])
    if after is None:
        with pytest.raises(BrokerError):
            reading.sweep(behind, 10, 1000)
    else:
        assert found(reading.sweep(behind, 10, 1000)) == {0: after}


@pytest.mark.parametrize(("start", "position"), [("earliest", 0), ("latest", 5), (2000, 2)])
async def test_a_position_beyond_the_end_is_replaced_by_the_start(
    broker: Broker, reading: Reading, start: str | int, position: int
) -> None:
    await fill(broker, 5)
    ahead = consumer(start=start)
    ahead.move(P0, 77)
    reading.ready(ahead, 1)
    assert ahead.positions[P0] == position


@pytest.mark.parametrize(("committed", "position"), [(3, 3), (9, 0)])
async def test_a_position_beyond_the_end_returns_to_what_is_committed_if_that_is_still_there(
    broker: Broker, reading: Reading, committed: int, position: int
) -> None:
    await fill(broker, 5)
    await broker.groups.commit("g", CommitRequest([Commit("t", 0, committed)]))
    ahead = consumer(start="earliest")
    ahead.move(P0, 77)
    reading.ready(ahead, 1)
    assert ahead.positions[P0] == position


async def test_what_is_no_more_at_the_end_of_a_log_is_not_outstanding(
    broker: Broker, reading: Reading
) -> None:
    await fill(broker, 5)
    one = consumer()
    one.give([Range("t", 0, 3, 9), Range("t", 1, 0, 2)], advancing=False)
    reading.trim(one)
    assert list(one.outstanding.values()) == [Range("t", 0, 3, 5)]


async def test_a_sweep_visits_all_and_a_batch_is_cut_by_count_and_by_bytes(
    broker: Broker, reading: Reading
) -> None:
    for partition in (0, 1):
        await fill(broker, 4, partition)
    one = consumer(P0, P1)
    assert found(reading.sweep(one, 6, 10_000)) == {0: [0, 1, 2, 3], 1: [0, 1]}
    # Positions do not move with a sweep; the next one begins after partition 1.
    assert found(reading.sweep(one, 6, 10_000)) == {0: [0, 1, 2, 3], 1: [0, 1]}
    size = size_of(Record(0, 0, 0, None, b"x" * 10))
    swept = reading.sweep(one, 100, 2 * size)
    assert found(swept) == {0: [0, 1]} and swept.ranges == (Range("t", 0, 0, 2),)
    assert found(reading.sweep(one, 100, 2 * size + 1)) == {1: [0, 1]}
    assert found(reading.sweep(one, 100, 1)) == {0: [0]}


async def test_paused_partitions_are_left_out(broker: Broker, reading: Reading) -> None:
    for partition in (0, 1):
        await fill(broker, 1, partition)
    one = consumer(P0, P1)
    one.paused = {P0}
    assert found(reading.sweep(one, 9, 1000)) == {1: [0]}
    one.paused_all = True
    assert not reading.ready(one, 1) and found(reading.sweep(one, 9, 1000)) == {}


async def test_ready_counts_bytes_over_all_partitions(broker: Broker, reading: Reading) -> None:
    one = consumer(P0, P1)
    assert not reading.ready(one, 1)
    for partition in (0, 1):
        await fill(broker, 1, partition, size=500)
    assert reading.ready(one, 1) and reading.ready(one, 1000) and not reading.ready(one, 2000)


async def test_a_damaged_batch_is_told_when_nothing_else_can_be_read(
    broker: Broker, reading: Reading
) -> None:
    batch = build_batch([NewRecord(value=b"x" * 50)], now_ms=0)
    batch[61:70] = b"\xff" * 9
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    broker.partitions.append(P0, memoryview(batch))
    await fill(broker, 1, 0)
    await fill(broker, 1, 1)
    one = consumer(P0, P1)
    assert found(reading.sweep(one, 9, 1000)) == {1: [0]}
    one.move(P1, 1)
    with pytest.raises(BrokerError) as refused:
        reading.sweep(one, 9, 1000)
    details = refused.value.details
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (details["topic"], details["partition"], details["next_offset"]) == ("t", 0, 1)
    one.move(P0, 1)
    assert found(reading.sweep(one, 9, 1000)) == {0: [1]}


async def test_again_gives_the_same_records_over_many_reads_without_deleted_ones(
    broker: Broker, reading: Reading
) -> None:
    for _ in range(5):
        await fill(broker, 4)
    one = consumer(P0, P1)
    one.give([Range("t", 0, 2, 18), Range("t", 1, 0, 5)], advancing=False)
    again = [(address, [r.offset for r in records]) for address, records in await reading.again(one)]
    assert again == [(P0, list(range(2, 18)))]
    await broker.partitions.delete_records([(P0, 10)])
    assert [r.offset for _, records in await reading.again(one) for r in records] == list(range(10, 18))
    await broker.topics.delete("t")
    assert await reading.again(one) == []


async def test_offsets_without_records_are_passed_over(broker: Broker, reading: Reading) -> None:
    await broker.topics.create("c", configs={"cleanup.policy": "compact"})
    one = consumer(Tp("c", 0))
    one.move(Tp("c", 0), 0)
    log = broker.partitions.log(Tp("c", 0))
    batch = build_batch([NewRecord(key=b"k", value=b"v")], now_ms=0)
    batch[21:23] = (0b11_0000).to_bytes(2, "big")  # transactional and control
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    from core.records.batch import read_header

    log.append(memoryview(batch), [read_header(bytes(batch))], leader_epoch=0)
    assert reading.ready(one, 1) and found(reading.sweep(one, 9, 1000)) == {}
    assert one.positions[Tp("c", 0)] == 1 and not reading.ready(one, 1)


# --- transactions -------------------------------------------------------------------------------------------


async def test_a_long_run_of_aborted_records_is_passed_in_several_sweeps(
    broker: Broker, reading: Reading
) -> None:
    log = TransactionalLog(broker, P0)
    for i in range(20):
        log.write(1, f"aborted {i}")
        log.end(1, commit=False)
    log.write(0, "here")
    made = consumer()
    made.move(P0, 0)
    sweeps = 0
    while not (result := reading.sweep(made, 10, 1)).records:
        assert result.more and reading.ready(made, 1)
        sweeps += 1
    assert (sweeps, found(result)) == (5, {0: [40]})
    assert result.ranges == (Range("t", 0, 40, 41),)


async def test_a_position_may_rest_after_hidden_records(broker: Broker, reading: Reading) -> None:
    log = TransactionalLog(broker, P0)
    log.write(1, "aborted")
    log.end(1, commit=False)
    log.write(1, "open")
    made = consumer()
    made.move(P0, 0)
    assert reading.sweep(made, 10, 1000) == Found([], ())
    assert (made.positions[P0], reading.ready(made, 1)) == (2, False)
    # A committed offset beyond the last stable offset stays: another consumer was read_uncommitted.
    made.move(P0, 3)
    assert (reading.sweep(made, 10, 1000).records, made.positions[P0]) == ([], 3)


@pytest.mark.parametrize(("level", "begins", "last"), [("read_committed", 1, 1), ("read_uncommitted", 2, 2)])
async def test_latest_and_times_end_where_the_consumer_reads_to(
    broker: Broker, reading: Reading, level: str, begins: int, last: int
) -> None:
    log = TransactionalLog(broker, P0)
    log.write(0, "plain")
    log.write(1, "open")
    made = consumer(start="latest", level=level)
    reading.begin(made, [P0])
    assert made.positions[P0] == begins
    assert reading.target(made, P0, Seek("t", 0, "latest")) == last
    assert reading.target(made, P0, Seek("t", 0, time_ms=9_999_999)) == last
