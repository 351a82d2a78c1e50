"""The two sparse indexes of a segment: offset → position, and timestamp → offset.

    .index      entries of 8 bytes    relative offset int32, position int32
    .timeindex  entries of 12 bytes   timestamp int64, relative offset int32

All big-endian, no header, offsets relative to the segment's base. An offset entry means: the batch whose *last*
offset is this begins at that position. A time entry means: no record up to this offset is younger than that
timestamp, and the batch whose last offset is this holds one that is as young.

An index is only a hint: the reader of an entry checks that the batch is really there. So the files need no checksum
and no fsync. A lost, torn or foreign index costs a rebuild, but no data.

Entries are kept in memory. A checkpoint, a roll or a close writes them in one write, so that an append has only one
write, the batch itself.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import ClassVar

from core.log import files
from core.log.files import FilePool, FileSlot

# Bytes of entries kept in memory before they are written without waiting for a checkpoint.
PENDING_LIMIT = 64 * 1024


class SparseIndex:
    """An append-only file of fixed-size entries, sorted in both columns, and its tail that is not written yet."""

    ENTRY: ClassVar[Struct]
    __slots__ = ("_pending", "_slot", "_stale", "_written", "count", "last")

    def __init__(self, pool: FilePool, path: str) -> None:
        self._slot = FileSlot(pool, path)
        self._written = 0
        self._pending = bytearray()
        # Whether the file is missing, or holds more than the entries that count.
        self._stale = True
        # Entries, written or not. A field, because each append reads it.
        self.count = 0
        # The newest entry, or None.
        self.last: tuple[int, int] | None = None

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._slot.path

    def load(self) -> bool:
        """Take what the file holds. False if there is no file, or it cannot be an index of this kind.

        Check the size and the last two entries only. A power loss or another broker's preallocation may leave a file
        of zeros; its entries do not rise.
        """
        self.reset()
        try:
            size = os.fstat(self._slot.reading().fd).st_size
        except FileNotFoundError:
            return False
        self._stale = False
        self._written, torn = divmod(size, self.ENTRY.size)
        if torn:
            self.reset()
            return False
        self.count = self._written
        if self._written:
            self.last = self.entry(self._written - 1)
            before = self.entry(self._written - 2) if self._written > 1 else None
            if min(self.last) < 0 or (before and (before[0] >= self.last[0] or before[1] >= self.last[1])):
                self.reset()
                return False
        return True

    def reset(self) -> None:
        """Forget all entries; the file is overwritten by the next `flush`."""
        self._written = self.count = 0
        self._pending.clear()
        self._stale = True
        self.last = None

    def entry(self, i: int) -> tuple[int, int]:
        """Return the i-th entry."""
        size = self.ENTRY.size
        if i >= self._written:
            found = self.ENTRY.unpack_from(self._pending, (i - self._written) * size)
        else:
            found = self.ENTRY.unpack(os.pread(self._slot.reading().fd, size, i * size))
        return found[0], found[1]

    def add(self, first: int, second: int) -> None:
        """Append an entry, in memory."""
        self._pending += self.ENTRY.pack(first, second)
        self.count += 1
        self.last = (first, second)
        if len(self._pending) >= PENDING_LIMIT:
            self.flush()

    def search(self, value: int, column: int = 0) -> int:
        """The number of entries whose `column` is at most `value`; the one before that is the nearest below."""
        last = self.last
        if last is None:
            return 0
        low, high = 0, self.count
        if last[column] <= value:
            return high
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[column] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    def keep(self, count: int) -> None:
        """Drop all entries but the first `count`."""
        if count < self._written:
            self._written = count
            self._pending.clear()
            self._stale = True
        else:
            del self._pending[(count - self._written) * self.ENTRY.size :]
        self.count = count
        self.last = self.entry(count - 1) if count else None

    def flush(self) -> bool:
        """Write what waits in memory. False if the disk refuses: the entries stay in memory, nothing is lost."""
        if not self.unwritten:
            return True
        try:
            fd = self._slot.updating().fd
            view = memoryview(bytes(self._pending))
            position = self._written * self.ENTRY.size
            while view:
                done = files.pwrite(fd, view, position)
                view = view[done:]
                position += done
            if self._stale:
                files.truncate(fd, position)
        except OSError:
            return False
        self._written += len(self._pending) // self.ENTRY.size
        self._pending.clear()
        self._stale = False
        return True

    def seal(self) -> None:
        """Write what waits and close the file: the segment is sealed."""
        self.flush()
        self._slot.release()

    def close(self) -> None:
        """Forget the descriptor."""
        self._slot.release()

    @property
    def unwritten(self) -> bool:
        """Return whether entries wait for the file."""
        return bool(self._pending) or self._stale


class OffsetIndex(SparseIndex):
    """Relative last offset of a batch → position of the batch."""

    ENTRY = Struct(">ii")
    __slots__ = ()


class TimeIndex(SparseIndex):
    """Largest timestamp so far → relative last offset of the batch that holds it."""

    ENTRY = Struct(">qi")
    __slots__ = ()
