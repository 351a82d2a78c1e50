"""Queues as one caller may use them: a queue is the resource GROUP of its name. See `core.security.guarded`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from core.errors import BrokerError, ErrorCode
from core.security.acl import Operation, ResourceType
from core.security.authorizer import Rights
from core.security.guarded_dead_letters import GuardedDeadLetters
from core.security.meter import Meter
from core.types import TopicPartition
from core.vocabulary.queues import (
    AcknowledgeBatch,
    Acquired,
    InFlight,
    Leased,
    Queues,
    QueueSettings,
    QueueStats,
    QueueView,
    Receive,
    Received,
    Settle,
    Settled,
    Start,
)

_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_READ, _WRITE, _DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


class GuardedQueues:
    """`Facade.queues` for one caller.

    To receive and to settle need READ on the group and on all topics that the queue reads, as share groups ask for
    (KIP-932). To change its settings needs ALTER_CONFIGS on the group besides.
    """

    def __init__(self, queues: Queues, rights: Rights, meter: Meter) -> None:
        self._queues = queues
        self._rights = rights
        self._meter = meter
        self._dead_letters = GuardedDeadLetters(queues, rights, meter)

    @property
    def dead_letters(self) -> GuardedDeadLetters:
        """See `Queues.dead_letters`."""
        return self._dead_letters

    async def put(self, name: str, settings: QueueSettings, *, if_version: int | None = None) -> QueueView:
        """See `Queues.put`: needs ALTER_CONFIGS and READ on the group, READ on its topics, WRITE on dead letters."""
        self._require_changing(name, settings)
        changing = self._queues.put(name, settings, if_version=if_version)
        return await self._rights.noted("PUT_QUEUE", f"GROUP:{name}", changing)

    def get(self, name: str) -> QueueView:
        """See `Queues.get`: needs DESCRIBE on the group."""
        self._rights.require(_DESCRIBE, _GROUP, name)
        return self._queues.get(name)

    def names(self) -> Sequence[str]:
        """See `Queues.names`: with DESCRIBE on the cluster all, else those with DESCRIBE on the group."""
        names = self._queues.names()
        if self._rights.may(_DESCRIBE, _CLUSTER):
            return names
        return [name for name in names if self._rights.may(_DESCRIBE, _GROUP, name)]

    def topics(self, name: str) -> Sequence[str]:
        """See `Queues.topics`: those that may be described."""
        self._rights.require(_DESCRIBE, _GROUP, name)
        return [topic for topic in self._queues.topics(name) if self._rights.may(_DESCRIBE, _TOPIC, topic)]

    async def delete(self, name: str, *, force: bool = False) -> None:
        """See `Queues.delete`: needs DELETE on the group."""
        self._rights.require(Operation.DELETE, _GROUP, name)
        await self._rights.noted("DELETE_QUEUE", f"GROUP:{name}", self._queues.delete(name, force=force))

    async def receive(self, name: str, request: Receive) -> Received:
        """See `Queues.receive`. To create the queue needs what `put` needs."""
        self._rights.require(_READ, _GROUP, name)
        if self._rights.unlimited:
            return await self._metered(name, request)
        try:
            self._require_reading(name)
        except BrokerError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND or request.create is None:
                raise
            self._require_changing(name, request.create)
        received = await self._metered(name, request)
        # The rules may have changed in the wait.
        try:
            self._require_topics(name, {leased.tp.topic for leased in received.records})
        except BrokerError:
            if received.lease is not None:
                await self._queues.take_back(name, received.lease)
            raise
        return received

    async def _metered(self, name: str, request: Receive) -> Received:
        readable = self._meter.readable(request.max_bytes)
        if readable != request.max_bytes:
            request = replace(request, max_bytes=readable)
        received = await self._queues.receive(name, request)
        if received.records:
            self._meter.read(leased.record for leased in received.records)
        return received

    async def take_back(self, name: str, lease: int) -> None:
        """See `Queues.take_back`: needs READ on the group."""
        self._rights.require(_READ, _GROUP, name)
        await self._queues.take_back(name, lease)

    async def settle(self, name: str, items: Sequence[Settle]) -> Sequence[Settled]:
        """See `Queues.settle`."""
        self._require_reading(name)
        return await self._queues.settle(name, items)

    async def pause(self, name: str) -> QueueView:
        """See `Queues.pause`: needs ALTER_CONFIGS on the group."""
        self._rights.require(Operation.ALTER_CONFIGS, _GROUP, name)
        return await self._rights.noted("PAUSE_QUEUE", f"GROUP:{name}", self._queues.pause(name))

    async def resume(self, name: str) -> QueueView:
        """See `Queues.resume`: needs ALTER_CONFIGS on the group."""
        self._rights.require(Operation.ALTER_CONFIGS, _GROUP, name)
        return await self._rights.noted("RESUME_QUEUE", f"GROUP:{name}", self._queues.resume(name))

    async def seek(self, name: str, start: Start, *, force: bool = False) -> None:
        """See `Queues.seek`: needs READ on group and topics, and DESCRIBE on a group whose offsets it takes."""
        self._require_reading(name)
        self._require_start(start)
        await self._rights.noted("SEEK_QUEUE", f"GROUP:{name}", self._queues.seek(name, start, force=force))

    async def peek(self, name: str, limit: int, max_bytes: int) -> Sequence[Leased]:
        """See `Queues.peek`."""
        self._require_reading(name)
        found = await self._queues.peek(name, limit, self._meter.readable(max_bytes))
        self._meter.read(leased.record for leased in found)
        return found

    async def look(self, name: str) -> None:
        """See `Queues.look`: needs DESCRIBE on the group."""
        self._rights.require(_DESCRIBE, _GROUP, name)
        await self._queues.look(name)

    def stats(self, name: str) -> QueueStats:
        """See `Queues.stats`: needs DESCRIBE on the group; topics that it may not describe are left out."""
        self._rights.require(_DESCRIBE, _GROUP, name)
        stats = self._queues.stats(name)
        if self._rights.unlimited:
            return stats
        seen = [one for one in stats.partitions if self._rights.may(_DESCRIBE, _TOPIC, one.tp.topic)]
        return QueueStats(seen, stats.waiting_receivers, stats.totals)

    def in_flight(
        self, name: str, *, after: tuple[TopicPartition, int] | None = None, limit: int = 100
    ) -> Sequence[InFlight]:
        """See `Queues.in_flight`: needs DESCRIBE on the group and on its topics."""
        self._rights.require(_DESCRIBE, _GROUP, name)
        if not self._rights.unlimited:
            for topic in self._queues.topics(name):
                self._rights.require(_DESCRIBE, _TOPIC, topic)
        return self._queues.in_flight(name, after=after, limit=limit)

    def record(self, name: str, tp: TopicPartition, offset: int) -> InFlight:
        """See `Queues.record`: needs DESCRIBE on the group and on the topic."""
        self._rights.require(_DESCRIBE, _GROUP, name)
        self._rights.require(_DESCRIBE, _TOPIC, tp.topic)
        return self._queues.record(name, tp, offset)

    async def subscribe(self, name: str, topics: Sequence[str], create: QueueSettings) -> QueueView:
        """See `Queues.subscribe`: needs READ on the group and on the topics."""
        self._require_topics(name, topics)
        return await self._queues.subscribe(name, topics, create)

    async def move(
        self, name: str, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """See `Queues.move`: needs READ on the group and on the topics."""
        self._require_topics(name, {tp.topic for tp in offsets})
        return await self._queues.move(name, offsets)

    async def forget(self, name: str, topics: Sequence[str]) -> Sequence[ErrorCode]:
        """See `Queues.forget`: needs DELETE on the group, and READ on the topics."""
        self._rights.require(Operation.DELETE, _GROUP, name)
        for topic in topics:
            self._rights.require(_READ, _TOPIC, topic)
        return await self._queues.forget(name, topics)

    async def acquire(
        self,
        name: str,
        tp: TopicPartition,
        member_id: str,
        *,
        max_records: int,
        max_bytes: int,
        batch_size: int,
        strict: bool,
    ) -> Acquired:
        """See `Queues.acquire`: needs READ on the group and on the topic."""
        self._require_topics(name, (tp.topic,))
        return await self._queues.acquire(
            name,
            tp,
            member_id,
            max_records=max_records,
            max_bytes=max_bytes,
            batch_size=batch_size,
            strict=strict,
        )

    async def acknowledge(
        self, name: str, tp: TopicPartition, member_id: str, batches: Sequence[AcknowledgeBatch]
    ) -> ErrorCode:
        """See `Queues.acknowledge`: needs READ on the group and on the topic."""
        self._require_topics(name, (tp.topic,))
        return await self._queues.acknowledge(name, tp, member_id, batches)

    async def release_member(self, name: str, member_id: str) -> None:
        """See `Queues.release_member`: needs READ on the group."""
        self._rights.require(_READ, _GROUP, name)
        await self._queues.release_member(name, member_id)

    def _require_reading(self, name: str) -> None:
        self._rights.require(_READ, _GROUP, name)
        if not self._rights.unlimited:
            self._require_topics(name, self._queues.topics(name))

    def _require_topics(self, name: str, topics: Iterable[str]) -> None:
        self._rights.require(_READ, _GROUP, name)
        if not self._rights.unlimited:
            for topic in topics:
                self._rights.require(_READ, _TOPIC, topic)

    def _require_changing(self, name: str, settings: QueueSettings) -> None:
        self._rights.require(Operation.ALTER_CONFIGS, _GROUP, name)
        self._require_topics(name, settings.topics)
        self._require_start(settings.start)
        if settings.dead_letter is not None:
            self._rights.require(_WRITE, _TOPIC, settings.dead_letter.topic)

    def _require_start(self, start: Start) -> None:
        if start.group is not None:
            self._rights.require(_DESCRIBE, _GROUP, start.group)
