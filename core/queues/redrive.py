"""The dead letters of queues as operators see them: listed, appended again (redriven), purged.

For each queue one row says which records of its dead-letter topic are done with: redriven, purged, or not of this
queue. That is a share partition for each partition of the topic, in which nothing is ever leased. A redrive reads
the records that are left, appends those that match under idempotency keys that follow from their place in the
topic, and then stores them as done. So a redrive that was interrupted continues after a restart, and one that runs a
second time finds nothing: each dead letter is appended once.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

import msgspec

from core.clock import TimeSlice
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.metadata import dead_letters as tables
from core.metadata.store import Store
from core.queues.dead_letters import append_once, read_dead_letter
from core.queues.registry import Registry
from core.queues.share import Queue
from core.queues.share_changes import SETTLED
from core.queues.share_partition import SharePartition
from core.records.record import NewRecord, Record
from core.types import TopicPartition
from core.vocabulary.idempotency import Idempotency
from core.vocabulary.queues import (
    Cause,
    DeadLetterPage,
    DeadRecord,
    QueueSettings,
    Redrive,
    RedriveTask,
)

log = logging.getLogger(__name__)

REDRIVEN_FROM: Final = "sluice.redriven-from"
RUNNING, DONE, CANCELLED, FAILED = "running", "done", "cancelled", "failed"

# Records that one call or one step looks at, and their bytes.
_PIECE, _PIECE_BYTES = 200, 1_048_576
_MOST_LISTED: Final = 1_000
_MOST_LOOKED_AT: Final = 5_000
# Dead letters that are appended at a time; they share commits.
_TOGETHER: Final = 32
# Tasks of a queue that are kept.
_MOST_TASKS: Final = 20
_PAUSE: Final = 1.0
# Errors after which the same append may succeed later.
_PASSING: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
_TOO_LARGE: Final = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
)


class _Task(msgspec.Struct):
    id: str
    state: str
    redrive: Redrive
    created_ms: int
    # Of each partition of the dead-letter topic the offset at which it ends.
    ends: dict[int, int]
    moved: int = 0
    skipped: int = 0
    error: str = ""

    @property
    def view(self) -> RedriveTask:
        return RedriveTask(
            self.id, self.state, self.redrive, self.moved, self.skipped, self.created_ms, self.error
        )


class _State(msgspec.Struct):
    """What is stored of a queue. `done` are snapshots of share partitions, by partition of the topic."""

    topic_id: bytes
    done: dict[int, bytes] = {}
    tasks: list[_Task] = []


class _Letters:
    """The dead letters of one queue in memory."""

    def __init__(self, created_ms: int, state: _State) -> None:
        self.created_ms = created_ms
        self.topic_id = state.topic_id
        self.tasks = state.tasks
        self.work: asyncio.Task[None] | None = None
        self._done = {
            partition: SharePartition.restored(_NO_SETTINGS, snapshot, (), 0)
            for partition, snapshot in state.done.items()
        }

    def done(self, partition: int) -> SharePartition:
        """Return what is done with in a partition."""
        found = self._done.get(partition)
        if found is None:
            found = self._done[partition] = SharePartition(_NO_SETTINGS, 0, 0)
        return found

    def encode(self) -> bytes:
        """Return the state as it is stored."""
        done = {partition: machine.snapshot() for partition, machine in self._done.items()}
        return _encode(_State(self.topic_id, done, self.tasks))

    def task(self, task_id: str) -> _Task:
        """Return a task. Raises RESOURCE_NOT_FOUND."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, f"There is no redrive {task_id!r}.", task=task_id)

    @property
    def running(self) -> _Task | None:
        """The task that runs."""
        return next((task for task in self.tasks if task.state == RUNNING), None)


_NO_SETTINGS: Final = QueueSettings()
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_State).decode


class DeadLetters:
    """Implements `core.vocabulary.queues.DeadLetters`."""

    def __init__(
        self, broker: Logs, store: Store, registry: Registry, keys: Callable[[], Idempotency]
    ) -> None:
        self._broker = broker
        self._store = store
        self._registry = registry
        self._keys = keys
        self._letters: dict[str, _Letters] = {}
        self._closed = True

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load what is stored; rows of queues that were deleted are removed."""
        orphans = []
        for name, created_ms, state in await self._store.read(tables.load_dead_letters):
            queue = self._registry.queues.get(name)
            if queue is None or queue.created_ms != created_ms:
                orphans.append(name)
            else:
                self._letters[name] = _Letters(created_ms, _decode(state))
        if orphans:
            with contextlib.suppress(BrokerError):
                await self._store.submit([tables.remove_dead_letters(orphans)])

    def start(self) -> None:
        """Continue the redrives that the last run did not finish. Idempotency keys are open."""
        self._closed = False
        for name, letters in self._letters.items():
            if (task := letters.running) is not None:
                self._begin(self._registry.queues[name], letters, task)

    async def close(self) -> None:
        """Stop the redrives; they continue with the next start."""
        self._closed = True
        running = [letters.work for letters in self._letters.values() if letters.work is not None]
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # --- calls ---------------------------------------------------------------------------------------------

    async def list(
        self, name: str, *, after: Mapping[int, int] | None = None, limit: int = 100
    ) -> DeadLetterPage:
        """See `core.vocabulary.queues.DeadLetters`."""
        queue, letters, partitions = await self._find(name)
        found: list[DeadRecord] = []
        places = {partition: (after or {}).get(partition, 0) for partition in range(partitions)}
        looked_at, most = 0, min(limit, _MOST_LISTED)
        for partition in places:
            tp = self._dead(queue, partition)
            end = self._bounds(tp)[1]
            async for record, letter in self._left(queue, letters, tp, places[partition], end):
                looked_at += 1
                if len(found) == most or looked_at > _MOST_LOOKED_AT:
                    return DeadLetterPage(found, places)
                places[partition] = record.offset + 1
                if letter is not None:
                    found.append(letter)
            places[partition] = end
        return DeadLetterPage(found, None)

    async def redrive(self, name: str, redrive: Redrive) -> RedriveTask:
        """See `core.vocabulary.queues.DeadLetters`."""
        queue, letters, partitions = await self._find(name)
        if redrive.rate is not None and redrive.rate <= 0:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Invalid rate {redrive.rate}: use more than 0 records a second."
            )
        if redrive.to is not None:
            self._broker.topics.get(redrive.to)
            if redrive.to == self._topic(queue):
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, "Dead letters cannot be redriven to their own topic."
                )
        clock = self._broker.clock
        ends = {partition: self._bounds(self._dead(queue, partition))[1] for partition in range(partitions)}
        task = _Task(clock.uuid4().hex[:12], RUNNING, redrive, clock.wall_ms(), ends)
        if redrive.dry_run:
            await self._count(queue, letters, task)
            task.state = DONE
            return task.view
        self._require_idle(letters)
        letters.tasks = [task, *letters.tasks[: _MOST_TASKS - 1]]
        try:
            await self._put(queue, letters)
        except BaseException:
            letters.tasks.remove(task)
            raise
        if not self._closed and task.state == RUNNING:
            self._begin(queue, letters, task)
        return task.view

    def tasks(self, name: str) -> Sequence[RedriveTask]:
        """See `core.vocabulary.queues.DeadLetters`."""
        queue = self._registry.find(name)
        letters = self._letters.get(name)
        if letters is None or letters.created_ms != queue.created_ms:
            return ()
        return [task.view for task in letters.tasks]

    async def cancel(self, name: str, task_id: str) -> RedriveTask:
        """See `core.vocabulary.queues.DeadLetters`."""
        queue, letters, _ = await self._find(name)
        task = letters.task(task_id)
        if task.state == RUNNING:
            task.state = CANCELLED
            if letters.work is not None:
                await asyncio.wait([letters.work])
            await self._put(queue, letters)
        return task.view

    async def purge(self, name: str) -> None:
        """See `core.vocabulary.queues.DeadLetters`."""
        queue, letters, partitions = await self._find(name)
        self._require_idle(letters)
        ends = [self._bounds(self._dead(queue, partition))[1] for partition in range(partitions)]
        changes = [letters.done(partition).trim(0, end) for partition, end in enumerate(ends)]
        try:
            await self._put(queue, letters)
        except BrokerError:
            for partition, change in enumerate(changes):
                if change is not None:
                    letters.done(partition).undo(change)
            raise

    # --- records -------------------------------------------------------------------------------------------

    async def _find(self, name: str) -> tuple[Queue, _Letters, int]:
        """Return a queue, its dead letters, and the number of partitions of their topic, 0 if it is missing."""
        queue = self._registry.find(name)
        topic = self._topic(queue)
        await self._broker.look((topic,), bounds=True)
        topic_id, partitions = b"", 0
        with contextlib.suppress(BrokerError):
            info = self._broker.topics.get(topic)
            topic_id, partitions = info.topic_id.bytes, info.partitions
        letters = self._letters.get(name)
        if letters is None or letters.created_ms != queue.created_ms or letters.topic_id != topic_id:
            if letters is not None and letters.running is not None:
                return queue, letters, partitions
            kept = letters.tasks if letters is not None and letters.created_ms == queue.created_ms else []
            letters = self._letters[name] = _Letters(queue.created_ms, _State(topic_id, {}, kept))
        return queue, letters, partitions

    def _topic(self, queue: Queue) -> str:
        dead_letter = queue.settings.dead_letter
        if dead_letter is None:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"The queue {queue.name!r} has no dead-letter topic.",
                group=queue.name,
            )
        return dead_letter.topic

    def _dead(self, queue: Queue, partition: int) -> TopicPartition:
        return TopicPartition(self._topic(queue), partition)

    def _bounds(self, tp: TopicPartition) -> tuple[int, int]:
        offsets = self._broker.partitions.offsets(tp)
        return offsets.log_start_offset, offsets.high_watermark

    async def _left(
        self, queue: Queue, letters: _Letters, tp: TopicPartition, position: int, end: int
    ) -> AsyncIterator[tuple[Record, DeadRecord | None]]:
        """Yield the records of a partition that are not done with, each with its dead letter, None if it is none."""
        time_slice = TimeSlice(self._broker.clock)
        done = letters.done(tp.partition)
        position = max(position, self._bounds(tp)[0], done.start)
        while position < end:
            read = await self._broker.records.read(
                tp, position, max_bytes=_PIECE_BYTES, max_records=_PIECE, committed=True
            )
            for record in read.records:
                if record.offset >= end:
                    return
                if done.cell(record.offset).state != SETTLED:
                    yield record, read_dead_letter(tp, record, queue.name)
            if read.next_offset <= position:
                return
            position = read.next_offset
            await time_slice.give_way()

    # --- a redrive -----------------------------------------------------------------------------------------

    async def _count(self, queue: Queue, letters: _Letters, task: _Task) -> None:
        for partition, end in task.ends.items():
            async for _, letter in self._left(queue, letters, self._dead(queue, partition), 0, end):
                if letter is not None and _matches(letter, task.redrive):
                    movable = self._is_movable(queue, task.redrive, letter)
                    task.moved += movable
                    task.skipped += not movable

    def _is_movable(self, queue: Queue, redrive: Redrive, letter: DeadRecord) -> bool:
        """Return whether a dead letter has a record, and names a source that the caller may write to.

        Any producer of the dead-letter topic can write the name of any topic; rights were asked for those of the
        queue.
        """
        if letter.pointer:
            return False
        topic = letter.tp.topic
        if redrive.to is not None or redrive.topic == topic or topic in queue.settings.topics:
            return True
        return queue.settings.pattern is not None and topic in self._registry.topics_of(queue.settings)

    def _begin(self, queue: Queue, letters: _Letters, task: _Task) -> None:
        letters.work = asyncio.get_running_loop().create_task(self._run(queue, letters, task))

    async def _run(self, queue: Queue, letters: _Letters, task: _Task) -> None:
        """Carry out a task, until it is done, cancelled or has failed. What may pass is tried again."""
        try:
            while task.state == RUNNING and not queue.deleted:
                try:
                    # What is skipped is left where it is, and found again by each pass.
                    task.skipped = 0
                    for partition in task.ends:
                        await self._move(queue, letters, task, partition)
                    if task.state == RUNNING:
                        task.state = DONE
                    await self._put(queue, letters)
                except BrokerError as error:
                    if error.code in _PASSING:
                        task.state = RUNNING if task.state == DONE else task.state
                        await asyncio.sleep(_PAUSE)
                        continue
                    task.state, task.error = FAILED, error.message
                    await self._put(queue, letters)
        except BrokerError as error:
            log.warning("the redrive %s of queue %s cannot be stored: %s", task.id, queue.name, error.message)
        finally:
            letters.work = None

    async def _move(self, queue: Queue, letters: _Letters, task: _Task, partition: int) -> None:
        """Redrive one partition of the topic. Raises BrokerError."""
        tp = self._dead(queue, partition)
        chosen: builtins.list[DeadRecord] = []
        async for record, letter in self._left(queue, letters, tp, 0, task.ends[partition]):
            if task.state != RUNNING or queue.deleted:
                return
            if letter is None:
                letters.done(partition).missing(0, record.offset, record.offset)
            elif _matches(letter, task.redrive):
                if not self._is_movable(queue, task.redrive, letter):
                    task.skipped += 1
                    continue
                chosen.append(letter)
                if len(chosen) == _together(task.redrive):
                    await self._move_some(queue, letters, task, chosen)
                    chosen = []
        if chosen and task.state == RUNNING:
            await self._move_some(queue, letters, task, chosen)

    async def _move_some(
        self, queue: Queue, letters: _Letters, task: _Task, chosen: Sequence[DeadRecord]
    ) -> None:
        """Append some dead letters and store that they are done with. Raises the first error of any of them."""
        results = await asyncio.gather(
            *(self._append(queue, letters, task.redrive, letter) for letter in chosen),
            return_exceptions=True,
        )
        errors: builtins.list[BaseException] = []
        for letter, result in zip(chosen, results, strict=True):
            if result is None:
                letters.done(letter.dead.partition).missing(0, letter.dead_offset, letter.dead_offset)
                task.moved += 1
            elif isinstance(result, BrokerError) and result.code in _TOO_LARGE:
                task.skipped += 1
            else:
                errors.append(result)
        await self._put(queue, letters)
        for error in errors:
            raise error
        if task.redrive.rate is not None:
            await self._keep_pace(queue, task, len(chosen) / task.redrive.rate)

    async def _keep_pace(self, queue: Queue, task: _Task, seconds: float) -> None:
        """Sleep, but not beyond the end of the task: a rate may be one record a day."""
        until = self._broker.clock.monotonic() + seconds
        while task.state == RUNNING and not queue.deleted:
            left = until - self._broker.clock.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(min(left, _PAUSE))

    async def _append(self, queue: Queue, letters: _Letters, redrive: Redrive, letter: DeadRecord) -> None:
        topic = redrive.to or letter.tp.topic
        # An append would create a topic that was deleted.
        info = self._broker.topics.get(topic)
        partition = None
        if redrive.to is None and letter.tp.partition < info.partitions:
            partition = letter.tp.partition
        place = f"{letter.tp}@{letter.offset}".encode()
        record = NewRecord(
            letter.record.key,
            letter.record.value,
            (
                *(one for one in letter.record.headers if one[0] != REDRIVEN_FROM),
                (REDRIVEN_FROM, place),
            ),
            partition=partition,
        )
        path = f"queues/{queue.name}/redriven/{queue.created_ms}"
        key = f"{letters.topic_id.hex()}.{letter.dead.partition}.{letter.dead_offset}"
        await append_once(self._keys(), path, key, topic, record)

    def _require_idle(self, letters: _Letters) -> None:
        if (task := letters.running) is not None:
            raise BrokerError(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"The redrive {task.id} is running; wait for its end, or cancel it.",
                task=task.id,
            )

    async def _put(self, queue: Queue, letters: _Letters) -> None:
        await self._store.submit(
            [tables.put_dead_letters((queue.name, letters.created_ms, letters.encode()))]
        )


def _together(redrive: Redrive) -> int:
    """Return how many to append at a time: with a rate, what a second has."""
    return _TOGETHER if redrive.rate is None else max(1, min(_TOGETHER, int(redrive.rate)))


def _matches(letter: DeadRecord, redrive: Redrive) -> bool:
    wanted: tuple[tuple[str | int | Cause | None, str | int | Cause], ...] = (
        (redrive.topic, letter.tp.topic),
        (redrive.partition, letter.tp.partition),
        (redrive.cause, letter.cause),
    )
    return all(asked is None or asked == found for asked, found in wanted)
