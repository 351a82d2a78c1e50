"""Receives: leases, waits in a line, the end of locks, limits, attempts."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord
from core.types import TopicPartition as Tp
from core.vocabulary.queues import LATEST, Backoff, Outcome, Receive, Start, Verb
from tests.core.consumers.consumer_world import World
from tests.core.queues.queue_world import T0, Q, all_of, begin, offsets, queue, receive, settings, settle


async def test_records_are_leased_once_and_settled_one_by_one(w: World) -> None:
    await w.topic(records=10)
    await queue(w)
    first = await receive(w, 3)
    assert offsets(first) == [0, 1, 2] and [r.delivery_count for r in first.records] == [1, 1, 1]
    assert first.lock_until_ms == w.clock.wall_ms() + 30_000
    second = await receive(w, 100)
    assert offsets(second) == [3, 4, 5, 6, 7, 8, 9] and second.lease != first.lease
    assert (await receive(w)).records == ()
    assert await settle(w, [first.records[1], second.records[0]]) == [Outcome.SETTLED] * 2
    assert await settle(w, first.records) == [Outcome.SETTLED, Outcome.ALREADY_SETTLED, Outcome.SETTLED]
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.start, stats.in_flight, stats.available) == (4, 6, 0)


async def test_an_expired_lock_delivers_again_within_100_ms(w: World) -> None:
    await w.topic(records=2)
    await queue(w, lock_ms=5_000)
    await receive(w)
    began = w.clock.monotonic()
    again = await receive(w, wait_ms=60_000)
    assert 5.0 <= w.clock.monotonic() - began <= 5.1
    assert offsets(again) == [0, 1] and {r.delivery_count for r in again.records} == {2}


async def test_a_waiting_receiver_is_woken_by_an_append(w: World) -> None:
    await w.topic()
    await queue(w)
    waiting = begin(receive(w, wait_ms=30_000))
    await asyncio.sleep(10)
    began = w.clock.monotonic()
    await w.produce(1)
    assert offsets(await waiting) == [0] and w.clock.monotonic() - began < 0.1


async def test_a_wait_ends_at_its_deadline_with_nothing(w: World) -> None:
    await w.topic()
    await queue(w)
    began = w.clock.monotonic()
    got = await receive(w, wait_ms=2_000)
    assert (got.records, got.lease, got.blocked) == ((), None, None)
    assert 2.0 <= w.clock.monotonic() - began < 2.1


async def test_one_record_wakes_one_of_many_receivers(w: World) -> None:
    await w.topic()
    await queue(w)
    waiting = [begin(receive(w, 1, wait_ms=60_000)) for _ in range(1_000)]
    await asyncio.sleep(1)
    await w.produce(1)
    await asyncio.sleep(0.1)
    done = [task for task in waiting if task.done()]
    assert len(done) == 1 and offsets(done[0].result()) == [0] and done[0] is waiting[0]
    assert w.broker.queues.stats(Q).waiting_receivers == 999
    w.broker.queues.drain()
    assert not any([(await task).records for task in waiting[1:]])


async def test_receivers_share_what_there_is(w: World) -> None:
    await w.topic()
    await queue(w)
    waiting = [begin(receive(w, 100, wait_ms=60_000)) for _ in range(3)]
    await asyncio.sleep(1)
    await w.produce(8)
    got = [offsets(await task) for task in waiting]
    assert got == [[0, 1, 2, 3], [4, 5], [6, 7]]


async def test_a_record_above_max_bytes_comes_alone(w: World) -> None:
    await w.topic()
    values = [b"a" * 10, b"b" * 5_000, b"c" * 10]
    await w.broker.records.produce("t", [NewRecord(value=value) for value in values], partition=0)
    await queue(w)
    got = [offsets(await receive(w, 10, max_bytes=100)) for _ in range(3)]
    assert got == [[0], [1], [2]]


@pytest.mark.parametrize("sizes", [[[10_000]] * 40, [[1_000] * 300, [10] * 5, [70_000], [10]]])
async def test_a_receive_reads_as_far_as_it_may(w: World, sizes: list[list[int]]) -> None:
    """The log is read in pieces: batches that are larger than the first of them, and many small ones."""
    await w.topic()
    for batch in sizes:
        await w.broker.records.produce("t", [NewRecord(value=b"v" * size) for size in batch], partition=0)
    await queue(w)
    count = sum(map(len, sizes))
    assert offsets(await receive(w, 1_000)) == list(range(count))


async def test_nothing_is_said_to_block_but_what_does(w: World) -> None:
    await w.topic(records=5)
    await queue(w, max_in_flight=3)
    assert offsets(await receive(w, 10)) == [0, 1, 2]
    assert (await receive(w)).blocked == "in-flight-limit"
    await w.broker.queues.pause(Q)
    assert (await receive(w)).blocked == "paused"
    waiting = begin(receive(w, wait_ms=60_000))
    await asyncio.sleep(31)
    assert not waiting.done()
    await w.broker.queues.resume(Q)
    assert offsets(await waiting) == [0, 1, 2]


async def test_a_late_accept_counts_unless_another_has_the_record(w: World) -> None:
    await w.topic(records=2)
    await queue(w, lock_ms=1_000)
    got = await receive(w)
    await asyncio.sleep(2)
    assert await settle(w, got.records[:1]) == [Outcome.LATE]
    again = await receive(w)
    assert offsets(again) == [1]
    assert await settle(w, got.records[1:]) == [Outcome.LEASE_LOST]
    assert await settle(w, again.records) == [Outcome.SETTLED]


async def test_a_release_with_a_delay_and_a_back_off(w: World) -> None:
    await w.topic(records=2)
    await queue(w, backoff=Backoff(1_000, 2.0, 60_000))
    got = await receive(w)
    assert await settle(w, got.records[:1], Verb.RELEASE, delay_ms=10_000) == [Outcome.SETTLED]
    assert await settle(w, got.records[1:], Verb.RELEASE) == [Outcome.SETTLED]
    began = w.clock.monotonic()
    assert offsets(await receive(w, wait_ms=60_000)) == [1]
    assert 1.0 <= w.clock.monotonic() - began <= 1.1
    assert offsets(await receive(w, wait_ms=60_000)) == [0]
    assert 10.0 <= w.clock.monotonic() - began <= 10.1


async def test_a_receiver_that_left_costs_no_delivery(w: World) -> None:
    await w.topic(records=1)
    await queue(w)
    got = await receive(w)
    assert got.lease is not None
    await w.broker.queues.take_back(Q, got.lease)
    again = await receive(w)
    assert [(r.record.offset, r.delivery_count) for r in again.records] == [(0, 1)]


async def test_a_receiver_that_is_cancelled_in_the_turn_of_its_record_gives_it_back(w: World) -> None:
    await w.topic()
    await queue(w)
    for turns in range(6):
        waiting = begin(receive(w, wait_ms=30_000))
        await asyncio.sleep(1)
        await w.produce(1)
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        got = await receive(w, wait_ms=1_000)
        assert [(r.record.offset, r.delivery_count) for r in got.records] == [(turns, 1)]
        await settle(w, got.records)


async def test_an_attempt_repeats_its_answer_until_it_is_touched(w: World) -> None:
    await w.topic(records=5)
    await queue(w)
    first = await receive(w, 2, attempt="a")
    for _ in range(2):
        again = await receive(w, 2, attempt="a")
        assert (again.lease, again.records) == (first.lease, first.records)
    with pytest.raises(BrokerError) as refused:
        await receive(w, 3, attempt="a")
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    await w.kill()
    again = await receive(w, 2, attempt="a")
    assert (again.lease, again.records) == (first.lease, first.records)
    assert await settle(w, again.records[:1]) == [Outcome.SETTLED]
    assert offsets(await receive(w, 2, attempt="a")) == [2, 3]


async def test_one_attempt_in_two_calls_at_once_is_one_lease(w: World) -> None:
    await w.topic()
    await queue(w)
    calls = [begin(receive(w, 2, attempt="a", wait_ms=5_000)) for _ in range(3)]
    await asyncio.sleep(1)
    await w.produce(4)
    found = {(got.lease, tuple(offsets(got))) for got in [await call for call in calls]}
    assert len(found) == 1


async def test_partitions_take_turns(w: World) -> None:
    await w.topic(partitions=3, records=4)
    await queue(w)
    got = [[r.tp.partition for r in (await receive(w, 2)).records] for _ in range(3)]
    assert got == [[0, 0], [1, 1], [2, 2]]
    assert len((await receive(w, 100)).records) == 6


async def test_where_a_queue_begins(w: World) -> None:
    await w.topic(records=4)
    await w.commit(2, group="before")
    await asyncio.sleep(1)
    moment = w.clock.wall_ms()
    await w.produce(2)
    await queue(w, name="late", start=Start(LATEST))
    await queue(w, name="timed", start=Start(time_ms=moment))
    await queue(w, name="seeded", start=Start(group="before"))
    await w.produce(1)
    assert await all_of(w, "late") == [6]
    assert await all_of(w, "timed") == [4, 5, 6]
    assert await all_of(w, "seeded") == [2, 3, 4, 5, 6]
    with pytest.raises(BrokerError) as refused:
        await queue(w, name="x", start=Start(group="none"))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_partitions_and_topics_that_come_later_begin_at_0(w: World) -> None:
    await w.topic(records=2)
    await queue(w, "t", "later", start=Start(LATEST))
    await w.broker.topics.create_partitions("t", 2)
    await w.produce(1, partition=1)
    await w.topic("later", records=1)
    got = await receive(w)
    assert {(r.tp, r.record.offset) for r in got.records} == {(Tp("t", 1), 0), (Tp("later", 0), 0)}


async def test_a_pattern_reads_topics_as_they_come(w: World) -> None:
    await w.broker.queues.put(Q, settings(topics=(), pattern="t[0-9]"))
    waiting = begin(receive(w, wait_ms=60_000))
    await asyncio.sleep(1)
    await w.topic("other", records=1)
    await w.topic("t1", records=1)
    got = await waiting
    assert [r.tp.topic for r in got.records] == ["t1"] and w.broker.queues.topics(Q) == ["t1"]


async def test_the_first_receive_creates_the_queue(w: World) -> None:
    await w.topic(records=1)
    with pytest.raises(BrokerError) as refused:
        await receive(w)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    got = await w.broker.queues.receive(Q, Receive(create=settings()))
    assert offsets(got) == [0] and w.broker.queues.names() == [Q]


async def test_what_retention_has_deleted_is_passed_over(w: World) -> None:
    await w.topic(records=10)
    await queue(w)
    got = await receive(w, 4)
    await w.broker.partitions.delete_records([(T0, 6)])
    assert offsets(await receive(w, 10)) == [6, 7, 8, 9]
    assert set(await settle(w, got.records)) == {Outcome.ALREADY_SETTLED}
    assert w.broker.queues.stats(Q).totals["lost_to_retention"] == 6


async def test_peek_leases_and_counts_nothing(w: World) -> None:
    await w.topic(records=3)
    await queue(w)
    await receive(w, 1)
    for _ in range(2):
        seen = await w.broker.queues.peek(Q, 10, 1 << 20)
        assert [(r.record.offset, r.delivery_count) for r in seen] == [(1, 0), (2, 0)]
    assert set(await settle(w, seen)) == {Outcome.INVALID}
