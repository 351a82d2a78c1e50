"""Settlements: outcomes, receipts that are none, a store that refuses, time against the commit."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from core.errors import BrokerError, ErrorCode
from core.metadata.store import Store
from core.queues.share_changes import VOLATILE
from core.records.record import NewRecord
from core.types import TopicPartition as Tp
from core.vocabulary.queues import (
    MAX_HOLD_MS,
    AcknowledgeBatch,
    Backoff,
    DeadLetter,
    Order,
    Outcome,
    Settle,
    Start,
    Verb,
)
from tests.core.consumers.consumer_world import World
from tests.core.queues.queue_world import (
    T0,
    Q,
    all_of,
    begin,
    offsets,
    queue,
    receive,
    settings,
    settle,
)
from tests.core.transactional_log import TransactionalLog


async def one(w: World, item: Settle) -> tuple[Outcome, int]:
    (settled,) = await w.broker.queues.settle(Q, [item])
    return tuple(settled)


def refuse_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store refuse every change of a queue, after a while."""
    original = Store._put

    def put(store: Store, effects: Any, read: Any, local: bool = False) -> Any:
        if not effects:
            return original(store, effects, read, local)

        async def fail() -> None:
            await asyncio.sleep(0.5)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

        return asyncio.ensure_future(fail())

    monkeypatch.setattr(Store, "_put", put)


async def test_a_whole_lease_is_settled_after_the_items_of_it(w: World) -> None:
    await w.topic(partitions=2, records=3)
    await queue(w)
    got = await receive(w, 10)
    items = [
        Settle(Verb.ACCEPT, lease=got.lease),
        Settle(Verb.RELEASE, got.records[0].receipt, delay_ms=60_000),
    ]
    outcomes = await w.broker.queues.settle(Q, items)
    assert [tuple(settled) for settled in outcomes] == [(Outcome.SETTLED, 5), (Outcome.SETTLED, 1)]
    assert await one(w, Settle(Verb.ACCEPT, lease=got.lease)) == (Outcome.ALREADY_SETTLED, 5)
    assert w.broker.queues.stats(Q).totals["accepted"] == 5
    # Once the lock is over, too, the rest is what was not released.
    await asyncio.sleep(61)
    second = await receive(w, 10)
    await settle(w, second.records, Verb.RELEASE, delay_ms=0)
    await asyncio.sleep(60)
    assert (await one(w, Settle(Verb.ACCEPT, lease=second.lease)))[0] is Outcome.ALREADY_SETTLED
    assert offsets(await receive(w, 10)) == offsets(second)


async def test_a_lease_is_settled_as_a_whole_after_a_restart(w: World) -> None:
    await w.topic(records=3)
    await queue(w)
    got = await receive(w, 3)
    await w.kill()
    assert await one(w, Settle(Verb.EXTEND, lease=got.lease, lock_ms=60_000)) == (Outcome.SETTLED, 3)
    await asyncio.sleep(50)
    assert await one(w, Settle(Verb.ACCEPT, lease=got.lease)) == (Outcome.SETTLED, 3)
    assert await all_of(w) == []


async def test_receipts_that_are_none(w: World) -> None:
    await w.topic(records=3)
    await queue(w)
    receipt = (await receive(w, 2)).records[0].receipt
    for changes, outcome in (
        ({"offset": -1}, Outcome.INVALID),
        ({"offset": 2**63 - 1}, Outcome.INVALID),
        ({"offset": 2}, Outcome.INVALID),
        ({"lease": receipt.lease + 1}, Outcome.LEASE_LOST),
        ({"lease": 0}, Outcome.INVALID),
        ({"lease": -5}, Outcome.INVALID),
        ({"lease": VOLATILE}, Outcome.INVALID),
        ({"lease": 2**63}, Outcome.INVALID),
        ({"nonce": receipt.nonce + 1}, Outcome.GONE),
        ({"partition": 1}, Outcome.GONE),
        ({"topic_id": UUID(int=7)}, Outcome.GONE),
    ):
        assert await one(w, Settle(Verb.ACCEPT, receipt._replace(**changes))) == (outcome, 1), changes
    for lease in (0, -1, 2**31, 2**62):
        assert (await one(w, Settle(Verb.ACCEPT, lease=lease)))[0] is Outcome.INVALID
    assert await one(w, Settle(Verb.RELEASE, receipt, delay_ms=8 * 86_400_000)) == (Outcome.INVALID, 1)
    assert await one(w, Settle(Verb.EXTEND, receipt, lock_ms=1)) == (Outcome.INVALID, 1)
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.in_flight, stats.available) == (2, 1)


async def test_receipts_in_a_row_are_checked_one_by_one(w: World) -> None:
    await w.topic(records=10)
    await queue(w)
    first, second = await receive(w, 4), await receive(w, 4)
    a, b = (one.records[0].receipt for one in (first, second))
    items = {
        Settle(Verb.ACCEPT, a): Outcome.SETTLED,
        Settle(Verb.ACCEPT, a._replace(offset=1)): Outcome.SETTLED,
        Settle(Verb.RELEASE, a._replace(offset=2), delay_ms=60_000): Outcome.SETTLED,
        Settle(Verb.RELEASE, a._replace(offset=3), delay_ms=8 * 86_400_000): Outcome.INVALID,
        Settle(Verb.ACCEPT, a._replace(offset=4)): Outcome.LEASE_LOST,
        Settle(Verb.ACCEPT, b._replace(offset=5)): Outcome.SETTLED,
        Settle(Verb.ACCEPT, b._replace(offset=6, nonce=b.nonce + 1)): Outcome.GONE,
        Settle(Verb.ACCEPT, b._replace(offset=7)): Outcome.SETTLED,
        Settle(Verb.ACCEPT, b._replace(offset=8)): Outcome.INVALID,
    }
    settled = await w.broker.queues.settle(Q, list(items))
    assert [one.outcome for one in settled] == list(items.values())
    states = [w.broker.queues.record(Q, T0, offset).state for offset in range(10)]
    assert states == [
        "settled", "settled", "delayed", "leased", "leased", "settled", "leased", "settled", "available", "available",
    ]  # fmt: skip


async def test_a_receipt_of_another_queue_settles_nothing_here(w: World) -> None:
    await w.topic(records=1)
    await queue(w)
    await queue(w, name="other")
    mine, theirs = await receive(w), await receive(w, name="other")
    assert await settle(w, theirs.records) == [Outcome.GONE]
    assert await settle(w, mine.records) == [Outcome.SETTLED]


async def test_an_extension_holds_for_twelve_hours_at_most(w: World) -> None:
    await w.topic(records=1)
    await queue(w)
    got = await receive(w)
    began = w.clock.monotonic()
    while await settle(w, got.records, Verb.EXTEND, lock_ms=3_600_000) == [Outcome.SETTLED]:
        await asyncio.sleep(3_500)
    assert w.clock.monotonic() - began <= MAX_HOLD_MS / 1000 + 3_600
    assert offsets(await receive(w)) == [0]


async def test_what_the_store_refuses_is_not_settled(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await w.topic(records=4)
    await queue(w, lock_ms=2_000)
    got = await receive(w, 2)
    with monkeypatch.context() as patch:
        refuse_writes(patch)
        calls = [begin(settle(w, got.records)) for _ in range(2)]
        calls.append(begin(receive(w, 10)))
        for call in calls:
            with pytest.raises(BrokerError) as refused:
                await call
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    (stats,) = w.broker.queues.stats(Q).partitions
    assert (stats.start, stats.in_flight, stats.available) == (0, 2, 2)
    assert await settle(w, got.records[:1]) == [Outcome.SETTLED]
    assert offsets(await receive(w, 10)) == [2, 3]
    await asyncio.sleep(3)
    assert await all_of(w) == [1, 2, 3]
    await w.kill()
    assert await all_of(w) == []


async def test_the_commit_decides_against_a_lock_that_runs_out_meanwhile(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(records=2)
    await queue(w, lock_ms=1_000)
    got = await receive(w, 2)
    await asyncio.sleep(0.9)
    with monkeypatch.context() as patch:
        refuse_writes(patch)
        accepting = begin(settle(w, got.records[:1]))
        await asyncio.sleep(0.2)
        # The lock has run out, and the accept is on its way: the record is not delivered.
        assert w.broker.queues.stats(Q).partitions[0].available == 1
        with pytest.raises(BrokerError):
            await accepting
    # It was refused: now it is.
    assert offsets(await receive(w)) == [0, 1]


async def test_no_record_is_dropped_by_count_without_a_dead_letter_topic(w: World) -> None:
    await w.topic(records=1)
    await queue(w, delivery_limit=2, backoff=Backoff(1_000, 2.0, 4_000))
    for count in range(1, 8):
        got = await receive(w, wait_ms=10_000)
        assert [r.delivery_count for r in got.records] == [count]
        await settle(w, got.records, Verb.RELEASE)


async def test_with_drop_the_limit_settles(w: World) -> None:
    await w.topic(records=1)
    await queue(w, delivery_limit=2, drop=True)
    for _ in range(2):
        await settle(w, (await receive(w)).records, Verb.RELEASE)
    assert (await receive(w)).records == ()
    assert w.broker.queues.stats(Q).partitions[0].start == 1


async def test_a_release_that_does_not_count(w: World) -> None:
    await w.topic(records=1)
    await queue(w)
    for _ in range(3):
        got = await receive(w)
        assert [r.delivery_count for r in got.records] == [1]
        await settle(w, got.records, Verb.RELEASE, counted=False)


async def test_keys_come_one_at_a_time_and_in_order(w: World) -> None:
    await w.topic()
    keys = [b"a", b"b", b"a", None, b"a", b"b", None]
    await w.broker.records.produce(
        "t", [NewRecord(key, b"%d" % i) for i, key in enumerate(keys)], partition=0
    )
    await queue(w, order=Order.KEY, lock_ms=5_000)
    first = await receive(w, 10)
    assert offsets(first) == [0, 1, 3, 6]
    assert (await receive(w)).blocked == "key-order"
    await settle(w, first.records[:1])
    assert offsets(await receive(w)) == [2]
    await settle(w, first.records[1:2], Verb.RELEASE, delay_ms=60_000)
    assert (await receive(w)).records == ()
    await w.kill()
    again = await receive(w, wait_ms=30_000)
    assert offsets(again) == [2, 3, 6]
    await settle(w, again.records)
    assert offsets(await receive(w)) == [4]
    assert offsets(await receive(w, wait_ms=60_000))[0] in (1, 4)


async def test_one_key_blocked_before_many_records_of_others(w: World) -> None:
    await w.topic()
    records = [NewRecord(b"a" if i < 2 else b"k%d" % i, b"") for i in range(3_000)]
    await w.broker.records.produce("t", records, partition=0)
    await queue(w, order=Order.KEY)
    stuck = await receive(w, 1)
    found: list[int] = []
    while (got := await receive(w, 500)).records:
        found += offsets(got)
        await settle(w, got.records)
    assert found == list(range(2, 3_000))
    await settle(w, stuck.records)
    assert await all_of(w) == [1]


async def test_only_committed_records_are_delivered(w: World) -> None:
    await w.topic()
    log = TransactionalLog(w.broker, T0)
    log.write(0, "plain")
    log.write(1, "aborted", "aborted")
    log.end(1, commit=False)
    log.write(1, "committed")
    log.end(1, commit=True)
    log.write(2, "open")
    log.write(0, "after")
    await queue(w)
    got = await receive(w, 10)
    assert [r.record.value for r in got.records] == [b"plain", b"committed"]
    await settle(w, got.records)
    assert w.broker.queues.stats(Q).partitions[0].start == 6
    waiting = begin(receive(w, 10, wait_ms=30_000))
    await asyncio.sleep(1)
    log.end(2, commit=True)
    assert [r.record.value for r in (await waiting).records] == [b"open", b"after"]
    await queue(w, name="all", read_committed=False)
    assert len((await receive(w, 10, "all")).records) == 6


async def test_a_batch_that_cannot_be_read_is_given_up_and_others_come(w: World) -> None:
    await w.topic()
    sizes = []
    for _ in range(3):
        await w.produce(2)
        sizes.append(w.broker.partitions.log(T0).size)
    path = w.broker.config.data_dir / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[sizes[1] - 2] ^= 0xFF
    path.write_bytes(data)
    await queue(w, drop=True)
    assert await all_of(w) == [0, 1, 4, 5]
    assert w.broker.queues.stats(Q).totals["corrupt"] == 2


async def test_a_name_belongs_to_one_type_of_group(w: World) -> None:
    await w.topic(records=1)
    member = await w.other_member()
    await member.join()
    with pytest.raises(BrokerError) as refused:
        await queue(w, name="g")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.value.details["reason"] == "group-type"


async def test_settings_may_change_while_records_are_in_flight(w: World) -> None:
    await w.topic(records=3)
    view = await queue(w)
    got = await receive(w, 1)
    with pytest.raises(BrokerError) as refused:
        await w.broker.queues.put(Q, settings(lock_ms=1_000), if_version=view.version + 1)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    changed = await w.broker.queues.put(Q, settings(lock_ms=1_000, max_in_flight=1), if_version=view.version)
    assert changed.version == view.version + 1
    assert (await receive(w)).blocked == "in-flight-limit"
    await settle(w, got.records)
    assert offsets(await receive(w, 3)) == [1]


async def test_topics_may_be_added_and_taken_away(w: World) -> None:
    await w.topic("t", records=2)
    await w.topic("u", records=2)
    await queue(w, "t")
    await settle(w, (await receive(w, 1)).records)
    await queue(w, "t", "u", start=Start("latest"))
    await w.produce(1, "u")
    assert {(r.tp.topic, r.record.offset) for r in (await receive(w)).records} == {("t", 1), ("u", 2)}
    await queue(w, "u", start=Start("latest"))
    assert w.broker.queues.topics(Q) == ["u"]
    # What was known of a topic is forgotten with it.
    await queue(w, "t", "u")
    assert {r.tp.topic for r in (await receive(w)).records} == {"t"}


async def test_a_queue_in_use_is_not_deleted_or_moved_without_force(w: World) -> None:
    await w.topic(records=3)
    await queue(w)
    got = await receive(w, 1)
    for work in (w.broker.queues.delete(Q), w.broker.queues.seek(Q, Start("earliest"))):
        with pytest.raises(BrokerError) as refused:
            await work
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    await w.broker.queues.seek(Q, Start("earliest"), force=True)
    assert await settle(w, got.records) == [Outcome.GONE]
    again = await receive(w, 1)
    assert [(r.record.offset, r.delivery_count) for r in again.records] == [(0, 1)]
    waiting = begin(receive(w, 1, name=Q, wait_ms=60_000))
    await receive(w, 100)
    await w.broker.queues.delete(Q, force=True)
    with pytest.raises(BrokerError) as refused:
        await waiting
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_wall_clock_that_jumps_moves_no_lock(w: World) -> None:
    await w.topic(records=1)
    await queue(w, lock_ms=10_000)
    got = await receive(w)
    for shift in (3_600_000, -3_600_000):
        w.clock.wall_shift_ms = shift
        await asyncio.sleep(3)
        assert (await receive(w)).records == ()
    assert got.lock_until_ms
    await w.kill()
    # The clock is an hour before that of the lease, and the lock is no longer than before.
    assert offsets(await receive(w, wait_ms=10_100)) == [0]


async def test_share_consumers_and_receivers_share_a_queue(w: World) -> None:
    await w.topic()
    for _ in range(3):
        await w.produce(2)
    await queue(w)
    acquired = await w.broker.queues.acquire(
        Q, T0, "m", max_records=1, max_bytes=1 << 20, batch_size=10, strict=False
    )
    assert [tuple(one) for one in acquired.ranges] == [(0, 1, 1)] and len(acquired.records) == 1
    strict = await w.broker.queues.acquire(
        Q, T0, "n", max_records=1, max_bytes=1 << 20, batch_size=10, strict=True
    )
    assert [tuple(one) for one in strict.ranges] == [(2, 2, 1)]
    got = await receive(w)
    assert offsets(got) == [3, 4, 5]
    queues = w.broker.queues
    assert (
        await queues.acknowledge(Q, T0, "n", [AcknowledgeBatch(0, 1, (1,))]) is ErrorCode.INVALID_RECORD_STATE
    )
    assert await queues.acknowledge(Q, T0, "m", [AcknowledgeBatch(0, 1, (1, 2))]) is ErrorCode.NONE
    await queues.release_member(Q, "n")
    again = await receive(w)
    assert [(r.record.offset, r.delivery_count) for r in again.records] == [(1, 2), (2, 2)]


async def test_what_a_member_holds_is_available_after_a_restart_and_its_count_is_kept(w: World) -> None:
    await w.topic(records=2)
    await queue(w)
    await w.broker.queues.acquire(Q, T0, "m", max_records=2, max_bytes=1 << 20, batch_size=10, strict=True)
    assert (await receive(w)).records == ()
    await w.kill()
    assert [r.delivery_count for r in (await receive(w)).records] == [2, 2]


async def test_share_consumers_subscribe_move_and_forget(w: World) -> None:
    await w.topic(records=3)
    await w.topic("u", records=1)
    queues = w.broker.queues
    await queues.subscribe(Q, ["t"], settings())
    await queues.subscribe(Q, ["t", "u"], settings())
    assert queues.topics(Q) == ["t", "u"]
    moved = await queues.move(Q, {T0: 2, Tp("none", 0): 1, Tp("t", 7): 1})
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(moved.values()) == [ErrorCode.NONE, missing, missing]
    got = await receive(w)
    assert {(r.tp.topic, r.record.offset) for r in got.records} == {("t", 2), ("u", 0)}
    await settle(w, got.records)
    assert await queues.forget(Q, ["u", "none"]) == [ErrorCode.NONE, missing]
    assert queues.topics(Q) == ["t"]


async def test_a_dead_letter_topic_that_the_queue_reads_is_refused(w: World) -> None:
    with pytest.raises(BrokerError) as refused:
        await queue(w, "t", dead_letter=DeadLetter("t"))
    assert refused.value.code is ErrorCode.INVALID_CONFIG


async def test_one_record(w: World) -> None:
    await w.topic(records=3)
    await queue(w)
    got = await receive(w, 2)
    await settle(w, got.records[:1])
    states = [w.broker.queues.record(Q, T0, offset).state for offset in range(3)]
    assert states == ["settled", "leased", "available"]
