"""A coordinator in virtual time, over a store that can be slow, broken or restarted, for tests."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.groups.coordinator import GroupCoordinator
from core.groups.effects import (
    Change,
    GroupChange,
    GroupDeleted,
    ModernChange,
    OffsetsChange,
    StoredGroup,
    StoredMember,
    StoredModern,
    StoredModernMember,
    StoredOffset,
    StoredState,
)
from core.groups.offset_store import OffsetStore
from core.groups.registry import GroupRegistry
from core.vocabulary.groups import CommittedOffset, JoinReply, JoinRequest, SyncReply, SyncRequest
from tests.core.groups.machine import REBALANCE_MS, SESSION_MS, subscription

T = TypeVar("T")
# Turns of the loop after which everything that can happen now has happened.
TURNS = 12


class Call:
    """One timer."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualScheduler:
    """Timers that fire when `World.advance` says so."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.calls: list[tuple[float, int, Call, Callable[..., object], tuple[object, ...]]] = []
        self._count = 0

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Call:
        self._count += 1
        call = Call()
        heapq.heappush(self.calls, (self.clock.monotonic() + delay, self._count, call, callback, args))
        return call


class MemoryStore:
    """A store in dictionaries. `hold` keeps futures back until `release`; `broken` fails them."""

    def __init__(self) -> None:
        self.groups: dict[str, StoredGroup] = {}
        self.members: dict[str, dict[str, StoredMember]] = {}
        self.offsets: dict[tuple[str, str, int], CommittedOffset] = {}
        self.modern: dict[str, StoredModern] = {}
        self.modern_members: dict[str, dict[str, StoredModernMember]] = {}
        self.writes = 0
        self.hold = False
        self.broken = False
        self.refuse = False
        self._held: list[tuple[asyncio.Future[None], list[Change]]] = []

    async def load(self) -> StoredState:
        return StoredState(
            list(self.groups.values()),
            [member for members in self.members.values() for member in members.values()],
            [StoredOffset(*key, committed) for key, committed in self.offsets.items()],
            modern=list(self.modern.values()),
            modern_members=[one for members in self.modern_members.values() for one in members.values()],
        )

    def persist(self, changes: Sequence[Change]) -> asyncio.Future[None]:
        if self.refuse:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "too much waits")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((future, list(changes)))
        if not self.hold:
            self.release()
        return future

    def release(self, count: int | None = None) -> None:
        """What was held back, or the first `count` writes of it, is now durable, or lost."""
        held, self._held = self._held[:count], self._held[count:] if count is not None else []
        for future, changes in held:
            if self.broken:
                future.set_exception(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left"))
                continue
            self.writes += 1
            for change in changes:
                self._apply(change)
            future.set_result(None)

    def _apply(self, change: Change) -> None:
        if isinstance(change, ModernChange):
            self._apply_modern(change)
        elif isinstance(change, GroupChange):
            group_id = change.group.group_id
            if change.converted:
                self.modern.pop(group_id, None)
                self.modern_members.pop(group_id, None)
            self.groups[group_id] = change.group
            members = self.members.setdefault(group_id, {})
            if change.replace_members:
                members.clear()
            for member_id in change.removed:
                members.pop(member_id, None)
            for member in change.members:
                members[member.member_id] = member
        elif isinstance(change, GroupDeleted):
            self.groups.pop(change.group_id, None)
            self.members.pop(change.group_id, None)
            self.modern.pop(change.group_id, None)
            self.modern_members.pop(change.group_id, None)
            for key in [k for k in self.offsets if k[0] == change.group_id]:
                del self.offsets[key]
        else:
            assert isinstance(change, OffsetsChange)
            for topic, partition, committed in change.saved:
                self.offsets[change.group_id, topic, partition] = committed
            for topic, partition in change.removed:
                self.offsets.pop((change.group_id, topic, partition), None)

    def _apply_modern(self, change: ModernChange) -> None:
        group_id = change.group.group_id
        if change.converted:
            self.groups.pop(group_id, None)
            self.members.pop(group_id, None)
        self.modern[group_id] = change.group
        members = self.modern_members.setdefault(group_id, {})
        if change.replace_members:
            members.clear()
        for member_id in change.removed:
            members.pop(member_id, None)
        for member in change.members:
            members[member.member_id] = member


class TenPartitions:
    """A topic."""

    partitions = 10


class EveryTopic:
    """Every topic exists."""

    def get(self, name: str) -> TenPartitions:
        return TenPartitions()

    async def get_or_create(self, name: str) -> TenPartitions:
        return TenPartitions()


class AllTopics:
    """The topics of a broker; groups that only keep offsets need nothing else."""

    topics = EveryTopic()


class World:
    """A coordinator with its clock, timers and store."""

    def __init__(self, store: MemoryStore | None = None, **settings: Any) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.store = store or MemoryStore()
        self.config = replace(Config(), **settings)
        self._build()

    def _build(self) -> None:
        self.registry = GroupRegistry(self.config, self.clock, self.scheduler, self.store)
        self.coordinator = GroupCoordinator(self.registry)
        self.offsets = OffsetStore(self.registry, AllTopics())

    async def start(self) -> World:
        await self.registry.load()
        return self

    async def restart(self) -> World:
        """Another coordinator over the same store, as after kill -9."""
        world = World(self.store)
        world.config = self.config
        world.clock.jump_wall((self.clock.wall_ms() - world.clock.wall_ms()) / 1000)
        world._build()
        return await world.start()

    async def turn(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let time pass; every timer fires when it is due."""
        end = self.clock.monotonic() + seconds
        await self.turn()
        while self.scheduler.calls and self.scheduler.calls[0][0] <= end:
            at, _, call, callback, args = heapq.heappop(self.scheduler.calls)
            if not call.cancelled:
                self.clock.advance(max(0.0, at - self.clock.monotonic()))
                callback(*args)
                await self.turn()
        self.clock.advance(end - self.clock.monotonic())

    async def start_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        await self.turn()
        return task

    async def join(
        self, group: str = "g", member_id: str = "", *, client_id: str = "c", **more: Any
    ) -> asyncio.Task[JoinReply]:
        request = JoinRequest(
            member_id,
            "consumer",
            (("range", subscription("t")),),
            SESSION_MS,
            REBALANCE_MS,
            client_id,
            "/127.0.0.1",
        )
        return await self.start_task(self.coordinator.join(group, replace(request, **more)))

    async def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        generation: int = 1,
    ) -> asyncio.Task[SyncReply]:
        request = SyncRequest(member_id, generation, tuple((assignments or {}).items()))
        return await self.start_task(self.coordinator.sync(group, request))

    async def stable(self, group: str = "g", members: int = 1) -> list[str]:
        """A stable group in generation 1; the ids of its members, the leader first."""
        joins = [await self.join(group) for _ in range(members)]
        await self.advance(3.5 if members == 1 else 6.5)
        ids = [(await task).member_id for task in joins]
        syncs = [await self.sync(i, {m: m.encode() for m in ids}, group=group) for i in reversed(ids)]
        await self.turn()
        assert all(task.result().error is ErrorCode.NONE for task in syncs)
        return ids


async def world(**settings: Any) -> World:
    """A coordinator that has loaded an empty store."""
    return await World(**settings).start()
