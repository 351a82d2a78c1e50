"""Batches of a partition that were fetched, shared by all readers, and dropped in the order of their last use.

A chunk is a run of whole batches without a gap in between; it never changes. Chunks at the end of a log are often
tiny, so that a small one is joined with the one before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.records.control import read_marker
from core.records.header import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, read_header
from core.types import AbortedTransaction, LogOffsets, TopicPartition

# What a chunk costs beyond its bytes.
_OVERHEAD = 600
# Chunks are joined up to this size.
_JOINED_BYTES = 64 * 1024
# The marker of an aborted transaction was not fetched yet: all that follows of its producer is aborted.
_OPEN_END = 2**63 - 1


class Stretch(NamedTuple):
    """Whole batches of one partition, from the one that holds the offset asked for.

    `next_offset` is the offset after them; equal to the offset asked for if there is nothing to read yet. `aborted`
    are the transactions whose records must be dropped, for `core.records.aborted.AbortedRecords`.
    """

    data: memoryview
    next_offset: int
    offsets: LogOffsets
    aborted: tuple[AbortedTransaction, ...] = ()


class Chunk:
    """Batches from offset `start` up to `next_offset`.

    `ends` has the next offset of each batch, `positions` where its bytes begin.
    """

    __slots__ = ("aborted", "data", "ends", "epoch", "next_offset", "positions", "start")

    def __init__(
        self,
        start: int,
        data: bytes | memoryview,
        positions: list[int],
        ends: list[int],
        epoch: int,
        aborted: tuple[AbortedTransaction, ...],
    ) -> None:
        self.start = start
        self.next_offset = ends[-1]
        self.data = memoryview(data)
        self.positions = positions
        self.ends = ends
        # The leader epoch of the last batch.
        self.epoch = epoch
        self.aborted = aborted

    @property
    def size(self) -> int:
        """Return the bytes that it holds in memory."""
        return len(self.data) + 70 * len(self.ends) + _OVERHEAD

    def cut(self, offset: int, max_bytes: int, offsets: LogOffsets) -> Stretch:
        """Return the batches from the one that holds `offset` on, at least one, else at most `max_bytes`."""
        first = bisect_right(self.ends, offset)
        start = self.positions[first]
        if len(self.data) - start <= max_bytes:
            return Stretch(self.data[start:], self.next_offset, offsets, self.aborted)
        last = max(bisect_right(self.positions, start + max_bytes) - 1, first + 1)
        if last >= len(self.positions):
            return Stretch(self.data[start:], self.next_offset, offsets, self.aborted)
        return Stretch(self.data[start : self.positions[last]], self.ends[last - 1], offsets, self.aborted)

    def joined(self, other: Chunk) -> Chunk | None:
        """Return this chunk with the one that follows it; None if that would be too large."""
        length = len(self.data)
        if length + len(other.data) > _JOINED_BYTES:
            return None
        aborted = self.aborted
        if other.aborted:
            # A transaction that began in this chunk may be among those of the other one, with its marker.
            known = {(one.producer_id, one.first_offset): one for one in (*aborted, *other.aborted)}
            aborted = tuple(sorted(known.values(), key=_first_offset))
        return Chunk(
            self.start,
            b"".join((self.data, other.data)),
            self.positions + [length + position for position in other.positions],
            self.ends + other.ends,
            other.epoch,
            aborted,
        )


def _first_offset(one: AbortedTransaction) -> int:
    return one.first_offset


def chunk_of(offset: int, data: bytes | memoryview, aborted: Sequence[tuple[int, int]]) -> Chunk | None:
    """Return the whole batches of an answer to a fetch from `offset` on; None if there is none.

    `aborted` are pairs of a producer id and the offset of the first record of an aborted transaction. A batch that
    was cut off at the end is left out. Raises UNSUPPORTED_FOR_MESSAGE_FORMAT for message sets of Kafka 0.8 to 0.10,
    CORRUPT_MESSAGE.
    """
    positions: list[int] = []
    ends: list[int] = []
    markers: dict[int, list[int]] = {}
    position, size, start, epoch = 0, len(data), offset, -1
    while size - position >= HEADER_SIZE:
        header = read_header(data, position)
        if header.magic != MAGIC:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"The log has a message set of magic {header.magic} at offset {header.base_offset}; only record "
                "batches (Kafka 0.11 and later) can be read.",
            )
        end = position + header.batch_length + LENGTH_OVERHEAD
        if header.batch_length < HEADER_SIZE - LENGTH_OVERHEAD:
            raise BrokerError(
                ErrorCode.CORRUPT_MESSAGE, f"A batch at offset {header.base_offset} is corrupt."
            )
        if end > size:
            break
        if header.next_offset > offset:
            if aborted and header.is_control:
                _note_marker(markers, memoryview(data)[position:end], header)
            positions.append(position)
            ends.append(header.next_offset)
            start, epoch = min(start, header.base_offset), header.leader_epoch
        position = end
    if not ends:
        return None
    # An answer is shared by many partitions: a part of it that is kept would keep all of it.
    kept = bytes(memoryview(data)[positions[0] : position])
    shift = positions[0]
    return Chunk(
        start, kept, [one - shift for one in positions], ends, epoch, _transactions(aborted, markers)
    )


def _note_marker(markers: dict[int, list[int]], batch: memoryview, header: BatchHeader) -> None:
    marker = read_marker(batch, header)
    if marker is not None and not marker.commit:
        markers.setdefault(header.producer_id, []).append(header.base_offset)


def _transactions(
    aborted: Sequence[tuple[int, int]], markers: dict[int, list[int]]
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions with the offsets of their markers, as far as these were fetched."""
    found = []
    for producer_id, first in sorted(aborted, key=lambda one: one[1]):
        ends = markers.get(producer_id, ())
        last = next((end for end in ends if end >= first), _OPEN_END)
        found.append(AbortedTransaction(producer_id, first, last, -1))
    return tuple(found)


class Window:
    """What is at hand of one partition, for one isolation level.

    `end` is the offset from which it is followed; −1: it is not.
    """

    __slots__ = (
        "chunks",
        "committed",
        "end",
        "epoch",
        "offsets",
        "starts",
        "topic_id",
        "tp",
        "used",
        "wanted",
    )

    def __init__(self, tp: TopicPartition, committed: bool, topic_id: UUID, leader_epoch: int) -> None:
        self.tp = tp
        self.committed = committed
        self.topic_id = topic_id
        # The leader epoch of the metadata at the last fetch.
        self.epoch = leader_epoch
        self.chunks: dict[int, Chunk] = {}
        self.starts: list[int] = []
        self.offsets: LogOffsets | None = None
        self.end = -1
        self.used = 0.0

    def find(self, offset: int) -> Chunk | None:
        """Return the chunk that has an offset."""
        at = bisect_right(self.starts, offset) - 1
        if at < 0:
            return None
        chunk = self.chunks[self.starts[at]]
        return chunk if offset < chunk.next_offset else None

    @property
    def last_epoch(self) -> int:
        """Return the leader epoch of the batch before `end`, −1 if it is not at hand (KIP-320)."""
        chunk = self.find(self.end - 1)
        return -1 if chunk is None or chunk.next_offset != self.end else chunk.epoch


class Windows:
    """All windows, within a bound of memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._windows: dict[tuple[TopicPartition, bool], Window] = {}
        # By last use, the oldest first.
        self._order: OrderedDict[tuple[Window, int], None] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._windows)

    def get(self, tp: TopicPartition, committed: bool) -> Window | None:
        """Return the window of a partition."""
        return self._windows.get((tp, committed))

    def add(self, window: Window) -> None:
        """Keep a new window."""
        self._windows[window.tp, window.committed] = window

    def all(self) -> list[Window]:
        """Return all windows."""
        return list(self._windows.values())

    def has(self, window: Window) -> bool:
        """Whether a window was not dropped."""
        return self._windows.get((window.tp, window.committed)) is window

    def used(self, window: Window, chunk: Chunk) -> None:
        """Note that a chunk was read."""
        key = window, chunk.start
        if key in self._order:
            self._order.move_to_end(key)

    def store(self, window: Window, chunk: Chunk) -> None:
        """Keep a chunk, joined with the one before it if both are small."""
        before = window.find(chunk.start - 1)
        if before is not None and before.next_offset == chunk.start:
            joined = before.joined(chunk)
            if joined is not None:
                self._remove(window, before)
                chunk = joined
        old = window.chunks.get(chunk.start)
        if old is not None:
            if old.next_offset >= chunk.next_offset:
                return
            self._remove(window, old)
        window.chunks[chunk.start] = chunk
        window.starts.insert(bisect_right(window.starts, chunk.start), chunk.start)
        self._order[window, chunk.start] = None
        self.size += chunk.size
        while self.size > self._max_bytes and len(self._order) > 1:
            oldest, start = next(iter(self._order))
            self._remove(oldest, oldest.chunks[start])

    def _remove(self, window: Window, chunk: Chunk) -> None:
        del window.chunks[chunk.start]
        window.starts.remove(chunk.start)
        del self._order[window, chunk.start]
        self.size -= chunk.size

    def clear(self, window: Window) -> None:
        """Drop all chunks of a window, and follow it no more."""
        for chunk in list(window.chunks.values()):
            self._remove(window, chunk)
        window.end = -1

    def drop(self, window: Window) -> None:
        """Drop a window with all that it has."""
        self.clear(window)
        if self.has(window):
            del self._windows[window.tp, window.committed]
