"""Topics → Parquet, Delta or Iceberg: every record once, for every reader of the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from pipeline.lake.sink import Columns, LakeSink
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


class _Exporter:
    """What `foreachBatch` calls: opens the table at the first batch, for the query's id is known then."""

    def __init__(self, settings: Export) -> None:
        self._settings = settings
        self._counts: dict[int, int] = {}
        self.sink: LakeSink | None = None
        self.failure: Exception | None = None

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        try:
            if self._settings.mode == "raw":
                self._take(records, batch_id)
            else:
                self._take_json(records, batch_id)
        except Exception as error:
            self.failure = error
            raise

    def _take(self, files: DataFrame, batch_id: int) -> None:
        """A batch whose tasks read and write; Spark sees what they wrote."""
        if self.sink is None:
            schema = direct.table_schema(self._settings)
            table = self._opened(files, schema)
            self.sink = LakeSink(table, Columns(tuple(schema.names)), write=direct.written)
        before = self.sink.rows
        self.sink(files, batch_id)
        if self.sink.rows > before:
            self._counts[batch_id] = self.sink.rows - before

    def _take_json(self, records: DataFrame, batch_id: int) -> None:
        """A batch of records that Spark turns into the table's columns."""
        rows, columns = shape(records, self._settings)
        if self.sink is None:
            table = self._opened(
                records, to_arrow_schema(rows.select(*columns.written).schema, timezone="UTC")
            )
            self.sink = LakeSink(table, columns, on_error=self._settings.on_error)
        self.sink.quarantine = lambda _: quarantine(records, rows, self._settings)
        self.sink(rows, batch_id)

    def _opened(self, batch: DataFrame, schema: Any) -> LakeTable:
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        table = open_table(self._settings, str(query))
        table.open(schema)
        return table

    def count(self, batch_id: int) -> int:
        """The records of a batch of raw mode; asked once for each."""
        return self._counts.pop(batch_id, 0)

    def add_to(self, progress: Progress) -> None:
        if self.sink is not None:
            progress.files, progress.bytes = self.sink.files, self.sink.bytes
            progress.rejected, progress.skipped = self.sink.rejected, self.sink.skipped

    def close(self) -> None:
        if self.sink is not None:
            self.sink.table.close()


def quarantine(records: DataFrame, rows: DataFrame, settings: Export) -> None:
    """Write the records of a batch that do not fit into the dead-letter topic, as they were, with the reason.

    The headers say why and where from: `sluice.error`, `sluice.topic`, `sluice.partition`, `sluice.offset`.
    """
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
    write_topic(rows, settings.bootstrap, settings.dead_letter or "")


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
    exporter = _Exporter(settings)
    if settings.mode == "raw":
        try:
            check_columns(settings, columns_of(source_options(settings, headers=True)))
        except OptionError as error:
            raise JobError(str(error)) from None
        records, meter = (
            direct.read(spark, settings),
            Meter(settings.job, report, exporter.add_to, exporter.count),
        )
    else:
        records, meter = read_stream(spark, settings), Meter(settings.job, report, exporter.add_to)
    writer = records.writeStream.foreachBatch(exporter)
    try:
        outcome = run_query(writer, settings, meter, lambda: exporter.failure)
    finally:
        exporter.close()
    if exporter.sink is not None:
        sink = exporter.sink
        outcome.rows, outcome.files, outcome.bytes = sink.rows, sink.files, sink.bytes
        outcome.rejected, outcome.skipped = sink.rejected, sink.skipped
    return outcome
