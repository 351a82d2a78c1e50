"""Rows of Arrow batches into records, and the DataFrames that are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from core.records.record import NewRecord
from pipeline.sink.rows import Row, check_schema, rows
from pipeline.source.options import OptionError

HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def schema(**columns: object) -> StructType:
    """A schema of these columns."""
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)  # type: ignore[arg-type]
    return made


def test_columns_become_records_and_nulls_stay_nulls() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    batch = pa.record_batch(
        {
            "value": pa.array(["v", None]),
            "key": pa.array([None, b"k"], pa.binary()),
            "partition": pa.array([None, 3], pa.int32()),
            "timestamp": pa.array([datetime(2025, 1, 1, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
            "headers": pa.array([[{"key": "a", "value": None}], None], pa.list_(header)),
            "offset": pa.array([7, 8], pa.int64()),
        }
    )
    assert list(rows(batch)) == [
        Row(None, None, NewRecord(None, b"v", (("a", None),), 1_735_689_600_000)),
        Row(None, 3, NewRecord(b"k", None, (), None)),
    ]


def test_what_the_source_gives_can_be_written_as_it_is() -> None:
    check_schema(
        schema(
            key=BinaryType(), value=BinaryType(), topic=StringType(), partition=IntegerType(), offset=LongType(),
            timestamp=TimestampType(), timestampType=IntegerType(), headers=HEADERS,
        ),
        None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "topic", "says"),
    [
        ({"value": BinaryType(), "id": LongType()}, "t", "a topic has no column 'id'"),
        ({"key": BinaryType()}, "t", "has no column 'value'"),
        ({"value": BinaryType()}, None, "neither an option 'topic' nor a column"),
        ({"value": LongType()}, "t", "column value must be binary or string, not bigint"),
        ({"value": BinaryType(), "partition": LongType()}, "t", "column partition must be int, not bigint"),
        ({"value": BinaryType(), "headers": StringType()}, "t", "column headers must be array<struct"),
    ],
)
def test_a_dataframe_that_is_no_topic_is_refused(
    columns: dict[str, object], topic: str | None, says: str
) -> None:
    with pytest.raises(OptionError, match=says):
        check_schema(schema(**columns), topic)
