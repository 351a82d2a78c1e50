"""core.consumers.membership: joining, sharing with others, rebalances, fencing, changed topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.groups.coordinator import GroupCoordinator
from core.groups.hosted import offers
from core.vocabulary.consumers import Batch, Subscription
from core.vocabulary.groups import JoinRequest, Leaver
from tests.core.consumers.consumer_world import G, World, offsets, owned, settled

# --- sharing ----------------------------------------------------------------------------------------------------


async def test_two_consumers_and_a_binary_member_share_the_partitions(w: World) -> None:
    await w.topic(partitions=6, records=4)
    await w.create("a")
    await w.create("b")
    other = await w.other_member()
    await other.join()
    await settled(w, "a", "b")
    assert w.info("a").generation == other.generation
    shares = [owned(w, "a"), owned(w, "b"), [one.partition for one in other.owned]]
    assert sorted(p for share in shares for p in share) == list(range(6))
    assert [len(share) for share in shares] == [2, 2, 2]
    got = offsets(await w.poll("a")) | offsets(await w.poll("b"))
    assert sorted(got) == sorted(shares[0] + shares[1])
    assert await other.commit(shares[2][0], 3) is ErrorCode.NONE


async def test_a_consumer_that_leads_assigns_for_all_and_one_that_follows_obeys(w: World) -> None:
    await w.topic(partitions=3)
    other = await w.other_member()
    await other.join()
    view = w.broker.groups.describe(G)
    assert view is not None and view.leader_id == other.member_id
    staying = asyncio.create_task(other.stay())
    await w.create("a")
    await settled(w, "a")
    assert len(owned(w, "a")) + len(other.owned) == 3 and owned(w, "a") and other.owned
    staying.cancel()
    await other.leave()
    await asyncio.sleep(1)
    await settled(w, "a")
    view = w.broker.groups.describe(G)
    assert view is not None and view.leader_id == w.info("a").member_id
    assert owned(w, "a") == [0, 1, 2]


async def test_partitions_of_a_binary_member_that_dies_come_to_the_consumer(w: World) -> None:
    await w.topic(partitions=2, records=3)
    await w.create("a")
    other = await w.other_member(session_timeout_ms=6_000)
    await other.join()
    (mine,) = other.owned
    assert await other.commit(mine.partition, 2) is ErrorCode.NONE
    batch = await w.poll("a")
    assert mine.partition not in offsets(batch)
    batch = await w.poll("a", ack=batch.token, wait_ms=30_000)
    assert offsets(batch) == {mine.partition: [2]}


async def test_a_poll_that_waits_gets_records_in_partitions_that_came_meanwhile(w: World) -> None:
    await w.topic(partitions=2)
    await w.create("a")
    other = await w.other_member(session_timeout_ms=6_000)
    await other.join()
    (other_s,) = other.owned
    waiting = asyncio.create_task(w.poll("a", wait_ms=300_000))
    await asyncio.sleep(120)
    await w.produce(1, partition=other_s.partition)
    assert offsets(await asyncio.wait_for(waiting, 1)) == {other_s.partition: [0]}


async def test_heartbeats_keep_a_consumer_without_polls_in_its_group(w: World) -> None:
    await w.topic()
    await w.create(session_timeout_ms=6_000, ttl_ms=3_600_000)
    await settled(w, "c")
    before = w.info()
    await asyncio.sleep(3_000)
    assert w.info()[:7] == before[:7] and w.info().state == "stable"


async def test_a_round_that_begins_while_the_one_before_ends_is_not_overlooked(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.topic(partitions=2)
    other = await w.other_member()
    joining: list[asyncio.Task[None]] = []
    sync = GroupCoordinator.sync

    async def sync_and_join(coordinator: GroupCoordinator, group_id: str, request: Any) -> Any:
        reply = await sync(coordinator, group_id, request)
        if not request.assignments and not joining:
            joining.append(asyncio.create_task(other.join()))
            await asyncio.sleep(0)
        return reply

    monkeypatch.setattr(GroupCoordinator, "sync", sync_and_join)
    await w.create("a")
    await settled(w, "a")
    await asyncio.sleep(0.5)
    assert w.info("a").generation == other.generation
    assert len(other.owned) == 1


# --- rebalances ---------------------------------------------------------------------------------------------


async def test_what_stays_in_a_rebalance_keeps_its_position_and_its_batch(w: World) -> None:
    await w.topic(partitions=4, records=3)
    await w.create("a", assignor="sticky")
    batch = await w.poll("a", limit=3)
    (busy,) = offsets(batch)
    # The grace is over before the batch is acknowledged.
    await w.create("b", assignor="sticky")
    await settled(w, "a", "b")
    assert len(owned(w, "a")) == 2 and busy in owned(w, "a")
    again = await w.poll("a")
    assert (again.token, offsets(again)) == (batch.token, offsets(batch))
    await w.consumers.ack(G, "a", batch.token)
    assert w.committed() == {busy: 3}


async def lingering(w: World) -> Batch:
    """Consumer a waits with the rebalance that b began for the acknowledgement of this batch."""
    await w.topic(partitions=2, records=3)
    await w.create("a")
    batch = await w.poll("a")
    await w.create("b")
    await asyncio.sleep(0.5)
    return batch


async def test_a_consumer_waits_with_a_rebalance_for_the_acknowledgement_of_its_batch(w: World) -> None:
    batch = await lingering(w)
    assert w.info("a").state == "stable" and (await w.poll("a")).token == batch.token
    done = await w.consumers.ack(G, "a", batch.token)
    assert len(done.committed) == 2 and done.revoked == ()
    started = w.clock.monotonic()
    await settled(w, "a", "b")
    assert w.clock.monotonic() - started < 0.3
    await w.produce(1, partition=owned(w, "b")[0])
    assert offsets(await w.poll("b")) == {owned(w, "b")[0]: [3]}


async def test_a_batch_whose_partition_has_moved_is_revoked_and_delivered_to_the_next_owner(w: World) -> None:
    await w.topic(partitions=2, records=3)
    await w.create("a", assignor="range")
    batch = await w.poll("a")
    await w.create("b", assignor="range")
    await settled(w, "a", "b")
    assert (len(owned(w, "a")), len(owned(w, "b"))) == (1, 1)
    done = await w.consumers.ack(G, "a", batch.token)
    assert [one.partition for one in done.committed] == owned(w, "a")
    assert [one.partition for one in done.revoked] == owned(w, "b")
    assert offsets(await w.poll("b")) == {owned(w, "b")[0]: [0, 1, 2]}
    assert (await w.poll("a", wait_ms=0)).records == ()


@pytest.mark.settings(consumer_revoke_grace_ms=1000)
async def test_an_acknowledgement_during_the_round_is_committed_before_or_after_it(w: World) -> None:
    await w.topic(partitions=2, records=3)
    await w.create("a", assignor="sticky")
    batch = await w.poll("a")
    other = await w.other_member()
    joining = asyncio.create_task(other.join())
    await asyncio.sleep(1.5)
    done = await w.consumers.ack(G, "a", batch.token)
    await joining
    assert sorted(one.partition for one in done.committed + done.revoked) == [0, 1]
    for one in done.committed:
        assert w.committed()[one.partition] == 3
    await w.produce(1, partition=0)
    await w.produce(1, partition=1)
    assert [o[0] for o in offsets(await w.poll("a")).values()] == [3]


async def test_an_acknowledgement_of_a_lingering_consumer_whose_group_continues_without_it_ends(
    w: World,
) -> None:
    batch = await lingering(w)
    # It waits with the round for its client, when an admin tool puts it out of the group.
    assert await w.broker.groups.leave(G, [Leaver(w.info("a").member_id)])
    done = await w.consumers.ack(G, "a", batch.token)
    await settled(w, "a", "b")
    assert sorted(one.partition for one in done.committed + done.revoked) == [0, 1]
    assert w.committed() == dict.fromkeys((one.partition for one in done.committed), 3)


async def test_an_acknowledgement_that_has_to_wait_too_long_says_so_and_can_be_repeated(w: World) -> None:
    await w.topic(partitions=2, records=3)
    leader = await w.other_member()
    await leader.join()
    await w.create("a")
    await leader.join()
    batch = await w.poll("a")
    (mine,) = offsets(batch)
    third = asyncio.create_task((await w.other_member()).join())
    # The leader joins the next generation, and is slow to assign.
    request = JoinRequest(leader.member_id, "consumer", offers(("t",)), 30_000, 30_000)
    joined = await w.broker.groups.join(G, request)
    assert joined.leader_id == leader.member_id
    started = w.clock.monotonic()
    with pytest.raises(BrokerError) as error:
        await w.poll("a", ack=batch.token, wait_ms=2_000)
    assert error.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert 1.9 < w.clock.monotonic() - started < 2.1 and w.committed() == {}
    acking = asyncio.create_task(w.consumers.ack(G, "a", batch.token))
    await asyncio.sleep(1)
    await w.broker.groups.hosted.lead(G, leader.member_id, joined.generation)
    done = await acking
    assert [one.partition for one in done.committed + done.revoked] == [mine]
    assert (mine in w.committed()) is bool(done.committed)
    third.cancel()


async def test_nothing_new_is_delivered_during_a_rebalance(w: World) -> None:
    await w.topic(partitions=2)
    await w.create("a")
    await settled(w, "a")
    slow = await w.other_member()
    await slow.join()
    # The round waits for the other member, which does not know of it yet.
    third = asyncio.create_task((await w.other_member()).join())
    await asyncio.sleep(1)
    await w.produce(1, partition=0)
    await w.produce(1, partition=1)
    early = await w.poll("a", wait_ms=3_000)
    assert (early.records, early.state) == ((), "joining")
    await slow.join()
    await third
    await w.poll("a", wait_ms=1_000)


async def test_after_a_missed_generation_only_what_is_committed_counts(w: World) -> None:
    await w.topic(records=6)
    await w.create()
    batch = await w.poll(limit=2)
    await w.consumers.ack(G, "c", batch.token)
    await w.poll(limit=2)
    membership = w.registry.find(G, "c").membership
    # Another member may have owned the partition in the generation between.
    membership.restore(membership.member_id, membership.generation - 2)
    assert w.info().token is None and [p.position for p in w.info().partitions] == [2]


async def test_auto_committed_positions_are_committed_before_partitions_are_given_up(w: World) -> None:
    await w.topic(partitions=2, records=4)
    await w.create("a", auto_commit=True, auto_commit_interval_ms=1_000_000)
    await w.poll("a", limit=6, advance=True)
    await w.poll("a", limit=1, advance=True)
    assert w.committed() == {}
    await w.create("b")
    await settled(w, "a", "b")
    assert w.committed() == {0: 4, 1: 2}


# --- fenced, removed, refused ---------------------------------------------------------------------------------


async def test_a_consumer_whose_instance_id_is_taken_is_fenced_and_does_not_fight(w: World) -> None:
    await w.topic(records=3)
    await w.create("a", group_instance_id="one")
    batch = await w.poll("a")
    metadata = w.broker.groups.group(G).roster.members[w.info("a").member_id].protocols  # type: ignore[union-attr]
    taking = JoinRequest("", "consumer", metadata, 10_000, 10_000, group_instance_id="one")
    taken = await w.broker.groups.join(G, taking)
    assert not taken.error
    for work in (w.consumers.ack(G, "a", batch.token), w.poll("a"), w.poll("a", ack=batch.token)):
        with pytest.raises(BrokerError) as error:
            await work
        assert error.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert w.committed() == {} and w.info("a").state == "fenced"
    await asyncio.sleep(60)
    await w.consumers.delete(G, "a")
    assert w.consumers.of_group(G) == []


async def test_a_fenced_consumer_that_waits_gets_the_error(w: World) -> None:
    await w.topic()
    await w.create("a", group_instance_id="one", session_timeout_ms=6_000)
    await settled(w, "a")
    waiting = asyncio.create_task(w.poll("a", wait_ms=60_000))
    await asyncio.sleep(1)
    await w.create("b", group_instance_id="one")
    with pytest.raises(BrokerError) as error:
        await asyncio.wait_for(waiting, 10)
    assert error.value.code is ErrorCode.FENCED_INSTANCE_ID
    await settled(w, "b")


async def test_a_consumer_that_was_removed_from_its_group_joins_as_a_new_member(w: World) -> None:
    await w.topic(records=5)
    await w.create()
    batch = await w.poll(limit=2)
    await w.consumers.ack(G, "c", batch.token)
    batch = await w.poll(limit=2)
    before = w.info().member_id
    await w.broker.groups.leave(G, [Leaver(before)])
    done = await w.consumers.ack(G, "c", batch.token)
    assert done.committed == () and len(done.revoked) == 1
    assert offsets(await w.poll()) == {0: [2, 3, 4]}
    assert w.info().member_id != before and w.committed() == {0: 2}


async def test_a_group_of_another_kind_refuses_the_consumer_and_the_poll_says_so(w: World) -> None:
    await w.topic()
    request = JoinRequest("", "connect", (("default", b""),), 60_000, 60_000)
    joined = await w.broker.groups.join(G, request)
    await w.create("a")
    for _ in range(2):
        with pytest.raises(BrokerError) as error:
            await w.poll("a")
        assert error.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    await w.broker.groups.leave(G, [Leaver(joined.member_id)])
    assert (await w.poll("a")).state == "stable"


@pytest.mark.settings(group_max_size=1)
async def test_a_full_group_refuses_the_consumer(w: World) -> None:
    await w.topic()
    await w.create("a")
    await settled(w, "a")
    await w.create("b")
    with pytest.raises(BrokerError) as error:
        await w.poll("b", wait_ms=60_000)
    assert error.value.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (await w.poll("a")).state == "stable"


# --- topics -------------------------------------------------------------------------------------------------


async def test_a_pattern_takes_in_topics_that_come_later(w: World) -> None:
    await w.topic("orders-a", records=1)
    await w.topic("other", records=1)
    subscription = Subscription(pattern="orders-.*")
    await w.consumers.create(G, "c", subscription=subscription)
    batch = await w.poll()
    assert [one.topic for one in batch.ranges] == ["orders-a"]
    await w.topic("orders-b", records=1)
    batch = await w.poll(ack=batch.token)
    assert [one.topic for one in batch.ranges] == ["orders-b"]


async def test_the_leader_shares_out_partitions_that_are_added(w: World) -> None:
    await w.topic(partitions=2)
    await w.create("a")
    await w.create("b")
    await settled(w, "a", "b")
    await w.broker.topics.create_partitions("t", 6)
    await asyncio.sleep(3)
    await settled(w, "a", "b")
    assert sorted(owned(w, "a") + owned(w, "b")) == list(range(6))


async def test_a_deleted_topic_is_forgotten_and_one_of_its_name_begin_again(w: World) -> None:
    await w.topic(records=3)
    await w.create("c", "t", "u")
    batch = await w.poll()
    await w.consumers.ack(G, "c", batch.token)
    await w.broker.topics.delete("t")
    assert (await w.poll(wait_ms=5_000)).records == ()
    await w.topic(records=2)
    assert offsets(await w.poll()) == {0: [0, 1]}


async def test_another_subscription_takes_effect_for_the_whole_group(w: World) -> None:
    await w.topic("t", partitions=2, records=1)
    await w.topic("u", partitions=2, records=1)
    await w.create("a", "t")
    await w.create("b", "t", "u")
    await settled(w, "a", "b")
    generation = w.info("a").generation
    await w.consumers.subscribe(G, "a", topics=["u"])
    await asyncio.sleep(1)
    await settled(w, "a", "b")
    assert w.info("a").generation > generation
    assert {one.topic for one in w.info("a").partitions} == {"u"}
    assert {one.topic for one in w.info("b").partitions} >= {"t"}
