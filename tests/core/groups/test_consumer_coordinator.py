"""core.groups.consumer_coordinator: groups of KIP-848 over a store, beside classic groups."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from core.changes import TopicChanges
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.groups.consumer_coordinator import ConsumerCoordinator
from core.groups.consumer_group import ConsumerGroup
from core.groups.group import Group
from core.groups.share_group import ShareGroup
from core.purgatory import Purgatory
from core.vocabulary.consumer_groups import ConsumerHeartbeat, ConsumerHeartbeatReply
from core.vocabulary.groups import Commit, CommitRequest
from tests.core.groups.consumer_machine import numbers
from tests.core.groups.world import MemoryStore, World


class Topics:
    """Topics of a broker that a test changes."""

    def __init__(self) -> None:
        self.counts = {"t": 4}

    def all(self) -> list[Any]:
        names = enumerate(self.counts.items(), start=1)
        return [SimpleNamespace(name=n, topic_id=UUID(int=i), partitions=c) for i, (n, c) in names]


class Consumers:
    """A coordinator of consumer groups in a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.topics = Topics()
        config = Config()
        self.broker: Any = SimpleNamespace(
            topics=self.topics,
            config=config,
            changes=TopicChanges(Purgatory(100)),
        )
        self.coordinator = ConsumerCoordinator(world.registry, self.broker)
        self.coordinator.open()

    async def beat(self, member_id: str, epoch: int, group: str = "g", **more: Any) -> ConsumerHeartbeatReply:
        return await self.coordinator.heartbeat(group, ConsumerHeartbeat(member_id, epoch, **more))

    async def join(self, member_id: str, group: str = "g", **more: Any) -> ConsumerHeartbeatReply:
        fields = {"topics": ["t"], "rebalance_timeout_ms": 1_000, "owned": {}}
        return await self.beat(member_id, 0, group, **{**fields, **more})


async def consumers(store: MemoryStore | None = None) -> Consumers:
    made = Consumers(World(store))
    await made.world.start()
    return made


async def test_requests_before_the_groups_are_loaded_and_after_the_stop() -> None:
    made = Consumers(World())
    assert (await made.join("a")).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await made.world.start()
    assert (await made.join("a", "")).error is ErrorCode.INVALID_REQUEST
    assert (await made.join("a")).error is ErrorCode.NONE
    made.coordinator.close()
    made.world.registry.drain()
    assert (await made.beat("a", 1)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert made.broker.changes.listeners == []


async def test_an_answer_leaves_when_its_change_is_durable() -> None:
    c = await consumers()
    c.world.store.hold = True
    task = await c.world.start_task(c.join("a"))
    assert not task.done()
    c.world.store.release()
    assert numbers((await task).assignment) == [0, 1, 2, 3]
    assert c.world.store.modern["g"].epoch == 1


async def test_a_change_that_cannot_be_stored_is_answered_so_and_stored_with_the_next_one() -> None:
    c = await consumers()
    c.world.store.broken = True
    assert (await c.join("a")).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    c.world.store.broken = False
    again = await c.join("a", client_id="other")
    assert (again.error, again.member_epoch) == (ErrorCode.NONE, 1)
    assert list(c.world.store.modern_members["g"]) == ["a"]


async def test_a_restart_continues_members_and_sessions_begin_again() -> None:
    c = await consumers()
    await c.join("a")
    after = await consumers(c.world.store)
    assert (await after.beat("a", 1)).error is ErrorCode.NONE
    await after.world.advance(45.1)
    assert (await after.beat("a", 1)).error is ErrorCode.UNKNOWN_MEMBER_ID
    await after.world.turn()
    assert after.world.store.modern_members["g"] == {}


async def test_a_refused_first_heartbeat_makes_no_group() -> None:
    c = await consumers()
    assert (await c.join("a", assignor="none")).error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert (await c.beat("a", 1)).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert len(c.world.registry) == 0


async def test_new_topics_and_partitions_reach_the_groups() -> None:
    c = await consumers()
    await c.join("a", pattern="t.*")
    c.topics.counts = {"t": 4, "t2": 1}
    c.broker.changes.topics_changed()
    c.broker.changes.topics_changed()
    await c.world.advance(1.1)
    told = await c.beat("a", 1)
    assert told.member_epoch == 2
    assert told.assignment is not None
    assert len(told.assignment) == 2


async def test_a_classic_group_becomes_a_consumer_group_and_its_waiting_requests_are_answered() -> None:
    c = await consumers()
    first, second = await c.world.stable(members=2)
    group = c.world.registry.classic("g")
    assert group is not None
    for member in group.roster.members.values():
        member.assignment = b""
    # The leader joins again, which begins a round.
    waiting = await c.world.join(member_id=first)
    reply = await c.join("new")
    assert reply.error is ErrorCode.NONE
    assert (await waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert isinstance(c.world.registry.group("g"), ConsumerGroup)
    assert c.world.store.groups == {}
    assert set(c.world.store.modern_members["g"]) == {first, second, "new"}
    # And back, when the new member leaves.
    assert (await c.beat("new", -1)).error is ErrorCode.NONE
    assert isinstance(c.world.registry.group("g"), Group)
    assert set(c.world.store.members["g"]) == {first, second}
    assert c.world.store.modern == {}
    restarted = await consumers(c.world.store)
    assert isinstance(restarted.world.registry.group("g"), Group)


async def test_a_group_that_may_not_be_converted_stays_as_it_is() -> None:
    c = Consumers(World(group_consumer_upgrade=False))
    await c.world.start()
    await c.world.stable(members=1)
    assert (await c.join("new")).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(c.world.registry.group("g"), Group)


async def test_the_name_of_a_queue_is_no_id_of_another_group() -> None:
    c = await consumers()
    queue = ShareGroup("mail")
    queue.is_kept = True
    entry, _ = c.world.registry.create("mail", queue)
    assert entry is not None
    assert (await c.join("a", "mail")).error is ErrorCode.GROUP_ID_NOT_FOUND
    joined = await c.world.join("mail")
    assert (await joined).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert c.world.registry.group("mail") is queue


async def test_what_a_member_may_have_kept_is_bounded() -> None:
    c = Consumers(World(group_max_member_bytes=1_000))
    await c.world.start()
    for more in (
        {"topics": ["t" * 100] * 10},
        {"pattern": "t" * 1_000},
        {"rack_id": "r" * 1_000},
        {"group_instance_id": "i" * 1_000},
        {"client_id": "c" * 1_000},
    ):
        assert (await c.join("a", **more)).error is ErrorCode.INVALID_REQUEST
    assert (await c.join("m" * 1_000)).error is ErrorCode.INVALID_REQUEST
    assert (await c.join("a", topics=["t" * 100] * 9)).error is ErrorCode.NONE


async def test_a_classic_member_that_must_join_soon_is_no_pause_of_the_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    c = await consumers()
    await c.join("a")
    joined = await (await c.world.join("g", session_timeout_ms=30_000, rebalance_timeout_ms=2_000))
    await c.world.sync(joined.member_id, generation=joined.generation)
    await c.world.advance(1)
    await c.join("b")
    await c.world.advance(1)
    beat = c.world.coordinator.heartbeat("g", joined.member_id, joined.generation)
    assert beat is ErrorCode.REBALANCE_IN_PROGRESS
    await c.world.advance(2.1)
    await c.world.turn()
    # It did not join within its time.
    assert set(c.world.store.modern_members["g"]) == {"a", "b"}
    await c.beat("a", 1)
    await c.world.advance(1)
    assert "paused" not in caplog.text


async def test_an_empty_group_changes_its_type_and_keeps_its_offsets() -> None:
    c = await consumers()
    await c.world.offsets.put("g", CommitRequest([Commit("t", 0, 7)]))
    await c.join("a")
    await c.beat("a", -1)
    joined = await c.world.join("g")
    await c.world.advance(4)
    assert (await joined).error is ErrorCode.NONE
    assert isinstance(c.world.registry.group("g"), Group)
    assert c.world.store.modern == {}
    found = c.world.offsets.get("g", "t", 0)
    assert found is not None
    assert found.offset == 7


async def test_commits_of_members() -> None:
    c = await consumers()
    await c.join("a")
    one = [Commit("t", 0, 3)]
    assert await c.world.offsets.put("g", CommitRequest(one, "a", 1)) == [ErrorCode.NONE]
    assert await c.world.offsets.put("g", CommitRequest(one)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    await c.join("b")
    await c.world.advance(1.1)
    await c.beat("a", 1, owned={UUID(int=1): [0, 1, 2, 3]})
    await c.beat("a", 1, owned={UUID(int=1): [0, 1]})
    both = CommitRequest([Commit("t", 0, 4), Commit("t", 3, 4)], "a", 1)
    assert await c.world.offsets.put("g", both) == [ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH]
    found = c.world.offsets.get("g", "t", 0)
    assert found is not None
    assert found.offset == 4


async def test_a_group_is_described_listed_and_deleted() -> None:
    c = await consumers()
    assert c.coordinator.describe("g") is None
    await c.join("a")
    view = c.coordinator.describe("g")
    assert view is not None
    assert view.members[0].member_id == "a"
    assert c.coordinator.kind("g", "a") == 1
    assert c.coordinator.kind("g", "b") is None
    assert [one.group_type for one in c.world.coordinator.list()] == ["consumer"]
    with pytest.raises(BrokerError):
        await c.world.coordinator.delete("g")
    await c.beat("a", -1)
    await c.world.coordinator.delete("g")
    assert c.world.store.modern == {}
    assert len(c.world.registry) == 0


async def test_a_caller_that_gives_up_does_not_stop_the_change() -> None:
    c = await consumers()
    c.world.store.hold = True
    task = await c.world.start_task(c.join("a"))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    c.world.store.release()
    c.world.store.hold = False
    await c.world.turn()
    assert (await c.beat("a", 1)).error is ErrorCode.NONE
