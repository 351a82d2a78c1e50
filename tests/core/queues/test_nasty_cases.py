"""Queues in the cases in which queues over a log lose records or repeat them, at the service and in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.groups.hosted import offers
from core.queues import writes
from core.queues.leasing import MAX_WAITERS
from core.queues.share_partition import SharePartition
from core.records.record import NewRecord
from core.vocabulary.consumer_groups import ConsumerHeartbeat
from core.vocabulary.groups import Commit, CommitRequest, JoinRequest
from core.vocabulary.queues import (
    EARLIEST,
    LATEST,
    DeadLetter,
    Leased,
    Order,
    Outcome,
    Receive,
    Settle,
    Start,
    Verb,
)
from core.vocabulary.settlements import OffsetToSettle, RefusedError
from tests.core.consumers.consumer_world import World
from tests.core.queues.queue_world import T0, Q, all_of, begin, offsets, queue, receive, settle
from tests.core.transactional_log import TransactionalLog

Delivered = list[tuple[int, int]]


def counted(records: tuple[Leased, ...] | Any) -> Delivered:
    """(offset, delivery count) of each record."""
    return [(one.record.offset, one.delivery_count) for one in records]


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


async def one_batch(w: World, *records: tuple[str | None, str | None]) -> None:
    """Append records of these keys and values to partition 0 of topic t as one batch."""
    new = [NewRecord(encoded(key), encoded(value)) for key, value in records]
    await w.broker.records.produce("t", new, partition=0, acks=1)


# --- compaction (case 12) -------------------------------------------------------------------------------------------


@pytest.mark.settings(compaction_interval_ms=1_000, checkpoint_interval_ms=1_000)
async def test_compaction_takes_a_whole_batch_and_single_offsets_out_of_leases(w: World) -> None:
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    await w.broker.topics.create("t", configs=configs)
    for keys in ("ab", "cd", "ce", "ab"):
        await one_batch(w, *((key, key) for key in keys))
    w.broker.partitions.log(T0).roll()
    await one_batch(w, ("z", "z"))
    await queue(w)
    got = await receive(w, 3, attempt="again")
    delayed = await receive(w, 3)
    assert (offsets(got), offsets(delayed)) == ([0, 1, 2], [3, 4, 5])
    await settle(w, delayed.records, Verb.RELEASE, delay_ms=60_000)
    # Offsets 0, 1 and 2 have newer records of their keys: a whole batch, and the half of the next one.
    await asyncio.sleep(20)
    left = await w.broker.records.read(T0, 0, max_bytes=1 << 20, max_records=100)
    assert [record.offset for record in left.records][:3] == [3, 4, 5]
    # A receive that is repeated has what is there. An accept of what is not there is an accept.
    assert offsets(await receive(w, 3, attempt="again")) == []
    assert await settle(w, got.records[:1]) == [Outcome.SETTLED]
    assert counted((await receive(w, 100)).records) == [(6, 1), (7, 1), (8, 1)]
    await w.kill()
    for expected in ([(6, 2), (7, 2), (8, 2)], [(3, 2), (4, 2), (5, 2)]):
        again = await receive(w, 100, wait_ms=60_000)
        assert counted(again.records) == expected
        await settle(w, again.records)
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.start, stats.available, stats.in_flight, stats.delayed) == (9, 0, 0, 0)


# --- topics (case 13) -----------------------------------------------------------------------------------------------


async def test_a_topic_made_again_while_a_receiver_waits_and_an_accept_is_on_its_way(w: World) -> None:
    await w.topic(records=4)
    await queue(w, start=Start(LATEST))
    await w.produce(2)
    got = await receive(w, 1)
    accepting = begin(settle(w, got.records))
    await w.broker.topics.delete("t")
    assert set(await accepting) <= {Outcome.SETTLED, Outcome.GONE}
    waiting = begin(receive(w, 10, wait_ms=60_000))
    await asyncio.sleep(1)
    # Its records have the offsets of those that were accepted, and are new to the queue: it begins at 0.
    await w.topic(records=3)
    assert counted((await waiting).records) == [(0, 1), (1, 1), (2, 1)]
    assert await settle(w, got.records) == [Outcome.GONE]
    await w.kill()
    assert await settle(w, got.records) == [Outcome.GONE]
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.start, stats.in_flight) == (0, 3)


@pytest.mark.parametrize("killed", [False, True])
async def test_partitions_that_are_added_begin_at_0_and_none_is_missed(w: World, killed: bool) -> None:
    await w.topic(records=2)
    await queue(w, start=Start(LATEST))
    waiting = begin(receive(w, 1, wait_ms=60_000))
    await asyncio.sleep(1)
    await w.broker.topics.create_partitions("t", 4)
    # Written before the queue has looked at the new partitions, and while a receiver waits.
    for partition in range(4):
        await w.produce(2, partition=partition)
    got = list((await waiting).records)
    if killed:
        await w.kill()
    got += (await receive(w, 100)).records
    found = {(one.tp.partition, one.record.offset) for one in got}
    assert found == {(0, 2), (0, 3), *((p, offset) for p in (1, 2, 3) for offset in (0, 1))}
    assert {one.delivery_count for one in got} == {1}


# --- records (case 17) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [Order.NONE, Order.KEY])
async def test_tombstones_and_records_without_a_key_or_above_max_bytes_are_records(
    w: World, order: Order
) -> None:
    await w.topic()
    pairs = [("k", None), (None, "value"), (None, None), ("", ""), ("large", "x" * 5_000), (None, "last")]
    await one_batch(w, *pairs)
    await queue(w, order=order)
    found: list[Leased] = []
    sizes = []
    while (got := await receive(w, 10, max_bytes=100)).records:
        found += got.records
        sizes.append(len(got.records))
        assert set(await settle(w, got.records)) == {Outcome.SETTLED}
    assert [(one.record.key, one.record.value) for one in found] == [
        (encoded(key), encoded(value)) for key, value in pairs
    ]
    # The record that is larger than the limit comes alone.
    assert sizes[-2:] == [1, 1] and sum(sizes) == 6
    assert w.broker.queues.stats(Q).partitions[0].start == 6


async def test_a_batch_that_cannot_be_read_is_a_pointer_in_the_dead_letters(w: World) -> None:
    await w.topic()
    await one_batch(w, ("a", "1"), ("a", "2"))
    await one_batch(w, ("a", "3"))
    path = w.broker.config.data_dir / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[w.broker.partitions.log(T0).size // 2] ^= 0xFF
    path.write_bytes(data)
    await queue(w, dead_letter=DeadLetter("dead"))
    assert await all_of(w) == [2]
    while w.broker.queues.stats(Q).partitions[0].archiving:
        await asyncio.sleep(0.1)
    letters = (await w.broker.queues.dead_letters.list(Q)).records
    assert [(one.offset, one.pointer, one.record.value) for one in letters] == [
        (0, True, None),
        (1, True, None),
    ]


# --- order by key (case 20) -----------------------------------------------------------------------------------------


async def test_two_keys_with_one_hash_wait_for_each_other_and_none_is_forgotten(w: World) -> None:
    await w.topic()
    w.broker.queues._registry.keyed._hash = lambda key: 7
    await one_batch(w, ("a", "1"), ("b", "2"), ("a", "3"), (None, "4"))
    await queue(w, order=Order.KEY)
    for expected in ([0, 3], [1], [2], []):
        got = await receive(w, 10)
        assert offsets(got) == expected
        await settle(w, got.records)


async def test_a_delay_that_is_longer_than_the_retention_does_not_keep_its_key_blocked(w: World) -> None:
    await w.topic()
    await one_batch(w, ("a", "1"), ("a", "2"), ("b", "3"))
    await queue(w, order=Order.KEY)
    await settle(w, (await receive(w, 1)).records, Verb.RELEASE, delay_ms=3_600_000)
    assert offsets(await receive(w, 10)) == [2]
    assert (await receive(w, 10)).blocked == "key-order"
    await w.broker.partitions.delete_records([(T0, 1)])
    assert counted((await receive(w, 10)).records) == [(1, 1)]


# --- types of groups (case 25) --------------------------------------------------------------------------------------


async def test_the_id_of_a_queue_without_members_is_of_no_other_type(w: World) -> None:
    await w.topic(records=1)
    groups = w.broker.groups

    async def beat(group: str, epoch: int = 0) -> ErrorCode:
        fields = ConsumerHeartbeat("m", epoch, topics=["t"], rebalance_timeout_ms=60_000, owned={})
        return (await groups.consumer_heartbeat(group, fields)).error

    assert await beat("members") is ErrorCode.NONE
    with pytest.raises(BrokerError) as refused:
        await queue(w, name="members")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    await queue(w)
    await receive(w)
    assert await beat(Q) is ErrorCode.GROUP_ID_NOT_FOUND
    joined = await groups.join(Q, JoinRequest("", "consumer", offers(["t"]), 30_000, 30_000))
    assert joined.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    with pytest.raises(BrokerError) as refused:
        await groups.lines.join(Q, "t", "m")
    assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert await groups.commit(Q, CommitRequest([Commit("t", 0, 1)])) == [ErrorCode.GROUP_ID_NOT_FOUND]
    with pytest.raises(RefusedError) as faults:
        groups.settle_offsets([OffsetToSettle(Q, "t", 0, 1)])
    assert [one.error.code for one in faults.value.faults] == [ErrorCode.GROUP_ID_NOT_FOUND]
    await w.kill()
    groups = w.broker.groups
    assert w.broker.queues.names() == [Q] and await beat(Q) is ErrorCode.GROUP_ID_NOT_FOUND
    await w.broker.queues.delete(Q, force=True)
    assert await beat(Q) is ErrorCode.NONE


# --- receivers (case 24) --------------------------------------------------------------------------------------------


async def test_of_ten_thousand_receivers_one_gets_the_record_and_one_more_is_refused(w: World) -> None:
    await w.topic()
    await queue(w)
    waiting = [begin(receive(w, 1, wait_ms=60_000)) for _ in range(MAX_WAITERS)]
    await asyncio.sleep(1)
    assert (MAX_WAITERS, w.broker.queues.stats(Q).waiting_receivers) == (10_000, 10_000)
    with pytest.raises(BrokerError) as refused:
        await receive(w, 1, wait_ms=60_000)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # They are one wait of the broker, and without a wait a receive is answered.
    assert len(w.broker.purgatory) == 1
    assert (await receive(w, 1)).records == ()
    await w.produce(1)
    await asyncio.sleep(0.1)
    served = [task for task in waiting if task.done()]
    assert [offsets(task.result()) for task in served] == [[0]]
    assert served == waiting[:1]
    assert await settle(w, served[0].result().records) == [Outcome.SETTLED]
    # The others are answered at the end of their time, and nothing of them is left.
    rest = await asyncio.gather(*waiting[1:])
    assert not any(got.records for got in rest)
    assert w.broker.queues.stats(Q).waiting_receivers == 0
    await asyncio.sleep(31)
    assert len(w.broker.purgatory) == 0


# --- transactions (case 28) -----------------------------------------------------------------------------------------


async def test_aborted_ranges_are_passed_and_an_open_transaction_at_the_end_is_waited_for(w: World) -> None:
    await w.topic()
    log = TransactionalLog(w.broker, T0)
    log.write(0, "first")
    for number in range(40):
        log.write(1, *(f"aborted {number}" for _ in range(60)))
        log.end(1, commit=False)
    log.write(0, "second")
    log.write(2, "open")
    await queue(w)
    found = []
    while (got := await receive(w, 10, wait_ms=1_000)).records:
        found += [one.record.value for one in got.records]
        await settle(w, got.records)
    assert found == [b"first", b"second"]
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.start, stats.available) == (log.end_offset - 1, 0)
    waiting = begin(receive(w, 10, wait_ms=60_000))
    log.write(0, "after")
    await asyncio.sleep(1)
    # What is at or above the last stable offset is not delivered, also if it is in no transaction.
    assert not waiting.done()
    log.end(2, commit=False)
    got = await waiting
    assert [one.record.value for one in got.records] == [b"after"]
    await settle(w, got.records)
    # The marker at the end is settled by the next look, and is nothing that is left to deliver.
    assert (await receive(w, 10)).records == ()
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.start, stats.available, stats.in_flight) == (log.end_offset, 0, 0)


@pytest.mark.parametrize("order", [Order.NONE, Order.KEY])
async def test_aborted_records_are_delivered_to_those_that_want_uncommitted_ones_and_markers_never(
    w: World, order: Order
) -> None:
    await w.topic()
    log = TransactionalLog(w.broker, T0)
    log.write(1, "a", "b")
    await queue(w, order=order, read_committed=False, lock_ms=1_000)
    got = await receive(w, 10)
    assert [one.record.value for one in got.records] == [b"a", b"b"]
    log.end(1, commit=False)
    again = await receive(w, 10, wait_ms=10_000)
    assert counted(again.records) == [(0, 2), (1, 2)]
    assert await settle(w, again.records) == [Outcome.SETTLED] * 2
    assert (await receive(w, 10)).records == ()
    assert w.broker.queues.stats(Q).partitions[0].start == 3


# --- delays (case 29) -----------------------------------------------------------------------------------------------


async def test_a_hundred_thousand_delays_that_end_together_are_taken_in_pieces(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic()
    many = 100_000
    for start in range(0, many, 5_000):
        new = [NewRecord(None, b"%d" % (start + n)) for n in range(5_000)]
        await w.broker.records.produce("t", new, partition=0, acks=1)
    await queue(w, max_in_flight=many, lock_ms=600_000)
    leases = [(await receive(w, 1_000, max_bytes=1 << 24)).lease for _ in range(many // 1_000)]
    assert (await receive(w, 1)).blocked is None
    items = [Settle(Verb.RELEASE, lease=lease, delay_ms=60_000) for lease in leases]
    assert sum(one.records for one in await w.broker.queues.settle(Q, items)) == many
    assert w.broker.queues.stats(Q).partitions[0].delayed == many
    pieces, most = 0, 0
    expire = SharePartition.expire

    def one_piece(self: SharePartition, *args: Any, **more: Any) -> Any:
        nonlocal pieces
        pieces += 1
        return expire(self, *args, **more)

    monkeypatch.setattr(SharePartition, "expire", one_piece)
    await asyncio.sleep(1)
    waiting = [begin(receive(w, 1, wait_ms=60_000)) for _ in range(100)]
    while not all(one.done() for one in waiting) or w.broker.queues.stats(Q).partitions[0].delayed:
        before = pieces
        await asyncio.sleep(0 if pieces else 0.01)
        most = max(most, pieces - before)
    # A turn of the loop takes back a few pieces of 65,536 records at most: others run in between.
    assert pieces >= 2 and most <= 5
    got = [await one for one in waiting]
    assert {len(one.records) for one in got} == {1}
    assert {one.records[0].delivery_count for one in got} == {2}
    assert len({offsets(one)[0] for one in got}) == 100
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.available, stats.in_flight, stats.delayed) == (many - 100, 100, 0)


@pytest.mark.parametrize(("delay_ms", "seconds"), [(0, 0.0), (1, 0.05), (7 * 86_400_000, 7 * 86_400.0)])
async def test_a_delay_of_0_of_1_ms_and_of_7_days(w: World, delay_ms: int, seconds: float) -> None:
    await w.topic(records=1)
    await queue(w)
    await settle(w, (await receive(w)).records, Verb.RELEASE, delay_ms=delay_ms)
    w.clock.wall_shift_ms = 3_600_000
    assert bool((await receive(w)).records) == (delay_ms == 0)
    if seconds > 1:
        (held,) = w.broker.queues.in_flight(Q)
        assert held.state == "delayed"
    elif seconds:
        assert counted((await receive(w, wait_ms=1_000)).records) == [(0, 2)]


# --- pauses, seeks, folds (case 30) ---------------------------------------------------------------------------------


async def test_a_pause_in_the_turn_of_a_record_delivers_it_once_or_later(w: World) -> None:
    await w.topic()
    await queue(w)
    for turns in range(8):
        waiting = begin(receive(w, wait_ms=30_000))
        await asyncio.sleep(1)
        writing = begin(w.produce(1))
        for _ in range(turns):
            await asyncio.sleep(0)
        await w.broker.queues.pause(Q)
        await writing
        await asyncio.sleep(1)
        served = waiting.done()
        assert (await receive(w)).blocked == "paused"
        assert w.broker.queues.stats(Q).partitions[0].in_flight == served
        await w.broker.queues.resume(Q)
        got = await waiting
        assert counted(got.records) == [(turns, 1)]
        assert await settle(w, got.records) == [Outcome.SETTLED]


async def test_a_seek_while_receives_wait_and_are_on_their_way(w: World) -> None:
    await w.topic(records=6)
    await queue(w)
    for turns in range(8):
        receiving = [begin(receive(w, 2)) for _ in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await w.broker.queues.seek(Q, Start(EARLIEST), force=True)
        before = [await one for one in receiving]
        again = await receive(w, 6)
        # All are there. What was leased before the seek is no lease now; a record has one holder.
        held = [offset for got in before for offset in offsets(got)]
        settled = [outcome for got in before for outcome in await settle(w, got.records)]
        live = [offset for offset, one in zip(held, settled, strict=True) if one is Outcome.SETTLED]
        assert set(settled) <= {Outcome.SETTLED, Outcome.GONE}
        assert sorted(live + offsets(again)) == [0, 1, 2, 3, 4, 5]
        assert {one.delivery_count for one in again.records} == {1}
        await settle(w, again.records)
        assert await all_of(w) == []
        waiting = begin(receive(w, 6, wait_ms=30_000))
        await asyncio.sleep(1)
        await w.broker.queues.seek(Q, Start(EARLIEST), force=True)
        assert counted((await waiting).records) == [(n, 1) for n in range(6)]
        await w.broker.queues.seek(Q, Start(EARLIEST), force=True)


async def test_receives_and_settlements_while_rows_are_folded(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "FOLD_ROWS", 2)
    await w.topic(records=120)
    await queue(w, max_in_flight=1_000)
    accepted: set[int] = set()

    async def work(number: int) -> None:
        for step in range(10):
            got = await w.broker.queues.receive(Q, Receive(1 + (number + step) % 3))
            await settle(w, got.records[1:], Verb.RELEASE, delay_ms=step * 100)
            assert not accepted & set(offsets(got.records[:1]))
            await settle(w, got.records[:1])
            accepted.update(offsets(got.records[:1]))

    await asyncio.gather(*(work(number) for number in range(5)))
    rows = await w.broker.store.read(
        lambda c: c.exec_driver_sql("SELECT count(*), max(seq) FROM share_updates").first()
    )
    assert rows[1] > 50 > rows[0]
    before = w.broker.queues.in_flight(Q, limit=1_000)
    await w.kill()
    await receive(w, 0)
    assert w.broker.queues.in_flight(Q, limit=1_000) == before
    await asyncio.sleep(2)
    assert sorted([*accepted, *await all_of(w)]) == list(range(120))
