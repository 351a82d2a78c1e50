"""Volume, lag, skew and throughput per topic, partition and group."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from core.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.jobs.plan import client, cluster_options, plan, topics_of
from pipeline.jobs.report import Outcome, Report
from pipeline.jobs.settings import Usage, moment
from pipeline.jobs.stream import SOURCE, JobError
from pipeline.jobs.watch import Watch
from pipeline.wire.cluster import Cluster
from pipeline.wire.groups import committed

LIST_GROUPS = 16
Place = tuple[str, int]


def groups(cluster: Cluster) -> list[str]:
    """The groups of a cluster: each broker knows those that it coordinates."""
    found = set()
    for broker in cluster.every_broker():
        if broker.serves(LIST_GROUPS):
            answer = broker.request(LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse)
            found |= {group.group_id for group in answer.groups}
    return sorted(found)


def scan(spark: SparkSession, settings: Usage, topics: list[str]) -> DataFrame:
    """(topic, partition, records, bytes, first and last timestamp[, keys, share of the most frequent])."""
    options = {**cluster_options(settings), "subscribe": ",".join(topics)}
    since = moment("since", settings.since)
    if since is not None:
        options["startingTimestamp"] = str(int(since.timestamp() * 1000))
        options["startingOffsetsByTimestampStrategy"] = "latest"
    records = spark.read.format(SOURCE).options(**options).load()
    size = f.coalesce(f.length("key"), f.lit(0)) + f.coalesce(f.length("value"), f.lit(0))
    rows = records.select("topic", "partition", "timestamp", "key", size.cast("bigint").alias("size"))
    measures = {
        "records": f.sum("records"), "bytes": f.sum("bytes"), "first": f.min("first"), "last": f.max("last"),
    }  # fmt: skip
    by = ["topic", "partition", *(["key"] if settings.keys else [])]
    counted = rows.groupBy(*by).agg(
        f.count("*").alias("records"), f.sum("size").alias("bytes"),
        f.min("timestamp").alias("first"), f.max("timestamp").alias("last"),
    )  # fmt: skip
    if not settings.keys:
        return counted
    measures["keys"] = f.count("key")
    measures["top"] = f.max(f.when(f.col("key").isNotNull(), f.col("records")))
    return counted.groupBy("topic", "partition").agg(
        *[column.alias(name) for name, column in measures.items()]
    )


def run(spark: SparkSession, settings: Usage, report: Report) -> Outcome:
    """Ask the brokers for offsets and groups, and count the records."""
    began = time.monotonic()
    with client(settings) as cluster:
        topics = topics_of(
            cluster, settings.topics, settings.pattern if settings.topics else settings.pattern or ".*"
        )
        places = [(topic, partition) for topic, parts in topics.items() for partition in parts]
        low, high = (cluster.offsets(dict.fromkeys(places, when)) for when in (EARLIEST, LATEST))
        lags = {
            group: committed(cluster, group, topics) for group in cluster.patiently(lambda: groups(cluster))
        }
    if not places:
        raise JobError("there is no topic to look at")
    there = sum(one.records for one in plan(settings))
    with Watch(settings.job, report, spark).step("counting", there):
        counted = scan(spark, settings, list(topics)).collect()
    found = {(row["topic"], row["partition"]): row.asDict() for row in counted}
    table = [
        _line(where, low[where], high[where], found.get(where), settings, lags) for where in sorted(places)
    ]
    for topic in topics:
        volumes = [int(found.get((topic, part), {}).get("bytes") or 0) for part in topics[topic]]
        mean = sum(volumes) / len(volumes)
        for row in table:
            if row["topic"] == topic:
                row["skew"] = round(int(row["bytes"]) / mean, 2) if mean else None
    total = sum(int(row["records"]) for row in table)
    return Outcome(job=settings.job, seconds=time.monotonic() - began, rows=total, table=table)


def _line(
    where: Place,
    low: int,
    high: int,
    count: dict[str, Any] | None,
    settings: Usage,
    lags: dict[str, dict[Place, int]],
) -> dict[str, Any]:
    """One partition. Rates are over the time between its first and its last record; lag is by group."""
    count = count or {}
    records, size = int(count.get("records") or 0), int(count.get("bytes") or 0)
    seconds = (count["last"] - count["first"]).total_seconds() if records > 1 else 0.0
    row: dict[str, Any] = {
        "topic": where[0], "partition": where[1], "start": low, "end": high, "records": records, "bytes": size,
        "mean_bytes": round(size / records, 1) if records else None,
        "per_second": round(records / seconds, 1) if seconds else None,
        "bytes_per_second": round(size / seconds, 1) if seconds else None,
        "skew": None,
    }  # fmt: skip
    if settings.keys:
        row["keys"] = int(count.get("keys") or 0)
        row["top_key_share"] = round(int(count["top"]) / records, 3) if count.get("top") else None
    behind = {group: high - offsets[where] for group, offsets in lags.items() if where in offsets}
    row["lag"] = ", ".join(f"{group}: {max(0, lag)}" for group, lag in behind.items()) or None
    return row
