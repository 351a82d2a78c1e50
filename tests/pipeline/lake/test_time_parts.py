"""Parts of time to partition by: Arrow's are Spark's, and a time that no calendar says has none."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pipeline.jobs.settings import TIME_PARTS
from pipeline.lake.time_parts import ARROW_TYPES, in_arrow, in_spark

FIRST = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
LAST = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) * 1_000_000 + 999_999
# Microseconds taken for milliseconds give the year 55,841.
TIMES = [0, -1, FIRST, FIRST - 1, LAST, LAST + 1, 1_709_164_799_999_999, 1_700_000_000_000_000_000, None]


def _times(micros: list[int | None]) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _parts(micros: list[int | None]) -> dict[str, list[Any]]:
    return {name: in_arrow(name, _times(micros)).to_pylist() for name in TIME_PARTS}


def test_there_are_as_many_parts_as_the_settings_name() -> None:
    assert tuple(ARROW_TYPES) == TIME_PARTS
    assert [in_arrow(name, _times([0])).type for name in TIME_PARTS] == list(ARROW_TYPES.values())


@given(st.lists(st.none() | st.integers(FIRST, LAST), min_size=1))
def test_parts_are_those_of_the_calendar(micros: list[int | None]) -> None:
    # Down to the second, by integers: a float has not enough digits.
    known = [None if one is None else datetime.fromtimestamp(one // 1_000_000, UTC) for one in micros]
    assert _parts(micros) == {
        "year": [one and one.year for one in known],
        "month": [one and f"{one.year:04}-{one.month:02}" for one in known],
        "day": [one and one.date() for one in known],
        "hour": [None if one is None else one.hour for one in known],
    }


def test_a_time_outside_of_the_calendar_has_no_parts() -> None:
    found = _parts([FIRST - 1, LAST + 1, 1_700_000_000_000_000_000, None])
    assert found == {name: [None] * 4 for name in TIME_PARTS}
    assert _parts([LAST])["day"] == [date(9999, 12, 31)]


@pytest.mark.client("java")
def test_spark_says_the_same(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(number, one) for number, one in enumerate(TIMES)], "n int, micros bigint")
    times = f.timestamp_micros("micros")
    parts = [in_spark(name, times).alias(name) for name in TIME_PARTS]
    found = rows.select("n", *parts).orderBy("n").collect()
    assert {name: [row[name] for row in found] for name in TIME_PARTS} == _parts(TIMES)
