"""Windowed aggregates of a JSON topic → a topic of JSON."""

from __future__ import annotations

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from pipeline.jobs import json_columns
from pipeline.jobs.report import Outcome, Report
from pipeline.jobs.settings import Aggregate
from pipeline.jobs.stream import JobError, Meter, read_stream, run_query, to_topic, write_topic


def checked(rows: DataFrame, on_error: str, needed: str = "_timestamp") -> DataFrame:
    """Rows whose value fits. With `suspend` the first that does not ends the query and is named.

    `needed` is a column that every result needs. The check is a part of it, because the optimizer drops columns that
    are not read.
    """
    reason = f.col(json_columns.REASON)
    if on_error == "skip":
        return rows.where(reason.isNull()).drop(json_columns.REASON)
    place = f.concat("_topic", f.lit("-"), "_partition", f.lit(" at offset "), "_offset", f.lit(": "), reason)
    told = f.when(reason.isNotNull(), f.raise_error(place).cast("timestamp")).otherwise(f.col(needed))
    return rows.withColumn(needed, told).drop(json_columns.REASON)


def _timed(rows: DataFrame, schema: StructType, field: str) -> DataFrame:
    """Rows with a time to go by; one without belongs to no window, which is a reason not to fit."""
    found = schema[field].dataType.simpleString()
    if found != "timestamp":
        raise JobError(f"time_field {field} is {found.upper()} in the schema; it must be TIMESTAMP")
    missing = f.when(f.col(field).isNull(), f.lit(f"field {field} is null, and windows go by it"))
    return rows.withColumn(json_columns.REASON, f.coalesce(json_columns.REASON, missing))


def shape(records: DataFrame, settings: Aggregate) -> DataFrame:
    """(key, value, timestamp): one record per window and group. The key is the group as JSON."""
    try:
        schema = json_columns.parse_schema(settings.schema)
    except ValueError as error:
        raise JobError(str(error)) from None
    when = settings.time_field or "_timestamp"
    for name in [*settings.by, *([settings.time_field] if settings.time_field else [])]:
        if name not in schema.names:
            raise JobError(f"the schema has no field {name}; it has {', '.join(schema.names)}")
    rows = json_columns.typed(records, schema, "ignore")
    if settings.time_field:
        rows = _timed(rows, schema, settings.time_field)
    rows = checked(rows, settings.on_error, when).withWatermark(when, settings.late)
    window = f.window(when, settings.window, settings.slide)
    groups = [f.col(name) for name in settings.by]
    try:
        found = rows.groupBy(window.alias("window"), *groups).agg(
            *[f.expr(text) for text in settings.compute]
        )
    except (AnalysisException, ParseException) as error:
        raise JobError(f"compute: {str(error).splitlines()[0]}") from None
    computed = [name for name in found.columns if name not in ("window", *settings.by)]
    bounds = [f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end")]
    value = f.to_json(f.struct(*bounds, *groups, *[f.col(f"`{name}`") for name in computed]))
    key = f.to_json(f.struct(*groups)) if groups else f.lit(None)
    return found.select(key.cast("binary").alias("key"), value.cast("binary").alias("value"))


def run(spark: SparkSession, settings: Aggregate, report: Report) -> Outcome:
    """Follow the topics until done, or stopped."""
    rows = shape(read_stream(spark, settings), settings)
    if settings.emit == "closed":
        writer = to_topic(rows, settings, settings.to).outputMode("append")
    else:
        # Spark lets no Python data source take updates; a batch of them is just rows.
        writer = rows.writeStream.outputMode("update").foreachBatch(
            lambda batch, _: write_topic(batch, settings, settings.to)
        )
    return run_query(writer, settings, Meter(settings.job, report))
