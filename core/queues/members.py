"""Share consumers (KIP-932): acquisitions in whole batches of the log, and all-or-nothing acknowledgements.

A lock is in memory alone and its count is stored soon after: after a restart the records are available at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.queues.registry import Registry
from core.queues.share import Queue, Share
from core.records.aborted import AbortedRecords
from core.records.batch import batches
from core.types import FileSlice, LogOffsets, TopicPartition
from core.vocabulary.queues import AcknowledgeBatch, Acquired, AcquiredRange, Order, Verb
from core.vocabulary.records import FetchRead

# Records of one acquisition, at most: batches hold up to some hundred thousand.
_MOST_RECORDS = 20_000
# Bytes of one acquisition of one partition, as Kafka's max.partition.fetch.bytes: they are read to find the batches.
_MOST_BYTES = 1_048_576
# Reads that find nothing but what no consumer may see.
_MOST_READS = 8


class Members:
    """Acquisitions of share consumers."""

    def __init__(self, broker: Logs, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry

    def share(self, queue: Queue, tp: TopicPartition) -> tuple[Share, LogOffsets]:
        """Return a partition of a queue and its bounds.

        Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.
        """
        info = self._broker.topics.get(tp.topic)
        bounds = self._broker.partitions.info(tp)
        if not bounds.leads:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This broker does not lead {tp}.")
        share = queue.shares.get((info.topic_id, tp.partition))
        if share is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The queue {queue.name!r} does not read {tp.topic!r}."
            )
        return share, bounds.offsets

    def acquire(
        self,
        queue: Queue,
        tp: TopicPartition,
        member_id: str,
        max_records: int,
        max_bytes: int,
        batch_size: int,
        *,
        strict: bool,
    ) -> Acquired:
        """See `Queues.acquire`."""
        share, bounds = self.share(queue, tp)
        if queue.paused:
            return Acquired()
        self._registry.expire(queue, share)
        machine, now = share.machine, self._registry.clock.now_ms()
        end = bounds.end(committed=queue.settings.read_committed)
        trimmed = machine.trim(now, bounds.log_start_offset)
        changes = [(share, trimmed)]
        if trimmed is not None:
            queue.totals["lost_to_retention"] += trimmed.lost
        ranges: list[AcquiredRange] = []
        slices: list[FileSlice] = []
        for _ in range(_MOST_READS):
            allowed, missing = self._allowed(queue, share, end, max_records, max_bytes)
            changes += [(share, machine.missing(now, low, high)) for low, high in missing]
            if not allowed:
                break
            first = allowed[0][0]
            within, slices, hidden = self._batches(share, first, end, max_records, max_bytes, queue)
            changes += [(share, machine.missing(now, low, high)) for low, high in hidden]
            if within:
                if queue.settings.order is Order.KEY:
                    within = [one for one in allowed if one[0] <= within[-1][1]]
                most = max_records if strict else _MOST_RECORDS
                ranges, change = machine.acquire(
                    now, self._lease(queue, member_id), now + queue.settings.lock_ms, end, most,
                    within=within, isolate=True,
                )  # fmt: skip
                changes.append((share, change))
            if within or not hidden:
                break
        written = self._registry.writes.submit(queue, changes)
        if written is not None:
            written.add_done_callback(_seen)
        self._registry.arm(queue, machine.next_due())
        queue.totals["delivered"] += sum(last - first + 1 for first, last, _ in ranges)
        return Acquired(_split(ranges, max(batch_size, 1)), slices if ranges else ())

    def _allowed(
        self, queue: Queue, share: Share, end: int, max_records: int, max_bytes: int
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return offsets that may be acquired, at least the first of them, and offsets that the log does not have."""
        if queue.settings.order is not Order.KEY:
            candidates = share.machine.candidates(end, 1)
            return [(one.first, one.last) for one in candidates], []
        committed = queue.settings.read_committed
        found = self._registry.keyed.find(share, end, max_records, max_bytes, committed=committed)
        return found.ranges(), found.missing

    def _batches(
        self, share: Share, first: int, end: int, max_records: int, max_bytes: int, queue: Queue
    ) -> tuple[list[tuple[int, int]], list[FileSlice], list[tuple[int, int]]]:
        """Return the offsets of whole batches from `first` on, the batches, and offsets that no consumer may see."""
        max_bytes = min(max_bytes, _MOST_BYTES)
        read = FetchRead(share.tp, first, max_bytes, committed=queue.settings.read_committed)
        fetched = self._broker.partitions.fetch_now([read], max_bytes=max_bytes).answers[0]
        if fetched.error is not None:
            raise fetched.error
        assert fetched.read is not None
        piece = fetched.read.slice
        if piece is None:
            return [], [], []
        within: list[tuple[int, int]] = []
        slices: list[FileSlice] = []
        hidden: list[tuple[int, int]] = []
        data = piece.read()
        aborted = AbortedRecords(fetched.read.aborted)
        at, records = first, 0
        for position, header in batches(data):
            if header.next_offset <= first or header.base_offset >= end:
                continue
            low, high = max(header.base_offset, first), header.next_offset - 1
            if low > at:
                hidden.append((at, low - 1))
            at = high + 1
            if aborted.hides(header):
                hidden.append((low, high))
                continue
            within.append((low, high))
            slices.append(FileSlice(piece.file, piece.position + position, header.size))
            records += header.record_count
            if records >= max_records:
                break
        return within, slices, hidden

    def _lease(self, queue: Queue, member_id: str) -> int:
        """Return the lease of a member; it ends with its session."""
        found = queue.members.get(member_id)
        if found is None:
            found = queue.members[member_id] = queue.new_lease(volatile=True)
        return found

    async def acknowledge(
        self, queue: Queue, tp: TopicPartition, member_id: str, acks: Sequence[AcknowledgeBatch]
    ) -> ErrorCode:
        """See `Queues.acknowledge`."""
        try:
            share, _ = self.share(queue, tp)
            self._registry.expire(queue, share)
            now = self._registry.clock.now_ms()
            lease = self._lease(queue, member_id)
            change = share.machine.acknowledge(now, lease, acks, queue.settings.lock_ms)
            pending = share.last_write
            written = self._registry.writes.submit(queue, [(share, change)])
            self._registry.changed(queue, share)
            self._registry.wake(queue, share)
            for future in (pending, written):
                if future is not None:
                    await asyncio.shield(future)
        except BrokerError as error:
            return error.code
        queue.totals["acknowledged"] += sum(last - first + 1 for first, last, _ in acks)
        return ErrorCode.NONE

    async def release(self, queue: Queue, member_id: str) -> None:
        """See `Queues.release_member`."""
        lease = queue.members.pop(member_id, None)
        if lease is None:
            return
        now = self._registry.clock.now_ms()
        changes = []
        for share in queue.shares.values():
            for first, last, _ in share.machine.lease_ranges(lease):
                _, change = share.machine.settle(now, Verb.RELEASE, lease, first, last, delay_ms=0)
                changes.append((share, change))
        written = self._registry.writes.submit(queue, changes)
        for share, _ in changes:
            self._registry.changed(queue, share)
            self._registry.wake(queue, share)
        if written is not None:
            await asyncio.shield(written)


def _split(ranges: Sequence[AcquiredRange], most: int) -> list[AcquiredRange]:
    """Return ranges of at most `most` offsets."""
    return [
        AcquiredRange(low, min(low + most - 1, last), count)
        for first, last, count in ranges
        for low in range(first, last + 1, most)
    ]


def _seen(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
