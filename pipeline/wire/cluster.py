"""A Kafka cluster as one client sees it: leaders of partitions, offsets, and retries.

Whatever may pass (a broker that restarts, a leader that moves) is tried again until `retry` seconds are over; then
the last error is raised. Nothing is remembered beyond connections and leaders, so a worker may build one per task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from core.errors import ErrorCode
from core.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pipeline import limits
from pipeline.wire.connection import Connection, Timeouts
from pipeline.wire.errors import ConnectionLostError, KafkaError, WireError, error_code, refuse
from pipeline.wire.security import Security

LIST_OFFSETS, METADATA = 2, 3

Result = TypeVar("Result")
TopicPartition = tuple[str, int]


class ClientSettings(NamedTuple):
    """How to reach a cluster. Picklable: workers get it with their ranges."""

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "sluice-spark"
    timeouts: Timeouts = Timeouts()
    retry: float = limits.RETRY_TIMEOUT_S
    fetch_bytes: int = limits.FETCH_BYTES
    read_committed: bool = True
    security: Security = Security()


class UnknownTopicError(WireError):
    """A topic or partition that the cluster does not have."""


class Cluster:
    """Connections to a cluster's brokers, and questions to it. Not for several threads."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._nodes: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._connections: dict[tuple[str, int], Connection] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        while self._connections:
            self._connections.popitem()[1].close()

    # --- patience ------------------------------------------------------------------------------------------

    def patiently(self, work: Callable[[], Result]) -> Result:
        """`work()`, again and again while it fails with what may pass, for `settings.retry` seconds at most."""
        deadline = time.monotonic() + self.settings.retry
        pause = limits.RETRY_PAUSE_S
        while True:
            try:
                return work()
            except WireError as error:
                if not may_pass(error) or time.monotonic() + pause > deadline:
                    raise
                self.forget()
            time.sleep(pause)
            pause = min(2 * pause, limits.RETRY_PAUSE_MAX_S)

    def forget(self) -> None:
        """Drop connections and leaders, because they may be out of date."""
        self.close()
        self._leaders.clear()

    # --- brokers -------------------------------------------------------------------------------------------

    def connect(self, host: str, port: int) -> Connection:
        """The connection to one address, made when it is first asked for."""
        connection = self._connections.get((host, port))
        if connection is None:
            connection = Connection(
                host,
                port,
                client_id=self.settings.client_id,
                timeouts=self.settings.timeouts,
                security=self.settings.security,
            )
            self._connections[host, port] = connection
        return connection

    def any_broker(self) -> Connection:
        """A connection to the first bootstrap server that answers."""
        errors = []
        for host, port in self.settings.bootstrap:
            try:
                return self.connect(host, port)
            except ConnectionLostError as error:
                errors.append(str(error))
        raise ConnectionLostError("; ".join(errors))

    def every_broker(self) -> list[Connection]:
        """A connection to each broker that Metadata names. Raises ConnectionLostError if one is away."""
        self.metadata(())
        return [self.connect(host, port) for host, port in self._nodes.values()]

    def node(self, node_id: int) -> Connection:
        """The connection to a broker by its number, once Metadata has named it."""
        if node_id not in self._nodes:
            self.metadata(())
        if node_id not in self._nodes:
            raise ConnectionLostError(f"Metadata names no broker {node_id}")
        return self.connect(*self._nodes[node_id])

    def leader(self, topic: str, partition: int) -> Connection:
        """The connection to the leader of a partition. Raises UnknownTopicError, or KafkaError without a leader."""
        if (topic, partition) not in self._leaders:
            found = self.metadata((topic,))
            if partition not in found[topic]:
                raise UnknownTopicError(
                    f"topic {topic} has no partition {partition}, only {len(found[topic])}"
                )
        return self.node(self._leaders[topic, partition])

    def metadata(self, topics: Iterable[str] | None, *, missing_ok: bool = False) -> dict[str, list[int]]:
        """The partitions of these topics, or of all, and remember their leaders.

        Raises UnknownTopicError for one that is not there (it is never created) unless `missing_ok`, KafkaError
        for other errors.
        """
        asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = self.any_broker().request(METADATA, request, MetadataResponse)
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        found: dict[str, list[int]] = {}
        for topic in answer.topics:
            name = topic.name or ""
            if error_code(topic.error_code) in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ):
                if missing_ok:
                    continue
                raise UnknownTopicError(f"the cluster has no topic {name!r}")
            refuse(topic.error_code, f"Metadata of topic {name}")
            if asked is None and topic.is_internal:
                continue
            found[name] = sorted(partition.partition_index for partition in topic.partitions)
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    self._leaders[name, partition.partition_index] = partition.leader_id
                elif asked is not None:
                    code = partition.error_code or ErrorCode.LEADER_NOT_AVAILABLE
                    raise KafkaError(code, f"partition {partition.partition_index} of {name} has no leader")
        return found

    def cluster_id(self) -> str | None:
        """The id that Metadata names, patiently; None from a broker that has none."""
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        return self.patiently(
            lambda: self.any_broker().request(METADATA, request, MetadataResponse).cluster_id
        )

    def topics(self, names: Iterable[str] | None, *, missing_ok: bool = False) -> dict[str, list[int]]:
        """`metadata`, patiently."""
        wanted = None if names is None else tuple(names)
        return self.patiently(lambda: self.metadata(wanted, missing_ok=missing_ok))

    # --- offsets -------------------------------------------------------------------------------------------

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offset that belongs to a timestamp (ms), to LATEST or EARLIEST, for each partition.

        For a timestamp it is the first record's that is not older, −1 where there is none. LATEST is the high
        watermark, or the last stable offset with `read_committed`.
        """
        done: dict[TopicPartition, int] = {}

        def ask() -> dict[TopicPartition, int]:
            by_leader: dict[str, tuple[Connection, dict[TopicPartition, int]]] = {}
            for (topic, partition), timestamp in asked.items():
                if (topic, partition) not in done:
                    connection = self.leader(topic, partition)
                    group = by_leader.setdefault(connection.name, (connection, {}))
                    group[1][topic, partition] = timestamp
            for connection, part in by_leader.values():
                done.update(self._list_offsets(connection, part))
            return done

        return self.patiently(ask)

    def _list_offsets(
        self, connection: Connection, asked: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        topics: dict[str, ListOffsetsTopic] = {}
        for (topic, partition), timestamp in asked.items():
            one = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            topics.setdefault(topic, ListOffsetsTopic(name=topic, partitions=[])).partitions.append(one)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=int(self.settings.read_committed), topics=list(topics.values())
        )
        answer = connection.request(LIST_OFFSETS, request, ListOffsetsResponse)
        found = {}
        for topic_answer in answer.topics:
            for got in topic_answer.partitions:
                where = f"ListOffsets of {topic_answer.name} partition {got.partition_index}"
                if error_code(got.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopicError(f"{where}: the broker does not know it")
                refuse(got.error_code, where)
                old = got.old_style_offsets
                found[topic_answer.name, got.partition_index] = old[0] if old else got.offset
        missing = asked.keys() - found.keys()
        if missing:
            raise WireError(f"ListOffsets did not answer for {sorted(missing)}")
        return found


def may_pass(error: WireError) -> bool:
    """Whether the same work may succeed a little later."""
    return isinstance(error, ConnectionLostError) or (isinstance(error, KafkaError) and error.retriable)
