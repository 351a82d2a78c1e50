"""Spark's own Kafka connector, `format("kafka")`, with Sluice as its Kafka."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from core.records.record import NewRecord
from tests.pipeline.topics import Topics

pytestmark = pytest.mark.client("kafka")
PARTITIONS, EACH = 2, 100


def test_a_batch_reads_all_records_with_keys_offsets_and_headers(spark: SparkSession, topics: Topics) -> None:
    topic = topics.create("kafka-read", PARTITIONS)
    for partition in range(PARTITIONS):
        made = [
            NewRecord(
                key=b"k%d" % n,
                value=None if n == 7 else b"%d-%d" % (partition, n),
                headers=(("n", b"%d" % n),),
            )
            for n in range(EACH)
        ]
        topics.write(topic, made, partition=partition)
    read = spark.read.format("kafka").options(**topics.options, subscribe=topic, includeHeaders="true").load()
    rows = {(row.partition, row.offset): row for row in read.collect()}
    assert rows.keys() == {(partition, n) for partition in range(PARTITIONS) for n in range(EACH)}
    for (partition, n), row in rows.items():
        assert (row.topic, row.key) == (topic, b"k%d" % n)
        assert row.value == (None if n == 7 else b"%d-%d" % (partition, n))
        assert [(one.key, one.value) for one in row.headers] == [("n", b"%d" % n)]
    # A part of the topic, by offsets: Spark asks for 10 of one partition and for none of the other.
    starts, ends = f'{{"{topic}":{{"0":40,"1":{EACH}}}}}', f'{{"{topic}":{{"0":50,"1":-1}}}}'
    part = spark.read.format("kafka").options(**topics.options, subscribe=topic)
    found = part.options(startingOffsets=starts, endingOffsets=ends).load().select("offset").collect()
    assert sorted(row.offset for row in found) == list(range(40, 50))


def test_a_batch_and_a_stream_write_what_a_reader_finds(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    first, second = topics.create("kafka-written", PARTITIONS), topics.create("kafka-streamed", PARTITIONS)

    def write(start: int, end: int) -> None:
        numbers = spark.range(start, end, numPartitions=2)
        records = numbers.selectExpr("cast(id as string) key", "cast(id * id as string) value")
        records.write.format("kafka").options(**topics.options, topic=first).save()

    def stream() -> int:
        """Copy what is new from one topic to the other; return how many records that were."""
        read = spark.readStream.format("kafka").options(**topics.options, subscribe=first)
        copied = read.option("startingOffsets", "earliest").load().select("key", "value")
        writer = copied.writeStream.format("kafka").options(**topics.options, topic=second)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        return sum(progress.numInputRows for progress in query.recentProgress)

    def pairs(topic: str) -> list[tuple[int, int]]:
        rows = spark.read.format("kafka").options(**topics.options, subscribe=topic).load().collect()
        return sorted((int(row.key), int(row.value)) for row in rows)

    write(0, EACH)
    assert pairs(first) == [(n, n * n) for n in range(EACH)]
    assert stream() == EACH
    # The query continues from its checkpoint.
    write(EACH, EACH + 50)
    assert stream() == 50
    assert pairs(second) == [(n, n * n) for n in range(EACH + 50)]
