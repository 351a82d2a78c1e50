"""A Kafka connection with nothing in between: one socket, our own codec, any request in any version.

It says what no client library would: a wrong CRC, a retry on purpose, half a frame, ten requests at once.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

from core.protocol.apis import APIS
from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.messages.metadata import MetadataRequest
from core.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from core.protocol.schema import Message as ProtocolMessage
from core.records.batch import batches, build_batch, read_records
from core.records.record import NewRecord
from tests.clients.driver import CALL_SECONDS, Message
from tests.frames import connect, receive_frame, send_frame

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 19, 22
KEYS = {api.name: key for key, api in APIS.items()}
# Versions that name topics by name and carry magic 2: what most clients of the last years say.
USUAL = {PRODUCE: 9, FETCH: 12, LIST_OFFSETS: 7, METADATA: 12, CREATE_TOPICS: 7, INIT_PRODUCER_ID: 4}
# A round number not long ago: older than a week, and retention would take the records away.
NOW = int(time.time()) // 1000 * 1_000_000


class Wire:
    """One connection. `call` sends a request and waits for its answer; `send` and `receive` do half of it."""

    def __init__(self, address: tuple[str, int], timeout: float = CALL_SECONDS) -> None:
        self.socket = connect(address, timeout)
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    # --- frames --------------------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def send_frame(self, frame: bytes) -> None:
        """Send a frame with its size in front."""
        send_frame(self.socket, frame)

    def receive_frame(self) -> bytes | None:
        """The next frame without its size; None when the broker has closed the connection."""
        return receive_frame(self.socket)

    def is_closed(self) -> bool:
        """Wait for the broker to close; False if it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def is_readable(self) -> bool:
        """Whether something has come by now."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def is_silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes for a while."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(CALL_SECONDS)
        return False

    # --- requests ------------------------------------------------------------------------------------------

    def send(self, key: int, version: int, request: ProtocolMessage) -> int:
        """Send a request; answers its correlation id."""
        self._correlation_id += 1
        self.send_frame(frame(key, version, self._correlation_id, request))
        return self._correlation_id

    def receive(self, key: int, version: int) -> tuple[int, Any]:
        """The next answer, taken for one of this API and version: correlation id and message."""
        data = self.receive_frame()
        assert data is not None, "the broker closed the connection"
        correlation_id, position = decode_response_header(key, version, data)
        return correlation_id, decode_response(key, version, data, position)

    def call(self, key: int, request: ProtocolMessage, version: int | None = None) -> Any:
        """Send a request and wait for its answer."""
        version = USUAL[key] if version is None else version
        sent = self.send(key, version, request)
        correlation_id, answer = self.receive(key, version)
        assert correlation_id == sent
        return answer

    # --- the usual calls -----------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; settings with underscores for dots."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
        )
        (result,) = self.call(CREATE_TOPICS, CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
        assert result.error_code == 0, (result.error_code, result.error_message)

    def topics(self) -> list[str]:
        """The names of all topics."""
        return [topic.name for topic in self.call(METADATA, MetadataRequest(topics=None)).topics]

    def produce(
        self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1, version: int | None = None
    ) -> PartitionProduceResponse:
        """Produce record bytes into one partition; the partition's answer."""
        answer = self.call(PRODUCE, produce_request(topic, records, partition=partition, acks=acks), version)
        found: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return found

    def write(self, topic: str, *values: str, partition: int = 0) -> int:
        """Append these values as one batch; the offset of the first."""
        answer = self.produce(topic, batch([value.encode() for value in values]), partition=partition)
        assert answer.error_code == 0, answer
        return answer.base_offset

    def fetch_partition(
        self, topic: str, offset: int = 0, *, partition: int = 0, **options: int
    ) -> PartitionData:
        """Fetch from one partition; the partition's answer."""
        request = fetch_request([(topic, partition, offset)], **options)
        found: PartitionData = self.call(FETCH, request).responses[0].partitions[0]
        return found

    def fetch(self, topic: str, offset: int = 0, *, partition: int = 0, **options: int) -> bytes:
        """Fetch until the end of a partition: all its bytes from the batch that holds `offset` on."""
        data = b""
        while True:
            found = self.fetch_partition(topic, offset, partition=partition, **options)
            assert found.error_code == 0, found.error_code
            piece = bytes(found.records or b"")
            if not piece:
                return data
            data += piece
            offset = list(batches(piece))[-1][1].next_offset

    def read_all(self, topic: str, partition: int = 0) -> list[Message]:
        """Every record of a partition, by our own decoder."""
        return self.read_from(topic, 0, partition=partition)

    def read_from(self, topic: str, offset: int, *, partition: int = 0) -> list[Message]:
        """Every record of a partition from an offset on, by our own decoder; transactions are not looked at."""
        data = self.fetch(topic, offset, partition=partition)
        return [
            Message(record.key, record.value, record.headers, record.timestamp, record.offset)
            for position, header in batches(data)
            if not header.is_control
            for record in read_records(data, position, header, max_bytes=64 << 20)
            if record.offset >= offset
        ]

    def list_offset(self, topic: str, timestamp: int, *, partition: int = 0, version: int = 7) -> Any:
        """ListOffsets for one partition; the partition's answer."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic, [asked])])
        return self.call(LIST_OFFSETS, request, version).topics[0].partitions[0]

    def producer_id(self) -> tuple[int, int]:
        """A new producer id and its epoch."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self.call(INIT_PRODUCER_ID, request)
        assert answer.error_code == 0
        return answer.producer_id, answer.producer_epoch


def frame(key: int, version: int, correlation_id: int, request: ProtocolMessage) -> bytes:
    """A request as bytes, without its size."""
    head = encode_request_header(key, version, correlation_id, "wire")
    return head + bytes(encode_request(key, version, request))


def produce_request(topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """A Produce request for one partition."""
    data = PartitionProduceData(index=partition, records=memoryview(records))
    topic_data = TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic_data])


def fetch_request(
    asked: Iterable[tuple[str, int, int]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 1 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
) -> FetchRequest:
    """A Fetch request for (topic, partition, offset)s, one topic entry each."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes
                    )
                ],
            )
            for topic, partition, offset in asked
        ],
    )


def batch(values: Sequence[bytes | None] = (b"value",), *, key: bytes | None = None, **options: Any) -> bytes:
    """One record batch of these values; options as `build_batch` has them."""
    now = options.pop("now_ms", NOW)
    return bytes(build_batch([NewRecord(key=key, value=value) for value in values], now_ms=now, **options))
