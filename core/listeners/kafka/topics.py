"""CreateTopics, DeleteTopics, CreatePartitions, DescribeLogDirs, DescribeProducers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable
from typing import TypeVar

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.listeners.kafka.throttling import Mutations
from core.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from core.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from core.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from core.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from core.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from core.protocol.primitives import NIL
from core.security.acl import Operation, ResourceType
from core.security.authorizer import is_denial
from core.types import TopicPartition

_Name = TypeVar("_Name", bound=Hashable)

CONFIG_SOURCES = {
    "topic": 1, "dynamic_broker": 2, "dynamic_default": 3, "static": 4, "default": 5, "logger": 6,
    "group": 8,
}  # fmt: skip
"""Where a value comes from, by the levels of `core.broker.broker_configs`, as numbers of the protocol."""


async def create_topics(session: KafkaSession, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics one by one; a duplicate name is refused once, as in Kafka."""
    twice = _repeated(t.name for t in request.topics)
    mutations = Mutations(session, 19)
    results = []
    for topic in {t.name: t for t in request.topics}.values():
        try:
            _require_once(topic.name, twice)
            results.append(await _create(session, topic, request.validate_only, mutations))
        except BrokerError as error:
            message = "Authorization failed." if is_denial(error) else error.message
            results.append(
                CreatableTopicResult(topic.name, NIL, error.code, message, num_partitions=-1, configs=[])
            )
    return CreateTopicsResponse(mutations.throttle(), results)


async def _create(
    session: KafkaSession, topic: CreatableTopic, validate_only: bool, mutations: Mutations
) -> CreatableTopicResult:
    partitions, replicas = topic.num_partitions, None
    if topic.assignments:
        partitions, replicas = _assigned(topic)
    null = [c.name for c in topic.configs if c.value is None]
    if null:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(null)}"
        )
    session.broker.require_create(topic.name)
    count = partitions if partitions > 0 else session.broker.config.default_partitions
    with mutations.counted(0 if validate_only else count):
        info = await session.broker.topics.create(
            topic.name,
            partitions=partitions,
            replication_factor=topic.replication_factor,
            replicas=replicas,
            configs={c.name: c.value for c in topic.configs},
            validate_only=validate_only,
        )
    if not session.rights.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        # The topic is created. Only a caller with DESCRIBE_CONFIGS sees its partitions and settings (KIP-525).
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(info.name, info.topic_id, 0, None, code, num_partitions=-1, configs=[])
    configs = [
        CreatableTopicConfigs(one.name, one.value, False, CONFIG_SOURCES[one.source], False)
        for one in session.broker.topics.effective_configs(info)
    ]
    return CreatableTopicResult(
        info.name,
        info.topic_id,
        0,
        None,
        num_partitions=info.partitions,
        replication_factor=len(info.replicas) or 1,
        configs=configs,
    )


def _assigned(topic: CreatableTopic) -> tuple[int, list[int]]:
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "With replica assignments, num_partitions and replication_factor must both be -1.",
        )
    replicas = topic.assignments[0].broker_ids
    if sorted(a.partition_index for a in topic.assignments) != list(range(len(topic.assignments))):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Assigned partitions must be numbered from 0 without gaps."
        )
    if not replicas or any(a.broker_ids != replicas for a in topic.assignments):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions of a topic have the same replicas here."
        )
    return len(topic.assignments), replicas


async def delete_topics(session: KafkaSession, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete topics, each by its name or its id; a duplicate is refused once and not deleted, as in Kafka."""
    wanted = [*request.topics, *(DeleteTopicState(name) for name in request.topic_names)]
    twice = _repeated((t.name, t.topic_id) for t in wanted)
    mutations = Mutations(session, 20)
    responses = []
    for topic in {(t.name, t.topic_id): t for t in wanted}.values():
        name = topic.name
        try:
            if (name, topic.topic_id) in twice:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"Topic {name or topic.topic_id} is in this request more than once. Name it once.",
                )
            if (name is None) == (topic.topic_id == NIL):
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, "A topic is named by its name or its id, not both."
                )
            found = session.broker.topics.name_of(topic.topic_id) if name is None else name
            if not session.rights.may(Operation.DELETE, ResourceType.CLUSTER):
                session.rights.require(Operation.DESCRIBE, ResourceType.TOPIC, found)
            name = found
            if not session.rights.may(Operation.DELETE, ResourceType.CLUSTER):
                session.rights.require(Operation.DELETE, ResourceType.TOPIC, found)
            info = session.listener.broker.topics.get(found)
            with mutations.counted(info.partitions):
                await session.broker.topics.delete(name)
            responses.append(DeletableTopicResult(name, info.topic_id))
        except BrokerError as error:
            responses.append(DeletableTopicResult(name, topic.topic_id, error.code, error.message))
    return DeleteTopicsResponse(mutations.throttle(), responses)


async def create_partitions(
    session: KafkaSession, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions to topics; a duplicate name is refused once, as in Kafka."""
    twice = _repeated(t.name for t in request.topics)
    mutations = Mutations(session, 37)
    results = []
    for topic in {t.name: t for t in request.topics}.values():
        try:
            _require_once(topic.name, twice)
            await _grow(session, topic, request.validate_only, mutations)
            results.append(CreatePartitionsTopicResult(topic.name))
        except BrokerError as error:
            message = None if is_denial(error) else error.message  # as Kafka
            results.append(CreatePartitionsTopicResult(topic.name, error.code, message))
    return CreatePartitionsResponse(mutations.throttle(), results)


async def _grow(
    session: KafkaSession, topic: CreatePartitionsTopic, validate_only: bool, mutations: Mutations
) -> None:
    session.rights.require(Operation.ALTER, ResourceType.TOPIC, topic.name)
    info = session.broker.topics.get(topic.name)
    node = session.broker.config.broker_id
    if topic.assignments and (
        len(topic.assignments) != topic.count - info.partitions
        or any(a.broker_ids != [node] for a in topic.assignments)
    ):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Each new partition needs one assignment, to the one broker, {node}.",
        )
    with mutations.counted(0 if validate_only else max(topic.count - info.partitions, 0)):
        await session.broker.topics.create_partitions(topic.name, topic.count, validate_only=validate_only)


def _repeated(names: Iterable[_Name]) -> set[_Name]:
    return {name for name, count in Counter(names).items() if count > 1}


def _require_once(name: str, repeated: Collection[str]) -> None:
    if name in repeated:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST, f"Topic {name!r} is in this request more than once. Name it once."
        )


def describe_log_dirs(session: KafkaSession, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Return the data directory and the sizes of partitions. Null: all topics. Unknown topics are left out."""
    if (denied := session.rights.denial(Operation.DESCRIBE, ResourceType.CLUSTER)) is not None:
        return DescribeLogDirsResponse(error_code=denied.code)
    # The right on the cluster is enough here, whatever the rights on the topics.
    broker = session.listener.broker
    wanted: dict[str, list[int]] = {}
    if request.topics is None:
        wanted = {t.name: list(range(t.partitions)) for t in broker.topics.list(include_internal=True)}
    else:
        for topic in request.topics:
            wanted.setdefault(topic.topic, []).extend(topic.partitions)
    topics = []
    for name, partitions in wanted.items():
        sizes = []
        for partition in partitions:
            try:
                size = broker.partitions.info(TopicPartition(name, partition)).size
            except BrokerError:
                continue
            sizes.append(DescribeLogDirsPartition(partition, size or 0, 0, False))
        if sizes:
            topics.append(DescribeLogDirsTopic(name, sizes))
    total, usable = broker.partitions.disk_space()
    result = DescribeLogDirsResult(0, str(broker.config.data_dir.absolute()), topics, total, usable)
    return DescribeLogDirsResponse(results=[result])


def describe_producers(session: KafkaSession, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Return the idempotent producers that each partition remembers, with where their open transactions begin."""
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            try:
                states = session.broker.partitions.active_producers(TopicPartition(topic.name, index))
            except BrokerError as error:
                partitions.append(PartitionResponse(index, error.code, error.message))
                continue
            producers = [
                ProducerState(
                    s.producer_id,
                    s.producer_epoch,
                    s.last_sequence,
                    s.last_timestamp,
                    s.coordinator_epoch,
                    s.current_txn_start_offset,
                )
                for s in states
            ]
            partitions.append(PartitionResponse(index, 0, None, producers))
        topics.append(TopicResponse(topic.name, partitions))
    return DescribeProducersResponse(topics=topics)


HANDLERS = table(
    Handler(19, create_topics, needs=((Operation.CREATE, ResourceType.TOPIC),)),
    Handler(20, delete_topics, needs=((Operation.DELETE, ResourceType.TOPIC),)),
    Handler(37, create_partitions, needs=((Operation.ALTER, ResourceType.TOPIC),)),
    Handler(35, describe_log_dirs, needs=((Operation.DESCRIBE, ResourceType.CLUSTER),)),
    Handler(61, describe_producers, needs=((Operation.READ, ResourceType.TOPIC),)),
)
