"""Topics → Parquet, Delta or Iceberg: every record once, for every reader of the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.jobs import direct, json_columns
from pipeline.jobs.plan import source_options
from pipeline.jobs.report import Outcome, Progress, Report
from pipeline.jobs.settings import TIME_PARTS, Export
from pipeline.jobs.stream import JobError, Meter, read_stream, run_query, write_topic
from pipeline.lake.delta import DeltaLakeTable
from pipeline.lake.iceberg import IcebergTable
from pipeline.lake.sink import Columns, LakeSink, write_rows
from pipeline.lake.staging import Layout
from pipeline.lake.table import LakeTable, ParquetTable
from pipeline.lake.time_parts import in_spark
from pipeline.source.options import OptionError, columns_of


def open_table(settings: Export, query: str) -> LakeTable:
    """The table of a job for one query; not opened yet."""
    path = Path(settings.to.removeprefix("file://")).absolute()
    by = tuple(settings.partition_by)
    if settings.format == "iceberg":
        return IcebergTable(path, settings.table or "", query, by)
    return (DeltaLakeTable if settings.format == "delta" else ParquetTable)(path, query, by)


def shape(records: DataFrame, settings: Export) -> tuple[DataFrame, Columns]:
    """JSON as the table will hold it, and which of its columns mean what."""
    if settings.mode == "json":
        schema = json_columns.parse_schema(settings.schema or "")
        rows = json_columns.typed(records, schema, settings.unknown_fields)
    else:
        rows = json_columns.variant(records)
    check_partition_by(settings, rows.columns)
    for name in settings.partition_by:
        if name not in rows.columns:
            rows = rows.withColumn(name, in_spark(name, f.col("_timestamp")))
    written = tuple(name for name in rows.columns if name != json_columns.REASON)
    return rows, Columns(written, "_topic", "_partition", "_offset", json_columns.REASON)


def check_partition_by(settings: Export, columns: Sequence[str]) -> None:
    """Raises JobError for a column that the table does not have."""
    for name in settings.partition_by:
        if name not in (*columns, *TIME_PARTS):
            raise JobError(
                f"partition_by names {name}; the table has {', '.join(columns)}, {', '.join(TIME_PARTS)}"
            )


def check_columns(settings: Export, columns: Sequence[str]) -> None:
    """Raises JobError for a table of records as they are that lacks what it stands on."""
    needed = ["topic", "partition", "offset"]
    if any(name in TIME_PARTS and name not in columns for name in settings.partition_by):
        needed.append("timestamp")
    missing = [name for name in needed if name not in columns]
    if missing:
        raise JobError(
            f"the source's option columns lacks {', '.join(missing)}, by which files are told apart"
        )
    check_partition_by(settings, columns)


class Way(NamedTuple):
    """How the records of a job reach its table: a stream, and what runs the tasks of one batch of it.

    `counts`: the job counts records itself, for what Spark counts is something else.
    """

    stream: DataFrame
    schema: pa.Schema
    columns: Columns
    write: Callable[[DataFrame, Layout], list[Any]]
    counts: bool = False


def way(spark: SparkSession, settings: Export) -> Way:
    """The way of a job. Raises JobError for what cannot be made of its records."""
    if settings.mode == "raw":
        try:
            check_columns(settings, columns_of(source_options(settings, headers=True)))
        except OptionError as error:
            raise JobError(str(error)) from None
        table = direct.table_schema(settings)
        stream = direct.read(spark, settings)
        return Way(stream, table, Columns(tuple(table.names)), direct.written, counts=True)
    # Records that are put aside are asked for twice, and with their headers.
    aside = settings.on_error == "quarantine"
    records = read_stream(spark, settings, headers=aside)
    rows, columns = shape(records, settings)
    table = to_arrow_schema(rows.select(*columns.written).schema, timezone="UTC")
    if aside:
        return Way(records, table, columns, lambda batch, to: write_rows(shape(batch, settings)[0], to))
    return Way(direct.writing(rows), table, columns, direct.written)


class _Exporter:
    """What `foreachBatch` calls: opens the table at the first batch, for the query's id is known then."""

    def __init__(self, settings: Export, way: Way) -> None:
        self._settings, self._way = settings, way
        self._counts: dict[int, int] = {}
        self.sink: LakeSink | None = None
        self.failure: Exception | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        try:
            if self.sink is None:
                self.sink = self._opened(batch)
            before = self.sink.rows
            self.sink(batch, batch_id)
            if self._way.counts and self.sink.rows > before:
                self._counts[batch_id] = self.sink.rows - before
        except Exception as error:
            self.failure = error
            raise

    def _opened(self, batch: DataFrame) -> LakeSink:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        table = open_table(self._settings, str(query))
        table.open(self._way.schema)
        return LakeSink(
            table,
            self._way.columns,
            on_error=self._settings.on_error,
            quarantine=lambda batch: quarantine(batch, self._settings),
            write=self._way.write,
        )

    def count(self, batch_id: int) -> int:
        """The records of a batch; asked once for each."""
        return self._counts.pop(batch_id, 0)

    def add_to(self, progress: Progress) -> None:
        if self.sink is not None:
            progress.files, progress.bytes = self.sink.files, self.sink.bytes
            progress.rejected, progress.skipped = self.sink.rejected, self.sink.skipped

    def close(self) -> None:
        if self.sink is not None:
            self.sink.table.close()


def quarantine(records: DataFrame, settings: Export) -> None:
    """Write the records of a batch that do not fit into the dead-letter topic, as they were, with the reason.

    The headers say why and where from: `sluice.error`, `sluice.topic`, `sluice.partition`, `sluice.offset`.
    """
    rows, _ = shape(records, settings)
    bad = rows.where(f.col(json_columns.REASON).isNotNull()).select(
        f.col("_topic").alias("topic"), f.col("_partition").alias("partition"), f.col("_offset").alias("offset"),
        f.col(json_columns.REASON).alias("reason"),
    )  # fmt: skip
    told = {
        "sluice.error": "reason",
        "sluice.topic": "topic",
        "sluice.partition": "partition",
        "sluice.offset": "offset",
    }
    headers = f.array(
        *[
            f.struct(f.lit(name).alias("key"), f.col(column).cast("string").cast("binary").alias("value"))
            for name, column in told.items()
        ]
    )
    joined = records.join(f.broadcast(bad), ["topic", "partition", "offset"])
    both = f.concat(f.coalesce(f.col("headers"), f.array().cast(headers_type(records))), headers)
    rows = joined.select("key", "value", both.alias("headers"), "timestamp")
    write_topic(rows, settings, settings.dead_letter or "")


def headers_type(records: DataFrame) -> Any:
    """The type of the headers column."""
    return records.schema["headers"].dataType


def run(spark: SparkSession, settings: Export, report: Report) -> Outcome:
    """Run the export until it is done, or stopped."""
    if settings.mode == "json":
        try:
            json_columns.parse_schema(settings.schema or "")
        except ValueError as error:
            raise JobError(str(error)) from None
    how = way(spark, settings)
    exporter = _Exporter(settings, how)
    meter = Meter(settings.job, report, exporter.add_to, exporter.count if how.counts else None)
    writer = how.stream.writeStream.foreachBatch(exporter)
    try:
        outcome = run_query(writer, settings, meter, lambda: exporter.failure)
    finally:
        exporter.close()
    if exporter.sink is not None:
        sink = exporter.sink
        outcome.rows, outcome.files, outcome.bytes = sink.rows, sink.files, sink.bytes
        outcome.rejected, outcome.skipped = sink.rejected, sink.skipped
    return outcome
