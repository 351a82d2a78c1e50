"""The aborted transactions of one log, so that read_committed consumers can drop their records.

Each segment in which a transaction was aborted has a file `<base offset>.txnindex`, Kafka's format. Entries of 34
bytes, big-endian, in the order of their markers:

    version int16 = 0, producer id int64, offset of the first record int64, offset of the marker int64,
    last stable offset after the marker int64

The file has no checksum. It is fsynced with the segment; what is not certain is written again from the batches when
the log is opened. Source: KIP-98, "Transaction Index".
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import chain
from struct import Struct

from core.log import files
from core.types import AbortedTransaction

TRANSACTION_INDEX_SUFFIX = ".txnindex"
_VERSION = 0
_ENTRY = Struct(">hqqqq")
_LAST_OFFSET = Struct(">q")
_LAST_OFFSET_AT = 18
# Entries of one read.
_WINDOW = 128


class AbortedTransactions:
    """The index files of one log. A log without aborted transactions has none, and costs nothing.

    An entry that a full disk refuses is kept in memory, and written with the next one or the next flush.
    """

    __slots__ = ("_bases", "_changed", "_directory", "_waiting")

    def __init__(self, directory: str, bases: Iterable[int] = ()) -> None:
        self._directory = directory
        # Base offsets of the segments that have a file, rising.
        self._bases = sorted(bases)
        # Files that were written since `write_all`.
        self._changed: set[str] = set()
        # Entries that are not in their files yet, by base offset.
        self._waiting: dict[int, list[AbortedTransaction]] = {}

    @property
    def has_files(self) -> bool:
        """Whether any transaction of the log has been aborted."""
        return bool(self._bases)

    def path(self, base_offset: int) -> str:
        """Return the index file of the segment that begins at `base_offset`."""
        return f"{self._directory}/{base_offset:020d}{TRANSACTION_INDEX_SUFFIX}"

    def add(self, base_offset: int, *aborted: AbortedTransaction) -> None:
        """Add entries to the index of a segment, in the order of the markers."""
        self._waiting.setdefault(base_offset, []).extend(aborted)
        if base_offset not in self._bases:
            insort(self._bases, base_offset)
        with contextlib.suppress(OSError):
            self._write()

    def write_all(self) -> list[str]:
        """Write what waits; return the files to be fsynced, each once. Raises OSError."""
        self._write()
        changed, self._changed = sorted(self._changed), set()
        return changed

    def _write(self) -> None:
        for base, entries in list(self._waiting.items()):
            path = self.path(base)
            append_entries(path, entries)
            self._changed.add(path)
            del self._waiting[base]

    def between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records from `offset` up to `end_offset`, by first offset.

        Consumers need that order: they begin to drop the records of a producer where its entry begins. Raises
        OSError.
        """
        if not self._bases:
            return []
        found: list[AbortedTransaction] = []
        for base in self._bases[max(bisect_right(self._bases, offset) - 1, 0) :]:
            for aborted in chain(entries_from(self.path(base), offset), self._waiting.get(base, ())):
                if aborted.first_offset < end_offset and aborted.last_offset >= offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= end_offset:
                    return sorted(found, key=lambda entry: entry.first_offset)
        return sorted(found, key=lambda entry: entry.first_offset)

    def forget(self, base_offset: int) -> None:
        """The file of a segment is no longer part of the log."""
        if base_offset in self._bases:
            self._bases.remove(base_offset)
            self._waiting.pop(base_offset, None)
            self._changed.discard(self.path(base_offset))

    def replaced(self, base_offset: int) -> None:
        """The file of a segment was written again, and fsynced."""
        self.forget(base_offset)
        insort(self._bases, base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose marker is at `offset` or after it. Raises OSError."""
        for base in list(reversed(self._bases)):
            path = self.path(base)
            if base >= offset:
                files.remove_if_present(path)
                self.forget(base)
                continue
            truncate_entries(path, offset)
            self._changed.add(path)
            waiting = [entry for entry in self._waiting.pop(base, ()) if entry.last_offset < offset]
            if waiting:
                self._waiting[base] = waiting
            return


def append_entries(path: str, entries: Iterable[AbortedTransaction]) -> None:
    """Append entries to an index file. Raises OSError; the file may then end within an entry."""
    fd = files.open_file(path, os.O_WRONLY | os.O_CREAT)
    try:
        # An entry that a full disk has torn is overwritten by the next one.
        at = os.fstat(fd).st_size // _ENTRY.size * _ENTRY.size
        files.truncate(fd, at)
        os.lseek(fd, at, os.SEEK_SET)
        view = memoryview(b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries))
        while view:
            view = view[files.write(fd, view) :]
    finally:
        os.close(fd)


def truncate_entries(path: str, offset: int) -> None:
    """Drop the entries of a file whose marker is at `offset` or after it. Raises OSError."""
    try:
        fd = files.open_file(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        files.truncate(fd, _first_from(fd, offset) * _ENTRY.size)
    finally:
        os.close(fd)


def entries_from(path: str, offset: int) -> Iterator[AbortedTransaction]:
    """Yield the entries of a file whose marker is at `offset` or after it; none without a file. Raises OSError."""
    try:
        fd = files.open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        at = _first_from(fd, offset) * _ENTRY.size
        while window := os.pread(fd, _WINDOW * _ENTRY.size, at):
            whole = len(window) // _ENTRY.size * _ENTRY.size
            for _, *entry in _ENTRY.iter_unpack(window[:whole]):
                yield AbortedTransaction._make(entry)
            if whole < len(window) or not whole:
                return
            at += whole
    finally:
        os.close(fd)


def _first_from(fd: int, offset: int) -> int:
    """Return the number of the first entry whose marker is at `offset` or after it."""

    def marker(entry: int) -> int:
        place = entry * _ENTRY.size + _LAST_OFFSET_AT
        return int(_LAST_OFFSET.unpack(os.pread(fd, _LAST_OFFSET.size, place))[0])

    return bisect_left(range(os.fstat(fd).st_size // _ENTRY.size), offset, key=marker)
