"""Queues when the store refuses, when calls are cancelled, and when two things happen at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.idempotency.keys import IdempotencyKeys
from core.metadata.store import Store
from core.queues import reading
from core.queues.cells import Cells
from core.queues.dead_letters import DeadLetterWriter
from core.queues.share import LEASE_BLOCK
from core.queues.share_changes import VOLATILE
from core.vocabulary.queues import AcknowledgeBatch, DeadLetter, Order, Outcome, Redrive, Settle, Start, Verb
from core.vocabulary.share_groups import JOINING, ShareHeartbeat
from tests.core.consumers.consumer_world import World
from tests.core.queues.queue_world import (
    T0,
    Q,
    all_of,
    begin,
    offsets,
    queue,
    receive,
    settle,
)
from tests.core.queues.test_dead_letters import records, rejected, sources
from tests.core.queues.test_settling import refuse_writes
from tests.core.transactional_log import TransactionalLog

DEAD = DeadLetter("dead")


async def rows(w: World) -> int:
    """How many rows there are of partitions and their changes."""
    found: int = await w.broker.store.read(
        lambda c: c.exec_driver_sql(
            "SELECT (SELECT count(*) FROM share_updates) + (SELECT count(*) FROM share_partitions)"
        ).scalar_one()
    )
    return found


def slow_writes(monkeypatch: pytest.MonkeyPatch, seconds: float = 1.0) -> None:
    """Let each write take some time before it is said to be durable."""
    original = Store._put

    def put(store: Store, effects: Any, read: Any, local: bool = False) -> Any:
        done = original(store, effects, read, local)

        async def late() -> Any:
            await asyncio.sleep(seconds)
            return await done

        return asyncio.ensure_future(late()) if effects else done

    monkeypatch.setattr(Store, "_put", put)


# --- a store that refuses ----------------------------------------------------------------------------------


async def test_a_cut_that_the_store_refused_is_made_when_it_is_tried_again(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=5)
    await queue(w)
    await settle(w, (await receive(w, 5)).records)
    with monkeypatch.context() as patch:
        refuse_writes(patch)
        with pytest.raises(BrokerError):
            await w.broker.queues.cut_back({T0: 2})
    (cut,) = await w.broker.queues.cut_back({T0: 2})
    assert (cut.before, cut.after) == (5, 2)
    assert await all_of(w) == [2, 3, 4]


async def test_what_is_taken_back_wakes_a_waiting_receiver(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await w.topic(records=1)
    await queue(w)
    with monkeypatch.context() as patch:
        refuse_writes(patch)
        refused = begin(receive(w))
        await asyncio.sleep(0.1)
        waiting = begin(receive(w, wait_ms=60_000))
        with pytest.raises(BrokerError):
            await refused
    began = w.clock.monotonic()
    assert offsets(await waiting) == [0]
    assert w.clock.monotonic() - began < 2


async def test_a_refused_accept_is_delivered_again_when_its_lock_ends(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=1)
    await queue(w, lock_ms=1_000)
    got = await receive(w)
    with monkeypatch.context() as patch:
        refuse_writes(patch)
        accepting = begin(settle(w, got.records))
        await asyncio.sleep(0.1)
        waiting = begin(receive(w, wait_ms=60_000))
        with pytest.raises(BrokerError):
            await accepting
    began = w.clock.monotonic()
    assert offsets(await waiting) == [0]
    assert w.clock.monotonic() - began < 2


async def test_topics_that_the_store_did_not_take_away_keep_their_state(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=5)
    await w.topic("u", records=1)
    await queue(w, "t", "u")
    await settle(w, [r for r in (await receive(w, 10)).records if r.record.offset < 4])
    with monkeypatch.context() as patch:
        refuse_writes(patch)
        changing = begin(queue(w, "u"))
        await asyncio.sleep(0.1)
        # A receive looks at the topics of the new settings.
        await receive(w)
        with pytest.raises(BrokerError):
            await changing
    assert w.broker.queues.record(Q, T0, 2).state == "settled"
    await asyncio.sleep(40)
    assert await all_of(w) == [4]


async def test_a_settlement_that_is_refused_for_one_partition_settles_nothing(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(partitions=2, records=2)
    await queue(w)
    got = [*(await receive(w, 10)).records, *(await receive(w, 10)).records]
    assert {r.tp.partition for r in got} == {0, 1}
    with monkeypatch.context() as patch:
        patch.setattr(reading.Reading, "leads", lambda _, tp: tp == T0)
        with pytest.raises(BrokerError) as refused:
            await settle(w, sorted(got, key=lambda r: (r.tp, -r.record.offset)))
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert set(await settle(w, got)) == {Outcome.SETTLED}


# --- deleted queues ----------------------------------------------------------------------------------------


async def test_a_settlement_while_the_queue_is_deleted_leaves_nothing(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=4)
    await queue(w)
    got = await receive(w, 2)
    with monkeypatch.context() as patch:
        slow_writes(patch)
        deleting = begin(w.broker.queues.delete(Q, force=True))
        await asyncio.sleep(0.1)
        for call in (settle(w, got.records), receive(w, 1)):
            with pytest.raises(BrokerError) as refused:
                await call
            assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await deleting
    assert await rows(w) == 0


async def test_dead_letters_under_way_leave_nothing_of_a_deleted_queue(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=3)
    await queue(w, dead_letter=DEAD)
    held = asyncio.Event()
    original = IdempotencyKeys.produce

    async def produce(*args: Any, **more: Any) -> Any:
        await held.wait()
        return await original(*args, **more)

    monkeypatch.setattr(IdempotencyKeys, "produce", produce)
    got = await receive(w, 3)
    await settle(w, got.records, Verb.REJECT)
    await asyncio.sleep(1)
    await w.broker.queues.delete(Q, force=True)
    held.set()
    await asyncio.sleep(5)
    assert await rows(w) == 0
    await queue(w)
    await w.kill()
    assert await all_of(w) == [0, 1, 2]


async def test_a_receive_in_the_turn_of_a_deletion_of_its_topic_leaves_nothing(w: World) -> None:
    await w.topic(records=2)
    await queue(w)
    await receive(w, 1)
    deleting = begin(w.broker.topics.delete("t"))
    while not deleting.done():
        await receive(w, 1)
        await asyncio.sleep(0)
    await asyncio.sleep(1)
    assert await rows(w) == 0


async def test_a_queue_whose_deletion_was_cancelled_is_deleted(w: World) -> None:
    await w.topic(records=1)
    await queue(w)
    deleting = begin(w.broker.queues.delete(Q))
    await asyncio.sleep(0)
    deleting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deleting
    await asyncio.sleep(1)
    assert w.broker.queues.names() == []
    await queue(w)
    assert await all_of(w) == [0]


async def test_a_queue_whose_creation_was_cancelled_is_as_it_is_stored(w: World) -> None:
    await w.topic(records=2)
    creating = begin(queue(w, start=Start("latest")))
    await asyncio.sleep(0)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    await asyncio.sleep(1)
    await queue(w)
    await w.produce(2)
    found = offsets(await receive(w, 1))
    view = w.broker.queues.get(Q)
    await w.kill()
    assert w.broker.queues.get(Q) == view and found == [2]
    assert await all_of(w) == [3]


async def test_changes_of_one_queue_are_made_one_after_the_other(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic()
    await queue(w)
    queues = w.broker.queues
    running = most = 0

    async def change(enter: Callable[[], Awaitable[None]] | None = None) -> None:
        nonlocal running, most
        async with queues._change(Q):
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1
        if enter is not None:
            await enter()

    # The first calls again in the turn in which it ends, before the second has begun.
    await asyncio.gather(change(change), change(), change())
    assert most == 1 and not queues._changing


# --- dead letters ------------------------------------------------------------------------------------------


async def test_no_dead_letter_is_written_before_it_is_stored_that_the_record_is_given_up(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=2)
    await queue(w, dead_letter=DEAD)
    got = await receive(w, 2)
    original = DeadLetterWriter._append
    begun: dict[int, float] = {}

    async def append(self: DeadLetterWriter, of: Any, share: Any, offset: int, *more: Any) -> None:
        begun.setdefault(offset, w.clock.monotonic())
        await original(self, of, share, offset, *more)

    monkeypatch.setattr(DeadLetterWriter, "_append", append)
    with monkeypatch.context() as patch:
        slow_writes(patch)
        first = begin(settle(w, got.records[:1], Verb.REJECT))
        await asyncio.sleep(0.8)
        await settle(w, got.records[1:], Verb.REJECT)
        stored = w.clock.monotonic()
        await first
        await asyncio.sleep(20)
    assert begun[0] < stored <= begun[1]
    assert sources(await records(w)) == [0, 1]


async def test_a_record_given_up_in_the_turn_in_which_the_writer_ends_is_written(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=2)
    await queue(w, dead_letter=DEAD, lock_ms=3_600_000)
    got = await receive(w, 2)
    original = DeadLetterWriter._write
    rejecting: list[asyncio.Task[Any]] = []

    async def write(*args: Any) -> None:
        await original(*args)
        if not rejecting:
            # Its first step comes before the callbacks of the writer.
            rejecting.append(begin(settle(w, got.records[1:], Verb.REJECT)))

    monkeypatch.setattr(DeadLetterWriter, "_write", write)
    await settle(w, got.records[:1], Verb.REJECT)
    await asyncio.sleep(5)
    assert sources(await records(w)) == [0, 1]


async def test_a_record_that_is_given_up_again_after_a_restart_is_written_again(w: World) -> None:
    await w.topic(records=1)
    await queue(w, dead_letter=DEAD)
    for _ in range(2):
        await w.broker.queues.acquire(
            Q, T0, "m", max_records=10, max_bytes=1_000_000, batch_size=10, strict=False
        )
        reject = [AcknowledgeBatch(0, 0, [3])]
        assert await w.broker.queues.acknowledge(Q, T0, "m", reject) == ErrorCode.NONE
        await asyncio.sleep(5)
        await w.restart()
        await w.broker.queues.move(Q, {T0: 0})
    assert sources(await records(w)) == [0, 0]


async def test_dead_letters_that_could_not_be_purged_are_there(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=2)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 2)
    letters = w.broker.queues.dead_letters
    with monkeypatch.context() as patch:
        refuse_writes(patch)
        with pytest.raises(BrokerError):
            await letters.purge(Q)
    assert len((await letters.list(Q)).records) == 2
    await letters.purge(Q)
    assert not (await letters.list(Q)).records


async def test_a_redrive_with_a_tiny_rate_can_be_cancelled(w: World) -> None:
    await w.topic(records=2)
    await queue(w, dead_letter=DEAD)
    await rejected(w, 2)
    task = await w.broker.queues.dead_letters.redrive(Q, Redrive(rate=0.0001))
    await asyncio.sleep(1)
    began = w.clock.monotonic()
    assert (await w.broker.queues.dead_letters.cancel(Q, task.id)).state == "cancelled"
    assert w.clock.monotonic() - began < 5


# --- reading -----------------------------------------------------------------------------------------------


async def test_a_long_poll_passes_over_more_holes_than_one_turn_reads(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MOST_READS", 1)
    await w.topic()
    log = TransactionalLog(w.broker, T0)
    for _ in range(4):
        log.write(1, "a")
        log.end(1, commit=False)
    await w.produce(1)
    await queue(w)
    began = w.clock.monotonic()
    assert len((await receive(w, wait_ms=60_000, max_bytes=1)).records) == 1
    assert w.clock.monotonic() - began < 1


async def test_the_order_by_key_is_not_followed_after_it_was_switched_off(w: World) -> None:
    await w.topic(records=2)
    await queue(w, order=Order.KEY)
    await settle(w, (await receive(w, 1)).records)
    (share,) = w.broker.queues._registry.queues[Q].shares.values()
    assert share.machine.watch is not None
    await queue(w)
    await settle(w, (await receive(w, 1)).records)
    assert share.machine.watch is None


async def test_share_consumers_pass_over_markers_in_the_order_of_keys(w: World) -> None:
    await w.topic()
    await queue(w, order=Order.KEY)
    log = TransactionalLog(w.broker, T0)

    async def consume() -> list[int]:
        got = await w.broker.queues.acquire(
            Q, T0, "m", max_records=10, max_bytes=1_000_000, batch_size=10, strict=False
        )
        acks = [AcknowledgeBatch(one.first, one.last, [1]) for one in got.ranges]
        await w.broker.queues.acknowledge(Q, T0, "m", acks)
        return [offset for one in got.ranges for offset in range(one.first, one.last + 1)]

    await w.produce(1)
    assert await consume() == [0]
    log.write(1, "a")
    log.end(1, commit=False)
    assert await consume() == []
    await w.produce(1)
    assert await consume() == [3]
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.start, stats.available) == (4, 0)


# --- the numbers of leases ---------------------------------------------------------------------------------


async def test_numbers_of_leases_begin_again_after_the_last(w: World) -> None:
    await w.topic(records=10)
    await queue(w)
    found = w.broker.queues._registry.queues[Q]
    found.next_lease = found.leases_reserved = VOLATILE - LEASE_BLOCK
    found.next_lease = VOLATILE - 2
    seen = [(await receive(w, 1)).lease for _ in range(4)]
    assert all(lease is not None and 0 < lease < VOLATILE for lease in seen) and len(set(seen)) == 4
    await w.kill()
    more = [(await receive(w, 1)).lease for _ in range(2)]
    assert not set(more) & set(seen) and all(lease is not None and 0 < lease < VOLATILE for lease in more)
    found = w.broker.queues._registry.queues[Q]
    found.next_volatile = (1 << 32) - 1
    for _ in range(2):
        got = await receive(w, 1, in_process=True)
        assert got.lease is not None and VOLATILE <= got.lease < 1 << 32


# --- members -----------------------------------------------------------------------------------------------


async def test_two_members_that_join_a_new_group_at_once_are_both_in(w: World) -> None:
    await w.topic()
    replies = await asyncio.gather(
        *(
            w.broker.groups.shares.heartbeat("new", ShareHeartbeat(name, JOINING, ("t",), None, "", ""))
            for name in "ab"
        )
    )
    assert [reply.error for reply in replies] == [ErrorCode.NONE] * 2


async def test_many_leases_that_are_not_remembered_are_looked_up_at_once(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=6)
    await queue(w)
    leases = [(await receive(w, 2)).lease for _ in range(3)]
    await w.kill()
    looks = 0
    original = Cells.with_state

    def with_state(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return original(*args)

    await receive(w, 1)
    monkeypatch.setattr(Cells, "with_state", with_state)
    monkeypatch.setattr(Cells, "of_lease", with_state)
    items = [Settle(Verb.ACCEPT, lease=lease) for lease in (*leases, *range(1, 900), leases[0])]
    done = await w.broker.queues.settle(Q, items)
    assert [tuple(one) for one in done[:3]] == [(Outcome.SETTLED, 2)] * 3
    assert done[-1].outcome is Outcome.ALREADY_SETTLED and looks == 1
    assert await all_of(w) == []
