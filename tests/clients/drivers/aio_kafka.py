"""aiokafka: asyncio, and never a flexible version: what a client of some years ago says."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from tests.broker_process import BrokerProcess
from tests.clients.driver import CALL_SECONDS, Driver, Message, RefusedError

T = TypeVar("T")


class AioKafka(Driver):
    """One producer per codec, one consumer and one admin client, on a loop in a thread of their own."""

    name = "aiokafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()
        self._producers: dict[str, AIOKafkaProducer] = {}
        self._consumer: AIOKafkaConsumer | None = None
        self._admin: AIOKafkaAdminClient | None = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)
        except KafkaError as error:
            raise RefusedError(error.errno, str(error)) from error

    def close(self) -> None:
        async def stop() -> None:
            for producer in self._producers.values():
                await producer.stop()
            if self._consumer is not None:
                await self._consumer.stop()
            if self._admin is not None:
                await self._admin.close()

        self._run(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def producer(self, codec: str = "none") -> AIOKafkaProducer:
        """The producer for a codec, with acks=all."""
        if codec not in self._producers:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.broker.kafka,
                compression_type=None if codec == "none" else codec,
                acks="all",
                linger_ms=20,
                max_request_size=10_000_000,
                max_batch_size=200_000,
            )
            await producer.start()
            self._producers[codec] = producer
        return self._producers[codec]

    async def consumer(self) -> AIOKafkaConsumer:
        """The consumer, without a group."""
        if self._consumer is None:
            self._consumer = AIOKafkaConsumer(
                bootstrap_servers=self.broker.kafka, auto_offset_reset="none", fetch_max_wait_ms=100
            )
            await self._consumer.start()
        return self._consumer

    async def admin(self) -> AIOKafkaAdminClient:
        """The admin client."""
        if self._admin is None:
            self._admin = AIOKafkaAdminClient(bootstrap_servers=self.broker.kafka)
            await self._admin.start()
        return self._admin

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        async def write() -> None:
            producer = await self.producer(codec)
            futures = [
                await producer.send(
                    topic,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    partition=partition,
                    timestamp_ms=message.timestamp,
                )
                for message in messages
            ]
            await asyncio.gather(*futures)

        self._run(write())

    def choose_partition(self, topic: str, key: bytes) -> int:
        async def send() -> int:
            producer = await self.producer()
            return int((await producer.send_and_wait(topic, key=key, value=b"")).partition)

        return self._run(send())

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        async def read() -> list[Message]:
            consumer = await self.consumer()
            asked = TopicPartition(topic, partition)
            consumer.assign([asked])
            consumer.seek(asked, offset)
            found: list[Message] = []
            deadline = time.monotonic() + CALL_SECONDS - 1
            while len(found) < count and time.monotonic() < deadline:
                polled = await consumer.getmany(asked, timeout_ms=1000, max_records=count - len(found))
                for record in polled.get(asked, ()):
                    found.append(
                        Message(
                            record.key, record.value, tuple(record.headers), record.timestamp, record.offset
                        )
                    )
            return found

        return self._run(read())

    def offset_for_time(self, topic: str, partition: int, timestamp: int) -> int | None:
        async def ask() -> int | None:
            asked = TopicPartition(topic, partition)
            found = (await (await self.consumer()).offsets_for_times({asked: timestamp}))[asked]
            return None if found is None else int(found.offset)

        return self._run(ask())

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        async def ask() -> tuple[int, int]:
            asked = TopicPartition(topic, partition)
            consumer = await self.consumer()
            earliest = await consumer.beginning_offsets([asked])
            latest = await consumer.end_offsets([asked])
            return earliest[asked], latest[asked]

        return self._run(ask())

    def create_topic(self, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        async def create() -> None:
            topic = NewTopic(name, partitions, 1, topic_configs=configs or {})
            answer = await (await self.admin()).create_topics([topic])
            _refuse(answer.topic_errors)

        self._run(create())

    def topics(self) -> dict[str, int]:
        async def ask() -> dict[str, int]:
            found = await (await self.admin()).describe_topics()
            return {topic["topic"]: len(topic["partitions"]) for topic in found}

        return self._run(ask())

    def add_partitions(self, name: str, total: int) -> None:
        async def add() -> None:
            await (await self.admin()).create_partitions({name: NewPartitions(total)})

        self._run(add())

    def configs(self, name: str) -> dict[str, str | None]:
        async def ask() -> dict[str, str | None]:
            answers = await (await self.admin()).describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, name)]
            )
            return {entry[0]: entry[1] for entry in answers[0].resources[0][4]}

        return self._run(ask())

    def set_config(self, name: str, key: str, value: str) -> None:
        async def change() -> None:
            resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={key: value})
            answers = await (await self.admin()).alter_configs([resource])
            for code, message, *_ in answers[0].resources:
                if code:
                    raise RefusedError(code, message or "")

        self._run(change())

    def delete_records(self, name: str, partition: int, before: int) -> int:
        async def delete() -> int:
            asked = TopicPartition(name, partition)
            admin = await self.admin()
            return (await admin.delete_records({asked: RecordsToDelete(before_offset=before)}))[asked]

        return self._run(delete())

    def delete_topic(self, name: str) -> None:
        async def delete() -> None:
            answer = await (await self.admin()).delete_topics([name])
            _refuse(answer.topic_error_codes)

        self._run(delete())


def _refuse(results: Sequence[Any]) -> None:
    for _, code, *message in results:
        if code:
            raise RefusedError(code, str(message))
