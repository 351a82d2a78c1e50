"""Batch reads through Spark: which records come, in which shape, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from core.records.record import NewRecord
from tests.pipeline.topics import Topics


def read(spark: SparkSession, topics: Topics, topic: str, **options: Any) -> DataFrame:
    """The DataFrame of a topic."""
    return spark.read.format("sluice").options(**topics.options, subscribe=topic, **options).load()


def test_a_topic_is_read_with_the_columns_of_sparks_kafka_source(spark: SparkSession, topics: Topics) -> None:
    name = topics.create("columns", partitions=2)
    record = NewRecord(
        key=b"k", value=b"v", timestamp=1_700_000_000_123, headers=(("a", b"1"), ("b", None), ("a", b""))
    )
    topics.write(name, [record, NewRecord(timestamp=1_700_000_000_124)], partition=1)
    frame = read(spark, topics, name, includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = frame.orderBy("offset").selectExpr("*", "unix_millis(timestamp) ms").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition, first.offset) == (
        b"k",
        b"v",
        name,
        1,
        0,
    )
    assert (first.ms, first.timestampType) == (1_700_000_000_123, 0)
    assert [(h.key, h.value) for h in first.headers] == [("a", b"1"), ("b", None), ("a", b"")]
    assert (second.key, second.value, second.headers) == (None, None, None)


def test_every_record_comes_once_however_the_read_is_split(spark: SparkSession, topics: Topics) -> None:
    name = topics.create("split", partitions=3)
    topics.fill(name, 2500, partitions=3)
    for options, tasks in (
        ({}, 3),
        ({"minPartitions": 7}, 7),
        ({"maxRecordsPerPartition": 1000}, 9),
        ({"maxTasks": 2}, 2),
    ):
        frame = read(spark, topics, name, columns="partition,offset", **options)
        assert frame.rdd.getNumPartitions() == tasks, options
        frame.createOrReplaceTempView("split_view")
        rows = spark.sql(
            "select partition, count(*), count(distinct offset), min(offset), max(offset) "
            "from split_view group by partition"
        ).collect()
        found = {row[0]: tuple(row[1:]) for row in rows}
        assert found == dict.fromkeys(range(3), (2500, 2500, 0, 2499)), options


def test_an_unknown_option_is_refused_by_its_name(spark: SparkSession, topics: Topics) -> None:
    with pytest.raises(PySparkException, match="unknown option 'startingoffset'"):
        read(spark, topics, "any", startingOffset="earliest")


def test_filters_cut_the_read_short_and_lose_nothing(spark: SparkSession, topics: Topics) -> None:
    name = topics.create("pushed", partitions=3)
    for partition in range(3):
        records = [NewRecord(value=b"v", timestamp=1_700_000_000_000 + n * 1000) for n in range(100)]
        topics.write(name, records, partition=partition)
    filters = (
        "partition = 1 and offset >= 10 and offset < 20",
        "partition in (0, 2) and offset = 5",
        "timestamp >= timestamp '2023-11-14 22:14:50 UTC' and partition = 2",
        "timestamp > timestamp '2023-11-14 22:14:50.5 UTC' and offset <= 95",
        "offset > 98 or partition = 0",
        f"topic = '{name}' and offset > 97",
        "topic = 'other'",
    )
    plain = read(spark, topics, name, columns="topic,partition,offset,timestamp")
    expected = [sorted((r.partition, r.offset) for r in plain.where(one).collect()) for one in filters]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        # A DataFrame for each query: see pipeline/source/pushdown.py.
        pushed = [
            read(spark, topics, name, columns="topic,partition,offset,timestamp", pushdown="true").where(one)
            for one in filters
        ]
        found = [sorted((r.partition, r.offset) for r in frame.collect()) for frame in pushed]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert found == expected


def test_the_data_source_is_found_by_its_short_name_without_being_registered(spark: SparkSession) -> None:
    from pyspark_sluice import DefaultSource

    assert DefaultSource.name() == "sluice"
    with pytest.raises(PySparkException, match=r"kafka.bootstrap.servers is missing|one of subscribe"):
        spark.read.format("sluice").load().count()
