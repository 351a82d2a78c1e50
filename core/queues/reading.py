"""Records of the log for the offsets that a partition of a queue may lease.

Each call runs in one turn of the event loop. Nothing at or above the high watermark is read, and with
`read_committed` nothing at or above the last stable offset.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.queues.share import Share
from core.records.record import Record
from core.types import LogOffsets, TopicPartition
from core.vocabulary.queues import AcquiredRange

logger = logging.getLogger(__name__)

# What a record counts for besides its key, value and headers, against the bytes of a receive.
_RECORD_BYTES = 20
# Reads of one partition for one receive: they may find nothing but markers, or scattered records.
_MOST_READS = 16
# Bytes of the log that the first read of a receive takes at most; each further one takes twice as many.
_FIRST_BYTES = 65_536
# Records that one read may pass over, because they are leased or settled.
_MOST_BETWEEN = 200


@dataclass(slots=True)
class Found:
    """What was read. `missing`: offsets that the log does not have, `corrupt`: batches that cannot be read.

    Ranges are (first, last), both inclusive, ascending. `size` is what the records count for. `more`: the limit of
    reads ended it early.
    """

    records: list[Record] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    corrupt: list[tuple[int, int]] = field(default_factory=list)
    size: int = 0
    more: bool = False

    def ranges(self) -> list[tuple[int, int]]:
        """Return the offsets of the records as ranges."""
        records = self.records
        if not records:
            return []
        first, last = records[0].offset, records[-1].offset
        if last - first + 1 == len(records):
            return [(first, last)]
        found: list[tuple[int, int]] = []
        low = high = first
        for record in records[1:]:
            if record.offset != high + 1:
                found.append((low, high))
                low = record.offset
            high = record.offset
        found.append((low, high))
        return found

    def between(self, first: int, last: int) -> list[Record]:
        """Return the records from the offset `first` to `last`, both inclusive."""
        records = self.records
        return records[bisect_left(records, first, key=_offset) : bisect_left(records, last + 1, key=_offset)]


class Reading:
    """Reads for queues."""

    def __init__(self, broker: Logs) -> None:
        self._broker = broker
        self._clustered = bool(broker.config.peers)

    def bounds(self, tp: TopicPartition) -> LogOffsets | None:
        """Return the bounds of a partition that this broker leads; None if it does not."""
        try:
            if self._clustered:
                info = self._broker.partitions.info(tp)
                return info.offsets if info.leads else None
            return self._broker.partitions.offsets(tp)
        except BrokerError:
            return None

    def leads(self, tp: TopicPartition) -> bool:
        """Return whether this broker leads a partition."""
        if not self._clustered:
            return True
        try:
            return self._broker.partitions.info(tp).leads
        except BrokerError:
            return False

    def read(
        self, share: Share, candidates: Sequence[AcquiredRange], max_bytes: int, *, committed: bool
    ) -> Found:
        """Return the records of candidates, up to about `max_bytes`, but at least one record if there is any.

        Raises KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER.
        """
        found = Found()
        reads = 0
        at, end = -1, -1  # what the newest read covers
        read: list[Record] = []
        for number, (first, last, _) in enumerate(candidates):
            position = first
            while position <= last:
                if not at <= position < end:
                    if reads == _MOST_READS or found.size >= max_bytes:
                        found.more = reads == _MOST_READS
                        return found
                    at = position
                    span = _span(candidates, number, position)
                    # A read copies all that it may take, and a hundred small records are a few kilobytes of it.
                    most = min(max_bytes, _FIRST_BYTES << reads)
                    reads += 1
                    try:
                        result = self._broker.records.read_now(
                            share.tp, position, max_bytes=most, max_records=span, committed=committed
                        )
                    except BrokerError as error:
                        if error.code is not ErrorCode.CORRUPT_MESSAGE:
                            raise
                        after = min(int(str(error.details["next_offset"])), last + 1)
                        found.corrupt.append((position, after - 1))
                        position = after
                        continue
                    read, end = result.records, result.next_offset
                    if end <= position:
                        return found
                until = min(last + 1, end)
                if not self._take(found, read, position, until, max_bytes):
                    return found
                position = until
        return found

    def _take(self, found: Found, read: Sequence[Record], position: int, until: int, max_bytes: int) -> bool:
        """Take the records from `position` up to `until`; return whether all of them fitted."""
        for index in range(bisect_left(read, position, key=_offset), len(read)):
            record = read[index]
            offset = record.offset
            if offset >= until:
                break
            size = size_of(record)
            if found.records and found.size + size > max_bytes:
                return False
            if offset > position:
                found.missing.append((position, offset - 1))
            found.records.append(record)
            found.size += size
            position = offset + 1
        if position < until:
            found.missing.append((position, until - 1))
        return True


def _offset(record: Record) -> int:
    return record.offset


def _span(candidates: Sequence[AcquiredRange], number: int, position: int) -> int:
    """Return how many records to read from `position` on for the candidates that lie close together."""
    last = candidates[number].last
    for following in candidates[number + 1 :]:
        if following.first - last > _MOST_BETWEEN:
            break
        last = following.last
    return min(last - position + 1, 2_000)


def size_of(record: Record) -> int:
    """Return what a record counts for, in bytes."""
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size
