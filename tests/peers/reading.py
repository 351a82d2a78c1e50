"""What tests of the ecosystem write to a cluster and see in it, by librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

SECONDS = 30.0


class Read(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Cluster:
    """One cluster, ours or Kafka, by its bootstrap server."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @property
    def _admin(self) -> AdminClient:
        """A client for one call: one that saw its broker killed between two calls may never answer the second."""
        # Kept until the next one: a client that is collected ends its calls.
        self._kept = AdminClient({"bootstrap.servers": self.bootstrap})
        return self._kept

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        """Make a topic; settings with underscores for dots."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
        self._admin.create_topics([new])[topic].result(SECONDS)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        found = self._admin.list_topics(timeout=SECONDS).topics
        return {name: len(one.partitions) for name, one in found.items()}

    def settings(self, topic: str) -> dict[str, str]:
        """Return the settings of a topic."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        found = self._admin.describe_configs([resource])[resource].result(SECONDS)
        return {name: entry.value for name, entry in found.items()}

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change one setting of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(SECONDS)

    def write(self, topic: str, records: Iterable[dict[str, Any]]) -> None:
        """Produce records, each the arguments of librdkafka's `produce`; all are acknowledged or this fails."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        for record in records:
            producer.produce(topic, on_delivery=delivered, **record)
        assert producer.flush(SECONDS) == 0
        assert not errors, errors[0]

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets, by partition, as a consumer of the group."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
            consumer.commit(offsets=wanted, asynchronous=False)
        finally:
            consumer.close()

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets of a group by partition; partitions without one are left out."""
        asked = [ConsumerGroupTopicPartitions(group)]
        found = self._admin.list_consumer_group_offsets(asked)[group].result(SECONDS)
        return {
            one.partition: one.offset
            for one in found.topic_partitions
            if one.topic == topic and one.offset >= 0
        }

    def ends(self, topic: str) -> list[tuple[int, int]]:
        """Return the log start offset and the log end offset of each partition; none if the topic is not there."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"})
        try:
            count = self.topics().get(topic, 0)
            return [
                consumer.get_watermark_offsets(TopicPartition(topic, number), SECONDS)
                for number in range(count)
            ]
        finally:
            consumer.close()

    def count(self, topic: str) -> int:
        """Return how many offsets the partitions of a topic span; 0 if it is not there."""
        return sum(end - start for start, end in self.ends(topic))

    def read(self, topic: str) -> dict[int, list[Read]]:
        """Return all records of a topic that are there now, by partition."""
        ends = {partition: end for partition, (start, end) in enumerate(self.ends(topic)) if end > start}
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reading", "enable.partition.eof": False}
        )
        found: dict[int, list[Read]] = {partition: [] for partition in ends}
        deadline = time.monotonic() + SECONDS
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
            while any(not got or got[-1].offset < ends[partition] - 1 for partition, got in found.items()):
                assert time.monotonic() < deadline, f"{topic}: {found} of {ends}"
                # It waits until it has `count`, or for this long.
                messages = consumer.consume(1000, 0.1)
                for partition, record in map(_read, messages):
                    found[partition].append(record)
        finally:
            consumer.close()
        return found

    def values(self, topic: str) -> Iterator[bytes | None]:
        """Yield the values of all records, partition by partition."""
        for records in self.read(topic).values():
            yield from (one.value for one in records)


def _read(message: Message) -> tuple[int, Read]:
    assert message.error() is None, message.error()
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    headers = tuple((name, value) for name, value in message.headers() or ())
    return partition, Read(offset, message.timestamp(), message.key(), message.value(), headers)
