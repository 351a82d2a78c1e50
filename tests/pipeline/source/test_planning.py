"""Ranges into tasks: nothing twice, nothing lost, whatever the options."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.source.options import read_options
from pipeline.source.planning import OffsetRange, plan

RANGES = st.lists(st.tuples(st.integers(0, 10**9), st.integers(-5, 10_000)), max_size=12)
MAYBE = st.none() | st.integers(1, 40)


def options(**given: Any) -> Any:
    """Read options with these among them."""
    base = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    return read_options({**base, **{k: str(v) for k, v in given.items() if v}}, streaming=False)


@given(RANGES, MAYBE, st.none() | st.integers(250, 5000), MAYBE)
def test_tasks_cover_every_offset_once_in_order(
    sizes: list[tuple[int, int]], least: int | None, size: int | None, most: int | None
) -> None:
    ranges = [OffsetRange("t", number, start, start + count) for number, (start, count) in enumerate(sizes)]
    if least and most and least > most:
        least, most = most, least
    tasks = plan(ranges, options(minPartitions=least, maxRecordsPerPartition=size, maxTasks=most))
    pieces = sorted(piece for task in tasks for piece in task.ranges)
    for one in ranges:
        mine = [piece for piece in pieces if piece.partition == one.partition]
        assert sum(piece.size for piece in mine) == max(one.size, 0)
        position = one.start
        for piece in mine:
            assert piece.start == position and piece.size > 0
            position = piece.end
    if size and not most:
        assert all(piece.size <= size for piece in pieces)
    if most:
        assert len(tasks) <= most
    if least and not most:
        assert len(tasks) >= min(least, sum(piece.size for piece in pieces)) * 0.8


def test_a_large_partition_is_split_more_than_a_small_one() -> None:
    ranges = [OffsetRange("t", 0, 0, 9000), OffsetRange("t", 1, 0, 1000)]
    tasks = plan(ranges, options(minPartitions=10))
    assert [task.ranges[0].size for task in tasks] == [1000] * 10


def test_many_partitions_are_put_together_evenly() -> None:
    ranges = [OffsetRange("t", number, 0, size) for number, size in enumerate((90, 10, 20, 30, 40, 10))]
    tasks = plan(ranges, options(maxTasks=2))
    assert [sum(one.size for one in task.ranges) for task in tasks] == [100, 100]
