"""Rows of Arrow batches into records: which columns there may be, and what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from core.records.record import Headers, NewRecord
from pipeline.source.options import OptionError

# Columns and the types that each may have, as Spark spells them.
_BYTES = ("binary", "string")
_TYPES: dict[str, tuple[str, ...]] = {
    "key": _BYTES,
    "value": _BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
# Columns of the source that a write ignores, so that rows can be written as they were read.
_IGNORED = ("offset", "timestampType")


class Row(NamedTuple):
    """One row: its topic and partition, if it names them, and its record."""

    topic: str | None
    partition: int | None
    record: NewRecord


def check_schema(schema: StructType, topic: str | None) -> None:
    """Refuse a DataFrame that cannot be written, before anything is. Raises OptionError."""
    for field in schema.fields:
        if field.name in _IGNORED:
            continue
        found = field.dataType.simpleString()
        if field.name not in _TYPES:
            raise OptionError(
                f"a topic has no column {field.name!r}: it takes {', '.join(_TYPES)}, and ignores "
                f"{', '.join(_IGNORED)}"
            )
        if found not in _TYPES[field.name]:
            raise OptionError(f"column {field.name} must be {' or '.join(_TYPES[field.name])}, not {found}")
    if "value" not in schema.fieldNames():
        raise OptionError("the DataFrame has no column 'value'")
    if topic is None and "topic" not in schema.fieldNames():
        raise OptionError("where to? There is neither an option 'topic' nor a column of that name")


def rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of an Arrow batch, in order."""
    columns = {name: _column(batch, name) for name in _TYPES if name in batch.schema.names}
    nothing = [None] * batch.num_rows
    ordered = [columns.get(name, nothing) for name in _TYPES]
    for key, value, topic, partition, timestamp, headers in zip(*ordered, strict=True):
        yield Row(topic, partition, NewRecord(key, value, _headers(headers), timestamp))


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    column = batch.column(name)
    if name in ("key", "value"):
        column = column.cast(pa.binary())
    elif name == "timestamp":
        column = column.cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _headers(headers: list[dict[str, Any]] | None) -> Headers:
    if not headers:
        return ()
    return tuple((header["key"], header["value"]) for header in headers)
