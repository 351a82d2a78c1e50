"""Queues over kill -9, clean restarts and losses of power."""

from __future__ import annotations

import asyncio

import pytest

from core.types import TopicPartition as Tp
from core.vocabulary.queues import Outcome, Verb
from tests.core.consumers.consumer_world import World
from tests.core.queues.queue_world import T0, Q, all_of, offsets, queue, receive, settle

# No fsync but those that a test asks for.
SETTINGS = {"checkpoint_interval_ms": 3_600_000}


@pytest.mark.parametrize("stop", ["kill", "restart"])
async def test_leases_receipts_and_counts_survive(w: World, stop: str) -> None:
    await w.topic(records=10)
    view = await queue(w, lock_ms=30_000)
    got = await receive(w, 4)
    await settle(w, got.records[:1])
    await settle(w, got.records[1:2], Verb.RELEASE, delay_ms=10_000)
    await getattr(w, stop)()
    assert w.broker.queues.get(Q) == view
    assert offsets(await receive(w, 100)) == [4, 5, 6, 7, 8, 9]
    assert await settle(w, got.records) == [
        Outcome.ALREADY_SETTLED, Outcome.LATE, Outcome.SETTLED, Outcome.SETTLED,
    ]  # fmt: skip


async def test_an_expired_lease_is_delivered_after_a_restart_with_the_next_count(w: World) -> None:
    await w.topic(records=1)
    await queue(w, lock_ms=5_000)
    await receive(w)
    await w.kill()
    assert (await receive(w)).records == ()
    again = await receive(w, wait_ms=60_000)
    assert [r.delivery_count for r in again.records] == [2]


async def test_the_number_of_a_lease_is_not_used_again(w: World) -> None:
    await w.topic(records=10)
    await queue(w)
    seen = set()
    for _ in range(5):
        got = await receive(w, 1)
        assert got.lease not in seen
        seen.add(got.lease)
        await w.kill()


@pytest.mark.parametrize("settled", [True, False])
async def test_records_in_the_place_of_lost_ones_are_delivered(w: World, settled: bool) -> None:
    """The worst trap: what was settled beyond the recovered end of the log must not settle new records."""
    await w.topic(records=3)
    size = w.broker.partitions.log(T0).size
    await w.produce(4)
    await queue(w)
    got = await receive(w, 100)
    assert offsets(got) == [0, 1, 2, 3, 4, 5, 6]
    if settled:
        await settle(w, got.records)
    await w.kill({T0: size})
    # The log grows past the old end before anything looks at the queue.
    await w.produce(6)
    assert w.broker.partitions.offsets(T0).log_end_offset == 9
    await asyncio.sleep(60)
    assert await all_of(w) == ([] if settled else [0, 1, 2]) + [3, 4, 5, 6, 7, 8]
    assert set(await settle(w, got.records)) == {Outcome.GONE}
    # And so it stays: the cut is durable.
    await w.kill()
    assert await all_of(w) == []


async def test_a_queue_that_began_beyond_the_recovered_end_begins_at_it(w: World) -> None:
    await w.topic(records=3)
    size = w.broker.partitions.log(T0).size
    await w.produce(4)
    await queue(w)
    await settle(w, (await receive(w, 100)).records)
    for _ in range(2):
        await w.kill({T0: size})
        await w.produce(2)
        assert await all_of(w) == [3, 4]
        await w.broker.partitions.delete_records([(T0, 3)])


async def test_rows_are_folded_and_say_the_same(w: World) -> None:
    await w.topic(records=800)
    await queue(w, max_in_flight=1_000)
    for number in range(330):
        got = await receive(w, 2)
        await settle(w, got.records[: number % 3])
    stats = w.broker.queues.stats(Q).partitions
    flying = w.broker.queues.in_flight(Q, limit=1_000)
    rows = await w.broker.store.read(
        lambda c: c.exec_driver_sql("SELECT count(*), max(seq) FROM share_updates").first()
    )
    assert rows[1] >= 500 > rows[0]
    await w.kill()
    await receive(w, 0)
    assert w.broker.queues.stats(Q).partitions == stats
    assert w.broker.queues.in_flight(Q, limit=1_000) == flying


async def test_a_topic_that_was_deleted_and_created_again_has_new_receipts(w: World) -> None:
    await w.topic(records=2)
    await queue(w)
    got = await receive(w)
    await w.broker.topics.delete("t")
    assert set(await settle(w, got.records)) == {Outcome.GONE}
    await w.topic(records=3)
    assert set(await settle(w, got.records)) == {Outcome.GONE}
    await w.kill()
    assert set(await settle(w, got.records)) == {Outcome.GONE}
    assert await all_of(w) == [0, 1, 2]
    rows = await w.broker.store.read(
        lambda c: c.exec_driver_sql("SELECT count(*) FROM share_partitions").scalar()
    )
    assert rows == 1


async def test_a_deleted_queue_leaves_nothing(w: World) -> None:
    await w.topic(records=2)
    await queue(w)
    got = await receive(w)
    await w.broker.queues.delete(Q, force=True)
    await w.kill()
    assert w.broker.queues.names() == []
    await queue(w)
    assert set(await settle(w, got.records)) == {Outcome.GONE}
    assert offsets(await receive(w)) == [0, 1]
    assert Tp("t", 0) == T0
