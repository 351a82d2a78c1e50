"""Several brokers in memory, with leaders that move, connections that end and answers that are lost.

A partition has one log, whichever broker leads it, and the rules of idempotent producers are Kafka's: the last five
batches are recognized, a gap is refused, a producer that is not known may begin with any number. Time is virtual.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections import deque
from collections.abc import Callable
from typing import Any
from uuid import UUID

from core.client.settings import Address
from core.errors import ErrorCode
from core.protocol.apis import APIS
from core.protocol.codec import decode_request, encode_response
from core.protocol.header import decode_request_header, encode_response_header
from core.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from core.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from core.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from core.protocol.messages.heartbeat import HeartbeatResponse
from core.protocol.messages.init_producer_id import InitProducerIdResponse
from core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from core.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from core.records.batch import assign, batches, read_records
from core.records.header import INT32_MAX, read_header
from core.types import TopicPartition

DROP, CLOSE, CLOSE_AFTER = object(), object(), object()
"""What a hook may answer: no answer ever; close before the request is carried out; carry it out, then close."""

Hook = Callable[["FakeBroker", int, Any], Any]


class Log:
    """One partition."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.epoch = 0
        self.batches: list[bytes] = []
        self.end = 0
        # Producer id → (epoch, its last batches as (first, last sequence, base offset)).
        self.producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = {}

    @property
    def values(self) -> list[bytes | None]:
        """The values of all records."""
        return [
            record.value
            for data in self.batches
            for at, header in batches(data)
            for record in read_records(data, at, header, max_bytes=2**24)
        ]

    def append(self, data: memoryview) -> tuple[ErrorCode, int]:
        """Append a batch as Kafka's leader does."""
        header = read_header(data)
        if header.producer_id >= 0:
            epoch, last = self.producers.get(header.producer_id, (-1, deque(maxlen=5)))
            for first, final, base in last:
                if (first, final) == (header.base_sequence, header.last_sequence):
                    return ErrorCode.NONE, base
            if last and (last[-1][1] + 1) & INT32_MAX != header.base_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            last.append((header.base_sequence, header.last_sequence, self.end))
            self.producers[header.producer_id] = epoch, last
        copy = bytearray(data)
        assign(copy, 0, base_offset=self.end, leader_epoch=self.epoch)
        self.batches.append(bytes(copy))
        base, self.end = self.end, self.end + header.last_offset_delta + 1
        return ErrorCode.NONE, base


class FakeBroker:
    """One broker. `alive` false: it refuses connections."""

    def __init__(self, cluster: FakeCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.address = Address(f"broker{broker_id}", 9092)
        self.alive = True
        self.connections: set[FakeTransport] = set()

    def kill(self) -> None:
        """Refuse connections, and close all at once; what arrived was carried out."""
        self.alive = False
        for connection in list(self.connections):
            connection.lose()


class FakeCluster:
    """The brokers, and a `Network` to them. `hooks` by API key see each request before it is carried out."""

    def __init__(self, brokers: int = 3, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.cluster_id = "fake"
        self.brokers = {number: FakeBroker(self, number) for number in range(1, brokers + 1)}
        self.topics: dict[str, UUID] = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.hooks: dict[int, Hook] = {}
        self.versions = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
        self.asked: list[tuple[int, int]] = []
        self.produced: list[int] = []
        self.coordinator = 1
        self.next_producer_id = 1_000
        self.latency = 0.001
        self.hints = True

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, led by the brokers in turn."""
        self.topics[topic] = UUID(int=len(self.topics) + 1)
        for number in range(partitions):
            self.logs[TopicPartition(topic, number)] = Log(number % len(self.brokers) + 1)

    def move(self, tp: TopicPartition, leader: int) -> None:
        """Give a partition another leader."""
        log = self.logs[tp]
        log.leader, log.epoch = leader, log.epoch + 1

    async def connect(
        self, protocol: Callable[[], asyncio.BufferedProtocol], address: Address, tls: object
    ) -> None:
        """See `Network.connect`."""
        await asyncio.sleep(self.latency)
        broker = next((one for one in self.brokers.values() if one.address == address), None)
        if broker is None or not broker.alive:
            raise ConnectionRefusedError(f"{address} refuses")
        made = protocol()
        made.connection_made(FakeTransport(broker, made))

    def handle(self, broker: FakeBroker, key: int, version: int, request: Any) -> Any:
        """Carry out a request; return the response, or DROP or CLOSE."""
        self.asked.append((broker.broker_id, key))
        hook = self.hooks.get(key)
        said = hook(broker, version, request) if hook is not None else None
        if said is not None and said is not CLOSE_AFTER:
            return said
        answer = _HANDLERS[key](self, broker, request)
        return CLOSE if said is CLOSE_AFTER else answer


class FakeTransport(asyncio.Transport):
    """The client's end of a connection; answers come in the order of the requests."""

    def __init__(self, broker: FakeBroker, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._broker = broker
        self._protocol = protocol
        self._received = bytearray()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._free_at = 0.0
        broker.connections.add(self)

    def write(self, data: Any) -> None:
        """Take the client's bytes; whole requests arrive after the latency."""
        if self._closed:
            return
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[4 : 4 + size])
            del self._received[: 4 + size]
            self._at(self._broker.cluster.latency, self._handle, frame)

    def writelines(self, list_of_data: Any) -> None:
        """See asyncio."""
        self.write(b"".join(bytes(one) for one in list_of_data))

    def _at(self, seconds: float, work: Callable[..., None], *arguments: Any) -> None:
        self._free_at = max(self._loop.time() + seconds, self._free_at + 1e-7)
        self._loop.call_at(self._free_at, work, *arguments)

    def _handle(self, frame: bytes) -> None:
        if self._closed:
            return
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        answer = self._broker.cluster.handle(
            self._broker, key, version, decode_request(key, version, frame, position)
        )
        if answer is CLOSE:
            self.lose()
        elif answer is not DROP:
            self._answer(key, version, header.correlation_id, answer)

    def _answer(self, key: int, version: int, correlation_id: int, answer: Any) -> None:
        wait_s = getattr(answer, "wait_s", 0.0)
        if wait_s:
            answer = answer.message
        body = b"".join(encode_response(key, version, answer))  # type: ignore[arg-type]
        data = encode_response_header(key, version, correlation_id) + body
        self._at(self._broker.cluster.latency + wait_s, self._deliver, struct.pack(">i", len(data)) + data)

    def _deliver(self, data: bytes) -> None:
        while data and not self._closed:
            space = self._protocol.get_buffer(len(data))
            count = min(len(space), len(data))
            space[:count] = data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]

    def lose(self) -> None:
        """End the connection from the other side."""
        if not self._closed:
            self._end(ConnectionResetError("reset by peer"))

    def _end(self, error: Exception | None) -> None:
        self._closed = True
        self._broker.connections.discard(self)
        self._loop.call_soon(self._protocol.connection_lost, error)

    def abort(self) -> None:
        """See asyncio."""
        if not self._closed:
            self._end(None)

    close = abort

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._closed


class Later:
    """An answer after a wait, which holds up those after it."""

    def __init__(self, message: Any, wait_s: float) -> None:
        self.message = message
        self.wait_s = wait_s


def _api_versions(cluster: FakeCluster, broker: FakeBroker, request: Any) -> Any:
    return ApiVersionsResponse(api_keys=[ApiVersion(key, *span) for key, span in cluster.versions.items()])


def _metadata(cluster: FakeCluster, broker: FakeBroker, request: MetadataRequest) -> Any:
    names = list(cluster.topics) if request.topics is None else [one.name or "" for one in request.topics]
    topics = []
    for name in names:
        if name not in cluster.topics:
            topics.append(MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name))
            continue
        partitions = [
            MetadataResponsePartition(
                0, tp.partition, log.leader if cluster.brokers[log.leader].alive else -1, log.epoch, [1], [1]
            )
            for tp, log in cluster.logs.items()
            if tp.topic == name
        ]
        topics.append(MetadataResponseTopic(0, name, cluster.topics[name], False, partitions))
    alive = [one for one in cluster.brokers.values() if one.alive]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(one.broker_id, *one.address) for one in alive],
        cluster_id=cluster.cluster_id,
        controller_id=alive[0].broker_id,
        topics=topics,
    )


def _produce(cluster: FakeCluster, broker: FakeBroker, request: ProduceRequest) -> Any:
    responses = []
    endpoints: list[NodeEndpoint] = []
    cluster.produced.append(sum(len(topic.partition_data) for topic in request.topic_data))
    for topic in request.topic_data:
        answers = []
        for one in topic.partition_data:
            log = cluster.logs.get(TopicPartition(topic.name, one.index))
            assert one.records is not None
            if log is None:
                answer = PartitionProduceResponse(one.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
            elif log.leader != broker.broker_id:
                answer = PartitionProduceResponse(one.index, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
                if cluster.hints:
                    answer.current_leader = LeaderIdAndEpoch(log.leader, log.epoch)
                    endpoints.append(NodeEndpoint(log.leader, *cluster.brokers[log.leader].address))
            else:
                code, base = log.append(one.records)
                answer = PartitionProduceResponse(one.index, code, base, log_start_offset=0)
            answers.append(answer)
        responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    return ProduceResponse(responses, node_endpoints=endpoints)


def _init_producer_id(cluster: FakeCluster, broker: FakeBroker, request: Any) -> Any:
    cluster.next_producer_id += 1
    return InitProducerIdResponse(producer_id=cluster.next_producer_id)


def _find_coordinator(cluster: FakeCluster, broker: FakeBroker, request: Any) -> Any:
    found = cluster.brokers[cluster.coordinator]
    one = Coordinator(request.coordinator_keys[0], found.broker_id, *found.address)
    return FindCoordinatorResponse(coordinators=[one])


def _heartbeat(cluster: FakeCluster, broker: FakeBroker, request: Any) -> Any:
    right = broker.broker_id == cluster.coordinator
    return HeartbeatResponse(error_code=0 if right else ErrorCode.NOT_COORDINATOR)


def _fetch(cluster: FakeCluster, broker: FakeBroker, request: FetchRequest) -> Any:
    responses, found = [], False
    names = {topic_id: name for name, topic_id in cluster.topics.items()}
    for topic in request.topics:
        name = topic.topic or names.get(topic.topic_id, "")
        answers = []
        for one in topic.partitions:
            log = cluster.logs.get(TopicPartition(name, one.partition))
            answer = _fetched(broker, log, one)
            found = found or bool(answer.error_code or answer.records) or answer.diverging_epoch.epoch >= 0
            answers.append(answer)
        responses.append(FetchableTopicResponse(topic.topic, topic.topic_id, answers))
    answer = FetchResponse(responses=responses)
    return answer if found or not request.max_wait_ms else Later(answer, request.max_wait_ms / 1000)


def _fetched(broker: FakeBroker, log: Log | None, one: Any) -> PartitionData:
    if log is None:
        return PartitionData(one.partition, ErrorCode.UNKNOWN_TOPIC_ID, -1, aborted_transactions=None)
    if log.leader != broker.broker_id:
        return PartitionData(one.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, aborted_transactions=None)
    if one.fetch_offset > log.end:
        if one.last_fetched_epoch >= 0:
            diverging = EpochEndOffset(log.epoch, log.end)
            return PartitionData(one.partition, 0, log.end, log.end, 0, diverging, records=b"")
        return PartitionData(one.partition, ErrorCode.OFFSET_OUT_OF_RANGE, -1, aborted_transactions=None)
    data = b"".join(one_ for one_ in log.batches if read_header(one_).next_offset > one.fetch_offset)
    return PartitionData(one.partition, 0, log.end, log.end, 0, records=data)


_HANDLERS: dict[int, Callable[[FakeCluster, FakeBroker, Any], Any]] = {
    0: _produce,
    1: _fetch,
    3: _metadata,
    10: _find_coordinator,
    12: _heartbeat,
    18: _api_versions,
    22: _init_producer_id,
}
