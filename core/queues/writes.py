"""Changes of queues on their way to the metadata store: one job for each call, and the fold of older rows.

The store keeps the order of jobs, but one of them may be refused by itself. Memory changes first; a change that is
refused is taken back.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Sequence

from core.errors import BrokerError, ErrorCode
from core.metadata import queues as tables
from core.metadata.store import Effect, Store
from core.queues.settings import encode
from core.queues.share import LEASE_BLOCK, Queue, Share
from core.queues.share_changes import Change, decode, merged
from core.queues.share_partition import SharePartition
from core.vocabulary.queues import QueueSettings

log = logging.getLogger(__name__)

# A partition is folded after this many rows (Kafka: 500), or bytes of them.
FOLD_ROWS = 500
FOLD_BYTES = 65_536

Changes = Sequence[tuple[Share, Change | None]]


def pack(snapshot: bytes) -> bytes:
    """Return a snapshot as it is stored."""
    return zlib.compress(snapshot, 1)


def unpack(stored: bytes) -> bytes:
    """Return a snapshot from the store."""
    return zlib.decompress(stored)


def fold(snapshot: bytes, changes: Sequence[bytes]) -> tuple[int, int, int, bytes]:
    """Return start, nonce, tracked end and the snapshot of a partition after these changes. Runs in a thread."""
    # The time of the newest change: no time in it moves.
    at_ms = decode(changes[-1]).at_ms
    machine = SharePartition.restored(QueueSettings(), unpack(snapshot), changes, at_ms)
    return machine.start, machine.nonce, machine.tracked_end, pack(machine.snapshot())


def partition_row(queue: Queue, share: Share) -> tuple[object, ...]:
    """Return the row of a partition as it is in memory."""
    machine = share.machine
    key = (queue.name, share.topic_id.bytes, share.tp.partition)
    return (*key, machine.start, machine.nonce, machine.tracked_end, pack(machine.snapshot()))


class Writes:
    """Stores queues. `broken` is called with a partition whose memory cannot be taken back to what is stored.

    `taken_back` is called with one whose change was refused: its records are what they were before.
    """

    def __init__(
        self,
        store: Store,
        broken: Callable[[Queue, Share], None],
        taken_back: Callable[[Queue, Share], None],
    ) -> None:
        self._store = store
        self._broken = broken
        self._taken_back = taken_back

    def put(
        self, queue: Queue, new: Sequence[Share] = (), more: Sequence[Effect] = ()
    ) -> asyncio.Future[None]:
        """Store the settings of a queue, and partitions that are new."""
        row = (queue.name, encode(queue.settings), queue.version, queue.paused, queue.created_ms)
        effects: list[Effect] = [tables.put_group((*row, queue.leases_reserved))]
        if new:
            effects.append(tables.add_partitions([_empty_row(queue, share) for share in new]))
        effects.extend(more)
        return self._store.submit(effects)

    def remove(self, name: str) -> asyncio.Future[None]:
        """Forget a queue."""
        return self._store.submit([tables.remove_group(name)])

    def remove_topics(self, topic_ids: Sequence[bytes]) -> asyncio.Future[None]:
        """Forget topics in all queues."""
        return self._store.submit([tables.remove_topics(topic_ids)])

    def replace(
        self, queue: Queue, shares: Sequence[Share], more: Sequence[Effect] = ()
    ) -> asyncio.Future[None]:
        """Store partitions as they are in memory, in place of all rows; no other write of them may be under way."""
        rows = [partition_row(queue, share) for share in shares]
        effects: list[Effect] = [*more]
        if rows:
            effects.append(tables.put_partitions(rows))
        done = self._store.submit(effects)
        for share in shares:
            share.stored = True
            share.rows_since_fold = share.bytes_since_fold = 0
        return done

    def submit(
        self, queue: Queue, changes: Changes, *, lease: int = 0, more: Sequence[Effect] = ()
    ) -> asyncio.Future[None] | None:
        """Store changes with one commit; None if there is nothing to store.

        Raises COORDINATOR_LOAD_IN_PROGRESS, also for a queue that is being deleted: the store may refuse that.

        The changes of a partition are in their order, and become one row. `lease` is the number of a new lease. A
        change that is refused is taken back before the future's other callbacks run. Nothing is stored of a partition
        that the queue does not have any more: its rows are removed, or another object writes them.
        """
        by_share: dict[Share, list[Change]] = {}
        for share, change in changes:
            if change is not None and queue.shares.get(share.key) is share:
                by_share.setdefault(share, []).append(change)
        if queue.deleted and (by_share or more):
            self._undo(queue, by_share)
            raise _being_deleted(queue)
        rows, new = [], []
        sizes: list[tuple[Share, int, int]] = []
        for share, own in by_share.items():
            change = merged(own)
            assert change is not None
            if not share.stored:
                new.append(share)
            row = change.encode()
            share.seq += 1
            sizes.append((share, share.seq, len(row)))
            rows.append(
                (
                    queue.name,
                    share.topic_id.bytes,
                    share.tp.partition,
                    share.seq,
                    share.machine.tracked_end,
                    row,
                )
            )
        if not rows and not more:
            return None
        effects: list[Effect] = []
        if new:
            effects.append(tables.add_partitions([_empty_row(queue, share) for share in new]))
        if rows:
            effects.append(tables.put_updates(rows))
        reserved = 0
        if lease >= queue.leases_reserved:
            reserved = (lease // LEASE_BLOCK + 1) * LEASE_BLOCK
            effects.append(tables.put_leases(queue.name, reserved))
        effects.extend(more)
        try:
            done = self._store.submit(effects)
        except BrokerError:
            self._undo(queue, by_share)
            raise
        done.add_done_callback(lambda future: self._stored(queue, future, by_share, sizes, reserved))
        for share in by_share:
            share.last_write = done
        return done

    def _stored(
        self,
        queue: Queue,
        future: asyncio.Future[None],
        changes: dict[Share, list[Change]],
        sizes: Sequence[tuple[Share, int, int]],
        reserved: int,
    ) -> None:
        for share in changes:
            if share.last_write is future:
                share.last_write = None
        if future.cancelled():
            return
        if future.exception() is not None:
            self._undo(queue, changes)
            return
        queue.reserved(reserved)
        for share, seq, size in sizes:
            share.stored = True
            share.rows_since_fold += 1
            share.bytes_since_fold += size
            if share.rows_since_fold >= FOLD_ROWS or share.bytes_since_fold >= FOLD_BYTES:
                share.rows_since_fold = share.bytes_since_fold = 0
                self._fold(queue, share, seq)

    def _undo(self, queue: Queue, changes: dict[Share, list[Change]]) -> None:
        for share, own in changes.items():
            share.forget_keys()
            try:
                for change in reversed(own):
                    share.machine.undo(change)
            except ValueError:
                self._broken(queue, share)
            self._taken_back(queue, share)

    def _fold(self, queue: Queue, share: Share, seq: int) -> None:
        if queue.deleted:
            return
        try:
            folding = self._store.submit(
                [tables.fold(queue.name, share.topic_id.bytes, share.tp.partition, seq, fold)]
            )
        except BrokerError:
            # The next rows ask for it again.
            return
        folding.add_done_callback(_seen)


def _being_deleted(queue: Queue) -> BrokerError:
    """Return the refusal of a write to a queue that is being deleted: its rows would be of the next of that name."""
    return BrokerError(
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        f"The queue {queue.name!r} is being deleted; ask again.",
        group=queue.name,
    )


def _empty_row(queue: Queue, share: Share) -> tuple[object, ...]:
    """Return the row of a partition before its first change."""
    first = SharePartition(QueueSettings(), share.begin, share.machine.nonce)
    key = (queue.name, share.topic_id.bytes, share.tp.partition)
    return (*key, first.start, first.nonce, first.tracked_end, pack(first.snapshot()))


def _seen(future: asyncio.Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.warning("changes of a queue could not be folded: %s", error)
