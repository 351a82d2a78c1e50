"""A stream with delivery=exactly-once whose processes are killed at every step: each row once.

The control is the same stream, killed in the same way, at least once: it must hold rows twice, else the kills prove
nothing.

`python -m tests.torture spark_kills --sink exactly-once` kills whole jobs, with their JVM, at random moments.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.committed import committed
from tests.pipeline.dying import IN_COMMIT_MS, STEPS, DyingDataSource
from tests.pipeline.topics import Topics

KILLS = 12
PARTITIONS = 2
# Offsets of a micro-batch, over all partitions.
BATCH = 100
QUERY_SECONDS = 600


class Copy:
    """A stream from topic to topic, which is started again and again over one checkpoint."""

    def __init__(self, spark: SparkSession, topics: Topics, home: Path, delivery: str) -> None:
        self.spark, self.topics = spark, topics
        self.source = topics.create(f"{delivery}-in", PARTITIONS)
        self.target = topics.create(f"{delivery}-out", PARTITIONS)
        self.checkpoint = home / delivery
        self.options = {**topics.options, "topic": self.target, "delivery": delivery}
        if delivery == "exactly-once":
            self.options["httpUrl"] = topics.broker.http
        self.count = 0

    @property
    def next_batch(self) -> int:
        """The batch that a start begins with."""
        numbers = [int(path.name) for path in (self.checkpoint / "commits").glob("*") if path.name.isdigit()]
        return max(numbers, default=-1) + 1

    def feed(self, batches: int) -> None:
        """Write as many records as these batches have."""
        for _ in range(batches):
            numbers = range(self.count, self.count + BATCH // PARTITIONS)
            for partition in range(PARTITIONS):
                values = [f"{partition}:{n}:".ljust(100, ".") for n in numbers]
                self.topics.write(self.source, values, partition=partition)
            self.count = numbers.stop

    def run(self, dies: str | None = None) -> None:
        """Copy what is there, or die on the way."""
        reading = {
            "subscribe": self.source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(BATCH),
        }
        rows = self.spark.readStream.format("sluice").options(**self.topics.options, **reading).load()
        writer = rows.select("value", "partition").writeStream
        writer = (
            writer.format("sluice") if dies is None else writer.format("sluice-dying").option("dies", dies)
        )
        query = (
            writer.options(**self.options)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_SECONDS)

    def kill(self, step: str, number: int) -> None:
        """Start it, and have it die in the first batch or in the second one."""
        self.feed(2)
        batch = self.next_batch + number % 2
        with pytest.raises(StreamingQueryException, match=r"(?i)crash|exited|EOF"):
            self.run(f"{batch}/{step}/{number}")

    @property
    def found(self) -> dict[int, list[bytes]]:
        """What is in the target for readers of committed records."""
        return committed(self.topics.broker.kafka, self.target, PARTITIONS)

    @property
    def wanted(self) -> dict[int, list[bytes]]:
        """What is in the source."""
        return committed(self.topics.broker.kafka, self.source, PARTITIONS)


def moments() -> list[tuple[str, int]]:
    """Every step, some of them more than once, with a task or a time."""
    chance = random.Random(7)
    steps = [*STEPS, *chance.choices(("in commit", "written"), k=KILLS - len(STEPS))]
    chance.shuffle(steps)
    return [
        (step, chance.randrange(IN_COMMIT_MS) if step == "in commit" else chance.randrange(PARTITIONS))
        for step in steps
    ]


@pytest.mark.timeout(3 * QUERY_SECONDS)
def test_killed_at_every_step_each_row_is_there_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    spark.dataSource.register(DyingDataSource)
    copy = Copy(spark, topics, tmp_path, "exactly-once")
    for step, number in moments():
        copy.kill(step, number)
    copy.feed(1)
    copy.run()
    assert copy.found == copy.wanted
    assert [len(values) for values in copy.found.values()] == [copy.count] * PARTITIONS


def test_the_same_kills_leave_rows_twice_at_least_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    spark.dataSource.register(DyingDataSource)
    copy = Copy(spark, topics, tmp_path, "at-least-once")
    for step in ("written", "after commit"):
        copy.kill(step, 0)
    copy.run()
    found = {partition: Counter(values) for partition, values in copy.found.items()}
    assert {part: sorted(rows) for part, rows in found.items()} == {
        part: sorted(rows) for part, rows in copy.wanted.items()
    }
    assert [max(rows.values()) for rows in found.values()] == [3] * PARTITIONS


def test_a_write_with_a_name_and_a_number_is_done_once_and_one_that_fails_is_not_seen(
    spark: SparkSession, topics: Topics
) -> None:
    topic = topics.create("named", PARTITIONS)
    options = {**topics.options, "topic": topic, "delivery": "exactly-once", "httpUrl": topics.broker.http}

    def write(rows: DataFrame, **more: str) -> None:
        rows.write.format("sluice").options(**options, **more).mode("append").save()

    rows = spark.range(20).selectExpr("cast(id as string) value", "cast(id % 2 as int) partition")
    for version in ("1", "1", "2"):
        write(rows, txnAppId="nightly", txnVersion=version)
    write(rows)
    with pytest.raises(PySparkException, match="named has 2 partitions; a row asks for 9"):
        write(rows.selectExpr("value", "if(value = '19', 9, partition) partition"))
    found = committed(topics.broker.kafka, topic, PARTITIONS)
    assert {partition: Counter(values) for partition, values in found.items()} == {
        partition: Counter([b"%d" % n for n in range(partition, 20, 2)] * 3)
        for partition in range(PARTITIONS)
    }
