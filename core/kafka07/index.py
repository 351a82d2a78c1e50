"""The sidecar of a segment for Kafka 0.7: which byte address a record has. One for each of its message formats.

    <base offset>.legacy0 .legacy1
    header   "SLA7" | format uint8 = 1 | magic uint8 | 2 zeros | base offset int64 | base address int64 | CRC-32
    entries  relative offset int32 | position int32 | relative address int64 | CRC-32

All big-endian; offsets and addresses count from the segment's base, the CRC of an entry is seeded by the header's.
An entry says: the record of this offset, or the next one that is there, lies in the batch at that position and has
that address; the following records have no gaps up to the next entry. So there is an entry every `INTERVAL` bytes,
and after each hole that compaction has left.

Unlike an offset index this one is believed: an address cannot be checked against the batches without adding up all
that lies before. Hence the checksums, and entries go to the file only for records that are on the disk, so that a
torn tail of the log never makes one wrong. What cannot be read is made again from the last entry that can.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from struct import Struct
from typing import NamedTuple

from core.log import files
from core.log.files import FilePool, FileSlot

# The message formats of 0.6 and 0.7, and the sidecars of each.
MAGICS = (0, 1)
SIDECAR_SUFFIXES = (".legacy0", ".legacy1")
# Bytes of addresses between two entries: what a reader has to pass by at most, 0.1 ms of work.
INTERVAL = 32 * 1024

_HEADER = Struct(">4sBBHqqI")
_ENTRY = Struct(">iiqI")
_MARK = b"SLA7"
_FORMAT = 1


class Entry(NamedTuple):
    """A record whose address is known: its offset, where its batch begins, its address."""

    offset: int
    position: int
    address: int


def sidecar_path(stem: str, magic: int) -> str:
    """Return the sidecar of the segment whose files begin with `stem`."""
    return stem + SIDECAR_SUFFIXES[magic]


class AddressIndex:
    """The entries of one segment in one magic: those of the file, and the newest ones, which wait for the disk."""

    __slots__ = ("_pending", "_seed", "_slot", "base_address", "base_offset", "magic", "written")

    def __init__(
        self, pool: FilePool, stem: str, magic: int, base_offset: int, base_address: int, *, suffix: str = ""
    ) -> None:
        self._slot = FileSlot(pool, sidecar_path(stem, magic) + suffix)
        self.magic = magic
        self.base_offset = base_offset
        self.base_address = base_address
        self._seed = zlib.crc32(self._header()[:-4])
        # Entries that the file has.
        self.written = 0
        self._pending: list[Entry] = []

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._slot.path

    @property
    def count(self) -> int:
        """Entries, written or not."""
        return self.written + len(self._pending)

    @property
    def start(self) -> Entry:
        """What is known without an entry: where the segment begins."""
        return Entry(self.base_offset, 0, self.base_address)

    def _header(self) -> bytes:
        front = _HEADER.pack(_MARK, _FORMAT, self.magic, 0, self.base_offset, self.base_address, 0)[:-4]
        return front + zlib.crc32(front).to_bytes(4, "big")

    def load(self) -> bool:
        """Take the entries of the file, up to the first torn one. False if it is no sidecar of this place.

        Raises OSError.
        """
        self._pending.clear()
        self.written = 0
        try:
            fd = self._slot.reading().fd
        except FileNotFoundError:
            return False
        if os.pread(fd, _HEADER.size, 0) != self._header():
            self._slot.release()
            return False
        count = (os.fstat(fd).st_size - _HEADER.size) // _ENTRY.size
        # Entries are only ever added, so what is torn lies at the end.
        while count and self._read(count - 1) is None:
            count -= 1
        self.written = count
        return True

    def _read(self, i: int) -> Entry | None:
        data = os.pread(self._slot.reading().fd, _ENTRY.size, _HEADER.size + i * _ENTRY.size)
        return self._decode(data) if len(data) == _ENTRY.size else None

    def _decode(self, data: bytes) -> Entry | None:
        offset, position, address, crc = _ENTRY.unpack(data)
        if zlib.crc32(data[:-4], self._seed) != crc:
            return None
        return Entry(self.base_offset + offset, position, self.base_address + address)

    def _encode(self, entry: Entry) -> bytes:
        data = _ENTRY.pack(
            entry.offset - self.base_offset, entry.position, entry.address - self.base_address, 0
        )[:-4]
        return data + zlib.crc32(data, self._seed).to_bytes(4, "big")

    def entry(self, i: int) -> Entry:
        """Return the i-th entry; −1 is where the segment begins. Raises OSError, ValueError for a damaged one."""
        if i < 0:
            return self.start
        if i >= self.written:
            return self._pending[i - self.written]
        found = self._read(i)
        if found is None:
            raise ValueError(f"entry {i} of {self.path} is damaged")
        return found

    def entries(self, start: int, end: int) -> list[Entry]:
        """Return the entries from `start` up to `end`, not included. Raises OSError, ValueError for a damaged one."""
        stop = min(end, self.written)
        found: list[Entry] = []
        if start < stop:
            fd = self._slot.reading().fd
            data = os.pread(fd, (stop - start) * _ENTRY.size, _HEADER.size + start * _ENTRY.size)
            for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
                one = self._decode(data[at : at + _ENTRY.size])
                if one is None:
                    raise ValueError(f"{self.path} is damaged")
                found.append(one)
        waiting = max(start - self.written, 0), max(end - self.written, 0)
        return found + self._pending[waiting[0] : waiting[1]]

    @property
    def last(self) -> Entry:
        """The newest entry, or where the segment begins."""
        return self.entry(self.count - 1)

    def search(self, value: int, column: int) -> int:
        """The index of the last entry whose offset (0) or address (2) is at most `value`; −1 if there is none."""
        return bisect_right(range(self.count), value, key=lambda index: self.entry(index)[column]) - 1

    def add(self, entries: list[Entry]) -> None:
        """Append entries after the last one, in memory."""
        self._pending += entries

    def flush(self, durable_offset: int) -> bool:
        """Write the entries that speak of records below `durable_offset` only; whether none waits any more.

        Raises OSError, and then they all wait on.
        """
        ready = 0
        while ready < len(self._pending) and self._pending[ready].offset <= durable_offset:
            ready += 1
        if not ready:
            return not self._pending
        fd = self._slot.updating().fd
        data = b"".join([self._encode(entry) for entry in self._pending[:ready]])
        end = _HEADER.size + self.written * _ENTRY.size
        if not self.written:
            data, end = self._header() + data, 0
        start = end
        while data:
            done = files.pwrite(fd, data, start)
            data, start = data[done:], start + done
        if os.fstat(fd).st_size > start:
            files.truncate(fd, start)
        self.written += ready
        del self._pending[:ready]
        return not self._pending

    def cut(self, count: int) -> None:
        """Drop all entries but the first `count`. Raises OSError."""
        if count >= self.written:
            del self._pending[count - self.written :]
            return
        self._pending.clear()
        self.written = count
        files.truncate(self._slot.updating().fd, _HEADER.size + count * _ENTRY.size)

    def close(self) -> None:
        """Let go of the descriptor."""
        self._slot.release()


def read_base(path: str) -> tuple[int, int, int] | None:
    """Return (magic, base offset, base address) of the header of a sidecar; None if there is none to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.pread(fd, _HEADER.size, 0)
    except OSError:
        return None
    finally:
        os.close(fd)
    if len(data) < _HEADER.size or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "big"):
        return None
    mark, version, magic, _, base_offset, base_address, _ = _HEADER.unpack(data)
    return (magic, base_offset, base_address) if (mark, version) == (_MARK, _FORMAT) else None
