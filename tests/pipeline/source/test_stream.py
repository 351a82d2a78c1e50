"""Streaming reads through Spark: every record once, over restarts, limits, new partitions and lost records."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tests.pipeline.topics import Topics

COLUMNS = "partition,offset,value"
QUERY_SECONDS = 60


def stream(
    spark: SparkSession, topics: Topics, topic: str, checkpoint: str, **options: Any
) -> DataStreamWriter:
    """A query that reads a topic from its beginning, not started."""
    options = {"startingOffsets": "earliest", "subscribe": topic, "columns": COLUMNS, **options}
    frame = spark.readStream.format("sluice").options(**topics.options, **options).load()
    return frame.writeStream.option("checkpointLocation", checkpoint)


class Collector:
    """A sink for foreachBatch: what each batch held, as {partition: [offsets]}."""

    def __init__(self) -> None:
        self.batches: dict[int, dict[int, list[int]]] = {}

    def __call__(self, frame: Any, batch_id: int) -> None:
        found: dict[int, list[int]] = {}
        for row in frame.select("partition", "offset").collect():
            found.setdefault(row.partition, []).append(row.offset)
        self.batches[batch_id] = found

    @property
    def offsets(self) -> dict[int, list[int]]:
        """Every offset of each partition, in the order in which they came."""
        out: dict[int, list[int]] = {}
        for _, found in sorted(self.batches.items()):
            for partition, offsets in found.items():
                out.setdefault(partition, []).extend(sorted(offsets))
        return out


def run(writer: DataStreamWriter, collector: Collector | None = None) -> tuple[StreamingQuery, Collector]:
    """Run a query until it has read what is there."""
    collector = collector or Collector()
    query = writer.foreachBatch(collector).trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_SECONDS)
    return query, collector


def test_available_now_reads_what_is_there_in_batches_of_the_limit_and_ends(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.create("limited", partitions=2)
    topics.fill(name, 1000, partitions=2)
    writer = stream(spark, topics, name, checkpoint, maxOffsetsPerTrigger=600)
    query, found = run(writer)
    assert found.offsets == {0: list(range(1000)), 1: list(range(1000))}
    assert [sum(map(len, batch.values())) for batch in found.batches.values()] == [600, 600, 600, 200]
    source = json.loads(query.recentProgress[0].json)["sources"][0]
    assert source["endOffset"] == {name: {"0": 300, "1": 300}}
    assert source["latestOffset"] == {name: {"0": 1000, "1": 1000}}


def test_a_restarted_query_continues_where_its_checkpoint_says_and_sees_new_partitions(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.create("grows")
    topics.write(name, ["a", "b"])
    _, first = run(stream(spark, topics, name, checkpoint))
    assert first.offsets == {0: [0, 1]}
    topics.write(name, ["c"])
    topics.add_partitions(name, 2)
    topics.write(name, ["d", "e"], partition=1)
    _, second = run(stream(spark, topics, name, checkpoint))
    assert second.offsets == {0: [2], 1: [0, 1]}


def test_a_partition_that_is_added_while_the_query_runs_is_read_from_its_beginning(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.create("added")
    topics.write(name, ["a"])
    collector = Collector()
    query = stream(spark, topics, name, checkpoint).foreachBatch(collector).start()
    try:
        query.processAllAvailable()
        topics.add_partitions(name, 3)
        topics.write(name, ["b", "c"], partition=2)
        query.processAllAvailable()
    finally:
        query.stop()
    assert collector.offsets == {0: [0], 2: [0, 1]}


@pytest.mark.parametrize("fail", [True, False])
def test_a_truncated_topic_fails_the_query_or_is_read_from_where_it_begins_now(
    spark: SparkSession, topics: Topics, checkpoint: str, fail: bool
) -> None:
    name = topics.create(f"truncated-{fail}".lower())
    topics.fill(name, 10, batch=2)
    run(stream(spark, topics, name, checkpoint))
    topics.fill(name, 10, batch=2)
    topics.truncate(name, 15)
    writer = stream(spark, topics, name, checkpoint, failOnDataLoss=str(fail).lower())
    if fail:
        with pytest.raises(StreamingQueryException, match=f"Topic {name}, partition 0, offset 10 is lost"):
            run(writer)
    else:
        assert run(writer)[1].offsets == {0: list(range(15, 20))}


def test_progress_is_committed_to_a_group_a_batch_late_for_tools_that_show_lag(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.create("lag", partitions=2)
    topics.fill(name, 50, partitions=2)
    run(stream(spark, topics, name, checkpoint, commitGroup="job", maxOffsetsPerTrigger=60))
    lag = json.loads(urllib.request.urlopen(f"{topics.broker.http}/api/v1/groups/job/lag").read())
    assert lag["total_lag"] == 40
