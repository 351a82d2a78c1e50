"""Records into Arrow columns by way of Python objects: the reference for `native`, and what says what is wrong.

It reads every format (magic 0, 1, 2), costs some thirty times as much, and is used where the C extension is missing,
for old formats, and for batches that the compiled code refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from core.errors import BrokerError
from core.records.batch import iter_records, read_header
from core.records.header import MAGIC, Buffer
from core.records.message_set import parse_message_set
from core.records.record import Record
from pipeline import limits
from pipeline.decode import columns as c
from pipeline.decode.walk import Found, Place

_MAX_MS = (2**63 - 1) // 1000
_MICRO = 1000


class Row(NamedTuple):
    """One record as the columns have it: `timestamp` in µs."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def rows(data: Buffer, found: Iterable[Found], place: Place) -> Iterator[Row]:
    """Every record of these batches. Raises CorruptDataError, naming the place."""
    for one in found:
        try:
            yield from (_magic_2(data, one) if one.magic == MAGIC else _old(data, one))
        except BrokerError as error:
            raise place.corrupt(one.base_offset, str(error)) from None


def _magic_2(data: Buffer, one: Found) -> Iterator[Row]:
    header = read_header(data, one.position)
    for record in iter_records(data, one.position, header, max_bytes=limits.MAX_DECOMPRESSED_BYTES):
        yield _row(record)


def _row(record: Record) -> Row:
    return Row(
        record.offset,
        _micros(record.timestamp),
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
    )


def _old(data: Buffer, one: Found) -> Iterator[Row]:
    message = memoryview(data)[one.position : one.position + one.size]
    for group in parse_message_set(message, max_bytes=limits.MAX_DECOMPRESSED_BYTES):
        time_type = group.timestamp_type if one.magic else c.NO_TIMESTAMP_TYPE
        for offset, timestamp, key, value in group.messages:
            yield Row(offset, _micros(timestamp), time_type, key, value, ())


def _micros(timestamp: int) -> int:
    return min(max(timestamp, -_MAX_MS), _MAX_MS) * _MICRO


def record_batch(
    found: Iterable[Row], start: int, end: int, place: Place, columns: tuple[str, ...]
) -> pa.RecordBatch | None:
    """The rows with offsets in [start, end) as one Arrow batch; None if there are none."""
    kept = [row for row in found if start <= row.offset < end]
    if not kept:
        return None
    makers: dict[str, Callable[[], Iterable[Any]]] = {
        c.KEY: lambda: [row.key for row in kept],
        c.VALUE: lambda: [row.value for row in kept],
        c.TOPIC: lambda: [place.topic] * len(kept),
        c.PARTITION: lambda: [place.partition] * len(kept),
        c.OFFSET: lambda: [row.offset for row in kept],
        c.TIMESTAMP: lambda: [row.timestamp for row in kept],
        c.TIMESTAMP_TYPE: lambda: [row.timestamp_type for row in kept],
        c.HEADERS: lambda: [
            [{"key": name, "value": value} for name, value in row.headers] or None for row in kept
        ],
    }
    arrays = [pa.array(makers[name](), type=c.ARROW_TYPES[name]) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=c.arrow_schema(columns))
