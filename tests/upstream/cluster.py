"""A Kafka cluster in memory: one embedded broker, seen as one to three nodes that lead and coordinate.

Each node has an address (`broker-1:9092`), answers for the partitions that it leads and the groups that it
coordinates, and refuses the others, as the brokers of a real cluster do. What a request does is what the Kafka
listener of the embedded broker does. `Faults` come before and after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import CoroutineType
from typing import Any, NamedTuple

from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config, Endpoint
from core.errors import BrokerError, ErrorCode
from core.listeners.connection import Deferred
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener, KafkaSession
from core.protocol.apis import APIS
from core.protocol.codec import decode_request, decode_response, encode_request, encode_response
from core.protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from core.protocol.messages import api_versions, metadata, produce
from core.protocol.messages import fetch as fetch_messages
from core.types import FileSlice
from tests.upstream.faults import API_VERSIONS, FETCH, FIND_COORDINATOR, METADATA, PRODUCE, Fault, Faults
from tests.upstream.refusals import COORDINATED, LED, name_of, put_in, refuse, take_out
from tests.upstream.transport import MemoryTransport, pair

PORT = 9092
_SIZE = struct.Struct(">i")


class Leader(NamedTuple):
    """The node that leads a partition (−1: none), and its epoch."""

    node: int
    epoch: int


class NodeConnection(asyncio.Protocol):
    """The server's end of a connection: frames in, one request at a time, answers out in their order."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._session = node.listener.session()
        self._bytes = bytearray()
        self._frames: asyncio.Queue[bytearray] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.transport: MemoryTransport | None = None

    def connection_made(self, transport: Any) -> None:
        """asyncio: the connection is open."""
        self.transport = transport
        self._session.connected("127.0.0.1", "127.0.0.1")
        self._node.connections.append(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes came."""
        self._bytes += data
        while len(self._bytes) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._bytes)
            if len(self._bytes) < _SIZE.size + size:
                return
            self._frames.put_nowait(self._bytes[_SIZE.size : _SIZE.size + size])
            del self._bytes[: _SIZE.size + size]

    def eof_received(self) -> bool:
        """asyncio: the client has disconnected."""
        return False

    def pause_writing(self) -> None:
        """asyncio: answers are as long as they are."""

    def resume_writing(self) -> None:
        """asyncio: see `pause_writing`."""

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is closed; what it asked for is cancelled."""
        with contextlib.suppress(ValueError):
            self._node.connections.remove(self)
        if self._task is not None:
            asyncio.get_running_loop().call_soon(self._task.cancel)
        self._session.close()

    async def _serve(self) -> None:
        assert self.transport is not None
        while True:
            frame = await self._frames.get()
            answer = await self._node.answer(self._session, frame, self.transport)
            if answer is not None:
                self.transport.write(_SIZE.pack(len(answer)) + answer)


class Node:
    """One broker of the cluster, as clients see it."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.id = node_id
        self.host = f"broker-{node_id}"
        self.up = True
        self.connections: list[NodeConnection] = []
        self.listener = KafkaListener(cluster.broker, HANDLERS)
        self.listener.bound(Endpoint("kafka", self.host, PORT, cluster.options))

    async def answer(
        self, session: KafkaSession, frame: bytearray, transport: MemoryTransport
    ) -> bytes | None:
        """Return the answer to one request, without its size; None for none."""
        cluster = self.cluster
        header, position = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        cluster.asked[key] += 1
        limit = cluster.max_versions.get(key, APIS[key].max_version)
        if version > limit:
            assert key == API_VERSIONS, f"{APIS[key].name} v{version} is not served here"
            return _packed(header, api_versions.ApiVersionsResponse(35, self._versions(0)), version=0)
        request = decode_request(key, version, frame, position)
        cluster.versions[key] = version
        fault = cluster.faults.take(key, self.id, request)
        if fault is None:
            return await self._carry_out(session, header, frame, request)
        if fault.close_before:
            transport.abort()
            return None
        if fault.delay:
            await asyncio.sleep(fault.delay)
        if fault.hold is not None:
            await fault.hold.wait()
        return await self._faulty(session, header, frame, request, fault, transport)

    async def _faulty(
        self,
        session: KafkaSession,
        header: RequestHeader,
        frame: bytearray,
        request: Any,
        fault: Fault,
        transport: MemoryTransport,
    ) -> bytes | None:
        key, version = header.api_key, header.api_version
        answer = None
        if fault.error is None or fault.carried_out:
            answer = await self._carry_out(session, header, frame, request)
        if fault.answer_delay:
            await asyncio.sleep(fault.answer_delay)
        if fault.close_after:
            transport.abort()
            return None
        if fault.error is not None:
            answer = _packed(header, refuse(key, version, _again(header, frame), fault.error))
        if fault.throttle_ms and answer is not None:
            _, start = decode_response_header(key, version, answer)
            response: Any = decode_response(key, version, answer, start)
            response.throttle_time_ms = fault.throttle_ms
            answer = _packed(header, response)
        return answer

    async def _carry_out(
        self, session: KafkaSession, header: RequestHeader, frame: bytearray, request: Any
    ) -> bytes | None:
        """Do what the embedded broker does with a request, as far as it is this node's."""
        key, version = header.api_key, header.api_version
        cluster = self.cluster
        if key in COORDINATED and any(cluster.coordinator(g) != self.id for g in COORDINATED[key](request)):
            return _packed(header, refuse(key, version, request, ErrorCode.NOT_COORDINATOR))
        if key not in LED:
            answer = await self._ask(session, frame)
            if answer is None or key not in (API_VERSIONS, METADATA, FIND_COORDINATOR, 60, 75):
                return answer
            _, start = decode_response_header(key, version, answer)
            response: Any = decode_response(key, version, answer, start)
            self._show(key, version, request, response)
            return _packed(header, response)
        while True:
            request = _again(header, frame)
            refused = take_out(key, request, self._judge)
            if refused and key == FETCH:
                # As Kafka does: an error is answered at once.
                request.max_wait_ms = 0
            rest = _framed(header, request)
            if key != FETCH:
                answer = await self._ask(session, rest)
                break
            changed = cluster.changed
            asking = asyncio.ensure_future(self._ask(session, rest))
            waiting = asyncio.ensure_future(changed.wait())
            try:
                await asyncio.wait([asking, waiting], return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    answer = asking.result()
                    break
            finally:
                asking.cancel()
                waiting.cancel()
        if answer is None:
            return None
        _, start = decode_response_header(key, version, answer)
        response = decode_response(key, version, answer, start)
        self._show_leaders(key, response)
        put_in(key, response, refused, self._hint)
        if cluster.hints and refused and key in (PRODUCE, FETCH):
            module: Any = produce if key == PRODUCE else fetch_messages
            response.node_endpoints = [module.NodeEndpoint(n.id, n.host, PORT) for n in cluster.live()]
        return _packed(header, response)

    async def _ask(self, session: KafkaSession, frame: bytearray) -> bytes | None:
        """Ask the Kafka listener of the embedded broker."""
        answer: Any = session.handle(memoryview(frame))
        if type(answer) is CoroutineType:
            answer = await answer
        elif isinstance(answer, Deferred):
            finished = asyncio.Event()
            deferred = answer
            deferred.when_finished(finished.set)
            await finished.wait()
            if deferred.error is not None:
                raise deferred.error
            answer = deferred.answer
        if answer is None:
            return None
        return b"".join(p.read() if isinstance(p, FileSlice) else bytes(p) for p in answer)[_SIZE.size :]

    def _judge(self, topic: Any, partition: Any) -> ErrorCode:
        name = self.cluster.topic_name(topic)
        if name is None:
            return ErrorCode.NONE
        index = partition.index if hasattr(partition, "index") else None
        if index is None:
            index = getattr(partition, "partition", None)
        if index is None:
            index = partition.partition_index
        leader = self.cluster.leader(name, index)
        if leader.node != self.id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        epoch = getattr(partition, "current_leader_epoch", -1)
        if epoch >= 0:
            if epoch < leader.epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if epoch > leader.epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
            # The embedded broker has epochs of its own.
            partition.current_leader_epoch = -1
        return ErrorCode.NONE

    def _hint(self, topic: Any, index: int) -> Leader | None:
        name = self.cluster.topic_name(topic)
        return self.cluster.leader(name, index) if self.cluster.hints and name is not None else None

    def _show_leaders(self, key: int, response: Any) -> None:
        """Put the leader epochs of this cluster into an answer."""
        if key != 2:
            return
        for topic in response.topics:
            for one in topic.partitions:
                if one.leader_epoch >= 0:
                    one.leader_epoch = self.cluster.leader(topic.name, one.partition_index).epoch

    def _versions(self, version: int) -> list[api_versions.ApiVersion]:
        limits = self.cluster.max_versions
        return [
            api_versions.ApiVersion(key, handler.versions[0], min(handler.versions[1], limits.get(key, 99)))
            for key, handler in sorted(HANDLERS.items())
            if limits.get(key, 99) >= handler.versions[0]
        ]

    def _show(self, key: int, version: int, request: Any, response: Any) -> None:
        """Let an answer name the nodes of this cluster."""
        cluster = self.cluster
        if key == API_VERSIONS:
            response.api_keys = self._versions(version)
        elif key == METADATA:
            response.brokers = [metadata.MetadataResponseBroker(n.id, n.host, PORT) for n in cluster.live()]
            response.controller_id = cluster.live()[0].id
            for topic in response.topics:
                for one in topic.partitions:
                    leader = cluster.leader(topic.name, one.partition_index)
                    one.leader_id, one.leader_epoch = leader
                    one.replica_nodes = [n.id for n in cluster.nodes.values()]
                    one.isr_nodes = [n.id for n in cluster.live()]
                    if leader.node < 0:
                        one.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        elif key == FIND_COORDINATOR:
            for one in response.coordinators:
                node = cluster.nodes[cluster.coordinator(one.key)]
                one.node_id, one.host, one.port = node.id, node.host, PORT
            if not response.coordinators:
                node = cluster.nodes[cluster.coordinator(request.key)]
                response.node_id, response.host, response.port = node.id, node.host, PORT
        elif key == 60:
            make = type(response.brokers[0])
            response.brokers = [make(n.id, n.host, PORT) for n in cluster.live()]


class Cluster:
    """See the module's text. Use it as `async with Cluster.open(...)`.

    `options` are those of the Kafka listener, such as ("auth", "plain"). `max_versions` are the highest versions that
    the nodes serve, by API key; −1 for an API that they lack. `asked` counts requests by API key, `versions` has the
    version last used, `dials` the hosts of all connections that clients tried. With `hints`, nodes name the new
    leader (KIP-951).
    """

    def __init__(
        self,
        broker: Broker,
        *,
        nodes: int = 1,
        latency: float = 0.0,
        hints: bool = False,
        options: tuple[tuple[str, str], ...] = (),
        max_versions: Mapping[int, int] | None = None,
    ) -> None:
        self.broker = broker
        self.latency = latency
        self.hints = hints
        self.options = options
        self.faults = Faults()
        self.asked: Counter[int] = Counter()
        self.versions: dict[int, int] = {}
        self.max_versions: dict[int, int] = dict(max_versions or {})
        self.dials: list[str] = []
        self.changed = asyncio.Event()
        self.nodes = {n: Node(self, n) for n in range(1, nodes + 1)}
        self._addresses: dict[str, int] = {n.host: n.id for n in self.nodes.values()}
        self._leaders: dict[tuple[str, int], Leader] = {}
        self._coordinators: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, data_dir: Path, clock: Clock, *, settings: dict[str, Any] | None = None, **how: Any
    ) -> AsyncIterator[Cluster]:
        """Open the embedded broker; close it in the end. `settings` are fields of `Config`."""
        usual: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}
        config = Config(data_dir=data_dir, listeners=(), **(usual | (settings or {})))
        data_dir.mkdir(parents=True, exist_ok=True)
        broker = Broker(config, clock)
        await broker.open()
        cluster = cls(broker, **how)
        try:
            yield cluster
        finally:
            for node in cluster.nodes.values():
                cluster._disconnect(node)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await broker.close()

    @property
    def bootstrap(self) -> str:
        """The addresses of all nodes, as `bootstrap.servers`."""
        return ",".join(f"{host}:{PORT}" for host in self._addresses)

    def live(self) -> list[Node]:
        """Return the nodes that run, by id."""
        return [node for node in self.nodes.values() if node.up]

    # --- leaders and coordinators ----------------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> Leader:
        """Return the leader of a partition; at first they are dealt out in turn."""
        known = self._leaders.get((topic, partition))
        if known is None:
            live = self.live()
            known = self._leaders[topic, partition] = Leader(live[partition % len(live)].id, 0)
        return known

    def topic_name(self, topic: Any) -> str | None:
        """Return the name of a topic that a request names by name or id; None for an id that is not known."""
        try:
            return name_of(topic) or self.broker.topics.name_of(topic.topic_id)
        except BrokerError:
            return None

    def lead(self, topic: str, partition: int, node: int) -> None:
        """Let another node lead a partition, in the next epoch; −1: none."""
        self._leaders[topic, partition] = Leader(node, self.leader(topic, partition).epoch + 1)
        self._announce()

    def coordinator(self, group: str) -> int:
        """Return the node that coordinates a group."""
        found = self._coordinators.get(group)
        if found is None or not self.nodes[found].up:
            found = self._coordinators[group] = self.live()[0].id
        return found

    def coordinate(self, group: str, node: int) -> None:
        """Let another node coordinate a group."""
        self._coordinators[group] = node

    def _announce(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def _disconnect(self, node: Node) -> None:
        for one in list(node.connections):
            if one.transport is not None:
                one.transport.abort()

    def stop(self, node_id: int, *, elect: bool = True) -> None:
        """Stop a node: its connections break. With `elect`, live nodes lead what it led."""
        node = self.nodes[node_id]
        node.up = False
        self._disconnect(node)
        live = self.live()
        for (topic, partition), leader in list(self._leaders.items()):
            if leader.node == node_id:
                heir = live[partition % len(live)].id if elect and live else -1
                self._leaders[topic, partition] = Leader(heir, leader.epoch + 1)
        self._announce()

    def start(self, node_id: int) -> None:
        """Start a node again. It leads what no node leads."""
        self.nodes[node_id].up = True
        for (topic, partition), leader in list(self._leaders.items()):
            if leader.node < 0:
                self._leaders[topic, partition] = Leader(node_id, leader.epoch + 1)
        self._announce()

    def move_to(self, node_id: int, host: str) -> None:
        """Give a node another address; the one before refuses connections."""
        node = self.nodes[node_id]
        del self._addresses[node.host]
        node.host = host
        self._addresses[host] = node_id
        node.listener.bound(Endpoint("kafka", host, PORT, self.options))
        self._disconnect(node)

    def alias(self, host: str, node_id: int) -> None:
        """Let a host that no node has lead to a node, as a name of the bootstrap servers does."""
        self._addresses[host] = node_id

    def disconnect(self) -> None:
        """Break every connection."""
        for node in self.nodes.values():
            self._disconnect(node)

    # --- the network of clients ------------------------------------------------------------------------------

    async def connect(self, protocol: Callable[[], asyncio.BufferedProtocol], address: Any, tls: Any) -> None:
        """See `core.client.network.Network`."""
        await self.connected(protocol, address)

    async def connected(
        self, protocol: Callable[[], asyncio.BufferedProtocol], address: Any
    ) -> MemoryTransport:
        """Connect, and return the client's end. Raises ConnectionRefusedError."""
        await asyncio.sleep(self.latency)
        self.dials.append(str(address.host))
        return self.dial(address.host, address.port, protocol())

    def dial(self, host: str, port: int, protocol: asyncio.BaseProtocol) -> MemoryTransport:
        """Connect a client's protocol with a node. Raises ConnectionRefusedError."""
        node = self.nodes.get(self._addresses.get(host, 0))
        if node is None or not node.up or port != PORT:
            raise ConnectionRefusedError(f"no broker listens on {host}:{port}")
        return pair(protocol, NodeConnection(node), (host, port), self.latency)[0]


def _again(header: RequestHeader, frame: bytearray) -> Any:
    """Decode a request once more: what is taken out of one stays in the other."""
    _, position = decode_request_header(frame)
    return decode_request(header.api_key, header.api_version, bytearray(frame), position)


def _framed(header: RequestHeader, request: Any) -> bytearray:
    key, version = header.api_key, header.api_version
    start = encode_request_header(key, version, header.correlation_id, header.client_id)
    return bytearray(start + encode_request(key, version, request))


def _packed(header: RequestHeader, response: Any, *, version: int | None = None) -> bytes:
    version = header.api_version if version is None else version
    start = encode_response_header(header.api_key, version, header.correlation_id)
    pieces = encode_response(header.api_key, version, response)
    return start + b"".join(p.read() if isinstance(p, FileSlice) else bytes(p) for p in pieces)
