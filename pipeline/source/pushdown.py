"""Filters that Spark hands down: fewer partitions, shorter ranges. Spark checks every filter again, so this is only
ever about what need not be read.

| column | what is understood |
|---|---|
| topic, partition | equal, in: other partitions are left out |
| offset | equal, greater, less: ranges are cut |
| timestamp | greater: a range begins at the first record that is as young (ListOffsets); all before it are older |

Spark calls `pushFilters` only where `spark.sql.python.filterPushdown.enabled` is set, and fails every query of a
reader that has the method where it is not. Hence two classes, and the option `pushdown`. Streams never have it.

A trap of Spark 4.3: it keeps what was pushed down with the DataFrame, and a later query on the same DataFrame that
has nothing to push down reads by the filters of the earlier one: rows are missing. Nothing here can see that. So
`pushdown` is off by default. With it, call `load()` for each query.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from core.vocabulary.partition import LATEST
from pipeline.decode import columns as c
from pipeline.source.batch import BatchReader
from pipeline.source.options import ReadOptions
from pipeline.source.planning import OffsetRange
from pipeline.wire.cluster import Cluster

_NO_END = 2**63 - 1


class PushdownReader(BatchReader):
    """A batch reader that reads less when filters allow it."""

    def __init__(self, options: ReadOptions) -> None:
        super().__init__(options)
        self._allowed: dict[str, set[Any]] = {}
        self._low, self._high = 0, _NO_END
        self._not_before_ms: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 (Spark's name)
        """Take note of what narrows the read; all filters are Spark's to check again."""
        for one in filters:
            column = getattr(one, "attribute", (None,))
            if len(column) == 1:
                self._note(column[0], one)
        return filters

    def _note(self, column: str | None, one: Filter) -> None:
        if column in (c.TOPIC, c.PARTITION):
            self._note_choice(column, one)
        elif column == c.OFFSET:
            self._note_offset(one)
        elif column == c.TIMESTAMP and isinstance(one, GreaterThan | GreaterThanOrEqual | EqualTo):
            moment = _milliseconds(one.value)
            if moment is not None:
                self._not_before_ms = max(self._not_before_ms or 0, moment)

    def _note_choice(self, column: str, one: Filter) -> None:
        if isinstance(one, EqualTo):
            chosen = {one.value}
        elif isinstance(one, In):
            chosen = set(one.value)
        else:
            return
        self._allowed[column] = self._allowed.get(column, chosen) & chosen

    def _note_offset(self, one: Filter) -> None:
        if isinstance(one, EqualTo):
            self._low, self._high = max(self._low, one.value), min(self._high, one.value + 1)
        elif isinstance(one, GreaterThan):
            self._low = max(self._low, one.value + 1)
        elif isinstance(one, GreaterThanOrEqual):
            self._low = max(self._low, one.value)
        elif isinstance(one, LessThan):
            self._high = min(self._high, one.value)
        elif isinstance(one, LessThanOrEqual):
            self._high = min(self._high, one.value + 1)

    def ranges(self, cluster: Cluster) -> list[OffsetRange]:
        """The ranges of the whole read, cut to what the filters leave."""
        kept = [one for one in super().ranges(cluster) if self._may_hold(one)]
        kept = [one._replace(start=max(one.start, self._low), end=min(one.end, self._high)) for one in kept]
        if self._not_before_ms is None or not kept:
            return kept
        asked = dict.fromkeys([(one.topic, one.partition) for one in kept], self._not_before_ms)
        found = cluster.offsets(asked)
        # No record is as young: the range is empty.
        late = cluster.offsets({tp: LATEST for tp, offset in found.items() if offset < 0})
        found.update(late)
        return [one._replace(start=max(one.start, found[one.topic, one.partition])) for one in kept]

    def _may_hold(self, one: OffsetRange) -> bool:
        topics, partitions = self._allowed.get(c.TOPIC), self._allowed.get(c.PARTITION)
        return (topics is None or one.topic in topics) and (partitions is None or one.partition in partitions)


def _milliseconds(value: datetime) -> int | None:
    """A literal as ms, rounded down, never below 0; None for a time without a zone, which could be any moment."""
    return max(int(value.timestamp() * 1000), 0) if value.tzinfo else None
