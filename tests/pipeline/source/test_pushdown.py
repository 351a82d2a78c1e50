"""What filters leave of a read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from core.records.record import NewRecord
from pipeline.source.options import read_options
from pipeline.source.pushdown import PushdownReader
from tests.pipeline.topics import Topics

START_MS = 1_700_000_000_000
OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)


@pytest.fixture(scope="module")
def filled(broker: Any) -> str:
    """Three partitions of 100 records, one a second."""
    with Topics(broker) as topics:
        name = topics.create("filtered", partitions=3)
        for partition in range(3):
            records = [NewRecord(value=b"v", timestamp=START_MS + n * 1000) for n in range(100)]
            topics.write(name, records, partition=partition)
        return name


def at(second: int) -> datetime:
    """The time of the record with this number."""
    return datetime.fromtimestamp(START_MS / 1000 + second, UTC)


ALL = {0: (0, 100), 1: (0, 100), 2: (0, 100)}
CASES: list[tuple[list[Any], dict[int, tuple[int, int]]]] = [
    ([], ALL),
    ([EqualTo(PARTITION, 1)], {1: (0, 100)}),
    ([In(PARTITION, (0, 2, 7))], {0: (0, 100), 2: (0, 100)}),
    ([In(PARTITION, (0, 2)), EqualTo(PARTITION, 1)], {}),
    ([EqualTo(PARTITION, 0), GreaterThan(OFFSET, 9), LessThan(OFFSET, 20)], {0: (10, 20)}),
    ([EqualTo(PARTITION, 0), GreaterThanOrEqual(OFFSET, 9), LessThanOrEqual(OFFSET, 20)], {0: (9, 21)}),
    ([EqualTo(PARTITION, 0), EqualTo(OFFSET, 5)], {0: (5, 6)}),
    ([EqualTo(TOPIC, "other")], {}),
    ([EqualTo(PARTITION, 2), GreaterThanOrEqual(TIME, at(90))], {2: (90, 100)}),
    ([EqualTo(PARTITION, 2), GreaterThan(TIME, at(1000))], {}),
    # What is not understood, or could mean any moment, cuts nothing.
    ([Not(EqualTo(PARTITION, 1)), IsNull(("key",)), EqualTo(("a", "offset"), 5)], ALL),
    ([LessThan(TIME, at(5)), GreaterThan(TIME, at(90).replace(tzinfo=None))], ALL),
]


@pytest.mark.parametrize(("filters", "ranges"), CASES)
def test_a_read_is_cut_to_what_filters_leave_and_spark_checks_them_again(
    topics: Topics, filled: str, filters: list[Any], ranges: dict[int, tuple[int, int]]
) -> None:
    options = {**topics.options, "subscribe": filled, "pushdown": "true"}
    reader = PushdownReader(read_options(options, streaming=False))
    assert list(reader.pushFilters(filters)) == filters
    planned = [one for task in reader.partitions() for one in task.ranges]  # type: ignore[attr-defined]
    assert {one.partition: (one.start, one.end) for one in planned} == ranges
