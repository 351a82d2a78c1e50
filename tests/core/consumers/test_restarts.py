"""Managed consumers over kill -9 and clean restarts: they continue, and no member rejoins."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import ErrorCode
from core.types import TopicPartition as Tp
from tests.core.consumers.consumer_world import G, World, offsets, owned, settled


@pytest.mark.parametrize("stop", ["kill", "restart"])
async def test_consumers_continue_after_a_restart_and_none_rejoins(w: World, stop: str) -> None:
    await w.topic(partitions=4, records=5)
    await w.create("a")
    await w.create("b", group_instance_id="static")
    other = await w.other_member()
    await other.join()
    await settled(w, "a", "b")
    await w.consumers.pause(G, "b", [Tp("t", owned(w, "b")[0])])
    batch = await w.poll("a", limit=2)
    batch = await w.poll("a", limit=2, ack=batch.token)
    before = [w.info(name)[:10] for name in ("a", "b")]
    await getattr(w, stop)()
    assert [w.info(name)[:10] for name in ("a", "b")] == before
    assert other.heartbeat() is ErrorCode.NONE
    again = await w.poll("a", wait_ms=0)
    assert (again.token, offsets(again), again.redelivered) == (batch.token, offsets(batch), True)
    await w.consumers.ack(G, "a", batch.token)
    assert [w.info(name).generation for name in ("a", "b")] == [one[6] for one in before]


async def test_an_ack_says_what_it_commits_and_not_what_a_loss_of_power_has_taken(w: World) -> None:
    await w.topic(partitions=2)
    for count, partition in ((2, 0), (1, 0), (3, 1)):
        await w.produce(count, partition=partition)
    await w.create("a")
    batch = await w.poll("a")
    assert [(one.partition, one.next_offset) for one in batch.ranges] == [(0, 3), (1, 3)]
    for partition, end in ((0, 2), (1, 0)):
        w.broker.partitions.log(Tp("t", partition)).truncate_to(end)
    done = await w.consumers.ack(G, "a", batch.token)
    assert ([(one.partition, one.next_offset) for one in done.committed], done.revoked) == ([(0, 2)], ())
    assert {p: c.offset for _, p, c in w.broker.groups.all_committed(G)} == {0: 2}


async def test_a_kill_in_mid_round_ends_in_a_settled_group(w: World) -> None:
    await w.topic(partitions=2, records=3)
    await w.create("a")
    batch = await w.poll("a")
    await w.create("b")
    await asyncio.sleep(1.5)
    await w.kill()
    await settled(w, "a", "b")
    done = await w.consumers.ack(G, "a", batch.token)
    assert {one.partition for one in done.committed} <= set(owned(w, "a"))
    assert sorted(owned(w, "a") + owned(w, "b")) == [0, 1]


async def test_a_kill_before_the_first_round_is_over_starts_it_again(w: World) -> None:
    await w.topic(records=1)
    await w.create()
    await asyncio.sleep(1)
    await w.kill()
    assert offsets(await w.poll()) == {0: [0]}


async def test_the_position_of_latest_survives_a_kill(w: World) -> None:
    await w.topic(records=3)
    await w.create(start="latest")
    await settled(w, "c")
    await w.produce(2)
    await w.kill()
    assert offsets(await w.poll()) == {0: [3, 4]}


async def test_what_was_delivered_without_a_token_comes_again_after_a_kill_unless_a_request_followed(
    w: World,
) -> None:
    await w.topic(records=9)
    await w.create()
    await w.poll(limit=3, advance=True)
    await w.poll(limit=3, advance=True)
    await w.kill()
    assert offsets(await w.poll(limit=3, advance=True)) == {0: [3, 4, 5]}
