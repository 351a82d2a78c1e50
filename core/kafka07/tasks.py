"""Reading a segment as Kafka 0.7 would have it: what a thread does with a descriptor, positions and numbers.

Three walks over batches from a place whose address is known:

    Measuring   how far addresses go, and an entry for the sidecar now and then
    Reading     the bytes of 0.7's log from one address on; beyond the measured part it measures as well
    Locating    the address of an offset

The messages of an aborted transaction keep their addresses, and are shown as a hole. So addresses do not depend on
how a transaction ended, and stay when compaction removes them. A batch that cannot be read has no messages here,
because 0.7 has no error that makes a reader skip it. A hole of compaction is as long as the removed messages, see
`core.kafka07.messages`.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from core.errors import BrokerError
from core.kafka07.index import INTERVAL, Entry
from core.kafka07.messages import OVERHEAD, filler_start, shown_payloads
from core.log.damage import find_batch
from core.log.files import OpenFile
from core.log.segment import REPORTS
from core.records.aborted import AbortedRecords
from core.records.header import HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader
from core.types import AbortedTransaction

# What is read from the file at once.
WINDOW = 1024 * 1024
_HEAD_0 = Struct(">ibI")
_HEAD_1 = Struct(">ibbI")


class Place(NamedTuple):
    """The range of a walk: an open segment, the entry to begin at, the position to end at, and the entries between.

    `tail` is the address at which the next segment begins, None where that is not known. `max_bytes` bounds what
    one batch may decompress to. `unseen` takes the offsets of batches that cannot be read, and why. `aborted` are the
    transactions that were aborted in this range, by their first offsets.
    """

    file: OpenFile
    start: Entry
    end: int
    magic: int
    max_bytes: int
    unseen: list[tuple[int, str]]
    ahead: Sequence[Entry] = ()
    tail: int | None = None
    aborted: Sequence[AbortedTransaction] = ()


class Batch(NamedTuple):
    """One batch as 0.7 sees it: positions, header, and the payloads with their offsets."""

    position: int
    end: int
    header: BatchHeader
    offsets: Sequence[int]
    payloads: list[bytes]


def walk(place: Place) -> Iterator[Batch]:
    """Yield the batches of a place, without damaged ones. Blocks; raises OSError."""
    fd, position, end = place.file.fd, place.start.position, place.end
    minimum = place.start.offset
    window, start = b"", position
    while position < end:
        at = position - start
        if len(window) - at < HEADER_SIZE:
            window, start, at = os.pread(fd, min(WINDOW, end - position), position), position, 0
        header = size = None
        if len(window) >= HEADER_SIZE:
            header = BatchHeader._make(HEADER.unpack_from(window, at))
            size = header.batch_length + LENGTH_OVERHEAD
        if header is None or size is None or _broken(header, size, end - position):
            found = find_batch(fd, position, end, minimum)
            if found is None:
                return
            window, position, start = b"", found, found
            continue
        if at + size > len(window):
            window, start, at = os.pread(fd, max(size, min(WINDOW, end - position)), position), position, 0
        offsets: Sequence[int] = ()
        payloads: list[bytes] = []
        try:
            offsets, payloads = shown_payloads(window, at, header, place.max_bytes)
        except BrokerError as error:
            if at + size > len(window):  # the file was cut meanwhile
                return
            if len(place.unseen) < REPORTS:
                place.unseen.append((header.base_offset, error.message))
        yield Batch(position, position + size, header, offsets, payloads)
        minimum = header.next_offset
        position += size


def _broken(header: BatchHeader, size: int, left: int) -> bool:
    return header.magic != MAGIC or not HEADER_SIZE <= size <= left or header.last_offset_delta < 0


class Cursor:
    """The running address of a walk over batches, each of which is handed to `runs` in turn."""

    def __init__(self, start: Entry, magic: int, ahead: Iterable[Entry]) -> None:
        self.address = start.address
        self._overhead = OVERHEAD[magic]
        self._start = start
        self._ahead = iter(ahead)
        self._next = next(self._ahead, None)

    def skipped(self, batch: Batch) -> tuple[Sequence[int], list[bytes]]:
        """Return the records of a batch from the entry on where the walk began."""
        if batch.offsets and batch.offsets[0] < self._start.offset:
            first = bisect_left(batch.offsets, self._start.offset)
            return batch.offsets[first:], batch.payloads[first:]
        return batch.offsets, batch.payloads

    def runs(self, batch: Batch) -> Iterator[tuple[int, Sequence[int], list[bytes]]]:
        """Yield the records of a batch in runs without holes: the address of each run, its offsets, its payloads.

        Once the caller has taken a run, `address` is the address after it.
        """
        offsets, payloads = self.skipped(batch)
        while payloads:
            stop = len(payloads)
            while self._next is not None and self._next.offset <= offsets[0]:
                self.address = max(self.address, self._next.address)
                self._next = next(self._ahead, None)
            if self._next is not None and self._next.offset <= offsets[-1]:
                stop = bisect_left(offsets, self._next.offset)
            run = payloads[:stop] if stop < len(payloads) else payloads
            address = self.address
            self.address += self._overhead * len(run) + sum(map(len, run))
            yield address, offsets[:stop], run
            offsets, payloads = offsets[stop:], payloads[stop:]


class Measuring:
    """Adds up how long the messages are, from the frontier on, for at most `limit` bytes of log.

    `entries` are for the sidecar, `reached` is the new frontier. `last` is the newest entry there is.
    """

    def __init__(self, place: Place, last: Entry, limit: int) -> None:
        self.place = place
        self.entries: list[Entry] = []
        self.reached = place.start
        self._last = last.address
        self._limit = limit

    def run(self) -> None:
        """Do it. Blocks; raises OSError."""
        place = self.place
        cursor = Cursor(place.start, place.magic, place.ahead)
        for batch in walk(place):
            self._note(batch, cursor.address)
            for _ in cursor.runs(batch):
                pass
            self.reached = Entry(batch.header.next_offset, batch.end, cursor.address)
            if batch.end - place.start.position >= self._limit:
                return
        self.reached = Entry(self.reached.offset, place.end, cursor.address)

    def _note(self, batch: Batch, address: int) -> None:
        if address - self._last >= INTERVAL and batch.position > self.place.start.position:
            self._last = address
            self.entries.append(Entry(batch.header.base_offset, batch.position, address))


class Reading:
    """The bytes from the address `wanted` on, `limit` at most, but the first message whole if `max_size` lets it.

    `chunk` is the part that was found, of one segment. The part after `frontier` (None: there is none) is measured as
    by `Measuring`: `entries`, `reached`.
    """

    def __init__(
        self, place: Place, wanted: int, limit: int, max_size: int, frontier: Entry | None, last: Entry
    ) -> None:
        self.place = place
        self.wanted = wanted
        self.chunk = b""
        self.frontier = frontier
        self.entries: list[Entry] = []
        self.reached = frontier
        self._limit = limit
        self._max_size = max_size
        self._last = last.address
        self._pieces: list[bytes] = []
        self._first = -1
        # Up to where bytes were passed by or taken.
        self._next = place.start.address

    def run(self) -> None:
        """Do it. Blocks; raises OSError."""
        place, frontier = self.place, self.frontier
        cursor = Cursor(place.start, place.magic, place.ahead)
        full = False
        aborted = AbortedRecords(place.aborted)
        for batch in walk(place):
            hidden = aborted.holds(batch.header)
            beyond = frontier is not None and batch.position >= frontier.position
            if beyond and cursor.address - self._last >= INTERVAL and batch.position > place.start.position:
                self._last = cursor.address
                self.entries.append(Entry(batch.header.base_offset, batch.position, cursor.address))
            for address, _, payloads in cursor.runs(batch):
                if hidden:
                    continue
                self._hole(address)
                if not full and cursor.address > self.wanted:
                    full = self._take(address, payloads)
                self._next = cursor.address
            if beyond:
                self.reached = Entry(batch.header.next_offset, batch.end, cursor.address)
            if full or self._is_full():
                break
        else:
            if self.reached is not None:
                self.reached = Entry(self.reached.offset, place.end, cursor.address)
            self._hole(cursor.address if place.tail is None else place.tail)
        self._cut()

    def _is_full(self) -> bool:
        return self._first >= 0 and self._next - max(self._first, self.wanted) >= self._limit

    def _hole(self, address: int) -> None:
        """Add fillers up to `address`, as far as they are wanted.

        The filler begins where the reader is: that was the end of a message once, although it is not known any
        more which addresses in the hole were.
        """
        start = max(self._next, self.wanted)
        if self._next >= address or address <= self.wanted or self._is_full():
            return
        if self._first < 0:
            self._first = start
        end = min(address, start + self._limit)
        self._pieces.append(filler_start(self.place.magic, address - start, end - start))
        self._next = end

    def _take(self, address: int, payloads: list[bytes]) -> bool:
        """Write the messages of a run that are wanted. Whether there is enough."""
        overhead, magic = OVERHEAD[self.place.magic], self.place.magic
        pieces, crc32 = self._pieces, zlib.crc32
        wanted, end = self.wanted, -1
        if self._first >= 0:
            end = max(self._first, wanted) + self._limit
        pack = _HEAD_1.pack if magic else _HEAD_0.pack
        for payload in payloads:
            size = overhead + len(payload)
            if address + size > wanted:
                if self._first < 0:
                    self._first = address
                    # The first message is returned whole, so that a reader that asks for fewer bytes gets past it.
                    end = wanted + max(self._limit, min(address + size - wanted, self._max_size))
                if magic:
                    pieces.append(pack(size - 4, 1, 0, crc32(payload)))
                else:
                    pieces.append(pack(size - 4, 0, crc32(payload)))
                pieces.append(payload)
                if address + size >= end:
                    self._limit = end - max(self._first, wanted)
                    return True
            address += size
        return False

    def _cut(self) -> None:
        if self._first >= 0:
            start = max(self.wanted - self._first, 0)
            self.chunk = b"".join(self._pieces)[start : start + self._limit]
        self._pieces.clear()


class Locating:
    """The address of the record at `offset`, or of the next one that is there."""

    def __init__(self, place: Place, offset: int) -> None:
        self.place = place
        self.offset = offset
        self.address = place.start.address

    def run(self) -> None:
        """Do it. Blocks; raises OSError."""
        overhead = OVERHEAD[self.place.magic]
        cursor = Cursor(self.place.start, self.place.magic, self.place.ahead)
        for batch in walk(self.place):
            for address, offsets, payloads in cursor.runs(batch):
                if offsets[-1] >= self.offset:
                    count = bisect_left(offsets, self.offset)
                    self.address = address + overhead * count + sum(map(len, payloads[:count]))
                    return
        tail = self.place.tail
        self.address = cursor.address if tail is None else tail
