"""confluent-kafka: librdkafka under Python, the most widely used client after Java's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import (
    Message as Received,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS, Driver, GroupSeen, Message, RefusedError

# What Kafka calls the states, as far as a test asks for them.
STATES = {
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.EMPTY: "Empty",
}


class Confluent(Driver):
    """One producer per codec, one consumer and one admin client, made when first needed."""

    name = "confluent-kafka"
    idempotent = True
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        self._producers: dict[str, Producer] = {}
        self._consumer: Consumer | None = None
        self._admin: AdminClient | None = None

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        for producer in self._producers.values():
            producer.flush(CALL_SECONDS)
        self._producers.clear()

    def producer(self, codec: str = "none") -> Producer:
        """The producer for a codec; idempotent, as most users run it."""
        if codec not in self._producers:
            self._producers[codec] = Producer(
                {
                    "bootstrap.servers": self.broker.kafka,
                    "enable.idempotence": True,
                    "compression.type": codec,
                    "linger.ms": 20,
                    "partitioner": "murmur2_random",
                    "message.timeout.ms": int(CALL_SECONDS * 1000),
                    "message.max.bytes": 10_000_000,
                }
            )
        return self._producers[codec]

    @property
    def consumer(self) -> Consumer:
        """The consumer; its group id is needed by the library and never used."""
        if self._consumer is None:
            self._consumer = Consumer(
                {
                    "bootstrap.servers": self.broker.kafka,
                    "group.id": "unused",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "fetch.wait.max.ms": 100,
                }
            )
        return self._consumer

    @property
    def admin(self) -> AdminClient:
        """The admin client."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.broker.kafka})
        return self._admin

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        producer = self.producer(codec)
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Received) -> None:
            if error is not None:
                errors.append(error)

        for message in messages:
            extra = {} if message.timestamp is None else {"timestamp": message.timestamp}
            producer.produce(
                topic,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                partition=partition,
                on_delivery=delivered,
                **extra,
            )
        assert producer.flush(CALL_SECONDS) == 0, "not everything was delivered"
        if errors:
            raise RefusedError(errors[0].code(), errors[0].str())

    def choose_partition(self, topic: str, key: bytes) -> int:
        chosen: list[int] = []
        self.producer().produce(
            topic, key=key, value=b"", on_delivery=lambda _, m: chosen.append(m.partition())
        )
        self.producer().flush(CALL_SECONDS)
        return chosen[0]

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        self.consumer.assign([TopicPartition(topic, partition, offset)])
        found: list[Message] = []
        deadline = time.monotonic() + CALL_SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for received in self.consumer.consume(count - len(found), timeout=1):
                if received.error():
                    raise RefusedError(received.error().code(), received.error().str())
                found.append(_message(received))
        self.consumer.unassign()
        return found

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        asked = [TopicPartition(topic, partition, timestamp)]
        offset = self.consumer.offsets_for_times(asked, timeout=CALL_SECONDS)[0].offset
        return offset if offset >= 0 else None

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        asked = TopicPartition(topic, partition)
        earliest, latest = (
            self._result(self.admin.list_offsets({asked: spec}))[asked].offset
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return earliest, latest

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        self._result(self.admin.create_topics([NewTopic(name, partitions, 1, config=configs or {})]))

    def topics(self) -> dict[str, int]:
        return {
            t.topic: len(t.partitions) for t in self.admin.list_topics(timeout=CALL_SECONDS).topics.values()
        }

    def add_partitions(self, name: str, total: int) -> None:
        self._result(self.admin.create_partitions([NewPartitions(name, total)]))

    def configs(self, name: str) -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        entries = self._result(self.admin.describe_configs([resource]))[resource]
        return {entry.name: entry.value for entry in entries.values()}

    def set_config(self, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
        self._result(self.admin.incremental_alter_configs([resource]))

    def delete_records(self, name: str, partition: int, before: int) -> int:
        asked = TopicPartition(name, partition, before)
        result = self._result(self.admin.delete_records([asked]))
        return next(iter(result.values())).low_watermark

    def delete_topic(self, name: str) -> None:
        self._result(self.admin.delete_topics([name]))

    def groups(self) -> list[str]:
        listed = _wait(self.admin.list_consumer_groups().result)
        return [group.group_id for group in listed.valid]

    def describe_group(self, group: str, topic: str) -> GroupSeen:
        found = self._result(self.admin.describe_consumer_groups([group]))[group]
        owned = [
            sorted(tp.partition for tp in member.assignment.topic_partitions if tp.topic == topic)
            for member in found.members
        ]
        return GroupSeen(STATES.get(found.state, found.state.name), sorted(owned))

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = self._result(asked)[group].topic_partitions
        return {tp.partition: tp.offset for tp in found if tp.topic == topic}

    def delete_group(self, group: str) -> None:
        self._result(self.admin.delete_consumer_groups([group]))

    @staticmethod
    def _result(futures: dict[Any, Any]) -> dict[Any, Any]:
        return {key: _wait(future.result) for key, future in futures.items()}


def _wait(result: Callable[..., Any]) -> Any:
    try:
        return result(CALL_SECONDS)
    except KafkaException as error:
        raise RefusedError(error.args[0].code(), error.args[0].str()) from error


def _message(received: Received) -> Message:
    return Message(
        key=received.key(),
        value=received.value(),
        headers=tuple(received.headers() or ()),
        timestamp=received.timestamp()[1],
        offset=received.offset(),
    )
