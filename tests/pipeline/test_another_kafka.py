"""The source and the sink against a Kafka that is not ours: librdkafka's own, of three brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import SparkSession

from core.records.partitioner import partition_for_key
from pipeline.jobs.registry import read_settings
from pipeline.jobs.registry import run as run_job
from pipeline.wire.cluster import ClientSettings, Cluster
from pipeline.wire.groups import committed
from tests.pipeline.jobs.running import Notes

BROKERS, PARTITIONS = 3, 4
SECONDS = 30.0


class Foreign:
    """A cluster that lives in librdkafka, as long as its producer, and a client of it that is not ours."""

    def __init__(self) -> None:
        self.producer = Producer({"test.mock.num.brokers": BROKERS, "bootstrap.servers": ""})
        deadline = time.monotonic() + SECONDS
        brokers = self.producer.list_topics(timeout=SECONDS).brokers
        while len(brokers) < BROKERS and time.monotonic() < deadline:
            brokers = self.producer.list_topics(timeout=SECONDS).brokers
        self.servers = ",".join(f"{one.host}:{one.port}" for one in brokers.values())

    def create(self, topic: str) -> str:
        """A topic comes into being when a client asks for it; answers its name.

        Leaders are drawn by lot: once in 27 times all partitions have the same one, and another topic is made.
        """
        for number in range(10):
            name = f"{topic}-{number}"
            found = self.producer.list_topics(name, timeout=SECONDS).topics[name]
            assert len(found.partitions) == PARTITIONS
            if len({one.leader for one in found.partitions.values()}) > 1:
                return name
        raise AssertionError("no leaders to choose from")

    def fill(self, topic: str, count: int) -> None:
        """Records with keys, headers and numbers, into all partitions in turn."""
        for n in range(count):
            self.producer.produce(
                topic, key=b"k%d" % n, value=b"v%d" % n, partition=n % PARTITIONS, headers=[("n", b"%d" % n)]
            )
        assert self.producer.flush(SECONDS) == 0

    def read(self, topic: str, count: int) -> list[Message]:
        """Read `count` records of a topic, and no more, by librdkafka's consumer."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "reader"})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        found: list[Message] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < deadline:
            found += consumer.consume(count - len(found), 0.5)
        found += consumer.consume(1, 0.2)
        consumer.close()
        assert [message.error() for message in found if message.error()] == []
        return found


@pytest.fixture(scope="module")
def foreign() -> Iterator[Foreign]:
    """The other Kafka."""
    yield Foreign()


def _options(foreign: Foreign, **more: Any) -> dict[str, str]:
    return {"kafka.bootstrap.servers": foreign.servers, **more}


def test_a_batch_reads_what_another_client_wrote(spark: SparkSession, foreign: Foreign) -> None:
    topic = foreign.create("written-elsewhere")
    foreign.fill(topic, 400)
    frame = (
        spark.read.format("sluice")
        .options(**_options(foreign, subscribe=topic, includeHeaders="true"))
        .load()
    )
    rows = frame.collect()
    found = sorted((row.partition, row.offset, bytes(row.key), bytes(row.value)) for row in rows)
    expected = [
        (m.partition(), m.offset(), m.key(), m.value()) for m in foreign.read(topic, 400)
    ]  # fmt: skip
    assert len(expected) == 400
    assert found == sorted(expected)
    assert all(row.headers[0].key == "n" and b"v" + bytes(row.headers[0].value) == row.value for row in rows)


def test_what_is_written_lies_where_a_java_client_would_put_it(spark: SparkSession, foreign: Foreign) -> None:
    topic = foreign.create("written-by-us")
    frame = spark.range(300).selectExpr(
        "concat('key-', id % 50) key", "cast(id as string) value",
        "array(named_struct('key', 'id', 'value', cast(cast(id as string) as binary))) headers",
    )  # fmt: skip
    for codec in ("none", "zstd"):
        options = _options(foreign, topic=topic, **{"kafka.compression.type": codec})
        frame.write.format("sluice").options(**options).mode("append").save()
    messages = foreign.read(topic, 600)
    assert sorted(int(message.value() or b"") for message in messages) == sorted([*range(300)] * 2)
    assert all(m.partition() == partition_for_key(m.key() or b"", PARTITIONS) for m in messages)
    assert all(dict(m.headers() or [])["id"] == m.value() for m in messages)


def test_a_stream_copies_topic_to_topic_and_commits_for_its_group(
    spark: SparkSession, foreign: Foreign, checkpoint: str
) -> None:
    source, target = foreign.create("stream-in"), foreign.create("stream-out")
    foreign.fill(source, 200)

    def run() -> list[Any]:
        more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "90", "commitGroup": "stream"}
        query = (
            spark.readStream.format("sluice").options(**_options(foreign, subscribe=source, **more)).load()
            .select("key", "value", "partition").writeStream.format("sluice")
            .options(**_options(foreign, topic=target, checkpointLocation=checkpoint))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        return [one for one in query.recentProgress if one["numInputRows"]]

    assert [one["numInputRows"] for one in run()] == [88, 88, 24]
    foreign.fill(source, 40)
    assert [one["numInputRows"] for one in run()] == [40]
    written = sorted((m.partition(), m.offset(), m.key(), m.value()) for m in foreign.read(target, 240))
    assert written == sorted(
        (m.partition(), m.offset(), m.key(), m.value()) for m in foreign.read(source, 240)
    )
    host, port = foreign.servers.split(",")[0].split(":")
    with Cluster(ClientSettings(((host, int(port)),))) as cluster:
        # A batch late: the second run's one batch is not committed yet.
        done = committed(cluster, "stream", {source: list(range(PARTITIONS))})
    assert sum(done.values()) == 200


def test_jobs_read_it_too(spark: SparkSession, foreign: Foreign) -> None:
    topic = foreign.create("used")
    foreign.fill(topic, 40)
    outcome = run_job(
        spark, read_settings("usage", {"bootstrap": foreign.servers, "topics": [topic]}), Notes()
    )
    assert [(row["partition"], row["records"]) for row in outcome.table] == [
        (n, 10) for n in range(PARTITIONS)
    ]
