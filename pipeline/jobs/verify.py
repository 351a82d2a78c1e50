"""Does the table hold each record of its topics once? Counted from the table's own rows, not from our notes."""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.jobs.plan import client, cluster_options
from pipeline.jobs.replay import ORIGIN, header_map
from pipeline.jobs.report import Outcome, Report
from pipeline.jobs.settings import Verify
from pipeline.jobs.stream import SOURCE, JobError
from pipeline.jobs.tables import frame, place
from pipeline.jobs.watch import Watch
from pipeline.wire.cluster import UnknownTopicError

# The number of holes that are named for one partition. The count has all of them.
GAPS_SHOWN = 5
Place = tuple[str, int]


def _offsets(spark: SparkSession, settings: Verify) -> DataFrame:
    """(topic, partition, offset, rows): each offset that the table holds, and how often; aside 1 for dead letters."""
    rows = frame(spark, settings)
    names = place(rows.columns)
    held = rows.select(*[f.col(names[name]).alias(name) for name in ("topic", "partition", "offset")])
    held = held.groupBy("topic", "partition", "offset").agg(f.count("*").alias("rows"))
    held = held.withColumn("aside", f.lit(0))
    if settings.dead_letter:
        held = held.unionByName(_dead_letters(spark, settings))
    if settings.topics:
        held = held.where(f.col("topic").isin(settings.topics))
    return held


def _dead_letters(spark: SparkSession, settings: Verify) -> DataFrame:
    """The same of what an export put aside. Put aside twice is no duplicate: the headers tell."""
    options = {**cluster_options(settings), "subscribe": settings.dead_letter or ""}
    letters = spark.read.format(SOURCE).options(**options, includeHeaders="true").load()
    told = letters.select(header_map(f.col("headers")).alias("told"))
    origin = told.select(
        *[f.col("told")[f"sluice.{name}"].cast(kind).alias(name) for name, kind in ORIGIN.items()]
    )
    return (
        origin.where("topic is not null")
        .distinct()
        .withColumns({"rows": f.lit(1).cast("bigint"), "aside": f.lit(1)})
    )


def _gaps(held: DataFrame) -> dict[Place, list[tuple[int, int]]]:
    """The first holes of each partition, as (first missing, last missing)."""
    order = Window.partitionBy("topic", "partition").orderBy("offset")
    before = held.select("topic", "partition", "offset", f.lag("offset").over(order).alias("before"))
    holes = before.where(f.col("offset") > f.col("before") + 1)
    number = f.row_number().over(order).alias("number")
    shown = (
        holes.select("*", number).where(f.col("number") <= GAPS_SHOWN).orderBy("topic", "partition", "offset")
    )
    found: dict[Place, list[tuple[int, int]]] = {}
    for row in shown.collect():
        found.setdefault((row["topic"], row["partition"]), []).append((row["before"] + 1, row["offset"] - 1))
    return found


def _bounds(settings: Verify, places: list[Place]) -> dict[Place, tuple[int, int]]:
    """Return start and end of each partition as the brokers know them; none for deleted topics."""
    found = {}
    with client(settings) as cluster:
        for topic in sorted({topic for topic, _ in places} | set(settings.topics)):
            try:
                parts = [(topic, partition) for partition in cluster.topics([topic])[topic]]
            except UnknownTopicError:
                continue
            low, high = (cluster.offsets(dict.fromkeys(parts, when)) for when in (EARLIEST, LATEST))
            found.update({part: (low[part], high[part]) for part in parts})
    return found


def run(spark: SparkSession, settings: Verify, report: Report) -> Outcome:
    """Count, compare, and say for each partition what is wrong."""
    began = time.monotonic()
    watch = Watch(settings.job, report, spark)
    held = _offsets(spark, settings).cache()
    counted = held.groupBy("topic", "partition").agg(
        f.min("offset").alias("first"), f.max("offset").alias("last"),
        f.sum(f.when(f.col("aside") == 0, f.col("rows")).otherwise(0)).alias("rows"),
        f.countDistinct("offset").alias("offsets"), f.sum("aside").alias("aside"),
        f.sum(f.when(f.col("rows") > 1, f.col("rows") - 1).otherwise(0)).alias("duplicates"),
    )  # fmt: skip
    with watch.step("counting"):
        counts = {(row["topic"], row["partition"]): row.asDict() for row in counted.collect()}
    if not counts:
        raise JobError(f"{settings.target()} holds no rows of {', '.join(settings.topics) or 'any topic'}")
    bounds = _bounds(settings, list(counts))
    table, problems, holed = [], [], []
    for where in sorted({*counts, *bounds}):
        row, words = _judge(settings, where, counts.get(where), bounds.get(where))
        table.append(row)
        problems += words
        if row["missing"]:
            holed.append(where)
    if holed and not settings.compacted:
        with watch.step("looking for gaps"):
            gaps = _gaps(held)
        for (topic, partition), ranges in gaps.items():
            shown = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in ranges)
            problems.append(f"{topic}-{partition}: the table lacks offsets {shown}")
    held.unpersist()
    total = sum(int(one["rows"]) for one in counts.values())
    return Outcome(
        job="verify", seconds=time.monotonic() - began, rows=total, table=table, problems=sorted(problems)
    )


def _judge(
    settings: Verify, where: Place, count: dict[str, int] | None, bound: tuple[int, int] | None
) -> tuple[dict[str, object], list[str]]:
    """One partition: its line of the table, and what is wrong with it."""
    name = f"{where[0]}-{where[1]}"
    count = count or {"first": 0, "last": -1, "rows": 0, "offsets": 0, "aside": 0, "duplicates": 0}
    missing = max(0, count["last"] - count["first"] + 1 - count["offsets"])
    words = []
    if count["duplicates"]:
        words.append(f"{name}: {count['duplicates']} rows are there more than once")
    start, end = bound or (None, None)
    if bound is None:
        words.append(f"{name}: the cluster has no such partition")
    elif count["rows"] and count["last"] >= bound[1]:
        words.append(
            f"{name}: the table ends at {count['last']}, the topic ends at {bound[1]}; was it created again?"
        )
    elif settings.complete and (
        count["last"] + 1 < bound[1] or (count["offsets"] and count["first"] > bound[0])
    ):
        words.append(
            f"{name}: the table has {count['first']} to {count['last']}, the topic {bound[0]} to {bound[1] - 1}"
        )
    held = bool(count["offsets"])
    row: dict[str, object] = {
        "topic": where[0],
        "partition": where[1],
        "topic_start": start,
        "topic_end": end,
        "first": count["first"] if held else None,
        "last": count["last"] if held else None,
        "rows": count["rows"],
        "aside": count["aside"],
        "duplicates": count["duplicates"],
        "missing": missing,
        "behind": None if end is None else max(0, end - max(count["last"] + 1, start or 0)),
    }
    return row, words
