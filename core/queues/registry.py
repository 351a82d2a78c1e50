"""The queues of this broker: their partitions, loaded at first use; time, and waking what waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from core.clock import TimeSlice
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.groups import Groups
from core.groups.topic_pattern import compile_pattern, matches
from core.metadata import queues as tables
from core.metadata.store import Store
from core.queues.attempts import Attempts
from core.queues.key_reading import KeyReading
from core.queues.reading import Reading
from core.queues.settings import decode
from core.queues.share import Queue, QueueClock, Share
from core.queues.share_partition import SharePartition
from core.queues.writes import Writes, unpack
from core.types import TopicPartition
from core.vocabulary.groups import Cut
from core.vocabulary.queues import LATEST, QueueSettings, Start, work_key

log = logging.getLogger(__name__)
T = TypeVar("T")

# A nonce has 40 random bits, so that those of a queue that was deleted and created again differ.
_NONCES = 1 << 40
# The first lease of a new queue is in one of this many blocks of numbers, for the same reason.
_FIRST_BLOCKS = 500_000
_BLOCK = 1_000
# The first lease of a share consumer or a webhook is one of this many.
_VOLATILE_STARTS = 1 << 30
# Seconds after a write that was refused until the records are offered again: the next one may be refused as well.
_AFTER_REFUSAL = 1.0
# Pieces of expiry in one turn of the event loop; the rest is done by the timer.
_EXPIRE_STEPS = 4


class Registry:
    """Queues by name. `given_up` is called with a partition that has records for the dead-letter topic."""

    def __init__(
        self, broker: Logs, store: Store, groups: Groups, given_up: Callable[[Queue, Share], None]
    ) -> None:
        self._broker = broker
        self._groups = groups
        self._store = store
        self._given_up = given_up
        self.clock = QueueClock(broker.clock)
        self.writes = Writes(store, self._broken, self._taken_back)
        self.reading = Reading(broker)
        self.keyed = KeyReading(self.reading)
        self.queues: dict[str, Queue] = {}
        # The end of what is tracked of each stored partition of a queue that is not loaded.
        self._stored: dict[str, dict[tuple[UUID, int], int]] = {}
        # The error of all calls before `open`, and after `close`.
        self.refusal: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load queues without their partitions."""
        for group_id, settings, version, paused, created_ms, leases in await self._store.read(
            tables.load_groups
        ):
            self.add(Queue(group_id, decode(settings), version, bool(paused), created_ms, leases))
        orphans: set[bytes] = set()
        for group_id, topic_id, partition, _, _, end in await self._store.read(tables.load_partitions):
            if self._name_of(UUID(bytes=topic_id)) is None:
                orphans.add(topic_id)
            else:
                self._stored.setdefault(group_id, {})[UUID(bytes=topic_id), partition] = end
        self.refusal = ErrorCode.NONE
        if orphans:
            with contextlib.suppress(BrokerError):
                self.writes.remove_topics(sorted(orphans)).add_done_callback(_seen)

    def close(self, refusal: ErrorCode) -> None:
        """Refuse every call from now on, and end the timers."""
        self.refusal = refusal
        for queue in self.queues.values():
            if queue.timer is not None:
                queue.timer.cancel()
                queue.timer = None

    def start_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine that no caller need wait for; an error of the store is no news."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_seen)
        return task

    async def finish_tasks(self) -> None:
        """Wait for what was begun by `start_task`."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- queues --------------------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise NOT_COORDINATOR where another broker serves queues, and the like."""
        if self.refusal is not ErrorCode.NONE:
            raise BrokerError(self.refusal, "Queues are not served by this broker now; ask again.")

    def find(self, name: str) -> Queue:
        """Return a queue. Raises GROUP_ID_NOT_FOUND."""
        self.require_open()
        queue = self.queues.get(name)
        if queue is None:
            self._groups.shares.refuse_another_type(name)
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"There is no queue {name!r}.", group=name)
        return queue

    def add(self, queue: Queue) -> None:
        """Add a queue that is stored."""
        # Dead letters are told apart by the last lease: leases of two runs of the process must differ.
        queue.next_volatile += self._broker.clock.randrange(_VOLATILE_STARTS)
        self.queues[queue.name] = queue

    def remove(self, queue: Queue) -> None:
        """Remove a queue that is deleted."""
        if self.queues.get(queue.name) is queue:
            del self.queues[queue.name]
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None

    async def ready(self, queue: Queue) -> Queue:
        """Return the queue with its partitions at hand, as the topics are now."""
        while not queue.loaded:
            if queue.loading is None:
                queue.loading = asyncio.create_task(self._load(queue))
            await asyncio.shield(queue.loading)
        if queue.deleted:
            return self.find(queue.name)
        self.refresh(queue)
        return queue

    async def _load(self, queue: Queue) -> None:
        try:
            snapshots, updates = await self._store.read(tables.load_group(queue.name))
            attempts = await self._store.read(tables.load_attempts(queue.name))
            rows: dict[tuple[bytes, int], list[tuple[int, bytes]]] = {}
            for topic_id, partition, seq, change in updates:
                rows.setdefault((topic_id, partition), []).append((seq, change))
            time_slice = TimeSlice(self._broker.clock)
            for topic_id, partition, snapshot in snapshots:
                name = self._name_of(UUID(bytes=topic_id))
                key = UUID(bytes=topic_id), partition
                if name is None or key in queue.shares:
                    continue
                own = rows.get((topic_id, partition), [])
                machine = SharePartition.restored(
                    queue.settings, unpack(snapshot), [change for _, change in own], self.clock.now_ms()
                )
                share = Share(TopicPartition(name, partition), key[0], machine, stored=True)
                share.seq = own[-1][0] if own else 0
                share.rows_since_fold = len(own)
                queue.shares[key] = share
                self.expire(queue, share)
                await time_slice.give_way()
            Attempts.restore(queue, attempts, self.clock.now_ms())
            queue.loaded = True
            self._stored.pop(queue.name, None)
        finally:
            queue.loading = None

    def _broken(self, queue: Queue, share: Share) -> None:
        """Let a partition be loaded again: it cannot be taken back to what is stored."""
        if queue.shares.get(share.key) is share:
            del queue.shares[share.key]
            queue.loaded = False

    def _taken_back(self, queue: Queue, share: Share) -> None:
        """Look again soon at records that are what they were: available, or leased with a lock to watch."""
        asyncio.get_running_loop().call_later(_AFTER_REFUSAL, self._look_again, queue, share)

    def _look_again(self, queue: Queue, share: Share) -> None:
        if self.refusal is ErrorCode.NONE and queue.shares.get(share.key) is share:
            self.changed(queue, share)
            self.wake(queue, share)

    # --- partitions ----------------------------------------------------------------------------------------

    def topics_of(self, settings: QueueSettings) -> list[str]:
        """Return the topics that settings name and that exist."""
        if settings.pattern is not None:
            compiled = compile_pattern(settings.pattern, self._broker.config.max_pattern_bytes)
            found = (info.name for info in self._broker.topics.list() if matches(compiled, info.name))
            dead = settings.dead_letter.topic if settings.dead_letter is not None else None
            return [name for name in found if name != dead]
        return [name for name in settings.topics if self._partitions(name) is not None]

    def _partitions(self, name: str) -> tuple[UUID, int] | None:
        try:
            info = self._broker.topics.get(name)
        except BrokerError:
            return None
        return info.topic_id, info.partitions

    def _name_of(self, topic_id: UUID) -> str | None:
        try:
            return self._broker.topics.name_of(topic_id)
        except BrokerError:
            return None

    def refresh(self, queue: Queue) -> None:
        """Add partitions that are new since the last look; they begin at 0, so that no record is missed.

        Partitions of topics that were deleted are forgotten.
        """
        version = self._broker.changes.version
        if queue.seen_version == version or not queue.loaded:
            return
        queue.seen_version = version
        present = set()
        for topic in self.topics_of(queue.settings):
            found = self._partitions(topic)
            if found is not None:
                for partition in range(found[1]):
                    present.add((found[0], partition))
                    self.share(queue, TopicPartition(topic, partition), found[0], 0)
        deleted = set()
        for key in [key for key in queue.shares if key not in present]:
            del queue.shares[key]
            if self._name_of(key[0]) is None:
                deleted.add(key[0].bytes)
        self._forget_topics(deleted)

    def share(self, queue: Queue, tp: TopicPartition, topic_id: UUID, start: int) -> Share:
        """Return a partition of a queue; a new one begins at `start`, and is stored with its first change."""
        key = topic_id, tp.partition
        found = queue.shares.get(key)
        if found is None:
            machine = SharePartition(queue.settings, start, self.new_nonce())
            found = queue.shares[key] = Share(tp, topic_id, machine, stored=False)
        return found

    def share_of(self, queue: Queue, tp: TopicPartition) -> Share | None:
        """Return a partition of a queue; None if it does not read it."""
        found = self._partitions(tp.topic)
        return None if found is None else queue.shares.get((found[0], tp.partition))

    def exists(self, tp: TopicPartition) -> bool:
        """Return whether there is such a partition."""
        found = self._partitions(tp.topic)
        return found is not None and 0 <= tp.partition < found[1]

    def dropped(self, queue: Queue, topics: Iterable[str]) -> list[tuple[UUID, int]]:
        """Return the partitions of a queue that are of none of these topics."""
        kept = {found[0] for topic in topics if (found := self._partitions(topic)) is not None}
        return [key for key in queue.shares if key[0] not in kept]

    def topic_deleted(self, name: str) -> None:
        """Forget the partitions of a topic that was deleted, also on the disk."""
        topic_ids = set()
        for queue in self.queues.values():
            for key, share in list(queue.shares.items()):
                if share.tp.topic == name and self._name_of(key[0]) is None:
                    del queue.shares[key]
                    topic_ids.add(key[0].bytes)
                    self.wake(queue, share)
        for stored in self._stored.values():
            for key in [key for key in stored if self._name_of(key[0]) is None]:
                del stored[key]
                topic_ids.add(key[0].bytes)
        self._forget_topics(topic_ids)

    def _forget_topics(self, topic_ids: Collection[bytes]) -> None:
        """Remove the rows of topics that were deleted. If it is refused, the next start does it."""
        if topic_ids:
            with contextlib.suppress(BrokerError):
                self.writes.remove_topics(sorted(topic_ids)).add_done_callback(_seen)

    async def seek(self, queue: Queue, places: Mapping[Share, int]) -> None:
        """Let partitions begin at other offsets; all their receipts end. Raises KAFKA_STORAGE_ERROR."""
        pending = [share.last_write for share in places if share.last_write is not None]
        if pending:
            await asyncio.wait(pending)
        now = self.clock.now_ms()
        changes = []
        for share, offset in places.items():
            changes.append((share, share.machine.seek(now, offset, share.machine.nonce + 1)))
            share.forget_keys()
        written = self.writes.submit(queue, changes)
        queue.attempts.clear()
        if written is not None:
            await asyncio.shield(written)
        self.wake_all(queue)

    def new_nonce(self) -> int:
        """Return the nonce of a partition that is new."""
        return self._broker.clock.randrange(_NONCES)

    def first_lease(self) -> int:
        """Return the number below which no lease of a new queue is."""
        return (self._broker.clock.randrange(_FIRST_BLOCKS) + 1) * _BLOCK

    async def starts(
        self, settings: QueueSettings, start: Start, topics: Iterable[str]
    ) -> dict[tuple[UUID, int], tuple[TopicPartition, int]]:
        """Return where a queue begins in all partitions of topics: (topic id, partition) → (partition, offset).

        Raises GROUP_ID_NOT_FOUND for a group that is named and missing.
        """
        if start.group is not None and not self._has_group(start.group):
            raise BrokerError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"There is no group {start.group!r} to begin at.",
                group=start.group,
            )
        found = {}
        time_slice = TimeSlice(self._broker.clock)
        for topic in topics:
            known = self._partitions(topic)
            for partition in range(known[1] if known else 0):
                tp = TopicPartition(topic, partition)
                assert known is not None
                found[known[0], partition] = tp, self._start(settings, start, tp)
                await time_slice.give_way()
        return found

    def _has_group(self, group_id: str) -> bool:
        if self._groups.describe(group_id) is not None:
            return True
        return any(True for _ in self._groups.all_committed(group_id))

    def _start(self, settings: QueueSettings, start: Start, tp: TopicPartition) -> int:
        committed = settings.read_committed
        try:
            bounds = self._broker.partitions.offsets(tp)
            if start.group is not None:
                offset = self._groups.committed(start.group, *tp)
                if offset is not None:
                    return min(max(offset.offset, bounds.log_start_offset), bounds.high_watermark)
            if start.time_ms is not None:
                at = self._broker.partitions.offset_for_time(tp, start.time_ms, committed=committed).offset
                return at if at >= 0 else bounds.end(committed=committed)
        except BrokerError:
            # Another broker leads it: nothing is known of it here, and no record may be missed.
            return 0
        return bounds.end(committed=committed) if start.at == LATEST else bounds.log_start_offset

    # --- time ----------------------------------------------------------------------------------------------

    def expire(self, queue: Queue, share: Share) -> None:
        """Take back what has run out in a partition, and note when the next lock or delay ends."""
        now, machine = self.clock.now_ms(), share.machine
        due = machine.next_due()
        steps = 0
        while due is not None and due <= now and steps < _EXPIRE_STEPS:
            expired = machine.expire(now)
            steps += 1
            if expired.timed_out:
                queue.totals["expired"] += expired.timed_out
            if expired.change is not None:
                with contextlib.suppress(BrokerError):
                    # A refusal takes the change back; the records are leased until the next attempt.
                    written = self.writes.submit(queue, [(share, expired.change)])
                    if written is not None:
                        written.add_done_callback(_seen)
            due = machine.next_due()
        if machine.archiving:
            self._given_up(queue, share)
        self.arm(queue, due)

    def arm(self, queue: Queue, due: int | None) -> None:
        """Let the timer of a queue run at `due`, if it does not run before."""
        if due is None or queue.deleted or (queue.timer is not None and queue.timer_due <= due):
            return
        if queue.timer is not None:
            queue.timer.cancel()
        queue.timer_due = due
        seconds = max((due - self.clock.now_ms()) / 1000, 0.001)
        queue.timer = asyncio.get_running_loop().call_later(seconds, self._due, queue)

    def _due(self, queue: Queue) -> None:
        queue.timer = None
        now = self.clock.now_ms()
        for share in list(queue.shares.values()):
            due = share.machine.next_due()
            if due is not None and due <= now:
                self.expire(queue, share)
                self.wake(queue, share)
            else:
                self.arm(queue, due)

    def wake(self, queue: Queue, share: Share) -> None:
        """Note that a partition may have records for those that wait."""
        self._broker.purgatory.notify(queue.token)
        self._broker.purgatory.notify(work_key(queue.name, share.tp))

    def wake_all(self, queue: Queue) -> None:
        """Note that all partitions may have records for those that wait."""
        for share in queue.shares.values():
            self.wake(queue, share)

    def changed(self, queue: Queue, share: Share) -> None:
        """Note that records were settled, released or leased: arm the timer, wake, write dead letters."""
        self.arm(queue, share.machine.next_due())
        if share.machine.archiving:
            self._given_up(queue, share)

    # --- truncation ----------------------------------------------------------------------------------------

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """See `Queues.cut_back`: the nonce rises, so that old receipts end."""
        by_id: dict[tuple[UUID, int], tuple[TopicPartition, int]] = {}
        for tp, end in ends.items():
            found = self._partitions(tp.topic)
            if found is not None:
                by_id[found[0], tp.partition] = tp, end
        cuts: list[Cut] = []
        for queue in list(self.queues.values()):
            stored = self._stored.get(queue.name)
            # Those of a queue that is to be loaded again are not known: see `_broken`.
            if (
                not queue.loaded
                and stored is not None
                and not any(key in by_id and tracked > by_id[key][1] for key, tracked in stored.items())
            ):
                continue
            await self.ready(queue)
            cuts += await self._cut(queue, by_id)
        return cuts

    async def _cut(
        self, queue: Queue, ends: Mapping[tuple[UUID, int], tuple[TopicPartition, int]]
    ) -> list[Cut]:
        cuts, changed = [], []
        for key, share in list(queue.shares.items()):
            if key not in ends or share.machine.tracked_end <= ends[key][1]:
                continue
            if share.last_write is not None:
                await asyncio.wait([share.last_write])
            tp, end = ends[key]
            before = share.machine.tracked_end
            if share.machine.cut(self.clock.now_ms(), end, share.machine.nonce + 1) is not None:
                cuts.append(Cut(queue.name, *tp, before, end))
                share.begin = min(share.begin, end)
                share.forget_keys()
                changed.append(share)
        if changed:
            try:
                await self.writes.replace(queue, changed)
            except BrokerError:
                for share in changed:
                    self._broken(queue, share)
                raise
            self.wake_all(queue)
        return cuts


def _seen(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
