"""Tables written by the tasks of the stream itself, before `foreachBatch`, which is left with what they wrote.

Rows that `foreachBatch` is given are copied for it, and copied into Arrow again for the tasks that write. So rows are
written one step earlier (`writing`). If nothing is computed, Spark's rows are not needed at all: the task that reads
a range of offsets writes its files as well (`read`), which takes a quarter of the time.

The driver says where a batch is to be written when it runs it (`written`). Batches, offsets, restarts and lag are
those of every stream of the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pipeline.data_source import SluiceDataSource
from pipeline.decode.columns import arrow_schema
from pipeline.jobs.plan import source_options
from pipeline.jobs.settings import Export
from pipeline.lake.null_lists import hide
from pipeline.lake.staging import RESULT_SCHEMA, Layout, stage
from pipeline.lake.time_parts import ARROW_TYPES, in_arrow
from pipeline.source.options import columns_of, read_options
from pipeline.source.stream import StreamReader

LAYOUT = "sluice.layout"
"""The local property in which the driver names the target to the tasks of a micro-batch."""


def _told() -> Layout:
    """In a task: where it writes. Raises RuntimeError outside of `written`."""
    context = TaskContext.get()
    told = context.getLocalProperty(LAYOUT) if context is not None else None
    if not told:
        raise RuntimeError("these records are written by the export job alone, which says where to")
    return msgspec.json.decode(told, type=Layout)


class StagingDataSource(SluiceDataSource):
    """Topics as the Parquet files that tasks made of them; one row for each task, a `Staged` as JSON."""

    @classmethod
    def name(cls) -> str:
        """The short name."""
        return "sluice-staging"

    def schema(self) -> str:
        """That row."""
        columns_of(self.options)
        return RESULT_SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """The reader whose tasks write."""
        options = read_options(self.options, streaming=True)
        return StagingReader(replace(options, columns=columns_of(self.options)))


class StagingReader(StreamReader):
    """Reads as its parent does, and writes what it reads."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the records of one task; answers what was written."""
        layout = _told()
        records = super().read(partition)
        return stage(layout)(with_time_parts(batch, layout.partition_by) for batch in records)


def with_time_parts(batch: pa.RecordBatch, partition_by: tuple[str, ...]) -> pa.RecordBatch:
    """A batch with those columns to partition by that are parts of its records' time."""
    for name in partition_by:
        if name not in batch.schema.names:
            batch = batch.append_column(
                pa.field(name, ARROW_TYPES[name]), in_arrow(name, batch.column("timestamp"))
            )
    return batch


def read(spark: SparkSession, settings: Export) -> DataFrame:
    """The topics of a job as a stream of what its tasks wrote."""
    spark.dataSource.register(StagingDataSource)
    options = source_options(settings, headers=True)
    return spark.readStream.format(StagingDataSource.name()).options(**options).load()


def writing(rows: DataFrame) -> DataFrame:
    """A stream of rows as a stream of what its tasks wrote."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return stage(_told())(batches)

    return hide(rows).mapInArrow(write, RESULT_SCHEMA)


def table_schema(settings: Export) -> pa.Schema:
    """The columns of the table: those of the source, and the parts of time to partition by."""
    schema = arrow_schema(columns_of(source_options(settings, headers=True)))
    for name in settings.partition_by:
        if name not in schema.names:
            schema = schema.append(pa.field(name, ARROW_TYPES[name]))
    return schema


def written(batch: DataFrame, layout: Layout) -> list[Any]:
    """Run the tasks of a micro-batch; answers their rows."""
    context = batch.sparkSession.sparkContext
    context.setLocalProperty(LAYOUT, msgspec.json.encode(layout).decode())
    try:
        return batch.collect()
    finally:
        context.setLocalProperty(LAYOUT, "")
