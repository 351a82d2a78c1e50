"""What a reader with read_committed sees of a topic, and what it does not see yet, by librdkafka."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.broker_process import BrokerProcess
from tests.peers.kafka import Tools
from tests.peers.reading import SECONDS, Cluster

_COLUMNS = "Topic Partition ProducerId ProducerEpoch CoordinatorEpoch StartOffset LastTimestamp Duration(min)"


def read_all(cluster: Cluster, topic: str, *, committed: bool) -> dict[int, list[Message]]:
    """Return the records of a topic by partition, up to the last stable offsets if `committed`.

    A topic that is not there has no partitions.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reading",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: dict[int, list[Message]] = {partition: [] for partition in range(cluster.topics().get(topic, 0))}
    reading = set(found)
    deadline = time.monotonic() + SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
        while reading:
            assert time.monotonic() < deadline, f"{topic}: the end of {reading} does not come"
            for message in consumer.consume(1000, 0.1):
                partition, error = message.partition(), message.error()
                assert partition is not None
                if error is None:
                    found[partition].append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    reading.discard(partition)
    finally:
        consumer.close()
    return found


def open_offsets(cluster: Cluster, topic: str) -> int:
    """Return how many offsets of a topic lie at or above the last stable offsets of its partitions."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 4})
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(cluster.topics()[topic])}
    ends = [
        sum(one.result(SECONDS).offset for one in client.list_offsets(asked, isolation_level=level).values())
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    ]
    return ends[0] - ends[1]


def hanging_transactions(tools: Tools, broker: BrokerProcess) -> list[str]:
    """Return the lines of `kafka-transactions find-hanging` for broker 1, without their head."""
    main = "org.apache.kafka.tools.TransactionsCommand"
    said = tools.run(main, "--bootstrap-server", broker.kafka, "find-hanging", "--broker-id", "1")
    head, *found = said.out.splitlines()
    assert said.exit == 0 and head.split() == _COLUMNS.split(), said
    return found
