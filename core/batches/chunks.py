"""Cut records into batches below a size."""

from __future__ import annotations

from collections.abc import Sequence

from core.records.header import HEADER_SIZE
from core.records.record import NewRecord

# What one record adds to a batch besides its key, value and headers, at most: varints and header counts.
_RECORD_OVERHEAD = 40


def chunks_below(limit: int, records: Sequence[NewRecord], indexes: Sequence[int]) -> list[Sequence[int]]:
    """Return the indexes of the records of each batch, of at most `limit` bytes; a larger record is alone."""
    chunks: list[list[int]] = []
    size = limit
    for index in indexes:
        needed = record_size(records[index])
        if size + needed > limit - HEADER_SIZE:
            chunks.append([])
            size = 0
        chunks[-1].append(index)
        size += needed
    return [indexes] if len(chunks) == 1 else list(chunks)


def record_size(record: NewRecord) -> int:
    """Return the bytes that a record takes in a batch, at most."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) * 4 + len(value or b"") + 10
    return size
