"""Null lists cross from Spark to a task as they were, and in time that grows with the rows alone."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.lake.null_lists import PREFIX, hide, reveal

LISTS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SOME = [{"key": "a", "value": b"1"}]


@pytest.mark.parametrize(
    "lists", [[None, None], [SOME, []], [None, SOME, [], None]], ids=["all null", "none null", "both"]
)
def test_null_and_empty_are_told_apart(lists: list[object]) -> None:
    flags = pa.array([one is None for one in lists])
    sent = pa.array([one if one is not None else [] for one in lists], LISTS)
    batch = reveal(pa.RecordBatch.from_arrays([sent, flags], names=["headers", PREFIX + "headers"]))
    assert batch.schema.names == ["headers"]
    assert batch.column(0).type == LISTS
    assert batch.column(0).to_pylist() == lists


def test_lists_and_maps_survive_the_way_through_spark(spark: SparkSession) -> None:
    ddl = "id int, words array<string>, counts map<string,int>"
    told = [(1, None, None), (2, [], {}), (3, ["a", None], {"x": 1, "y": None})]

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield reveal(batch)

    rows = spark.createDataFrame(told, ddl).coalesce(1)
    assert {tuple(row) for row in map(_plain, hide(rows).mapInArrow(seen, ddl).collect())} == {
        _plain(row) for row in told
    }


def test_rows_without_lists_get_no_columns(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, "a")], "id int, name string")
    assert hide(rows) is rows


def _plain(row: object) -> tuple[object, ...]:
    number, words, counts = row  # type: ignore[misc]
    return (
        number,
        None if words is None else tuple(words),
        None if counts is None else tuple(sorted(counts.items())),
    )
