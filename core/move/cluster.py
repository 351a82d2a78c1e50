"""One of the two clusters of a move: its topics, batches, offsets and groups, over the Kafka protocol."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from core.client.cluster import ClusterClient
from core.client.failures import error_code, refused
from core.client.metadata import TopicMetadata
from core.errors import BrokerError, ErrorCode
from core.move.batches import Aborted
from core.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from core.types import TopicPartition

T = TypeVar("T")

EARLIEST, LATEST = -2, -1
_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1
_OF_TOPIC = 1
# How long an answer of the controller may take.
_ADMIN_MS = 60_000
_READ_COMMITTED = 1
# Seconds for which a request is tried again that other brokers may answer, or the same one later.
PATIENCE = 60.0


class FetchedPartition(NamedTuple):
    """What a fetch gave of one partition. `data` are batches, the last one may be cut off."""

    data: bytes | memoryview
    aborted: tuple[Aborted, ...]
    last_stable_offset: int
    high_watermark: int
    log_start_offset: int
    error: ErrorCode


class MoveCluster:
    """A cluster, by a client that is open. Calls raise BrokerError."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    @property
    def client(self) -> ClusterClient:
        """The client."""
        return self._client

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""
        return self._client.cluster_id

    async def topics(self) -> dict[str, TopicMetadata]:
        """Return all topics that are not internal, as they are now."""
        await self._client.refresh(None)
        return {name: topic for name, topic in self._client.topics.items() if not topic.internal}

    async def topic(self, name: str) -> TopicMetadata | None:
        """Return a topic as it is now; None if there is none."""
        await self._client.refresh([name])
        return self._client.topics.get(name)

    # --- batches -------------------------------------------------------------------------------------------

    async def fetch(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        committed: bool,
        wait_ms: int = 0,
        max_bytes: int,
        partition_bytes: int,
    ) -> dict[TopicPartition, FetchedPartition]:
        """Fetch from each partition at its offset, one request for each leader.

        A partition whose leader is not known, or has just changed, is missing in the answer: ask again.
        """
        by_leader = await self._by_leader(offsets)
        answers = await asyncio.gather(
            *(
                self._fetch(
                    leader, {tp: offsets[tp] for tp in tps}, committed, wait_ms, max_bytes, partition_bytes
                )
                for leader, tps in by_leader.items()
            )
        )
        return {tp: one for answer in answers for tp, one in answer.items()}

    async def _fetch(
        self,
        leader: int,
        offsets: Mapping[TopicPartition, int],
        committed: bool,
        wait_ms: int,
        max_bytes: int,
        partition_bytes: int,
    ) -> dict[TopicPartition, FetchedPartition]:
        topics = self._client.topics
        wanted = [
            FetchTopic(
                topic=name,
                topic_id=topics[name].topic_id,
                partitions=[
                    FetchPartition(
                        partition=tp.partition, fetch_offset=offsets[tp], partition_max_bytes=partition_bytes
                    )
                    for tp in tps
                ],
            )
            for name, tps in _by_topic(offsets).items()
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=_READ_COMMITTED if committed else 0,
            topics=wanted,
        )
        try:
            answer = await self._client.ask(leader, request, lane="fetch", timeout_ms=_ADMIN_MS)
        except BrokerError as error:
            if not error.code.retriable:
                raise
            await self._settle(_by_topic(offsets))
            return {}
        names = {topics[name].topic_id: name for name in _by_topic(offsets)}
        found: dict[TopicPartition, FetchedPartition] = {}
        for topic in answer.responses:
            for one in topic.partitions:
                tp = TopicPartition(topic.topic or names.get(topic.topic_id, ""), one.partition_index)
                aborted = [Aborted(a.producer_id, a.first_offset) for a in one.aborted_transactions or ()]
                found[tp] = FetchedPartition(
                    one.records or b"",
                    tuple(aborted),
                    one.last_stable_offset,
                    one.high_watermark,
                    one.log_start_offset,
                    error_code(one.error_code),
                )
        moved = {tp.topic for tp, one in found.items() if one.error.retriable}
        if moved:
            await self._settle(moved)
        return {tp: one for tp, one in found.items() if not one.error.retriable}

    async def produce(self, tp: TopicPartition, batch: bytes | bytearray) -> int:
        """Append a batch with acks=all; return the offset of its first record. Raises the target's error."""
        leader = await self._leader(tp)
        data = TopicProduceData(
            name=tp.topic,
            topic_id=self._client.topics[tp.topic].topic_id,
            partition_data=[PartitionProduceData(index=tp.partition, records=batch)],  # type: ignore[arg-type]
        )
        answer = await self._client.ask(leader, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]))
        one = answer.responses[0].partition_responses[0]
        if one.error_code:
            raise refused(one.error_code, f"The target refuses a batch of {tp}", one.error_message)
        return int(one.base_offset)

    async def producer(self) -> tuple[int, int]:
        """Return a new producer id and its epoch."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)

        async def ask() -> tuple[int, int]:
            answer = await self._client.ask_any(request)
            if answer.error_code:
                raise refused(answer.error_code, "The target gives no producer id")
            return answer.producer_id, answer.producer_epoch

        return await self.patient(ask)

    # --- offsets -------------------------------------------------------------------------------------------

    async def offsets(
        self, tps: Collection[TopicPartition], moment: int, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the offset of `EARLIEST` or `LATEST` in each partition; with `committed` the last stable one."""
        found: dict[TopicPartition, int] = {}

        async def ask() -> None:
            by_leader = await self._by_leader([tp for tp in tps if tp not in found], every=True)
            await asyncio.gather(
                *(self._offsets(leader, some, moment, committed, found) for leader, some in by_leader.items())
            )

        await self.patient(ask, topics={tp.topic for tp in tps})
        return found

    async def _offsets(
        self,
        leader: int,
        tps: Iterable[TopicPartition],
        moment: int,
        committed: bool,
        found: dict[TopicPartition, int],
    ) -> None:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=tp.partition, timestamp=moment) for tp in some
                ],
            )
            for name, some in _by_topic(tps).items()
        ]
        isolation = _READ_COMMITTED if committed else 0
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=_ADMIN_MS
        )
        answer = await self._client.ask(leader, request)
        for topic in answer.topics:
            for one in topic.partitions:
                if one.error_code:
                    raise refused(one.error_code, f"The offsets of {topic.name}-{one.partition_index}")
                found[TopicPartition(topic.name, one.partition_index)] = one.offset

    # --- topics --------------------------------------------------------------------------------------------

    async def overrides(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the settings that each topic has itself, by topic."""
        resources = [
            DescribeConfigsResource(
                resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None
            )
            for name in names
        ]
        answer = await self.patient(lambda: self._client.ask_any(DescribeConfigsRequest(resources=resources)))
        found: dict[str, dict[str, str]] = {}
        for result in answer.results:
            if result.error_code:
                where = f"The settings of topic {result.resource_name!r}"
                raise refused(result.error_code, where, result.error_message)
            found[result.resource_name] = {
                one.name: one.value
                for one in result.configs
                if one.config_source == _OF_TOPIC and one.value is not None and not one.is_sensitive
            }
        return found

    async def create_topic(
        self, name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
    ) -> None:
        """Create a topic. Raises TOPIC_ALREADY_EXISTS, INVALID_CONFIG and what else the target says."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_ADMIN_MS)
        answer = await self._client.ask_controller(request)
        (result,) = answer.topics
        if result.error_code:
            raise refused(
                result.error_code, f"The target does not create topic {name!r}", result.error_message
            )

    async def create_partitions(self, name: str, count: int) -> None:
        """Grow a topic to `count` partitions."""
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        answer = await self._client.ask_controller(
            CreatePartitionsRequest(topics=[topic], timeout_ms=_ADMIN_MS)
        )
        (result,) = answer.results
        if result.error_code:
            where = f"The target does not add partitions to topic {name!r}"
            raise refused(result.error_code, where, result.error_message)

    async def alter(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Set settings of a topic; None puts one back to its default."""
        configs = [
            AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configs=configs)
        answer = await self._client.ask_controller(IncrementalAlterConfigsRequest(resources=[resource]))
        (result,) = answer.responses
        if result.error_code:
            where = f"The target does not change the settings of topic {name!r}"
            raise refused(result.error_code, where, result.error_message)

    # --- leaders, patience ---------------------------------------------------------------------------------

    async def patient(self, work: Callable[[], Awaitable[T]], topics: Collection[str] = ()) -> T:
        """Do work that may be repeated, until its error is none that may end. Raises its last error."""
        clock = self._client.clock
        deadline, pause = clock.monotonic() + PATIENCE, 0.1
        while True:
            try:
                return await work()
            except BrokerError as error:
                if not error.code.retriable or clock.monotonic() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 2.0)
            if topics:
                await self._client.refresh(topics)

    async def _leader(self, tp: TopicPartition) -> int:
        leaders = await self._by_leader([tp], every=True)
        return next(iter(leaders))

    async def _by_leader(
        self, tps: Iterable[TopicPartition], *, every: bool = False
    ) -> dict[int, list[TopicPartition]]:
        """Return partitions by their leaders. Those without one are left out; with `every` that is an error."""
        wanted = list(tps)
        missing = {tp.topic for tp in wanted if self._known_leader(tp) < 0}
        if missing:
            await self._client.refresh(missing)
        found: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in wanted:
            leader = self._known_leader(tp)
            if leader >= 0:
                found[leader].append(tp)
            elif every:
                raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader at the moment.")
        return found

    def _known_leader(self, tp: TopicPartition) -> int:
        topic = self._client.topics.get(tp.topic)
        partition = None if topic is None else topic.partition(tp.partition)
        return -1 if partition is None else partition.leader

    async def _settle(self, topics: Collection[str]) -> None:
        """Give the cluster a moment to change leaders, then ask for them."""
        await asyncio.sleep(0.2)
        try:
            await self._client.refresh(topics)
        except BrokerError as error:
            if not error.code.retriable:
                raise


def _by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    found: dict[str, list[TopicPartition]] = defaultdict(list)
    for tp in tps:
        found[tp.topic].append(tp)
    return found
