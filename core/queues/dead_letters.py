"""Records that are given up, on their way to the dead-letter topic: archiving, appended, archived (KIP-1191).

A record is given up in two stored steps. *Archiving* is stored with its cause, before anything is appended. Then the
record is appended under an idempotency key that follows from what it is: queue, source, offset and last lease. Then
*archived* is stored. If the process dies between any two of them, the next start finds the record archiving and
appends it under the same key: the log has it once. A topic that takes nothing keeps records archiving; they count
against `max_in_flight`, so that the queue stops in place of losing records.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.queues.registry import Registry
from core.queues.share import Queue, Share
from core.queues.share_changes import CAUSES, Cell, Change
from core.records.record import Headers, NewRecord, Record
from core.types import TopicPartition
from core.vocabulary.idempotency import Idempotency, KeyedRequest
from core.vocabulary.queues import Cause, DeadLetter, DeadRecord, QueueSettings

log = logging.getLogger(__name__)

# Records of one partition that are appended at a time; they share commits.
_TOGETHER: Final = 32
# Seconds until a topic that took nothing is tried again; the pause doubles up to the second.
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
_READ_BYTES: Final = 1_048_576

# The names of KIP-1191.
_PREFIX: Final = "__dlq.errors."
_TOPIC, _PARTITION, _OFFSET = _PREFIX + "topic", _PREFIX + "partition", _PREFIX + "offset"
_GROUP, _COUNT, _MESSAGE = _PREFIX + "group", _PREFIX + "delivery.count", _PREFIX + "message"
_CAUSE, _POINTER = "sluice.dead.cause", "sluice.dead.pointer"
_OURS: Final = (_PREFIX, "sluice.dead.")

_TEXTS: Final = {
    Cause.REJECTED: "The receiver rejected the record.",
    Cause.LIMIT: "The record was released after its last delivery.",
    Cause.EXPIRED: "The lock of the last delivery ran out.",
    Cause.LOST: "The log had deleted the record before it was settled.",
}


# --- the form of a dead letter ---------------------------------------------------------------------------------


class Source(NamedTuple):
    """Where a dead letter comes from, and why it is one."""

    tp: TopicPartition
    offset: int
    group: str
    delivery_count: int
    cause: Cause
    reason: str


def dead_letter(source: Source, record: Record | None, partition: int) -> NewRecord:
    """Return the record for the dead-letter topic: a copy, or a pointer if `record` is None."""
    headers: list[tuple[str, bytes | None]] = [] if record is None else list(plain_headers(record.headers))
    tp = source.tp
    for name, value in (
        (_TOPIC, tp.topic),
        (_PARTITION, str(tp.partition)),
        (_OFFSET, str(source.offset)),
        (_GROUP, source.group),
        (_COUNT, str(source.delivery_count)),
        (_MESSAGE, source.reason or _TEXTS[source.cause]),
        (_CAUSE, source.cause.value),
    ):
        headers.append((name, value.encode()))
    if record is None:
        return NewRecord(headers=(*headers, (_POINTER, b"true")), partition=partition)
    return NewRecord(record.key, record.value, tuple(headers), partition=partition)


def plain_headers(headers: Headers) -> Headers:
    """Return the headers without those of a dead letter."""
    return tuple((name, value) for name, value in headers if not name.startswith(_OURS))


def read_dead_letter(dead: TopicPartition, record: Record, group: str) -> DeadRecord | None:
    """Return the dead letter of a queue; None if the record is none, or one of another queue."""
    found = {name: value or b"" for name, value in record.headers if name.startswith(_OURS)}
    if found.get(_GROUP) != group.encode():
        return None
    try:
        tp = TopicPartition(found[_TOPIC].decode(), int(found[_PARTITION]))
        offset, count = int(found[_OFFSET]), int(found[_COUNT])
        cause = Cause(found.get(_CAUSE, b"limit").decode())
    except (KeyError, ValueError):
        return None
    reason = found.get(_MESSAGE, b"").decode(errors="replace")
    plain = Record(
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        plain_headers(record.headers),
    )
    return DeadRecord(dead, record.offset, tp, offset, count, cause, reason, plain, _POINTER in found)


def check_no_cycle(name: str, settings: QueueSettings, others: Mapping[str, QueueSettings]) -> None:
    """Raise INVALID_CONFIG if dead letters of this queue could come back to a topic that it reads, over any queues.

    Queues with a pattern are left out: a pattern never matches the dead-letter topic of its own queue.
    """
    if settings.dead_letter is None:
        return
    following: dict[str, set[str]] = {}
    for other, its in others.items():
        if other != name and its.dead_letter is not None:
            for topic in its.topics:
                following.setdefault(topic, set()).add(its.dead_letter.topic)
    seen: set[str] = set()
    ahead = [settings.dead_letter.topic]
    while ahead:
        topic = ahead.pop()
        if topic in settings.topics:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"Dead letters of queue {name!r} would come back to its topic {topic!r}: choose another dead-letter "
                "topic.",
                topic=topic,
            )
        if topic not in seen:
            seen.add(topic)
            ahead.extend(following.get(topic, ()))


# --- appends ---------------------------------------------------------------------------------------------------


async def append_once(keys: Idempotency, path: str, key: str, topic: str, record: NewRecord) -> None:
    """Append a record once for this path and key, and wait for all replicas. Raises the error of the append."""
    request = KeyedRequest(path, key, hashlib.sha256(key.encode()).digest(), "broker")
    answer = await keys.produce(request, topic, [record], acks=-1, render=lambda results: b"1")
    if answer.answer is None:
        error = answer.results[0].error
        raise error or BrokerError(
            ErrorCode.KAFKA_STORAGE_ERROR, "The append is not certain; it is tried again."
        )


class DeadLetterWriter:
    """Writes what partitions give up. Call `start` once idempotency keys are open, and `close` at the end."""

    def __init__(self, broker: Logs, registry: Registry, keys: Callable[[], Idempotency]) -> None:
        self._broker = broker
        self._registry = registry
        self._keys = keys
        self._started = False
        # Given up before the start.
        self._early: dict[Share, Queue] = {}
        self._busy: dict[Share, asyncio.Task[None]] = {}
        self._pauses: dict[Share, tuple[float, asyncio.TimerHandle | None]] = {}

    def start(self) -> None:
        """Begin to write."""
        self._started = True
        early, self._early = self._early, {}
        for share, queue in early.items():
            self.given_up(queue, share)

    async def close(self) -> None:
        """End; what is archiving stays so."""
        self._started = False
        for _, timer in self._pauses.values():
            if timer is not None:
                timer.cancel()
        self._pauses.clear()
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def given_up(self, queue: Queue, share: Share) -> None:
        """Note that a partition has records to write."""
        if not self._started:
            self._early[share] = queue
            return
        if share in self._busy or self._pauses.get(share, (0.0, None))[1] is not None:
            return
        task = asyncio.get_running_loop().create_task(self._write(queue, share))
        self._busy[share] = task
        task.add_done_callback(lambda task: self._written(queue, share, task))

    def _written(self, queue: Queue, share: Share, task: asyncio.Task[None]) -> None:
        self._busy.pop(share, None)
        if task.cancelled() or not self._started or queue.deleted or queue.shares.get(share.key) is not share:
            return
        if (error := task.exception()) is not None:
            log.error("queue %s: dead letters of %s wait", queue.name, share.tp, exc_info=error)
        elif share.machine.archiving:
            # Something was given up since the task looked last.
            self.given_up(queue, share)

    async def _write(self, queue: Queue, share: Share) -> None:
        """Write until nothing is left, or until the topic takes nothing."""
        while share.machine.archiving and queue.shares.get(share.key) is share and not queue.deleted:
            try:
                await self._write_some(queue, share)
            except BrokerError as error:
                if not queue.deleted:
                    self._pause(queue, share, error)
                return
        self._pauses.pop(share, None)

    def _pause(self, queue: Queue, share: Share, error: BrokerError) -> None:
        pause = self._pauses.get(share, (_FIRST_PAUSE / 2, None))[0] * 2
        pause = min(pause, _LAST_PAUSE)
        log.warning(
            "queue %s: dead letters of %s wait, and are tried again in %d s: %s",
            queue.name, share.tp, pause, error.message,
        )  # fmt: skip
        if self._started:
            timer = asyncio.get_running_loop().call_later(pause, self._again, queue, share, pause)
            self._pauses[share] = (pause, timer)

    def _again(self, queue: Queue, share: Share, pause: float) -> None:
        self._pauses[share] = (pause, None)
        self.given_up(queue, share)

    async def _write_some(self, queue: Queue, share: Share) -> None:
        """Write the oldest records and store that they are archived. Raises the first error of any of them."""
        machine = share.machine
        cells = {
            offset: machine.cell(offset)
            for first, last, _, _ in machine.given_up(_TOGETHER)
            for offset in range(first, last + 1)
        }
        # What is archiving in memory may not be stored yet; the append must come after it.
        if share.last_write is not None:
            await asyncio.wait([share.last_write])
            cells = {offset: cell for offset, cell in cells.items() if machine.cell(offset) == cell}
        settings = queue.settings.dead_letter
        errors: list[BaseException] = []
        done = list(cells)
        if settings is not None:
            results = await asyncio.gather(
                *(self._append(queue, share, offset, cell, settings) for offset, cell in cells.items()),
                return_exceptions=True,
            )
            done = [offset for offset, result in zip(cells, results, strict=True) if result is None]
            errors = [result for result in results if result is not None]
        await self._archived(queue, share, {offset: cells[offset] for offset in done})
        for error in errors:
            raise error

    async def _archived(self, queue: Queue, share: Share, cells: Mapping[int, Cell]) -> None:
        machine, now = share.machine, self._registry.clock.now_ms()
        # A cut may have taken the offset meanwhile, and another record may have it.
        changes: list[tuple[Share, Change | None]] = [
            (share, machine.archived(now, offset, offset))
            for offset, cell in cells.items()
            if machine.cell(offset) == cell
        ]
        queue.totals["dead_letters"] += len(changes)
        written = self._registry.writes.submit(queue, changes)
        if written is not None:
            await asyncio.shield(written)
        self._registry.wake(queue, share)

    async def _append(
        self, queue: Queue, share: Share, offset: int, cell: Cell, settings: DeadLetter
    ) -> None:
        source = Source(
            share.tp, offset, queue.name, cell.deliveries, CAUSES[cell.time], share.machine.reason(offset)
        )
        info = await self._broker.topics.get_or_create(settings.topic)
        partition = share.tp.partition % info.partitions
        record = await self._read(share.tp, offset) if settings.copy else None
        path = f"queues/{queue.name}/dead-letters/{queue.created_ms}"
        key = f"{share.topic_id}.{share.tp.partition}.{offset}.{cell.lease}.{cell.deliveries}"
        keys = self._keys()
        try:
            await append_once(keys, path, key, info.name, dead_letter(source, record, partition))
        except BrokerError as error:
            if record is None or error.code not in (
                ErrorCode.MESSAGE_TOO_LARGE,
                ErrorCode.RECORD_LIST_TOO_LARGE,
                ErrorCode.INVALID_RECORD,
            ):
                raise
            # The topic takes smaller records only, or only records with a key: a pointer is better than none.
            pointer = dead_letter(source, None, partition)
            await append_once(keys, path, key + ".pointer", info.name, pointer)

    async def _read(self, tp: TopicPartition, offset: int) -> Record | None:
        """Return a record of the source; None if the log does not have it, or cannot read it."""
        try:
            found = await self._broker.records.read(
                tp, offset, max_bytes=_READ_BYTES, max_records=1, committed=False
            )
        except BrokerError as error:
            if error.code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE):
                return None
            raise
        records: Sequence[Record] = found.records
        return records[0] if records and records[0].offset == offset else None
