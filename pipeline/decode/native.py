"""Records into Arrow columns by compiled code, without a Python object per record.

It returns the same rows as `plain`. Batches that it cannot read (message sets, malformed batches, header names that
are not UTF-8) are decoded by `plain`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from core.errors import BrokerError
from core.records.batch import MAX_RECORDS, MIN_RECORD_SIZE, read_header, record_bytes
from core.records.header import HEADER_SIZE, MAGIC, TIMESTAMP_TYPE_BIT, Buffer
from pipeline import limits
from pipeline.decode import _decoder, plain
from pipeline.decode import columns as c
from pipeline.decode.walk import Found, Place

Array = Any

# Places of `used`: how much of each column's buffers is filled.
ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, NAME_BYTES, HEADER_BYTES, KEY_NULLS, VALUE_NULLS, HEADER_NULLS = range(
    9
)
USED_FIELDS = 9
NO_APPEND_TIME = -(2**63)
"""The append time of a batch whose records have their own timestamps."""


class _Piece(NamedTuple):
    """Batches whose records lie in one buffer, not compressed: rows of the table that the compiled decoder takes."""

    data: Buffer
    table: list[tuple[int, ...]]


class _Group:
    """Batches that become one Arrow batch."""

    def __init__(self) -> None:
        self.found: list[Found] = []
        self.pieces: list[_Piece] = []
        self.bytes = 0
        self.rows = 0

    def add(self, data: Buffer, one: Found) -> None:
        """Take a batch of magic 2. Raises BrokerError when it cannot be decompressed."""
        self.found.append(one)
        if one.codec:
            body = record_bytes(
                data, one.position, read_header(data, one.position), max_bytes=limits.MAX_DECOMPRESSED_BYTES
            )
            piece, start, end = _Piece(body, []), 0, len(body)
            self.pieces.append(piece)
        else:
            if not self.pieces or self.pieces[-1].data is not data:
                self.pieces.append(_Piece(data, []))
            piece, start, end = self.pieces[-1], one.position + HEADER_SIZE, one.position + one.size
        append_time = one.max_timestamp if one.attributes & TIMESTAMP_TYPE_BIT else NO_APPEND_TIME
        piece.table.append(
            (start, end, one.base_offset, one.last_offset, one.base_timestamp, append_time, one.record_count)
        )
        self.bytes += end - start
        self.rows += one.record_count


def native_batches(
    data: Buffer, found: Sequence[Found], start: int, end: int, place: Place, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Decode the records with offsets in [start, end) into Arrow batches of some MiB. Raises CorruptDataError."""
    group = _Group()
    for one in found:
        if one.magic != MAGIC or not _plausible(one):
            yield from _emit(group, data, start, end, place, columns)
            group = _Group()
            yield from _plainly(data, [one], start, end, place, columns)
            continue
        try:
            group.add(data, one)
        except BrokerError as error:
            raise place.corrupt(one.base_offset, str(error)) from None
        if group.bytes >= limits.ARROW_BYTES:
            yield from _emit(group, data, start, end, place, columns)
            group = _Group()
    yield from _emit(group, data, start, end, place, columns)


def _emit(
    group: _Group, data: Buffer, start: int, end: int, place: Place, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    if not group.rows:
        return
    out = _Columns(group, columns)
    try:
        batch = out.record_batch(place) if out.decode(group, start, end) else None
        malformed = batch is None and not out.empty
    except pa.ArrowInvalid:
        malformed = True
    if malformed:
        yield from _plainly(data, group.found, start, end, place, columns)
    elif batch is not None:
        yield batch


def _plainly(
    data: Buffer, found: list[Found], start: int, end: int, place: Place, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    batch = plain.record_batch(plain.rows(data, found, place), start, end, place, columns)
    if batch is not None:
        yield batch


def _plausible(one: Found) -> bool:
    """Return whether memory is available for the number of records in the header."""
    most = limits.MAX_DECOMPRESSED_BYTES if one.codec else one.size - HEADER_SIZE
    return 0 <= one.record_count <= min(most // MIN_RECORD_SIZE, MAX_RECORDS)


class _Columns:
    """The buffers of one Arrow batch, large enough for whatever the batches of a group hold."""

    def __init__(self, group: _Group, columns: tuple[str, ...]) -> None:
        rows, size = group.rows, group.bytes
        self.columns = columns
        # Whether all was decoded and nothing was in the range.
        self.empty = False
        self.used = np.zeros(USED_FIELDS, np.int64)
        self.fixed = (np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int32))
        self.keys = _variable(rows, size, c.KEY in columns)
        self.values = _variable(rows, size, c.VALUE in columns)
        # A header takes two bytes at least.
        with_headers = c.HEADERS in columns
        items = size // 2 if with_headers else 0
        header_ends = _ends(rows if with_headers else 0)
        names, values = _variable(items, size, with_headers), _variable(items, size, with_headers)
        self.headers = (header_ends, names, values)

    def decode(self, group: _Group, start: int, end: int) -> bool:
        """Fill the buffers; false if there is something that the compiled code does not take."""
        wanted = np.array(
            [start, end, c.KEY in self.columns, c.VALUE in self.columns, c.HEADERS in self.columns], np.int64
        )
        header_ends, names, items = self.headers
        out = (*self.fixed, *self.keys, *self.values, header_ends, *names, *items, self.used)
        for piece in group.pieces:
            if not _decoder.decode(piece.data, np.array(piece.table, np.int64), wanted, *out):
                return False
        self.empty = not self.used[ROWS]
        return True

    def record_batch(self, place: Place) -> pa.RecordBatch | None:
        """The Arrow batch, None without a row. Raises ArrowInvalid for a header name that is not UTF-8."""
        rows = int(self.used[ROWS])
        if not rows:
            return None
        arrays = [self._array(name, rows, place) for name in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=c.arrow_schema(self.columns))

    def _array(self, name: str, rows: int, place: Place) -> pa.Array:
        used = self.used
        kind = c.ARROW_TYPES[name]
        if name == c.KEY:
            return _binary(kind, rows, self.keys, used[KEY_BYTES], used[KEY_NULLS])
        if name == c.VALUE:
            return _binary(kind, rows, self.values, used[VALUE_BYTES], used[VALUE_NULLS])
        if name == c.TOPIC:
            topic = place.topic.encode()
            ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(topic))
            return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(topic * rows)])
        if name == c.HEADERS:
            return self._header_array(kind, rows)
        if name == c.PARTITION:
            column: Array = np.full(rows, place.partition, np.int32)
        else:
            column = self.fixed[(c.OFFSET, c.TIMESTAMP, c.TIMESTAMP_TYPE).index(name)][:rows]
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(column)])

    def _header_array(self, kind: pa.DataType, rows: int) -> pa.Array:
        ends, (name_ends, name_data, _), item = self.headers
        used = self.used
        items = int(used[HEADERS])
        names = _binary(pa.string(), items, (name_ends, name_data, item[2]), used[NAME_BYTES], 0)
        names.validate(full=True)
        values = _binary(pa.binary(), items, item, used[HEADER_BYTES], used[HEADER_NULLS])
        structs = pa.StructArray.from_arrays([names, values], fields=list(c.HEADER_TYPE))
        # A record without headers has null there, as with Spark's own source.
        some = np.diff(ends[: rows + 1]) > 0
        nulls = rows - int(np.count_nonzero(some))
        validity = _bitmap(some) if nulls else None
        return pa.Array.from_buffers(
            kind, rows, [validity, pa.py_buffer(ends[: rows + 1])], null_count=nulls, children=[structs]
        )


def _ends(count: int) -> Array:
    ends = np.empty(count + 1, np.int32)
    ends[0] = 0
    return ends


def _variable(count: int, size: int, wanted: bool) -> tuple[Array, Array, Array]:
    """(ends, bytes, validity bytes) of a column of binary values; next to nothing where it is not wanted."""
    if not wanted:
        count = size = 0
    return _ends(count), np.empty(size, np.uint8), np.empty(count, np.uint8)


def _binary(
    kind: pa.DataType, count: int, column: tuple[Array, Array, Array], size: int, nulls: int
) -> pa.Array:
    ends, data, valid = column
    validity = _bitmap(valid[:count]) if nulls else None
    buffers = [validity, pa.py_buffer(ends[: count + 1]), pa.py_buffer(data[: int(size)])]
    return pa.Array.from_buffers(kind, count, buffers, null_count=int(nulls))


def _bitmap(valid: Array) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
