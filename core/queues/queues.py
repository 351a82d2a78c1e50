"""Queues over the logs of this broker: leases, settlements, waits, and what is stored of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.groups import Groups
from core.metadata import queues as tables
from core.metadata.store import Effect, Store
from core.queues.dead_letters import DeadLetterWriter, check_no_cycle
from core.queues.leasing import Leasing
from core.queues.members import Members
from core.queues.redrive import DeadLetters
from core.queues.registry import Registry
from core.queues.settings import check, check_name, check_start
from core.queues.settling import Settling
from core.queues.share import Queue, Share
from core.queues.views import Views
from core.types import TopicPartition
from core.vocabulary.groups import Cut
from core.vocabulary.idempotency import Idempotency
from core.vocabulary.queues import (
    AcknowledgeBatch,
    Acquired,
    InFlight,
    Leased,
    QueueSettings,
    QueueStats,
    QueueView,
    Receive,
    Received,
    Settle,
    Settled,
    Start,
)

T = TypeVar("T")


@dataclass(slots=True)
class _Turns:
    """The callers that change a queue or wait to do so."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    callers: int = 0


class Queues:
    """Implements `core.vocabulary.queues.Queues`. Open it where groups are served, and close it where they leave."""

    def __init__(self, broker: Logs, store: Store, groups: Groups, keys: Callable[[], Idempotency]) -> None:
        self._broker = broker
        self._ids = groups.shares
        self._registry = Registry(broker, store, groups, self._given_up)
        self._dead = DeadLetterWriter(broker, self._registry, keys)
        self._dead_letters = DeadLetters(broker, store, self._registry, keys)
        self._leasing = Leasing(broker, self._registry)
        self._settling = Settling(self._registry)
        self._members = Members(broker, self._registry)
        self._views = Views(broker, self._registry)
        # One change of the settings of a queue at a time.
        self._changing: dict[str, _Turns] = {}

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load the names and settings of queues; the state of a partition is loaded at its first use."""
        await self._registry.open()
        for name in self._registry.queues:
            with contextlib.suppress(BrokerError):
                self._ids.keep(name)
        await self._dead_letters.open()

    def start(self) -> None:
        """Write dead letters, and continue redrives: idempotency keys are open."""
        self._dead.start()
        self._dead_letters.start()
        if self._registry.queues:
            self._registry.start_task(self._load_all())

    async def _load_all(self) -> None:
        """Load all queues one after the other: locks end and dead letters are written without a call."""
        for name in list(self._registry.queues):
            with contextlib.suppress(BrokerError):
                await self.look(name)
            await asyncio.sleep(0)

    def elsewhere(self) -> None:
        """Refuse every call from now on: another broker serves queues."""
        self._registry.close(ErrorCode.NOT_COORDINATOR)

    def drain(self) -> None:
        """Answer every receiver that waits; none waits afterwards."""
        self._leasing.drain()

    async def close(self) -> None:
        """Wait for the writes under way."""
        self._leasing.drain()
        self._registry.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await self._dead.close()
        await self._dead_letters.close()
        await self._registry.finish_tasks()

    def topic_deleted(self, name: str) -> None:
        """Forget the partitions of a topic."""
        self._registry.topic_deleted(name)

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Forget what is known of offsets from these ends of logs on, durably. Raises KAFKA_STORAGE_ERROR."""
        return await self._registry.cut_back(ends)

    def _given_up(self, queue: Queue, share: Share) -> None:
        """Write records that are given up to the dead-letter topic."""
        self._dead.given_up(queue, share)

    # --- queues --------------------------------------------------------------------------------------------

    async def put(self, name: str, settings: QueueSettings, *, if_version: int | None = None) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        check_name(name)
        check(settings, self._broker.config.max_pattern_bytes)
        return await self._whole(self._put(name, settings, if_version))

    async def _put(self, name: str, settings: QueueSettings, if_version: int | None) -> QueueView:
        async with self._change(name):
            queue = self._registry.queues.get(name)
            version = 0 if queue is None else queue.version
            if if_version is not None and if_version != version:
                raise BrokerError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"The queue {name!r} has the version {version}, not {if_version}; look at it again.",
                    version=version,
                )
            if queue is None:
                return await self._create(name, settings)
            return await self._alter(queue, settings)

    def get(self, name: str) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        return self._registry.find(name).view

    def names(self) -> Sequence[str]:
        """See `core.vocabulary.queues.Queues`."""
        return sorted(self._registry.queues)

    def topics(self, name: str) -> Sequence[str]:
        """See `core.vocabulary.queues.Queues`."""
        return self._registry.topics_of(self._registry.find(name).settings)

    async def delete(self, name: str, *, force: bool = False) -> None:
        """See `core.vocabulary.queues.Queues`."""
        await self._whole(self._delete(name, force=force))

    async def _delete(self, name: str, *, force: bool) -> None:
        async with self._change(name):
            queue = await self._ready(name)
            if not force:
                self._require_unused(queue)
            queue.deleted = True
            try:
                await self._registry.writes.remove(name)
            except BrokerError:
                queue.deleted = False
                raise
            self._registry.remove(queue)
            self._ids.forget(name)
            self._leasing.answer_all(queue)
            for share in queue.shares.values():
                self._registry.wake(queue, share)

    async def pause(self, name: str) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        return await self._set_paused(name, paused=True)

    async def resume(self, name: str) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        return await self._set_paused(name, paused=False)

    async def seek(self, name: str, start: Start, *, force: bool = False) -> None:
        """See `core.vocabulary.queues.Queues`."""
        check_start(start)
        async with self._change(name):
            queue = await self._ready(name)
            if not force:
                self._require_unused(queue)
            topics = self._registry.topics_of(queue.settings)
            places = await self._registry.starts(queue.settings, start, topics)
            await self._registry.seek(
                queue,
                {queue.shares[key]: offset for key, (_, offset) in places.items() if key in queue.shares},
            )

    async def peek(self, name: str, limit: int, max_bytes: int) -> Sequence[Leased]:
        """See `core.vocabulary.queues.Queues`."""
        queue = await self._ready(name)
        return self._leasing.peek(queue, limit, max_bytes)

    def stats(self, name: str) -> QueueStats:
        """See `core.vocabulary.queues.Queues`."""
        return self._views.stats(self._registry.find(name))

    def in_flight(
        self, name: str, *, after: tuple[TopicPartition, int] | None = None, limit: int = 100
    ) -> Sequence[InFlight]:
        """See `core.vocabulary.queues.Queues`."""
        return self._views.in_flight(self._registry.find(name), after, limit)

    def record(self, name: str, tp: TopicPartition, offset: int) -> InFlight:
        """See `core.vocabulary.queues.Queues`."""
        return self._views.record(self._registry.find(name), tp, offset)

    async def look(self, name: str) -> None:
        """Load the partitions of a queue, if there is one, for synchronous calls."""
        if name in self._registry.queues:
            await self._ready(name)

    # --- receivers -----------------------------------------------------------------------------------------

    async def receive(self, name: str, request: Receive) -> Received:
        """See `core.vocabulary.queues.Queues`."""
        if name not in self._registry.queues and request.create is not None:
            check_name(name)
            check(request.create, self._broker.config.max_pattern_bytes)
            await self._whole(self._create_missing(name, request.create))
        return await self._leasing.receive(await self._ready(name), request)

    async def _create_missing(self, name: str, settings: QueueSettings) -> None:
        async with self._change(name):
            if name not in self._registry.queues:
                await self._create(name, settings)

    async def take_back(self, name: str, lease: int) -> None:
        """See `core.vocabulary.queues.Queues`."""
        await self._leasing.take_back(await self._ready(name), lease)

    async def settle(self, name: str, items: Sequence[Settle]) -> Sequence[Settled]:
        """See `core.vocabulary.queues.Queues`."""
        return await self._settling.settle(await self._ready(name), items)

    # --- share consumers -----------------------------------------------------------------------------------

    @property
    def dead_letters(self) -> DeadLetters:
        """See `core.vocabulary.queues.Queues`."""
        return self._dead_letters

    async def subscribe(self, name: str, topics: Sequence[str], create: QueueSettings) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        return await self._whole(self._subscribe(name, topics, create))

    async def _subscribe(self, name: str, topics: Sequence[str], create: QueueSettings) -> QueueView:
        async with self._change(name):
            queue = self._registry.queues.get(name)
            if queue is None:
                check_name(name)
                settings = replace(create, topics=tuple(dict.fromkeys(topics)), pattern=None)
                check(settings, self._broker.config.max_pattern_bytes)
                return await self._create(name, settings)
            return await self._read_also(queue, topics)

    async def move(
        self, name: str, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """See `core.vocabulary.queues.Queues`."""
        async with self._change(name):
            queue = await self._ready(name)
            self._require_unused(queue)
            found = {tp: self._registry.exists(tp) for tp in offsets}
            await self._read_also(queue, {tp.topic for tp, exists in found.items() if exists})
            moves = {}
            for tp, offset in offsets.items():
                share = self._registry.share_of(queue, tp) if found[tp] else None
                if share is not None:
                    moves[share] = max(offset, 0)
            await self._registry.seek(queue, moves)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return {tp: ErrorCode.NONE if found[tp] else missing for tp in offsets}

    async def forget(self, name: str, topics: Sequence[str]) -> Sequence[ErrorCode]:
        """See `core.vocabulary.queues.Queues`."""
        async with self._change(name):
            queue = await self._ready(name)
            self._require_unused(queue)
            read = set(self._registry.topics_of(queue.settings))
            gone = read.intersection(topics)
            if gone:
                left = tuple(topic for topic in queue.settings.topics if topic not in gone)
                await self._alter(queue, replace(queue.settings, topics=left))
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return [ErrorCode.NONE if topic in gone else missing for topic in topics]

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
        """See `core.vocabulary.queues.Queues`."""
        queue = await self._ready(name)
        return self._members.acquire(queue, tp, member_id, max_records, max_bytes, batch_size, strict=strict)

    async def acknowledge(
        self, name: str, tp: TopicPartition, member_id: str, batches: Sequence[AcknowledgeBatch]
    ) -> ErrorCode:
        """See `core.vocabulary.queues.Queues`."""
        return await self._members.acknowledge(await self._ready(name), tp, member_id, batches)

    async def release_member(self, name: str, member_id: str) -> None:
        """See `core.vocabulary.queues.Queues`."""
        queue = self._registry.queues.get(name)
        if queue is not None and queue.loaded:
            await self._members.release(queue, member_id)

    # --- changes of settings -------------------------------------------------------------------------------

    async def _ready(self, name: str) -> Queue:
        queue = self._registry.find(name)
        if queue.loaded:
            self._registry.refresh(queue)
            return queue
        return await self._registry.ready(queue)

    async def _whole(self, change: Coroutine[Any, Any, T]) -> T:
        """Carry out a change to its end, also if the caller is cancelled: the store does, and memory must follow."""
        return await asyncio.shield(self._registry.start_task(change))

    @contextlib.asynccontextmanager
    async def _change(self, name: str):  # type: ignore[no-untyped-def]
        """Let one caller at a time change a queue."""
        self._registry.require_open()
        lock = self._changing.setdefault(name, _Turns())
        lock.callers += 1
        try:
            async with lock.lock:
                self._registry.require_open()
                yield
        finally:
            lock.callers -= 1
            if not lock.callers:
                del self._changing[name]

    def _require_unused(self, queue: Queue) -> None:
        leased = 0
        for share in queue.shares.values():
            self._registry.expire(queue, share)
            leased += share.machine.leased
        if leased or self._ids.has_members(queue.name):
            raise BrokerError(
                ErrorCode.NON_EMPTY_GROUP,
                f"{leased} records of the queue {queue.name!r} are leased, or it has members. Settle the records, or "
                "use `force`.",
                group=queue.name,
                leased=leased,
            )

    def _check_no_cycle(self, name: str, settings: QueueSettings) -> None:
        others = {other: queue.settings for other, queue in self._registry.queues.items()}
        check_no_cycle(name, settings, others)

    async def _create(self, name: str, settings: QueueSettings) -> QueueView:
        self._check_no_cycle(name, settings)
        self._ids.keep(name)
        try:
            now = self._broker.clock.wall_ms()
            queue = Queue(name, settings, 1, False, now, self._registry.first_lease())
            queue.loaded = True
            topics = self._registry.topics_of(settings)
            await self._begin(queue, settings, topics)
            await self._registry.writes.put(queue, list(queue.shares.values()))
        except BaseException:
            self._ids.forget(name)
            raise
        self._registry.add(queue)
        return queue.view

    async def _begin(self, queue: Queue, settings: QueueSettings, topics: Iterable[str]) -> list[Share]:
        """Add the partitions of topics at the start of the settings; return those that are new."""
        places = await self._registry.starts(settings, settings.start, topics)
        new = [key for key in places if key not in queue.shares]
        return [self._registry.share(queue, places[key][0], key[0], places[key][1]) for key in new]

    async def _alter(self, queue: Queue, settings: QueueSettings) -> QueueView:
        queue = await self._registry.ready(queue)
        if settings == queue.settings:
            return queue.view
        self._check_no_cycle(queue.name, settings)
        before, topics = queue.settings, self._registry.topics_of(settings)
        new = await self._begin(queue, settings, topics)
        dropped = self._registry.dropped(queue, topics)
        more: list[Effect] = []
        if dropped:
            more.append(tables.remove_group_topics(queue.name, {key[0].bytes for key in dropped}))
        self._take(queue, settings, queue.version + 1)
        # Nothing is stored of them after their rows are removed.
        removed = {key: queue.shares.pop(key) for key in dropped}
        try:
            await self._registry.writes.put(queue, new, more)
        except BrokerError:
            for share in new:
                queue.shares.pop(share.key, None)
            queue.shares |= removed
            self._take(queue, before, queue.version - 1)
            raise
        self._registry.wake_all(queue)
        return queue.view

    def _take(self, queue: Queue, settings: QueueSettings, version: int) -> None:
        queue.settings, queue.version, queue.seen_version = settings, version, -1
        for share in queue.shares.values():
            share.machine.settings = settings
            share.forget_keys()

    async def _read_also(self, queue: Queue, topics: Iterable[str]) -> QueueView:
        """Add topics to a queue that names its topics."""
        settings = queue.settings
        read = self._registry.topics_of(settings) if settings.pattern is not None else settings.topics
        new = [topic for topic in dict.fromkeys(topics) if topic not in read]
        if not new or settings.pattern is not None:
            return queue.view
        return await self._alter(queue, replace(settings, topics=(*settings.topics, *new)))

    async def _set_paused(self, name: str, *, paused: bool) -> QueueView:
        async with self._change(name):
            queue = await self._ready(name)
            if queue.paused != paused:
                queue.paused, queue.version = paused, queue.version + 1
                try:
                    await self._registry.writes.put(queue)
                except BrokerError:
                    queue.paused, queue.version = not paused, queue.version - 1
                    raise
                self._registry.wake_all(queue)
            return queue.view
