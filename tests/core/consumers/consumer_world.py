"""A broker with managed consumers in virtual time, which can be killed and started again."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.consumers.consumer import Consumer
from core.consumers.membership import Membership
from core.consumers.registry import Registry
from core.errors import ErrorCode
from core.groups.groups import Groups
from core.groups.hosted import offers
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.consumers import Batch, ConsumerInfo, ConsumerOptions, Subscription
from core.vocabulary.groups import Commit, CommitRequest, JoinRequest, Leaver, SyncRequest
from core.vocabulary.member_metadata import assigned_partitions
from tests.virtual_time import LoopClock, VirtualLoop, run

G = "g"


class World:
    """One broker after the other over the same data. Everything about consumers is of group `g`."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._settings = settings
        self._starts = 0
        self.clock = LoopClock()
        self.broker: Broker

    async def start(self) -> World:
        """Open a broker over what there is."""
        config = Config(data_dir=self._directory / str(self._starts), **self._settings)
        config.data_dir.mkdir(exist_ok=True)
        self.broker = Broker(config, self.clock)
        await self.broker.open()
        return self

    async def kill(self, cut: Mapping[TopicPartition, int] | None = None) -> None:
        """Kill -9, and a new start: only what was on the disk is left. What waited is never answered.

        `cut`: a loss of power, which leaves of these logs at most that number of bytes.
        """
        old = self.broker
        # What threads have in hand is finished, for a copy in the middle of it is no picture of one moment.
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await old.store.read(lambda connection: None)
        while loop.busy:
            await asyncio.sleep(0)
        self._starts += 1
        shutil.copytree(old.config.data_dir, self._directory / str(self._starts))
        for tp, size in (cut or {}).items():
            os.truncate(self._directory / str(self._starts) / str(tp) / f"{0:020d}.log", size)
        old.consumers.drain()
        await self.start()
        await old.close()

    async def restart(self) -> None:
        """A clean stop and a start."""
        await self.broker.close()
        await self.start()

    async def close(self) -> None:
        await self.broker.close()

    # --- shorthands ----------------------------------------------------------------------------------------

    @property
    def consumers(self) -> Any:
        return self.broker.consumers

    @property
    def registry(self) -> Registry:
        return self.broker.consumers._registry

    async def topic(self, name: str = "t", partitions: int = 1, records: int = 0) -> None:
        await self.broker.topics.create(name, partitions=partitions)
        for partition in range(partitions):
            await self.produce(records, name, partition)

    async def produce(self, count: int, topic: str = "t", partition: int = 0) -> None:
        """Records whose values are their offsets."""
        first = self.broker.partitions.info(TopicPartition(topic, partition)).offsets.high_watermark
        records = [NewRecord(value=b"%d" % offset) for offset in range(first, first + count)]
        if records:
            await self.broker.records.produce(topic, records, partition=partition, acks=1)

    async def create(self, name: str = "c", *topics: str, **options: Any) -> ConsumerInfo:
        """A consumer of `topics`, or of topic t."""
        subscription = Subscription(topics or ("t",))
        return await self.consumers.create(
            G, name, subscription=subscription, options=ConsumerOptions(**options)
        )

    async def poll(self, name: str = "c", ack: str | None = None, **options: Any) -> Batch:
        limits = {"limit": 100, "max_bytes": 1_000_000, "wait_ms": 10_000} | options
        return await self.consumers.poll(G, name, ack=ack, **limits)

    def info(self, name: str = "c") -> ConsumerInfo:
        """The consumer as it is, without a sign of life."""
        (found,) = [one for one in self.consumers.of_group(G) if one.name == name]
        return found

    def committed(self, topic: str = "t") -> dict[int, int]:
        return {p: c.offset for t, p, c in self.broker.groups.all_committed(G) if t == topic}

    async def commit(self, offset: int, partition: int = 0, group: str = G) -> None:
        """Commit as an admin tool."""
        assert await self.broker.groups.commit(group, CommitRequest([Commit("t", partition, offset)])) == [
            ErrorCode.NONE
        ]

    async def other_member(self, *topics: str, **request: Any) -> OtherMember:
        """Begin to join as a client on the binary port would."""
        return OtherMember(self, topics or ("t",), **request)


def detached(consumer: Consumer) -> Membership:
    """A membership without a group, for tests of one consumer's state."""
    return Membership(
        cast(Groups, None),
        ManualClock(),
        consumer.group_id,
        consumer.name,
        consumer.options,
        subscription=lambda: consumer.subscription,
        topics_of=lambda subscription: subscription.topics,
        named=lambda: None,
        bring=lambda partitions: asyncio.sleep(0),
        before_rejoin=lambda: asyncio.sleep(0),
        assigned=lambda partitions, follows, new_generation: None,
        revoked=lambda: None,
        lost=lambda: None,
        changed=lambda: None,
    )


class OtherMember:
    """A member of the group on the binary port. If it leads, it assigns as any client would."""

    def __init__(self, world: World, topics: Sequence[str], **request: Any) -> None:
        self._world = world
        self._topics = topics
        self._request = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000} | request
        self.member_id = ""
        self.generation = -1
        self.owned: list[TopicPartition] = []

    async def join(self) -> None:
        """One round: join, lead if need be, sync."""
        groups = self._world.broker.groups
        while True:
            request = JoinRequest(self.member_id, "consumer", offers(self._topics), **self._request)
            joined = await groups.join(G, request)
            self.member_id = joined.member_id
            if joined.error:
                assert joined.error is ErrorCode.REBALANCE_IN_PROGRESS, joined.error
                continue
            if joined.leader_id == joined.member_id:
                await groups.hosted.lead(G, self.member_id, joined.generation)
            synced = await groups.sync(G, SyncRequest(self.member_id, joined.generation))
            if synced.error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
                continue
            assert not synced.error, synced.error
            self.generation = joined.generation
            self.owned = sorted(assigned_partitions(synced.assignment))
            return

    async def stay(self) -> None:
        """Heartbeat, and join again whenever the group says so; until cancelled."""
        while True:
            error = self.heartbeat()
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                await self.join()
            else:
                assert not error, error
            await asyncio.sleep(0.5)

    def heartbeat(self) -> ErrorCode:
        return self._world.broker.groups.heartbeat(G, self.member_id, self.generation)

    async def commit(self, partition: int, offset: int) -> ErrorCode:
        (error,) = await self._world.broker.groups.commit(
            G,
            CommitRequest(
                [Commit("t", partition, offset)], member_id=self.member_id, generation=self.generation
            ),
        )
        return error

    async def leave(self) -> None:
        await self._world.broker.groups.leave(G, [Leaver(self.member_id)])


def offsets(batch: Batch) -> dict[int, list[int]]:
    """The offsets that a batch delivers, by partition; the values must be those that were written there."""
    found: dict[int, list[int]] = {}
    for address, records in batch.records:
        assert [r.value for r in records] == [b"%d" % r.offset for r in records]
        found.setdefault(address.partition, []).extend(record.offset for record in records)
    return found


def owned(w: World, name: str) -> list[int]:
    """The partitions of a consumer."""
    return [one.partition for one in w.info(name).partitions]


async def settled(w: World, *names: str) -> None:
    """Wait until these consumers are members of one stable generation."""
    for _ in range(1000):
        found = [w.info(name) for name in names]
        if all(one.state == "stable" for one in found) and len({one.generation for one in found}) == 1:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{names} do not settle")


def in_virtual_time(
    directory: Path, scenario: Callable[[World], Coroutine[Any, Any, None]], **settings: Any
) -> None:
    """Run a scenario over a new broker."""

    async def whole() -> None:
        world = await World(directory, **settings).start()
        try:
            await scenario(world)
        finally:
            await world.close()

    run(whole())
