"""Batches of managed consumers that a decision acknowledges: once, as a whole, over rebalances and kill -9."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition as Tp
from core.vocabulary.consumers import Batch, Subscription
from tests.core.consumers.consumer_world import G, World, offsets
from tests.core.consumers.test_polls import refused

STATE = ErrorCode.INVALID_RECORD_STATE


async def settle(w: World, staged: Any) -> None:
    try:
        await w.broker.transactions.commit_together([], lambda: [staged.settle()])
    finally:
        staged.release()


def stage(w: World, batch: Batch, name: str = "c") -> Any:
    return w.consumers.stage_ack(G, name, batch.token)


async def staging(w: World, token: str | None) -> Any:
    return w.consumers.stage_ack(G, "c", token)


async def test_a_decision_acknowledges_the_batch_and_the_next_one_follows(w: World) -> None:
    await w.topic(records=5)
    await w.create()
    batch = await w.poll(limit=3)
    await settle(w, stage(w, batch))
    assert w.committed() == {0: 3}
    assert offsets(await w.poll()) == {0: [3, 4]}


async def test_a_decision_that_is_refused_moves_nothing_and_the_batch_comes_again(w: World) -> None:
    await w.topic(records=5)
    await w.create()
    batch = await w.poll(limit=3)
    staged = stage(w, batch)

    def refuse() -> Any:
        staged.settle()
        raise BrokerError(ErrorCode.INVALID_REQUEST, "no")

    with pytest.raises(BrokerError):
        await w.broker.transactions.commit_together([], refuse)
    staged.release()
    again = await w.poll()
    assert (again.token, again.redelivered, offsets(again)) == (batch.token, True, {0: [0, 1, 2]})
    assert w.committed() == {}
    await settle(w, stage(w, batch))
    await w.kill()
    assert w.committed() == {0: 3}


async def test_a_batch_is_taken_by_one_decision(w: World) -> None:
    await w.topic(records=5)
    await w.create()
    batch = await w.poll(limit=3)
    staged = stage(w, batch)
    await refused(staging(w, batch.token), STATE, "ack-staged")
    await refused(w.poll(), STATE, "ack-staged")
    await refused(w.poll(ack=batch.token), STATE, "ack-staged")
    await refused(w.consumers.ack(G, "c", batch.token), STATE, "ack-staged")
    await settle(w, staged)
    await refused(staging(w, batch.token), STATE, "already-acknowledged")
    await refused(staging(w, "x.1"), STATE, "unknown-token")
    following = await w.poll()
    await refused(staging(w, batch.token), STATE, "already-acknowledged")
    assert offsets(following) == {0: [3, 4]}


async def test_after_a_kill_the_batch_is_acknowledged_or_comes_again(w: World) -> None:
    await w.topic(records=5)
    await w.create()
    batch = await w.poll(limit=3)
    staged = stage(w, batch)
    await w.kill()
    again = await w.poll(limit=3)
    assert (again.token, offsets(again)) == (batch.token, {0: [0, 1, 2]})
    staged = stage(w, again)
    deciding = asyncio.ensure_future(settle(w, staged))
    while not w.broker.groups.is_unstable(G, "t", 0):
        await asyncio.sleep(0)
    # What is stored of the consumer after the decision must not bring the batch back.
    await w.consumers.pause(G, "c", [])
    await w.kill()
    deciding.cancel()
    assert w.committed() == {0: 3} and w.info().token is None
    assert offsets(await w.poll()) == {0: [3, 4]}


async def test_a_part_that_was_given_up_refuses_the_whole(w: World) -> None:
    await w.topic(partitions=2, records=3)
    await w.create(rebalance_timeout_ms=1_000)
    batch = await w.poll()
    assert offsets(batch) == {0: [0, 1, 2], 1: [0, 1, 2]}
    staged = stage(w, batch)
    other = await w.other_member()
    await other.join()
    while len(w.info().partitions) != 1:
        await asyncio.sleep(0.1)
    await refused(settle(w, staged), STATE, "batch-changed")
    assert w.committed() == {}
    await refused(staging(w, batch.token), STATE, "batch-changed")
    left = await w.poll()
    assert left.redelivered and len(offsets(left)) == 1
    # The client that has been given the rest acknowledges that; one with the whole still cannot.
    await refused(staging(w, batch.token), STATE, "already-acknowledged")
    await settle(w, stage(w, left))
    assert w.committed() == {next(iter(offsets(left))): 3}


async def test_a_seek_or_a_deletion_in_between_refuses_the_decision(w: World) -> None:
    await w.topic(records=5)
    await w.create()
    staged = stage(w, await w.poll(limit=3))
    await w.consumers.seek_everywhere(G, "c", "latest")
    await refused(settle(w, staged), STATE, "batch-changed")
    await w.consumers.seek_everywhere(G, "c", "earliest")
    staged = stage(w, await w.poll(limit=3))
    await w.consumers.delete(G, "c")
    await refused(settle(w, staged), ErrorCode.RESOURCE_NOT_FOUND)
    assert w.committed() == {}


async def test_a_consumer_that_is_staged_does_not_expire(w: World) -> None:
    await w.topic(records=5)
    await w.create(ttl_ms=60_000)
    staged = stage(w, await w.poll(limit=3))
    await asyncio.sleep(600)
    await settle(w, staged)
    assert w.committed() == {0: 3}
    await asyncio.sleep(600)
    assert w.consumers.of_group(G) == []


async def test_a_consumer_with_partitions_of_its_own_choice_acknowledges_as_well(w: World) -> None:
    await w.topic(records=5)
    await w.consumers.create(G, "c", subscription=Subscription(assignments=(Tp("t", 0),)))
    await settle(w, stage(w, await w.poll(limit=3)))
    assert w.committed() == {0: 3}
