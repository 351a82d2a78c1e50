"""Read batches that were not checked yet: find which are whole, and where the whole ones end."""

from __future__ import annotations

import os
from typing import NamedTuple

from core.log.epochs import UNKNOWN, LeaderEpochs
from core.log.segment import Segment
from core.records.batch import check_crc
from core.records.header import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader

# Read at once; a batch that is larger is read whole.
SCAN_WINDOW = 1024 * 1024


class Scan(NamedTuple):
    """The end of the whole batches: position, next offset, and what ended them (None: the end of the file)."""

    position: int
    next_offset: int
    reason: str | None


class EpochCheck:
    """Compares the leader epochs of batches with what is known of them, over all segments that are scanned.

    The known epochs are from a file without a checksum. If a batch has the same epoch as the one before it and the
    file contradicts it, the batch is trusted, and the file is `doubtful` from then on. `before` is the epoch of the
    batch before the first one, UNKNOWN if there is none; `known` is None if no epochs are known.
    """

    def __init__(self, known: LeaderEpochs | None, before: int = UNKNOWN) -> None:
        self._known = known
        self._before = before
        # The known epoch of the last batch, and where it ends: most batches are in the epoch of the one before.
        self._wanted, self._end = UNKNOWN, -1
        self.doubtful = False

    def reason(self, header: BatchHeader) -> str | None:
        """Return what is wrong with the epoch of a batch, or None."""
        epoch = header.leader_epoch
        if self._known is not None and header.base_offset >= self._end:
            # Below the log start the epochs are forgotten, while batches may still be there.
            self._wanted, self._end = self._known.span(header.base_offset)
        if self._wanted not in (UNKNOWN, epoch):
            if self._before not in (UNKNOWN, epoch):
                return f"leader epoch {epoch} in the epoch {self._wanted}"
            self._known, self._wanted, self.doubtful = None, UNKNOWN, True
        self._before = epoch
        return None


def scan(
    segment: Segment,
    position: int,
    next_offset: int,
    *,
    limit: int | None,
    dense: bool,
    epochs: EpochCheck,
) -> Scan:
    """Check every batch of a segment from `position` on, and index the good ones.

    `limit` is the first offset of the next segment. With `dense` no offset may be missing; only compaction leaves
    offsets out. Base offset and leader epoch are not covered by the checksum, so they are compared with the expected
    values. If a batch after a hole is followed by one that fits before the hole, the first of them is the bad one.
    """
    file = segment.log.reading()
    end = segment.size
    start, window = position, memoryview(b"")
    before_hole: Scan | None = None
    while position < end:
        if position + HEADER_SIZE > start + len(window):
            start, window = position, memoryview(os.pread(file.fd, SCAN_WINDOW, position))
            if len(window) < HEADER_SIZE:
                return Scan(position, next_offset, "a torn header")
        header = BatchHeader._make(HEADER.unpack_from(window, position - start))
        size = header.batch_length + LENGTH_OVERHEAD
        reason = _header_reason(header, size, end - position)
        if reason is None and position + size > start + len(window):
            start, window = position, memoryview(os.pread(file.fd, max(size, SCAN_WINDOW), position))
        if reason is None and not check_crc(window, position - start, header):
            reason = "a wrong checksum"
        if reason is None and before_hole and before_hole.next_offset <= header.base_offset < next_offset:
            return before_hole
        if reason is None:
            reason = _order_reason(header, next_offset, limit, dense)
        if reason is None:
            reason = epochs.reason(header)
        if reason is not None:
            return Scan(position, next_offset, reason)
        hole = header.base_offset > next_offset
        before_hole = Scan(position, next_offset, "an offset too large") if hole else None
        segment.note(position, header.last_offset, size, header.max_timestamp)
        next_offset = header.next_offset
        position += size
    if dense and limit is not None and next_offset < limit:
        return Scan(
            position, next_offset, f"an end at {next_offset} where the next segment begins at {limit}"
        )
    return Scan(position, next_offset, None)


def _header_reason(header: BatchHeader, size: int, left: int) -> str | None:
    if header.magic != MAGIC:
        return f"magic {header.magic}"
    if size < HEADER_SIZE:
        return f"a batch length of {header.batch_length}"
    if size > left:
        return f"a batch of {size} bytes where {left} are left"
    return None


def _order_reason(header: BatchHeader, next_offset: int, limit: int | None, dense: bool) -> str | None:
    base = header.base_offset
    if base < next_offset or (dense and base != next_offset):
        return f"offset {base} where {next_offset} is next"
    if limit is not None and header.last_offset >= limit:
        return f"offset {header.last_offset} where the segment ends before {limit}"
    return None
