"""A table → a topic: keys, headers and timestamps as they were, in the order of each partition.

A record that was replayed says so in its headers: `sluice.replay` is the job's name, `sluice.topic`,
`sluice.partition` and `sluice.offset` where it came from. A replay that was killed reads these headers back from the
topic and continues with the missing records. Without them (`no_origin`) a second run writes everything again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.jobs.plan import client, cluster_options
from pipeline.jobs.report import Outcome, Report
from pipeline.jobs.settings import Replay, moment
from pipeline.jobs.stream import SOURCE, JobError, write_topic
from pipeline.jobs.tables import frame, place
from pipeline.jobs.watch import Watch
from pipeline.wire.cluster import TopicPartition, UnknownTopicError

REPLAY = "sluice.replay"
ORIGIN = {"topic": "string", "partition": "int", "offset": "bigint"}
HEADERS = "array<struct<key:string,value:binary>>"


def header(name: str, value: Column) -> Column:
    """One header."""
    return f.struct(f.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def header_map(headers: Column) -> Column:
    """Headers as a map of texts; of several with one name the last counts."""
    return f.aggregate(
        f.coalesce(headers, f.array().cast(HEADERS)),
        f.create_map().cast("map<string,string>"),
        lambda found, one: f.map_concat(
            f.map_filter(found, lambda name, _: name != one["key"]),
            f.create_map(one["key"], one["value"].cast("string")),
        ),
    )


def _chosen(spark: SparkSession, settings: Replay) -> DataFrame:
    """The rows of the table that are asked for."""
    rows = frame(spark, settings)
    names = place(rows.columns)
    if names["offset"] != "offset" or "value" not in rows.columns:
        raise JobError("only a table of mode raw can be replayed: it has the bytes as they were")
    if settings.only:
        rows = rows.where(f.col("topic").isin(settings.only))
    since, until = moment("since", settings.since), moment("until", settings.until)
    if since is not None:
        rows = rows.where(f.col("timestamp") >= f.lit(since))
    if until is not None:
        rows = rows.where(f.col("timestamp") < f.lit(until))
    return rows


def bounds(settings: Replay) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where each partition of the topic begins and ends. Raises JobError when there is no such topic."""
    with client(settings) as cluster:
        try:
            parts = [(settings.topic, part) for part in cluster.topics([settings.topic])[settings.topic]]
        except UnknownTopicError:
            raise JobError(f"there is no topic {settings.topic}; make it first") from None
        low, high = (cluster.offsets(dict.fromkeys(parts, when)) for when in (EARLIEST, LATEST))
    return low, high


def written_before(spark: SparkSession, settings: Replay) -> DataFrame:
    """The places of records that an earlier run of this replay wrote."""
    options = {
        **cluster_options(settings),
        "subscribe": settings.topic,
        "includeHeaders": "true",
    }
    told = (
        spark.read.format(SOURCE).options(**options).load().select(header_map(f.col("headers")).alias("told"))
    )
    ours = told.where(f.col("told")[REPLAY] == settings.title())
    return ours.select(
        *[f.col("told")[f"sluice.{name}"].cast(kind).alias(name) for name, kind in ORIGIN.items()]
    )


def _records(rows: DataFrame, settings: Replay) -> DataFrame:
    """Rows as the sink takes them."""
    kept = f.col("headers") if "headers" in rows.columns else f.lit(None)
    headers = f.coalesce(kept.cast(HEADERS), f.array().cast(HEADERS))
    if not settings.no_origin:
        origin = [
            header(REPLAY, f.lit(settings.title())),
            *[header(f"sluice.{name}", f.col(name)) for name in ORIGIN],
        ]
        headers = f.concat(headers, f.array(*origin))
    columns = [f.col("key"), f.col("value"), headers.alias("headers")]
    if settings.keep_partitions:
        columns.append(f.col("partition"))
    if not settings.new_timestamps:
        columns.append(f.col("timestamp"))
    return rows.select(*columns)


def run(spark: SparkSession, settings: Replay, report: Report) -> Outcome:
    """Replay what is not there yet."""
    began = time.monotonic()
    watch = Watch(settings.job, report, spark)
    rows = _chosen(spark, settings)
    low, high = bounds(settings)
    skipped = 0
    if not settings.no_origin and low != high:
        before = written_before(spark, settings).distinct().cache()
        with watch.step("what is there already", sum(high.values()) - sum(low.values())):
            skipped = before.count()
        rows = rows.join(before, list(ORIGIN), "left_anti")
    with watch.step("what is to be written"):
        counts = rows.groupBy("topic", "partition").count().collect()
    if not counts:
        report.note("nothing is left to replay")
        return Outcome(job=settings.job, skipped=skipped)
    # One partition of the table is one task's, in order: what had an order keeps it.
    tasks = min(len(counts), max(1, spark.sparkContext.defaultParallelism))
    ordered = rows.repartition(tasks, "topic", "partition").sortWithinPartitions(*ORIGIN)
    counter: Any = spark.sparkContext.accumulator(0)
    records = _records(ordered, settings)
    records = records.mapInArrow(_counted(counter), records.schema)
    to_write = sum(int(row["count"]) for row in counts)
    # A task may take hours, at a rate; what the topic has got tells how far it is.
    with watch.step("writing", to_write, lambda: sum(bounds(settings)[1].values()) - sum(high.values())):
        rate = None if settings.rate is None else settings.rate / tasks
        write_topic(records, settings, settings.topic, rate)
    return Outcome(
        job=settings.job, rows=int(counter.value), seconds=time.monotonic() - began, skipped=skipped,
        table=[{"topic": settings.topic, "written": int(counter.value), "written_before": skipped}],
    )  # fmt: skip


def _counted(counter: Any) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counter.add(batch.num_rows)
            yield batch

    return count
