"""The columns that Spark's Kafka source has, and their Arrow form, which must match Spark's to the letter.

Spark compares the schema of a batch with its own and refuses any difference: timestamps are in microseconds, UTC;
the child of a list is called `element`; everything may be null.
"""

from __future__ import annotations

import pyarrow as pa

KEY, VALUE, TOPIC, PARTITION, OFFSET = "key", "value", "topic", "partition", "offset"
TIMESTAMP, TIMESTAMP_TYPE, HEADERS = "timestamp", "timestampType", "headers"

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
"""One header."""

ARROW_TYPES: dict[str, pa.DataType] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: pa.list_(pa.field("element", HEADER_TYPE)),
}
"""Every column, in Spark's order; `headers` is there when it is asked for."""

SPARK_TYPES = {
    KEY: "binary",
    VALUE: "binary",
    TOPIC: "string",
    PARTITION: "int",
    OFFSET: "bigint",
    TIMESTAMP: "timestamp",
    TIMESTAMP_TYPE: "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
"""The same in Spark's DDL."""

NO_TIMESTAMP_TYPE = -1
"""What `timestampType` says of records of magic 0, which have no time."""


def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The Arrow schema of these columns, in their order."""
    return pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])


def ddl(columns: tuple[str, ...]) -> str:
    """The Spark schema of these columns, in their order."""
    return ", ".join(f"{name} {SPARK_TYPES[name]}" for name in columns)
