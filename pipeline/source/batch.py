"""The reader of `spark.read`: the range of every partition is fixed when the query is planned."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.source.offsets import bounds, data_loss, partitions_of, resolve
from pipeline.source.options import OptionError, ReadOptions
from pipeline.source.planning import OffsetRange, Task, plan
from pipeline.source.scan import scan
from pipeline.wire.cluster import Cluster

logger = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """Reads ranges of offsets. Spark pickles it for its workers, so it holds options and nothing else."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks. Raises OptionError, UnknownTopicError, DataLossError, WireError."""
        with Cluster(self.options.settings) as cluster:
            return plan(self.ranges(cluster), self.options)

    def ranges(self, cluster: Cluster) -> list[OffsetRange]:
        """What is to be read of each partition, before it is split into tasks."""
        options = self.options
        partitions = partitions_of(cluster, options)
        starts = resolve(cluster, partitions, options.start)
        ends = resolve(cluster, partitions, options.end)
        earliest, latest = bounds(cluster, partitions)
        ranges = []
        for topic, partition in partitions:
            start, end = starts[topic, partition], ends[topic, partition]
            first, last = earliest[topic, partition], latest[topic, partition]
            if start > end and options.start.each and options.end.each:
                raise OptionError(f"topic {topic}, partition {partition}: start {start} is above end {end}")
            if start < first or end > last:
                self._lost(topic, partition, (start, end), (first, last))
            ranges.append(OffsetRange(topic, partition, max(start, first), min(end, last)))
        return ranges

    def _lost(self, topic: str, partition: int, asked: tuple[int, int], there: tuple[int, int]) -> None:
        what = f"Topic {topic}, partition {partition}: offsets {asked} were asked for, the log has {there}"
        if self.options.fail_on_data_loss:
            raise data_loss(what)
        logger.warning("%s; what is there is read", what)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task, as Arrow batches."""
        # Without tasks Spark makes one of its own, with nothing to read.
        return scan(partition.ranges, self.options) if isinstance(partition, Task) else iter(())
