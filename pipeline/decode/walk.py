"""From one batch to the next in a stretch of bytes: what is whole, what its checksum says, what is left out.

A stretch comes from a fetch answer or a segment file and may end in the middle of a batch. It may hold batches of
magic 2 and messages of magic 0 and 1, which old logs mix. Records are not looked at here.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from core.records.header import (
    CHECKSUMMED_FROM,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    Buffer,
)
from pipeline.wire.errors import CorruptDataError

# Offset and size stand in front of every message and batch, whatever its magic.
_ENTRY = Struct(">qi")
_MAGIC_AT = 16
# The smallest message: CRC, magic, attributes, two lengths.
_MIN_MESSAGE = 14
# The key of a control record: version, then 0 for an abort, 1 for a commit.
_CONTROL_TYPE_AT = 3


class Place(NamedTuple):
    """Where bytes come from, for errors."""

    topic: str
    partition: int
    source: str = ""

    def corrupt(self, offset: int, why: str) -> CorruptDataError:
        """The error for the batch at `offset`."""
        source = f" ({self.source})" if self.source else ""
        return CorruptDataError(
            f"corrupt batch in topic {self.topic}, partition {self.partition}, offset {offset}{source}: {why}"
        )


class Found(NamedTuple):
    """A batch or a message to be decoded: where it lies in its stretch, and what its header says.

    Of magic 0 and 1 only `position`, `size`, `base_offset` and `magic` are told.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int
    magic: int
    attributes: int = 0
    base_timestamp: int = 0
    max_timestamp: int = 0
    record_count: int = 0

    @property
    def codec(self) -> int:
        """The number of the codec, 0 for none."""
        return self.attributes & CODEC_MASK


class Walk(NamedTuple):
    """The contents of a stretch.

    Batches to decode in order, the offset after the last whole one (−1: none was whole), and the number of bytes
    read.
    """

    found: list[Found]
    next_offset: int
    consumed: int


def walk(data: Buffer, start: int, end: int, place: Place, aborted: tuple[tuple[int, int], ...] = ()) -> Walk:
    """The batches with records in [start, end), checksums checked. Control batches and what aborted transactions
    wrote are left out. Raises CorruptDataError."""
    found: list[Found] = []
    position, size, next_offset = 0, len(data), -1
    open_aborts = sorted(aborted, key=lambda one: one[1])
    aborting: set[int] = set()
    view = memoryview(data)
    unpack_entry, unpack = _ENTRY.unpack_from, HEADER.unpack_from
    while size - position > _MAGIC_AT:
        offset, length = unpack_entry(view, position)
        total = length + LENGTH_OVERHEAD
        magic = view[position + _MAGIC_AT]
        if length < _MIN_MESSAGE:
            raise place.corrupt(offset, f"its length is {length}")
        if total > size - position:
            break
        if magic < MAGIC:
            # The offset of a wrapper is its last message's; it may hold earlier ones.
            if offset >= start:
                found.append(Found(position, total, offset, offset, magic))
            next_offset = offset + 1
        elif magic == MAGIC and total >= HEADER_SIZE:
            fields = unpack(view, position)
            crc, attributes, last_offset = fields[4], fields[5], offset + fields[6]
            if last_offset >= start and offset < end:
                if crc32c(view[position + CHECKSUMMED_FROM : position + total]) != crc:
                    raise place.corrupt(offset, "its checksum is wrong")
                skip = bool(attributes & CONTROL_BIT)
                if aborted and attributes & TRANSACTIONAL_BIT:
                    _follow(open_aborts, aborting, last_offset)
                    if skip and _is_abort(view, position):
                        aborting.discard(fields[9])
                    skip = skip or fields[9] in aborting
                if not skip and fields[12]:
                    found.append(
                        Found(
                            position,
                            total,
                            offset,
                            last_offset,
                            MAGIC,
                            attributes,
                            fields[7],
                            fields[8],
                            fields[12],
                        )
                    )
            next_offset = last_offset + 1
        else:
            raise place.corrupt(offset, f"its magic is {magic} and its size {total}")
        position += total
        if next_offset >= end:
            break
    return Walk(found, next_offset, position)


def _follow(open_aborts: list[tuple[int, int]], aborting: set[int], last_offset: int) -> None:
    """Take up the aborted transactions that have begun by `last_offset` (as the Java client does)."""
    while open_aborts and open_aborts[0][1] <= last_offset:
        aborting.add(open_aborts.pop(0)[0])


def _is_abort(view: memoryview, position: int) -> bool:
    """Whether the control batch holds an abort marker: its record's key is int16 version, int16 type."""
    # One record: length, attributes, two deltas, key length, each a byte; then the key.
    key = position + HEADER_SIZE + 5
    return view[key + _CONTROL_TYPE_AT] == 0
