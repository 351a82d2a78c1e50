"""A broker with a Kafka listener and no socket: requests are encoded, handled and decoded in process."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from core.broker.broker import Broker
from core.config import Endpoint
from core.listeners.connection import Deferred
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.apis import APIS
from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.types import FileSlice


class Client:
    """One connection: `ask` gives the decoded answer, None where there is none."""

    def __init__(self, listener: KafkaListener) -> None:
        self.listener = listener
        self.session = listener.session()
        self.session.connected("127.0.0.1", "127.0.0.1")
        self.correlation_id = 0

    async def raw(self, frame: bytes) -> bytes | None:
        return await self.taken(self.session.handle(memoryview(bytearray(frame))))

    async def taken(self, answer: Any) -> bytes | None:
        """What leaves for an answer of `Session.handle`, without its size; None if there is none."""
        if isinstance(answer, Deferred):
            finished = asyncio.Event()
            answer.when_finished(finished.set)
            await finished.wait()
            assert answer.error is None
            answer = answer.answer
        if not isinstance(answer, list) and answer is not None:
            answer = await answer
        if answer is None:
            return None
        data = b"".join(p.read() if isinstance(p, FileSlice) else bytes(p) for p in answer)
        (size,) = struct.unpack_from(">i", data)
        assert size == len(data) - 4, "the size prefix must be the size of what follows"
        return data[4:]

    async def ask(self, key: int, version: int, request: Any) -> Any:
        self.correlation_id += 1
        header = encode_request_header(key, version, self.correlation_id, "test")
        data = await self.raw(header + encode_request(key, version, request))
        if data is None:
            return None
        correlation_id, position = decode_response_header(key, version, data)
        assert correlation_id == self.correlation_id
        return decode_response(key, version, data, position)

    async def newest(self, key: int, request: Any) -> Any:
        return await self.ask(key, APIS[key].max_version, request)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        settings = [CreatableTopicConfig(k.replace("_", "."), v) for k, v in configs.items()]
        topic = CreatableTopic(name, partitions, 1, [], settings)
        answer = await self.ask(19, 4, CreateTopicsRequest([topic]))
        assert answer.topics[0].error_code == 0, answer

    async def produce(
        self, topic: str, values: Sequence[bytes | None], *, acks: int = 1, partition: int = 0, **batch: Any
    ) -> Any:
        records = [NewRecord(key=b"k", value=v) for v in values]
        data = build_batch(records, now_ms=self.listener.broker.clock.wall_ms(), **batch)
        answer = await self.ask(0, 9, produce_request(topic, bytes(data), acks=acks, partition=partition))
        return answer and answer.responses[0].partition_responses[0]


def produce_request(topic: str, data: bytes | None, *, acks: int = 1, partition: int = 0) -> ProduceRequest:
    """A Produce of one partition."""
    records = None if data is None else memoryview(data)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(topic, partition_data=[PartitionProduceData(partition, records)])],
    )


@pytest.fixture
def listener(broker: Broker) -> KafkaListener:
    made = KafkaListener(broker, HANDLERS)
    made.bound(Endpoint("kafka", "127.0.0.1", 9092))
    return made


@pytest.fixture
def client(listener: KafkaListener) -> Client:
    return Client(listener)
