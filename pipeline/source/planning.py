"""Offset ranges into tasks: split where they are long, put together where they are many. Pure, hence repeatable."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from pipeline import limits
from pipeline.source.options import OptionError, ReadOptions


class OffsetRange(NamedTuple):
    """The records of one partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in the range, which has at most this many records."""
        return self.end - self.start


class Task(InputPartition):
    """What one Spark task reads: ranges, one after the other."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def plan(ranges: Iterable[OffsetRange], options: ReadOptions) -> list[Task]:
    """The tasks that read these ranges, in their order. Raises OptionError for more than `limits.MAX_TASKS`."""
    pieces = [one for one in ranges if one.size > 0]
    pieces = _split_by_size(pieces, options.max_records_per_partition)
    pieces = _split_by_count(pieces, options.min_partitions)
    if options.max_tasks and len(pieces) > options.max_tasks:
        return _put_together(pieces, options.max_tasks)
    if len(pieces) > limits.MAX_TASKS:
        raise OptionError(
            f"the read would have {len(pieces)} tasks, more than {limits.MAX_TASKS}: set maxTasks"
        )
    return [Task((piece,)) for piece in pieces]


def _split_by_size(ranges: list[OffsetRange], most: int | None) -> list[OffsetRange]:
    if not most:
        return ranges
    return [piece for one in ranges for piece in _split(one, -(-one.size // most))]


def _split_by_count(ranges: list[OffsetRange], least: int | None) -> list[OffsetRange]:
    """Ranges by their size split in proportion, until there are at least `least` of them."""
    if not least or len(ranges) >= least or not ranges:
        return ranges
    left_size, left = sum(one.size for one in ranges), least
    parts: dict[OffsetRange, int] = {}
    # Small ones first: the large ones get what these do not need.
    for one in sorted(ranges, key=lambda r: r.size):
        parts[one] = max(1, min(one.size, round(left * one.size / left_size)))
        left_size -= one.size
        left = max(left - parts[one], 0)
    return [piece for one in ranges for piece in _split(one, parts[one])]


def _split(one: OffsetRange, parts: int) -> Iterable[OffsetRange]:
    for number in range(parts):
        start, end = one.start + one.size * number // parts, one.start + one.size * (number + 1) // parts
        yield one._replace(start=start, end=end)


def _put_together(ranges: Sequence[OffsetRange], most: int) -> list[Task]:
    """The task with the least so far gets the largest range."""
    tasks: list[tuple[int, int, list[OffsetRange]]] = [(0, number, []) for number in range(most)]
    for one in sorted(ranges, key=lambda r: (-r.size, r)):
        size, number, members = heapq.heappop(tasks)
        members.append(one)
        heapq.heappush(tasks, (size + one.size, number, members))
    return [Task(tuple(sorted(members))) for _, _, members in sorted(tasks, key=lambda t: t[1]) if members]
