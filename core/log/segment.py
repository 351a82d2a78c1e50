"""One segment of a log: record batches in a file, and the two sparse indexes that find them.

    <base offset, 20 digits>.log        batches of magic 2, one after the other, offsets rising
    <base offset>.index .timeindex      see `core.log.index`

Only the .log file is trusted. Each look-up in an index ends at a batch header that must agree with the index. If it
does not, the indexes are rebuilt from the batches.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.log import files
from core.log.damage import find_batch
from core.log.files import FilePool, FileSlot
from core.log.index import OffsetIndex, TimeIndex
from core.records.batch import read_records
from core.records.header import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
SNAPSHOT_SUFFIX = ".snapshot"
# A file that is to be removed a little later.
DELETED_SUFFIX = ".deleted"
# Compaction's output: not complete yet; complete, and to take the place of the old segments.
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

INT32_MAX = 2**31 - 1
# Bytes of one read that walks over headers: more than one small batch, and not much for one header.
WALK_WINDOW = 4096
# Remembered (offset → position) pairs per segment: one per reader that follows the log.
HINTS = 16
NO_TIMESTAMP = -1
# Damaged places of a segment that are written to our log.
REPORTS = 8
# An offset above all others.
ALL = 2**63 - 1


def file_stem(directory: str, base_offset: int) -> str:
    """Return the path of a segment's files without their suffix."""
    return f"{directory}/{base_offset:020d}"


class Cut(NamedTuple):
    """Where a read ends: after a whole batch, and the offset that comes next there, −1 if not known."""

    position: int
    next_offset: int


class Reached(NamedTuple):
    """How far a segment was loaded: the position, and the offset that comes next there."""

    position: int
    next_offset: int


class Segment:
    """A run of batches from `base_offset` on. The log appends to its last one, the others are sealed."""

    __slots__ = (
        "_hints", "_interval", "_jitter_ms", "_loaded", "_most_offsets", "_most_times", "_reported", "age_from",
        "base_offset", "created_ms", "damaged", "first_timestamp", "full", "log", "max_timestamp",
        "max_timestamp_offset", "offsets", "sealed", "since_entry", "size", "stem", "times",
    )  # fmt: skip

    def __init__(
        self,
        pool: FilePool,
        directory: str,
        base_offset: int,
        *,
        interval: int,
        created_ms: int,
        size: int = 0,
        index_bytes: int = INT32_MAX,
        jitter_ms: int = 0,
    ) -> None:
        self.base_offset = base_offset
        self.stem = file_stem(directory, base_offset)
        self.log = FileSlot(pool, self.stem + LOG_SUFFIX)
        self.offsets = OffsetIndex(pool, self.stem + INDEX_SUFFIX)
        self.times = TimeIndex(pool, self.stem + TIME_INDEX_SUFFIX)
        # Bytes of good batches. The file may be longer for as long as a failed write was not cut off.
        self.size = size
        # Largest timestamp, and the last offset of the first batch that has it; valid once loaded.
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        # The time of its first batch, and that from which the age of the segment counts (segment.ms): earlier by
        # a part of segment.jitter.ms, so that not all segments are rolled at once.
        self.first_timestamp = self.age_from = NO_TIMESTAMP
        self._jitter_ms = jitter_ms
        # Whether no batches come any more.
        self.sealed = False
        # Wall time at which the segment was begun, for batches without a time.
        self.created_ms = created_ms - jitter_ms
        # Bytes since the batch that the last index entry names, that batch included.
        self.since_entry = 0
        self._interval = interval
        # Whether one of the indexes has the size at which the segment is rolled (segment.index.bytes).
        self.full = False
        self._most_offsets = -(-index_bytes // OffsetIndex.ENTRY.size)
        self._most_times = -(-index_bytes // TimeIndex.ENTRY.size)
        self._hints: dict[int, int] = {}
        self._reported: set[int] = set()
        # Whether batches are missing below the place up to which the segment was loaded.
        self.damaged = False
        self._loaded = size == 0

    # --- writing -------------------------------------------------------------------------------------------

    def write(self, buffer: bytes | bytearray | memoryview, size: int) -> None:
        """Append the bytes of whole batches, in one write. Raises OSError, and then the size is unchanged."""
        fd = self.log.appending().fd
        done = files.write(fd, buffer)
        if done != size:
            view = memoryview(buffer)
            while done < size:
                done += files.write(fd, view[done:])
        self.size += size

    def note(self, position: int, last_offset: int, size: int, max_timestamp: int) -> None:
        """Take a batch of the file, at `position`, into indexes and timestamps."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self._begin_at(max_timestamp)
        since = self.since_entry
        if since > self._interval:
            self.offsets.add(last_offset - self.base_offset, position)
            self._note_time()
            self._measure_indexes()
            since = 0
        self.since_entry = since + size

    def _begin_at(self, timestamp: int) -> None:
        self.first_timestamp, self.age_from = timestamp, timestamp - self._jitter_ms

    def _measure_indexes(self) -> None:
        self.full = self.offsets.count >= self._most_offsets or self.times.count >= self._most_times

    def _note_time(self) -> None:
        last = self.times.last
        if self.size and self.max_timestamp > (last[0] if last else NO_TIMESTAMP):
            self.times.add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def cut_back(self) -> None:
        """Remove what a failed write left after the last good batch. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            if files.size_of(self.log.path) > self.size:
                files.truncate(self.log.appending().fd, self.size)

    def shorten(self, size: int, end_offset: int) -> None:
        """End at byte `size`, in front of `end_offset`; batches may come again. Raises OSError."""
        self.flush_indexes()
        self.size = size
        self.cut_back()
        self.sealed = False
        self.max_timestamp, self.max_timestamp_offset, self.since_entry = NO_TIMESTAMP, -1, 0
        self.load_until(end_offset)

    def flush_indexes(self) -> bool:
        """Write index entries that wait in memory. Return False, and keep them, if the disk refuses.

        The time index is written first, so that on the disk it always covers the offset index (see `load`).
        """
        if not self._loaded or self.size == 0:
            return True
        return self.times.flush() and self.offsets.flush()

    def seal(self) -> None:
        """No more batches: complete the time index, write both, close them."""
        self.sealed = True
        self._note_time()
        self.flush_indexes()
        self.offsets.close()
        self.times.close()

    # --- walking -------------------------------------------------------------------------------------------

    def walk(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield each batch from `position` on, as (position, header), by its header alone.

        Raises CORRUPT_MESSAGE where there is no batch header, or where its batch would end beyond the file.
        """
        end = self.size if end is None else end
        file = self.log.reading() if position < end else None
        window = b""
        start, ahead = position, WALK_WINDOW
        previous = self.base_offset - 1
        while position < end and file is not None:
            if position + HEADER_SIZE > start + len(window):
                start = position
                window = os.pread(file.fd, ahead, position)
                if len(window) < HEADER_SIZE:
                    raise self.corrupt(position, "the file ends within a batch header")
            header = BatchHeader._make(HEADER.unpack_from(window, position - start))
            size = header.batch_length + LENGTH_OVERHEAD
            if (
                header.magic != MAGIC
                or size < HEADER_SIZE
                or position + size > self.size
                or header.base_offset <= previous
                or header.last_offset_delta < 0
            ):
                raise self.corrupt(position, "there is no batch header that fits")
            previous = header.base_offset + header.last_offset_delta
            yield position, header
            position += size
            # After a large batch there is probably another one, and only its header is needed.
            ahead = WALK_WINDOW if size < WALK_WINDOW else HEADER_SIZE

    def corrupt(self, position: int, why: str) -> BrokerError:
        """Return the error for damage that lies at `position`: for the reader, and once in our log."""
        if position not in self._reported and len(self._reported) < REPORTS:
            self._reported.add(position)
            logger.error("%s is damaged at byte %d of %d: %s", self.log.path, position, self.size, why)
        return BrokerError(
            ErrorCode.CORRUPT_MESSAGE,
            f"The log is damaged in the segment {self.base_offset} at byte {position}: {why}.",
            segment=self.base_offset,
            position=position,
        )

    # --- finding -------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> int:
        """Return where the batch begins that holds `offset`, or the first one after it; `size` if there is none.

        Raises CORRUPT_MESSAGE if that batch is lost in damage.
        """
        hint = self._hints.get(offset)
        if hint is not None:
            return hint
        found, damage = self.size, None
        for position, header, damage in self._walk_over(self._anchor(offset - self.base_offset, 0)):
            if header.base_offset + header.last_offset_delta >= offset:
                found = position
                if header.base_offset <= offset:
                    damage = None
                break
        if damage is not None:
            raise damage
        self.remember(offset, found)
        return found

    def _walk_over(self, position: int) -> Iterator[tuple[int, BatchHeader, BrokerError | None]]:
        """Walk like `walk`, but continue after damage; the first batch after it is yielded with the error.

        Raises CORRUPT_MESSAGE where no batch comes after the damage.
        """
        damage: BrokerError | None = None
        minimum = self.base_offset
        while True:
            try:
                for at, header in self.walk(position):
                    yield at, header, damage
                    damage, minimum = None, header.next_offset
                    position = at + header.batch_length + LENGTH_OVERHEAD
                return
            except BrokerError as error:
                found = find_batch(self.log.reading().fd, position, self.size, minimum)
                if found is None:
                    raise
                damage, position = error, found

    def remember(self, offset: int, position: int) -> None:
        """Remember where a reader will continue, so that its next read needs no search."""
        hints = self._hints
        if len(hints) >= HINTS:
            del hints[next(iter(hints))]
        hints[offset] = position

    def cut(self, position: int, limit: int) -> Cut:
        """Return the last batch boundary between `position` and `limit`; `position` if not one batch fits."""
        if limit >= self.size:
            return Cut(self.size, -1)
        at, next_offset = max(position, self._anchor(limit, 1)), -1
        with contextlib.suppress(BrokerError):  # the read ends before the damage
            for start, header in self.walk(at):
                end = start + header.batch_length + LENGTH_OVERHEAD
                if end > limit:
                    return Cut(start, header.base_offset)
                at, next_offset = end, header.next_offset
        return Cut(at, next_offset)

    def first_batch(self, position: int) -> BatchHeader:
        """Return the header of the batch that begins at `position`."""
        for _, header in self.walk(position):
            return header
        raise self.corrupt(position, "the segment ends there")

    def _anchor(self, value: int, column: int) -> int:
        """Return the position of an indexed batch whose last offset (column 0) or position (1) is ≤ `value`."""
        self.load()
        for _ in range(2):
            found = self.offsets.search(value, column)
            if not found:
                return 0
            offset, position = self.offsets.entry(found - 1)
            if self._is_batch(position, offset + self.base_offset):
                return position
            self.rebuild_indexes("an entry of the offset index names no batch")
        return 0

    def _is_batch(self, position: int, last_offset: int, max_timestamp: int | None = None) -> bool:
        """Return whether a batch with this last offset (and timestamp) begins at `position`."""
        if not 0 <= position < self.size:
            return False
        data = os.pread(self.log.reading().fd, HEADER_SIZE, position)
        if len(data) < HEADER_SIZE:
            return False
        header = BatchHeader._make(HEADER.unpack(data))
        return (
            header.magic == MAGIC
            and header.base_offset + header.last_offset_delta == last_offset
            and max_timestamp in (None, header.max_timestamp)
        )

    # --- time ----------------------------------------------------------------------------------------------

    def find_time(self, timestamp: int, start_offset: int, max_bytes: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record from `start_offset` on that is as young.

        `max_bytes` bounds what one batch may decompress to.
        """
        self.load()
        if self.max_timestamp < timestamp:
            return None
        found = self.times.search(timestamp - 1)
        after = self.times.entry(found - 1)[1] + self.base_offset if found else self.base_offset
        for position, header in self.walk(self.locate(max(after, start_offset))):
            if header.max_timestamp < timestamp or header.is_control:
                continue
            data = self.read_batch(position, header)
            for record in read_records(data, 0, header, max_bytes=max_bytes, first_offset=start_offset):
                if record.timestamp >= timestamp:
                    return record.timestamp, record.offset, header.leader_epoch
        return None

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """Return all bytes of a batch. Raises CORRUPT_MESSAGE if the file ends within it."""
        size = header.batch_length + LENGTH_OVERHEAD
        data = os.pread(self.log.reading().fd, size, position)
        if len(data) != size:
            raise self.corrupt(position, "the file ends within a batch")
        return data

    # --- opening -------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Open the indexes, once; rebuild them if they do not fit the batches."""
        if not self._loaded:
            self.load_until(ALL)

    def load_until(self, until: int) -> Reached:
        """Open the indexes as far as they tell of offsets below `until`, and take the batches up to there.

        Recovery calls it with its recovery point: later batches cannot be trusted and are not read.
        """
        reached = None
        if self.times.load() and self.offsets.load():
            if until < ALL:
                self.forget(until)
            reached = self._resume(until)
        if reached is None:
            reached = self._build(until, "an index is missing or does not fit")
        self._loaded = True
        self._measure_indexes()
        if self.sealed and until == ALL:
            self.seal()
        self.times.close()
        self.offsets.close()
        return reached

    def rebuild_indexes(self, why: str) -> None:
        """Build both indexes from the batches. The files are written if the disk lets us."""
        self._build(ALL, why)
        if self.sealed:
            self._note_time()
        self.flush_indexes()

    def _build(self, until: int, why: str) -> Reached:
        if self.size and until > self.base_offset:
            logger.warning("%s: %s, the indexes are rebuilt", self.log.path, why)
        self.forget(0)
        return self._take(0, until)

    def _resume(self, until: int) -> Reached | None:
        """Take what comes after the last index entry. None if the indexes do not fit the batches.

        The time index covers the offset index, so entries that it may lack are in this tail.
        """
        last, newest = self.offsets.last, self.times.last
        position = last[1] if last else 0
        # The first batch of a segment is never indexed; zeros would name it.
        if last and not (position and self._is_batch(position, last[0] + self.base_offset)):
            return None
        self._loaded = True
        if newest:
            self.max_timestamp, self.max_timestamp_offset = newest[0], newest[1] + self.base_offset
        if not self._times_fit(position, whole=until < ALL):
            return None
        self.since_entry = 0
        reached = self._take(position, until, indexed=last is not None)
        if self.size and until > self.base_offset:
            self._begin_at(self.first_batch(0).max_timestamp)
        return reached

    def _times_fit(self, anchor: int, *, whole: bool) -> bool:
        """Return whether the newest time entry is right: its batch has that time, none before `anchor` is younger.

        The second is checked after a crash (`whole`): a power loss may have cut entries off. For the offset index
        that is harmless, because a missing entry only makes a walk longer.
        """
        newest = self.times.last
        try:
            start = self.locate(self.max_timestamp_offset) if newest else 0
            if newest and not self._is_batch(start, self.max_timestamp_offset, newest[0]):
                return False
            if whole or not newest:
                for at, header in self.walk(start):
                    if at >= anchor:
                        break
                    if header.max_timestamp > self.max_timestamp:
                        return False
        except BrokerError:
            return False
        return True

    def _take(self, position: int, until: int, *, indexed: bool = False) -> Reached:
        """Index the batches from `position` on whose offsets are below `until`. Return the end.

        With `indexed` the first of them is the one of the last index entry. Damage is skipped and noted in `damaged`.
        """
        next_offset = self.base_offset
        try:
            for at, header, damage in self._walk_over(position):
                self.damaged = self.damaged or damage is not None
                if header.base_offset >= until:
                    return Reached(at, header.base_offset if damage else max(next_offset, until))
                size = header.batch_length + LENGTH_OVERHEAD
                if indexed:
                    self.since_entry, indexed = size, False
                else:
                    self.note(at, header.last_offset, size, header.max_timestamp)
                position, next_offset = at + size, header.next_offset
                if next_offset >= until:
                    break
        except BrokerError:
            self.damaged = True
            return Reached(self.size, next_offset)
        return Reached(position, next_offset)

    def forget(self, offset: int) -> None:
        """Drop all entries and hints from `offset` on; the caller indexes the rest again."""
        self._hints.clear()
        relative = offset - self.base_offset - 1
        if relative < 0:
            self.offsets.reset()
            self.times.reset()
            self.max_timestamp, self.max_timestamp_offset, self.since_entry = NO_TIMESTAMP, -1, 0
            return
        self.offsets.keep(self.offsets.search(relative))
        self.times.keep(self.times.search(relative, 1))

    def mark_loaded(self) -> None:
        """The indexes in memory are right: every batch was noted."""
        self._loaded = True

    @property
    def indexed_end(self) -> int:
        """The offset after the last one that the indexes name."""
        last = max(
            self.offsets.last[0] if self.offsets.last else -1, self.times.last[1] if self.times.last else -1
        )
        return max(self.base_offset + last, self.max_timestamp_offset) + 1

    def last_anchor(self) -> int:
        """Return the position of the last batch that is indexed; 0 if none is."""
        return self.offsets.last[1] if self.offsets.last else 0

    # --- ending --------------------------------------------------------------------------------------------

    def paths(self) -> list[str]:
        """Return the segment's files, the log last: without its log a segment is nothing."""
        return [self.times.path, self.offsets.path, self.log.path]

    def close(self) -> None:
        """Forget all descriptors."""
        self.log.release()
        self.offsets.close()
        self.times.close()
