"""Writes through Spark, read back by another client: what arrives, where, and with which mark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from core.records.partitioner import partition_for_key
from pipeline.sink.marks import HEADER, Mark, parse
from tests.pipeline.topics import Topics


def write(frame: DataFrame, topics: Topics, topic: str | None = None, **options: Any) -> None:
    """Write a DataFrame to a topic."""
    options = {**topics.options, **options} | ({"topic": topic} if topic else {})
    frame.write.format("sluice").options(**options).mode("append").save()


def test_rows_arrive_with_key_value_headers_and_time_in_the_partition_of_the_java_client(
    spark: SparkSession, topics: Topics
) -> None:
    name = topics.create("written", partitions=3)
    frame = spark.range(50).selectExpr(
        "cast(id as string) key",
        "case when id % 7 = 0 then null else cast(concat('v', id) as binary) end value",
        "timestamp_millis(1700000000000 + id) timestamp",
        "array(named_struct('key', 'h', 'value', cast('x' as binary))) headers",
    )
    write(frame, topics, name)
    found = {p: topics.records(name, p) for p in range(3)}
    assert sorted(int(r.key or b"-1") for records in found.values() for r in records) == list(range(50))
    for partition, records in found.items():
        for record in records:
            number = int(record.key or b"-1")
            assert partition_for_key(record.key or b"", 3) == partition
            assert record.value == (None if number % 7 == 0 else b"v%d" % number)
            assert record.timestamp == 1_700_000_000_000 + number
            assert record.headers[0] == ("h", b"x")


def test_every_row_of_a_stream_is_marked_with_query_batch_task_and_number(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    source, target = topics.create("marks-in", partitions=2), topics.create("marks-out", partitions=2)
    topics.fill(source, 30, partitions=2)
    query = (
        spark.readStream.format("sluice")
        .options(**topics.options, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=40)
        .load()
        .writeStream.format("sluice")
        .options(**topics.options, topic=target, **{"kafka.compression.type": "lz4"})
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    marks = [parse(dict(r.headers)[HEADER] or b"") for p in (0, 1) for r in topics.records(target, p)]
    numbers = {0: 20, 1: 10}
    assert sorted(marks) == sorted(
        Mark(str(query.id), str(batch), task, n)
        for batch, count in numbers.items()
        for task in (0, 1)
        for n in range(count)
    )
    # The column `partition` of what was read sends each record to its own partition again.
    for partition in (0, 1):
        assert [r.value for r in topics.records(target, partition)] == [
            r.value for r in topics.records(source, partition)
        ]


@pytest.mark.parametrize(
    ("columns", "topic", "says"),
    [
        ("cast(id as string) key", "few", "has no column 'value'"),
        ("cast(id as string) value", "not-there", "the cluster has no topic 'not-there'"),
        ("cast(id as string) value, 9 partition", "few", "few has 1 partitions; a row asks for 9"),
    ],
)
def test_what_cannot_be_written_is_refused_in_words(
    spark: SparkSession, topics: Topics, columns: str, topic: str, says: str
) -> None:
    if topic == "few" and topic not in topics.wire.topics():
        topics.create("few")
    with pytest.raises(PySparkException, match=says):
        write(spark.range(1).selectExpr(*columns.split(", ")), topics, topic)
