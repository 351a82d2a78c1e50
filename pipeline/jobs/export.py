"""Topics → Parquet, Delta or Iceberg: every record once, for every reader of the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.jobs import json_columns
from pipeline.jobs.report import Outcome, Progress, Report
from pipeline.jobs.settings import TIME_PARTS, Export
from pipeline.jobs.stream import JobError, Meter, read_stream, run_query, write_topic
from pipeline.lake.delta import DeltaLakeTable
from pipeline.lake.iceberg import IcebergTable
from pipeline.lake.sink import Columns, LakeSink
from pipeline.lake.table import LakeTable, ParquetTable

_TIME_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "year": f.year,
    "month": lambda timestamp: f.date_format(timestamp, "yyyy-MM"),
    "day": f.to_date,
    "hour": f.hour,
}


def open_table(settings: Export, query: str) -> LakeTable:
    """The table of a job for one query; not opened yet."""
    path = Path(settings.to.removeprefix("file://")).absolute()
    by = tuple(settings.partition_by)
    if settings.format == "iceberg":
        return IcebergTable(path, settings.table or "", query, by)
    return (DeltaLakeTable if settings.format == "delta" else ParquetTable)(path, query, by)


def shape(records: DataFrame, settings: Export) -> tuple[DataFrame, Columns]:
    """Records as the table will hold them, and which of their columns mean what."""
    if settings.mode == "raw":
        rows, meta, reason = records, {"timestamp": "timestamp"}, None
        place = {"topic": "topic", "partition": "partition", "offset": "offset"}
    else:
        if settings.mode == "json":
            schema = json_columns.parse_schema(settings.schema or "")
            rows = json_columns.typed(records, schema, settings.unknown_fields)
        else:
            rows = json_columns.variant(records)
        meta, reason = {"timestamp": "_timestamp"}, json_columns.REASON
        place = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
    for name in settings.partition_by:
        if name in rows.columns:
            continue
        if name not in TIME_PARTS:
            raise JobError(
                f"partition_by names {name}; the table has {', '.join(rows.columns)}, {', '.join(TIME_PARTS)}"
            )
        rows = rows.withColumn(name, _TIME_COLUMNS[name](f.col(meta["timestamp"])))
    written = tuple(name for name in rows.columns if name != reason)
    return rows, Columns(written, reason=reason, **place)


class _Exporter:
    """What `foreachBatch` calls: opens the table at the first batch, for the query's id is known then."""

    def __init__(self, settings: Export) -> None:
        self._settings = settings
        self.sink: LakeSink | None = None
        self.failure: Exception | None = None

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        try:
            rows, columns = shape(records, self._settings)
            if self.sink is None:
                query = records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
                table = open_table(self._settings, str(query))
                schema = rows.select(*columns.written).schema
                table.open(to_arrow_schema(schema, timezone="UTC"))
                self.sink = LakeSink(table, columns, on_error=self._settings.on_error)
            self.sink.quarantine = lambda _: quarantine(records, rows, self._settings)
            self.sink(rows, batch_id)
        except Exception as error:
            self.failure = error
            raise

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
    meter = Meter(settings.job, report, exporter.add_to)
    writer = read_stream(spark, settings).writeStream.foreachBatch(exporter)
    try:
        outcome = run_query(writer, settings, meter, lambda: exporter.failure)
    finally:
        exporter.close()
    if exporter.sink is not None:
        sink = exporter.sink
        outcome.rows, outcome.files, outcome.bytes = sink.rows, sink.files, sink.bytes
        outcome.rejected, outcome.skipped = sink.rejected, sink.skipped
    return outcome
