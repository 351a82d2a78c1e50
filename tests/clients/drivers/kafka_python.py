"""kafka-python 3: pure Python, another codec, another set of API versions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS, Driver, Message, RefusedError

MILLISECONDS = int(CALL_SECONDS * 1000)


class KafkaPython(Driver):
    """One producer per codec, one consumer and one admin client, made when first needed."""

    name = "kafka-python"
    idempotent = True
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    writes_null_headers = False

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        self._producers: dict[str, KafkaProducer] = {}
        self._consumer: KafkaConsumer | None = None
        self._admin: KafkaAdminClient | None = None

    def close(self) -> None:
        for client in (*self._producers.values(), self._consumer, self._admin):
            if client is not None:
                client.close()

    def producer(self, codec: str = "none") -> KafkaProducer:
        """The producer for a codec; idempotent, as is the library's default."""
        if codec not in self._producers:
            self._producers[codec] = KafkaProducer(
                bootstrap_servers=self.broker.kafka,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                max_request_size=10_000_000,
            )
        return self._producers[codec]

    @property
    def consumer(self) -> KafkaConsumer:
        """The consumer, without a group."""
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                bootstrap_servers=self.broker.kafka,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=100,
            )
        return self._consumer

    @property
    def admin(self) -> KafkaAdminClient:
        """The admin client."""
        if self._admin is None:
            self._admin = KafkaAdminClient(bootstrap_servers=self.broker.kafka)
        return self._admin

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        producer = self.producer(codec)
        futures = [
            producer.send(
                topic,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                partition=partition,
                timestamp_ms=message.timestamp,
            )
            for message in messages
        ]
        producer.flush(CALL_SECONDS)
        for future in futures:
            _wait(lambda future=future: future.get(CALL_SECONDS))

    def choose_partition(self, topic: str, key: bytes) -> int:
        return int(self.producer().send(topic, key=key, value=b"").get(CALL_SECONDS).partition)

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        asked = TopicPartition(topic, partition)
        self.consumer.assign([asked])
        self.consumer.seek(asked, offset)
        found: list[Message] = []
        deadline = time.monotonic() + CALL_SECONDS
        while len(found) < count and time.monotonic() < deadline:
            polled = _wait(lambda: self.consumer.poll(timeout_ms=1000, max_records=count - len(found)))
            for record in polled.get(asked, ()):
                headers = tuple((name, value) for name, value in record.headers)
                found.append(Message(record.key, record.value, headers, record.timestamp, record.offset))
        return found

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        asked = TopicPartition(topic, partition)
        found = self.consumer.offsets_for_times({asked: timestamp}, timeout_ms=MILLISECONDS)[asked]
        return None if found is None else int(found.offset)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        asked = TopicPartition(topic, partition)
        earliest, latest = (
            int(_wait(lambda spec=spec: self.admin.list_partition_offsets({asked: spec}))[asked].offset)
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        )
        return earliest, latest

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        topic = {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}
        _wait(lambda: self.admin.create_topics({name: topic}))

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self.admin.describe_topics()}

    def add_partitions(self, name: str, total: int) -> None:
        _wait(lambda: self.admin.create_partitions({name: total}))

    def configs(self, name: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        found = self.admin.describe_configs([resource], config_filter="all")["topic"][name]
        return {key: entry["value"] for key, entry in found.items()}

    def set_config(self, name: str, key: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={key: value})
        result = _wait(lambda: self.admin.alter_configs([resource], raise_on_unknown=False))["topic"][name]
        # The library answers "OK", or the error as text.
        if found := re.match(r"\[Error (\d+)\]", result):
            raise RefusedError(int(found[1]), result)

    def delete_records(self, name: str, partition: int, before: int) -> int:
        asked = TopicPartition(name, partition)
        return int(_wait(lambda: self.admin.delete_records({asked: before}))[asked]["low_watermark"])

    def delete_topic(self, name: str) -> None:
        _wait(lambda: self.admin.delete_topics([name]))


def _wait(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except KafkaError as error:
        raise RefusedError(getattr(error, "errno", None), str(error)) from error
