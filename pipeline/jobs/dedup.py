"""Topics → a topic without what came before, by key, value or an id inside, within a horizon of event time."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pipeline.jobs.report import Outcome, Report
from pipeline.jobs.settings import Dedup
from pipeline.jobs.stream import Meter, read_stream, run_query, to_topic


def identity(settings: Dedup) -> Column:
    """What two records must share to be the same. A record without it is never a duplicate."""
    if settings.by == "key":
        found = f.col("key")
    elif settings.by == "value":
        found = f.col("value")
    else:
        found = f.get_json_object(f.col("value").cast("string"), settings.by).cast("binary")
    unique = f.concat_ws("-", "topic", "partition", "offset").cast("binary")
    # One byte in front keeps ids and places apart.
    return f.when(found.isNull(), f.concat(f.lit(b"\x00"), unique)).otherwise(f.concat(f.lit(b"\x01"), found))


def shape(records: DataFrame, settings: Dedup) -> DataFrame:
    """The first record of each id; the state forgets an id once the horizon has passed."""
    marked = records.withColumn("_id", f.sha2(identity(settings), 256)).withWatermark(
        "timestamp", settings.horizon
    )
    return marked.dropDuplicatesWithinWatermark(["_id"]).select("key", "value", "headers", "timestamp")


def run(spark: SparkSession, settings: Dedup, report: Report) -> Outcome:
    """Follow the topics until done, or stopped."""
    records = shape(read_stream(spark, settings), settings)
    return run_query(to_topic(records, settings, settings.to), settings, Meter(settings.job, report))
