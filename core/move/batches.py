"""Batches on their way from the source to the target.

A batch keeps its records, byte by byte, its codec and its time stamps. What belongs to the source is cleared: its
producer, its sequence and the mark of a transaction. The move has a producer of its own, whose numbers replace them,
so that the target takes no batch twice.

Some batches cannot pass as they are, because a broker refuses them from a client. Their records are written again,
with the same keys, values, headers and times:

    compacted           its offsets have gaps, or the first record is deleted: a client's batch has none
    LogAppendTime       only a broker may write that; each record keeps the time that readers of the source see
    with a horizon      its base time stamp holds the time at which tombstones may be dropped (KIP-534)

Markers of transactions, records of aborted ones and batches that compaction has emptied are left out: no reader of
committed records sees them. Sources: protocol guide "Record Batch"; `LogValidator` of Kafka for what is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from core.records.batch import encode_batch, iter_records
from core.records.control import read_marker
from core.records.header import (
    CHECKSUMMED_FROM,
    HEADER_SIZE,
    INT32_MAX,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    read_header,
)
from core.records.record import LOG_APPEND_TIME, Record

# What a batch may decompress to: as `max_decompressed_bytes` of the broker that took it, and more.
MAX_DECOMPRESSED = 1024 * 1024 * 1024

_BASE_OFFSET = Struct(">q")
_CRC_AT, _CRC = 17, Struct(">I")
_ATTRIBUTES_AT, _ATTRIBUTES = 21, Struct(">h")
_LEADER_EPOCH_AT, _LEADER_EPOCH = 12, Struct(">i")
_PRODUCER_AT, _PRODUCER = 43, Struct(">qhi")


class Run(NamedTuple):
    """Offsets that follow each other in both logs: `length` from `source` on, and from `target` on."""

    source: int
    target: int
    length: int


class Piece(NamedTuple):
    """A batch for the target, without its producer. `sources` are the offsets of its records in the source.

    Each of `sources` is (first offset, number of offsets). `next_source` is the offset after the batch.
    """

    batch: bytearray
    records: int
    sources: tuple[tuple[int, int], ...]
    next_source: int


class Fetched(NamedTuple):
    """What one fetch of committed records of the source gave, and the offset to go on from."""

    pieces: list[Piece]
    next_offset: int


class Aborted(NamedTuple):
    """A transaction that was aborted: its producer, and its first offset in the partition."""

    producer_id: int
    first_offset: int


class _Hidden:
    """What aborted transactions wrote, as a read_committed consumer of Kafka finds it (`CompletedFetch`)."""

    def __init__(self, aborted: Sequence[Aborted]) -> None:
        self._waiting = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._open: set[int] = set()

    def hides(self, batch: Buffer, header: BatchHeader) -> bool:
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._open.add(self._waiting.pop().producer_id)
        if header.is_control:
            marker = read_marker(batch, header) if header.producer_id in self._open else None
            if marker is not None and not marker.commit:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def whole_batches(data: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a fetch; a last one that is cut off is left out, as Kafka's brokers may send it."""
    view, position = memoryview(data), 0
    while len(view) - position >= HEADER_SIZE:
        header = read_header(view, position)
        if header.magic != MAGIC:
            raise ValueError(
                f"the batch at offset {header.base_offset} has the format {header.magic}, not {MAGIC}"
            )
        if header.batch_length + LENGTH_OVERHEAD < HEADER_SIZE:
            raise ValueError(f"the batch at offset {header.base_offset} has the length {header.batch_length}")
        if header.size > len(view) - position:
            return
        yield header, view[position : position + header.size]
        position += header.size


def visible_batches(
    data: Buffer, aborted: Sequence[Aborted]
) -> Iterator[tuple[BatchHeader, memoryview, bool]]:
    """Yield each whole batch of a fetch with whether readers of committed records see it."""
    hidden = _Hidden(aborted)
    for header, batch in whole_batches(data):
        yield header, batch, not hidden.hides(batch, header)


def pieces(data: Buffer, aborted: Sequence[Aborted], first: int) -> Fetched:
    """Return what a fetch from offset `first` gives for the target. Raises ValueError, CORRUPT_MESSAGE."""
    found: list[Piece] = []
    next_offset = first
    for header, batch, seen in visible_batches(data, aborted):
        if header.next_offset <= first:
            continue
        next_offset = header.next_offset
        if seen and header.record_count and (piece := _piece(header, batch, first)) is not None:
            found.append(piece)
    return Fetched(found, next_offset)


def _piece(header: BatchHeader, batch: memoryview, first: int) -> Piece | None:
    count = header.record_count
    whole = header.base_offset >= first and count == header.last_offset_delta + 1
    if whole and header.timestamp_type != LOG_APPEND_TIME and header.delete_horizon is None:
        return Piece(bytearray(batch), count, ((header.base_offset, count),), header.next_offset)
    records = [r for r in iter_records(batch, 0, header, max_bytes=MAX_DECOMPRESSED) if r.offset >= first]
    if not records:
        return None
    sources = tuple(_neighbors([record.offset for record in records]))
    return Piece(_written_again(header, records), len(records), sources, header.next_offset)


def _written_again(header: BatchHeader, records: Sequence[Record]) -> bytearray:
    times = [record.timestamp for record in records]
    count = len(records)
    fresh = BatchHeader(
        0, 0, -1, MAGIC, 0, 0, count - 1, times[0], max(times), NO_PRODUCER_ID, -1, NO_SEQUENCE, count
    )
    fields = [(i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)]
    return encode_batch(fresh, fields, header.codec)


def _neighbors(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, number) of the offsets that follow each other."""
    first = offsets[0]
    for before, offset in pairwise(offsets):
        if offset != before + 1:
            yield first, before + 1 - first
            first = offset
    yield first, offsets[-1] + 1 - first


def stamp(batch: bytearray, producer_id: int, epoch: int, sequence: int) -> None:
    """Give a batch the numbers of the move's producer, in place; new CRC."""
    attributes = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)[0] & ~TRANSACTIONAL_BIT
    _BASE_OFFSET.pack_into(batch, 0, 0)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, -1)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, epoch, sequence)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CHECKSUMMED_FROM:]))


def after(sequence: int, count: int) -> int:
    """Return the sequence number after `count` records; 0 follows 2³¹−1."""
    return (sequence + count) & INT32_MAX


def runs_of(piece_sources: Sequence[tuple[int, int]], target: int) -> Iterator[Run]:
    """Yield the runs of a batch whose first record is at `target` in the target."""
    for source, count in piece_sources:
        yield Run(source, target, count)
        target += count
