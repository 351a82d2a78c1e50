"""A client that costs next to nothing: requests encoded beforehand, answers counted, not read."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Sequence
from typing import Any

from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.protocol.schema import Message
from core.records.batch import build_batch
from core.records.record import NewRecord

PRODUCE, FETCH, METADATA, CREATE_TOPICS = 0, 1, 3, 19
# What librdkafka says today, but for topic ids.
PRODUCE_VERSION, FETCH_VERSION, CREATE_TOPICS_VERSION = 9, 12, 7
# The cases of one run share a topic if they load another server.
ALREADY_EXISTS = 36
# Kafka's max.in.flight.requests.per.connection.
WINDOW = 5
NOW = int(time.time() * 1000)
_SIZE = struct.Struct(">i")


class Connection:
    """One socket to the Kafka listener, with TLS if there is a context for it."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Under TLS every byte has to be decrypted; else the kernel may throw it away.
        self._flags = socket.MSG_TRUNC if tls is None else 0
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname=address[0])
        self._buffer = bytearray(4 << 20)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def call(self, key: int, version: int, request: Message) -> Any:
        """One request and its answer, decoded: for what is not measured."""
        self.socket.sendall(framed(key, version, request))
        answer = self.receive()
        _, position = decode_response_header(key, version, answer)
        return decode_response(key, version, answer, position)

    def receive(self) -> bytes:
        """One answer, without its size."""
        size = _SIZE.unpack(self._exactly(4))[0]
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return data

    def stream(self, requests: Sequence[bytes], answer_size: int, window: int = WINDOW) -> None:
        """Send framed requests, `window` of them on their way at a time; every answer (with its size) must
        be `answer_size` bytes long. Without TLS the kernel throws the answers away without copying them."""
        sent = received = 0
        total = len(requests) * answer_size
        while received < total:
            while sent < len(requests) and sent * answer_size - received < window * answer_size:
                self.socket.sendall(requests[sent])
                sent += 1
            want = min(total - received, len(self._buffer))
            received += self.socket.recv_into(self._buffer, want, self._flags)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; settings with underscores for dots."""
        settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        self.create_topics([CreatableTopic(name, partitions, 1, [], settings)])

    def create_topics(self, topics: list[CreatableTopic]) -> None:
        """Create topics, all of which must succeed."""
        request = CreateTopicsRequest(topics=topics, timeout_ms=60_000)
        for result in self.call(CREATE_TOPICS, CREATE_TOPICS_VERSION, request).topics:
            if result.error_code and result.error_code != ALREADY_EXISTS:
                raise RuntimeError(f"{result.name}: {result.error_code} {result.error_message}")


def framed(key: int, version: int, request: Message) -> bytes:
    """Return a request as it is on the wire, with its size in front."""
    body = encode_request_header(key, version, 1, "bench") + bytes(encode_request(key, version, request))
    return _SIZE.pack(len(body)) + body


def produce_frame(topic: str, records: bytes | bytearray, acks: int = 1) -> bytes:
    """A Produce request for partition 0."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, memoryview(records))])
    return framed(PRODUCE, PRODUCE_VERSION, ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data]))


def fetch_frame(topic: str, offset: int, max_bytes: int) -> bytes:
    """A Fetch request for partition 0 that takes whole batches up to `max_bytes`."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=max_bytes, topics=topics)
    return framed(FETCH, FETCH_VERSION, request)


def batch_of(size: int, records: int) -> bytes:
    """Return a batch of about `size` bytes in that number of records, uncompressed."""
    value = b"x" * ((size - 61) // records - 10)
    return bytes(build_batch([NewRecord(value=value) for _ in range(records)], now_ms=NOW))


def produced_offset(answer: bytes) -> int:
    """The offset of the first record of a Produce of one partition, out of its answer."""
    _, position = decode_response_header(PRODUCE, PRODUCE_VERSION, answer)
    response: Any = decode_response(PRODUCE, PRODUCE_VERSION, answer, position)
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    if partition.error_code:
        raise RuntimeError(f"a produce was answered with error {partition.error_code}")
    return int(partition.base_offset)
