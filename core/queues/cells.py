"""The states of the records of a share partition, in chunks of arrays.

A record that is tracked takes 15 bytes: state 1, deliveries 2, lease 4, time 8. A chunk has 1,024 offsets and is
dropped when all of them are settled: offsets below `end` without a chunk are settled. So a record that is never
settled costs one chunk, however many were settled after it. Work on ranges is done by the arrays in C; the plain
loops are for neighbors that differ.

Times are kept a second time, as a wheel: for each tick, which chunks have a lock or a delay that ends in it.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from core.queues.share_changes import ARCHIVING, AVAILABLE, DELAYED, DONE, FRESH, LEASED, SETTLED, Cell

SIZE: Final = 1_024
TICK_MS: Final = 50
MAX_DELIVERIES: Final = 65_535

_SETTLED = bytes((SETTLED,))
_ALL_SETTLED = _SETTLED * SIZE

Packed = tuple[int, bytes, bytes, bytes, bytes]


class Segment(NamedTuple):
    """Offsets `first` to `last`, both inclusive, with equal cells."""

    first: int
    last: int
    cell: Cell


class _Chunk:
    __slots__ = ("deliveries", "lease", "state", "time", "unsettled")

    def __init__(self) -> None:
        self.state = bytearray(_ALL_SETTLED)
        self.deliveries = array("H", bytes(2 * SIZE))
        self.lease = array("I", bytes(4 * SIZE))
        self.time = array("q", bytes(8 * SIZE))
        self.unsettled = 0

    def cell(self, at: int) -> Cell:
        return Cell(self.state[at], self.deliveries[at], self.lease[at], self.time[at])

    def run_end(self, at: int, stop: int) -> int:
        """Return the end (exclusive) of the cells from `at` on that equal it."""
        state, deliveries, lease, time = self.state, self.deliveries, self.lease, self.time
        s, d, n, t = state[at], deliveries[at], lease[at], time[at]
        following = at + 1
        if following >= stop or state[following] != s or lease[following] != n or time[following] != t:
            return following
        if deliveries[following] != d:
            return following
        length = stop - at
        if (
            state[at:stop].count(s) == length
            and lease[at:stop] == array("I", (n,)) * length
            and time[at:stop] == array("q", (t,)) * length
            and deliveries[at:stop] == array("H", (d,)) * length
        ):
            return stop
        while (
            following < stop
            and state[following] == s
            and lease[following] == n
            and time[following] == t
            and deliveries[following] == d
        ):
            following += 1
        return following

    def pack(self, index: int) -> Packed:
        parts = [self.deliveries, self.lease, self.time]
        if sys.byteorder == "big":
            parts = [array(part.typecode, part) for part in parts]
            for part in parts:
                part.byteswap()
        deliveries, lease, time = parts
        return index, bytes(self.state), deliveries.tobytes(), lease.tobytes(), time.tobytes()


class Cells:
    """The cells of the offsets below `end`. `counts[state]` is the number of records in a state; SETTLED has none."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.counts = [0, 0, 0, 0, 0]
        self._chunks: dict[int, _Chunk] = {}
        # The last chunk that was dropped, for the next one: all its cells are DONE.
        self._spare: _Chunk | None = None
        # No record below is available.
        self._low = end
        self._wheel: dict[int, set[int]] = {}
        self._ticks: list[int] = []

    # --- reading -----------------------------------------------------------------------------------------------

    @property
    def chunks(self) -> int:
        """The number of chunks in memory."""
        return len(self._chunks)

    def get(self, offset: int) -> Cell:
        """Return the cell of one offset."""
        if offset >= self.end:
            return FRESH
        chunk = self._chunks.get(offset // SIZE)
        return DONE if chunk is None else chunk.cell(offset % SIZE)

    def _present(self, first: int, last: int) -> Iterator[int]:
        """Yield the indexes of the chunks from the one of `first` to the one of `last`, ascending."""
        low, high = first // SIZE, last // SIZE
        if high - low > 4 * len(self._chunks):
            yield from sorted(index for index in self._chunks if low <= index <= high)
            return
        for index in range(low, high + 1):
            if index in self._chunks:
                yield index

    def segments(self, first: int, last: int) -> Iterator[Segment]:
        """Yield the cells of offsets below `end`, as runs of equal ones; settled ones as well."""
        last = min(last, self.end - 1)
        if first == last:
            yield Segment(first, first, self.get(first))
            return
        at = first
        for index in self._present(first, last) if first <= last else ():
            base = index * SIZE
            if at < base:
                yield Segment(at, base - 1, DONE)
                at = base
            chunk = self._chunks[index]
            stop = min(SIZE, last + 1 - base)
            inside = at - base
            while inside < stop:
                following = chunk.run_end(inside, stop)
                yield Segment(base + inside, base + following - 1, chunk.cell(inside))
                inside = following
            at = base + stop
        if at <= last:
            yield Segment(at, last, DONE)

    def with_state(self, state: int, first: int, last: int) -> Iterator[Segment]:
        """Yield the runs of equal cells with one state, which is not SETTLED."""
        last = min(last, self.end - 1)
        if not self.counts[state] or first > last:
            return
        for index in self._present(first, last):
            base = index * SIZE
            chunk = self._chunks[index]
            stop = min(SIZE, last + 1 - base)
            at = chunk.state.find(state, max(0, first - base), stop)
            while at >= 0:
                following = chunk.run_end(at, stop)
                yield Segment(base + at, base + following - 1, chunk.cell(at))
                at = chunk.state.find(state, following, stop)

    def available(self, after: int) -> Iterator[Segment]:
        """Yield runs of available records, from the oldest after `after` on."""
        if after >= self._low:
            yield from self.with_state(AVAILABLE, after + 1, self.end - 1)
            return
        low = self.end
        for segment in self.with_state(AVAILABLE, self._low, self.end - 1):
            if segment.first < low:
                low = self._low = segment.first
            if segment.last > after:
                yield segment._replace(first=max(segment.first, after + 1))
        if low == self.end:
            self._low = low

    def of_lease(self, lease: int) -> Iterator[Segment]:
        """Yield the runs of records that are leased by a lease."""
        if not self.counts[LEASED]:
            return
        wanted = lease.to_bytes(4, sys.byteorder)
        for index in sorted(self._chunks):
            chunk = self._chunks[index]
            if LEASED not in chunk.state or wanted not in (data := chunk.lease.tobytes()):
                continue
            at = data.find(wanted)
            while at >= 0:
                if at % 4:
                    at = data.find(wanted, at + 1)
                    continue
                following = chunk.run_end(at // 4, SIZE)
                if chunk.state[at // 4] == LEASED:
                    yield Segment(index * SIZE + at // 4, index * SIZE + following - 1, chunk.cell(at // 4))
                at = data.find(wanted, following * 4)

    def live_leases(self) -> set[int]:
        """Return the leases of leased records."""
        found: set[int] = set()
        for segment in self.with_state(LEASED, 0, self.end - 1):
            found.add(segment.cell.lease)
        return found

    def has_lease_from(self, lowest: int) -> bool:
        """Return whether any record has a lease of this number or more."""
        return any(max(chunk.lease) >= lowest for chunk in self._chunks.values())

    def first_unsettled(self, start: int) -> int:
        """Return the first offset from `start` on that is not settled, or `end`."""
        for index in self._present(start, self.end - 1) if start < self.end else ():
            chunk, base = self._chunks[index], index * SIZE
            inside = max(0, start - base)
            rest = chunk.state[inside:]
            skipped = len(rest) - len(rest.lstrip(_SETTLED))
            if skipped < len(rest):
                return base + inside + skipped
        return self.end

    # --- writing -----------------------------------------------------------------------------------------------

    def put(self, first: int, last: int, cell: Cell) -> None:
        """Set the cells of offsets. Offsets between `end` and `first` become available; `end` rises if need be."""
        if first > self.end:
            self.put(self.end, first - 1, FRESH)
        for index in self._touched(first, last, cell.state):
            chunk = self._chunks.get(index)
            if chunk is None:
                if cell.state == SETTLED:
                    continue
                chunk = self._chunks[index] = self._spare or _Chunk()
                self._spare = None
            base = index * SIZE
            low, high = first - base, last + 1 - base
            self._fill(chunk, low if low > 0 else 0, high if high < SIZE else SIZE, cell)
            if not chunk.unsettled:
                self._spare = self._chunks.pop(index)
            elif cell.state == LEASED or cell.state == DELAYED:
                self._turn(cell.time, index)
        if last >= self.end:
            self.end = last + 1
        if cell.state == AVAILABLE and first < self._low:
            self._low = first

    def _touched(self, first: int, last: int, state: int) -> Iterable[int]:
        """Return the chunks to write. Where none is, offsets are settled already."""
        low, high = first // SIZE, last // SIZE
        if low == high:
            return (low,)
        return list(self._present(first, last)) if state == SETTLED else range(low, high + 1)

    def _fill(self, chunk: _Chunk, low: int, high: int, cell: Cell) -> None:
        state, deliveries, lease, time = cell
        counts = self.counts
        if high - low == 1:
            before = chunk.state[low]
            if before != SETTLED:
                counts[before] -= 1
                chunk.unsettled -= 1
            chunk.state[low] = state
            chunk.deliveries[low], chunk.lease[low], chunk.time[low] = deliveries, lease, time
        else:
            number = high - low
            replaced = chunk.state[low:high]
            for before in (AVAILABLE, LEASED, ARCHIVING, DELAYED):
                found = replaced.count(before)
                counts[before] -= found
                chunk.unsettled -= found
            chunk.state[low:high] = bytes((state,)) * number
            chunk.deliveries[low:high] = array("H", (deliveries,)) * number
            chunk.lease[low:high] = array("I", (lease,)) * number
            chunk.time[low:high] = array("q", (time,)) * number
        if state != SETTLED:
            counts[state] += high - low
            chunk.unsettled += high - low

    def cut(self, end: int) -> None:
        """Forget the offsets from `end` on."""
        if end >= self.end:
            return
        self.put(end, self.end - 1, DONE)
        self.end = end
        self._low = min(self._low, end)

    # --- time --------------------------------------------------------------------------------------------------

    def _turn(self, time: int, index: int) -> None:
        tick = -(-time // TICK_MS)
        chunks = self._wheel.get(tick)
        if chunks is None:
            self._wheel[tick] = {index}
            heapq.heappush(self._ticks, tick)
        else:
            chunks.add(index)

    def next_due(self) -> int | None:
        """Return when the next lock or delay may end; None if there is none."""
        while self._ticks and not any(index in self._chunks for index in self._wheel[self._ticks[0]]):
            del self._wheel[heapq.heappop(self._ticks)]
        return self._ticks[0] * TICK_MS if self._ticks else None

    def due(self, now_ms: int, max_chunks: int, max_runs: int) -> list[Segment]:
        """Return leased and delayed records whose time is up; they are returned once.

        The caller must put something else in their place. After `max_chunks` chunks, and after the chunk with which
        there are `max_runs`, the rest is left for the next call.
        """
        found: list[Segment] = []
        seen: set[int] = set()
        tick = now_ms // TICK_MS
        while self._ticks and self._ticks[0] <= tick:
            chunks = self._wheel[self._ticks[0]]
            while chunks:
                index = next(iter(chunks))
                if index not in seen:
                    if len(seen) == max_chunks or len(found) >= max_runs:
                        return found
                    seen.add(index)
                    found += self._due_in(index, tick * TICK_MS)
                chunks.discard(index)
            del self._wheel[heapq.heappop(self._ticks)]
        return found

    def _due_in(self, index: int, time: int) -> Iterator[Segment]:
        chunk = self._chunks.get(index)
        if chunk is None:
            return
        base, at = index * SIZE, 0
        while at < SIZE:
            following = chunk.run_end(at, SIZE)
            if chunk.state[at] in (LEASED, DELAYED) and chunk.time[at] <= time:
                yield Segment(base + at, base + following - 1, chunk.cell(at))
            at = following

    def shift(self, ms: int) -> None:
        """Move the times of all locks and delays."""
        for index, chunk in self._chunks.items():
            for at, state in enumerate(chunk.state):
                if state in (LEASED, DELAYED):
                    chunk.time[at] += ms
                    self._turn(chunk.time[at], index)

    # --- the store ---------------------------------------------------------------------------------------------

    def pack(self) -> list[Packed]:
        """Return all chunks as bytes, in little-endian order."""
        return [self._chunks[index].pack(index) for index in sorted(self._chunks)]

    def unpack(self, packed: list[Packed]) -> None:
        """Set the chunks, of cells that have none yet. Raises ValueError if a chunk has another size."""
        for index, state, deliveries, lease, time in packed:
            chunk = _Chunk()
            chunk.state = bytearray(state)
            for part, data in ((chunk.deliveries, deliveries), (chunk.lease, lease), (chunk.time, time)):
                del part[:]
                part.frombytes(data)
                if sys.byteorder == "big":
                    part.byteswap()
                if len(part) != len(state) or len(state) != SIZE:
                    raise ValueError("a chunk of a share partition does not have 1,024 cells")
            chunk.unsettled = SIZE - state.count(SETTLED)
            self._chunks[index] = chunk
            for number in (AVAILABLE, LEASED, ARCHIVING, DELAYED):
                self.counts[number] += state.count(number)
            if AVAILABLE in state:
                self._low = min(self._low, index * SIZE)
            if LEASED in state or DELAYED in state:
                # The other states have small numbers in place of a time.
                for moment in set(chunk.time):
                    if moment >= TICK_MS:
                        self._turn(moment, index)
