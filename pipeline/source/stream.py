"""The reader of `spark.readStream`.

Spark keeps one in the driver for as long as the query runs, and asks it in turn: how far may the next batch go, which
tasks read it, and that it is done. A batch is (start, end) and nothing else: whatever is read twice between the same
offsets is the same, so a batch that is replayed after a crash is the batch that it was.

The checkpoint has the progress. `commitGroup` commits offsets only for tools that show lag.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from core.vocabulary.partition import LATEST
from pipeline.source.admission import limited, new_offsets
from pipeline.source.offsets import Json, Offsets, data_loss, from_json, partitions_of, resolve, to_json
from pipeline.source.options import ReadOptions
from pipeline.source.planning import OffsetRange, Task, plan
from pipeline.source.scan import scan
from pipeline.wire.cluster import Cluster, TopicPartition, UnknownTopicError
from pipeline.wire.errors import WireError
from pipeline.wire.groups import commit

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets of a stream, and its tasks. In a worker it knows its options alone."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._cluster: Cluster | None = None
        # The end of what Trigger.AvailableNow may read, recorded once.
        self._target: Offsets | None = None
        # What was there when it was last looked for, for the progress.
        self._seen: Json | None = None
        self._last_batch_at = -1e9

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["options"])  # type: ignore[misc]

    @property
    def cluster(self) -> Cluster:
        """The driver's connections."""
        if self._cluster is None:
            self._cluster = Cluster(self.options.settings)
        return self._cluster

    # --- how far -------------------------------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802 (Spark's name)
        """Where a new query begins. Raises OptionError, UnknownTopicError, WireError."""
        partitions = partitions_of(self.cluster, self.options)
        return to_json(resolve(self.cluster, partitions, self.options.start))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that options ask for. Spark can pass one only; the other is looked up here."""
        if self.options.max_offsets_per_trigger:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the current ends: the query ends when they are reached, without later records."""
        self._target = self._latest({})

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """The end of the next batch; `start` itself when there is none."""
        begin = from_json(start)
        end = self._target_from(begin) if self._target is not None else self._latest(begin)
        self._seen = to_json(end)
        if not isinstance(limit, ReadAllAvailable):
            if self._too_little(begin, end):
                return to_json(begin)
            if self.options.max_offsets_per_trigger:
                end = limited(begin, end, self.options.max_offsets_per_trigger)
        if end != begin:
            self._last_batch_at = time.monotonic()
        return to_json(end)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """What was there when the last batch was made; the progress shows it, so that lag can be seen."""
        return self._seen

    def _latest(self, begin: Offsets) -> Offsets:
        """Return the end of every partition; missing partitions of `begin` keep their offsets."""
        latest = self.cluster.offsets(dict.fromkeys(self._partitions(begin), LATEST))
        gone = sorted(begin.keys() - latest.keys())
        if gone:
            self._report_loss(f"Partitions {_names(gone)} do not exist any more")
        return latest | {tp: begin[tp] for tp in gone}

    def _partitions(self, begin: Offsets) -> list[TopicPartition]:
        try:
            return partitions_of(self.cluster, self.options, missing_ok=bool(begin))
        except UnknownTopicError as error:
            if not begin:
                raise
            self._report_loss(str(error))
            return []

    def _target_from(self, begin: Offsets) -> Offsets:
        """The target, but never before where the query already is."""
        assert self._target is not None
        return {
            tp: max(self._target.get(tp, 0), begin.get(tp, 0)) for tp in self._target.keys() | begin.keys()
        }

    def _too_little(self, begin: Offsets, end: Offsets) -> bool:
        least = self.options.min_offsets_per_trigger
        if not least or self._target is not None or new_offsets(begin, end) >= least:
            return False
        return time.monotonic() - self._last_batch_at < self.options.max_trigger_delay_s

    # --- which tasks ---------------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The tasks that read from `start` to `end`; the same for the same offsets."""
        begin, stop = from_json(start), from_json(end)
        gone = sorted(begin.keys() - stop.keys())
        if gone:
            self._report_loss(f"Partitions {_names(gone)} do not exist any more")
        ranges = []
        for (topic, partition), last in sorted(stop.items()):
            # A partition that is new to the query is read from its beginning.
            first = begin.get((topic, partition), 0)
            if last < first:
                self._report_loss(f"Topic {topic}, partition {partition} went back from {first} to {last}")
                first = 0
            ranges.append(OffsetRange(topic, partition, first, last))
        return plan(ranges, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task, as Arrow batches."""
        return scan(partition.ranges, self.options) if isinstance(partition, Task) else iter(())

    # --- done ----------------------------------------------------------------------------------------------

    def commit(self, end: Json) -> None:
        """Spark is done with all up to `end`. A commit that fails is a warning: the checkpoint knows better."""
        if self.options.commit_group is None:
            return
        try:
            commit(self.cluster, self.options.commit_group, from_json(end))
        except WireError as error:
            logger.warning(
                "the progress of the query was not committed to group %s: %s",
                self.options.commit_group,
                error,
            )

    def stop(self) -> None:
        """The query has ended."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _report_loss(self, what: str) -> None:
        if self.options.fail_on_data_loss:
            raise data_loss(what)
        logger.warning("%s; reading continues with the records that exist", what)


def _names(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions)
