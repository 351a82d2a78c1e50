"""Several batches in one append: their offsets, and their entries in the index."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import BrokerError, ErrorCode
from core.log.segment import Segment
from core.records.batch import assign
from core.records.header import LENGTH_OVERHEAD, BatchHeader


def assign_all(
    buffer: bytearray | memoryview, headers: Sequence[BatchHeader], base: int, leader_epoch: int
) -> tuple[int, int]:
    """Write offsets into all batches, from `base` on; return the last offset and the largest timestamp.

    Raises INVALID_RECORD.
    """
    position, last, max_timestamp = 0, base - 1, -1
    for header in headers:
        if header.producer_id >= 0 and len(headers) > 1:
            raise BrokerError(
                ErrorCode.INVALID_RECORD, "An idempotent producer sends one batch per partition at a time."
            )
        assign(buffer, position, base_offset=last + 1, leader_epoch=leader_epoch)
        position += header.batch_length + LENGTH_OVERHEAD
        last += header.last_offset_delta + 1
        max_timestamp = max(max_timestamp, header.max_timestamp)
    return last, max_timestamp


def note_all(segment: Segment, headers: Sequence[BatchHeader], base: int, position: int) -> None:
    """Index all batches of an append."""
    for header in headers:
        size = header.batch_length + LENGTH_OVERHEAD
        base += header.last_offset_delta + 1
        segment.note(position, base - 1, size, header.max_timestamp)
        position += size
