"""Metadata, DescribeCluster, DescribeTopicPartitions: the brokers, the topics, and the leaders of partitions.

Without peers this broker leads every partition. If no topic is missing, the answer depends on the request and on the
topics only. So the listener keeps the encoded answer until the topics change.
"""

from __future__ import annotations

import asyncio
import logging

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from core.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from core.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from core.protocol.primitives import NIL
from core.protocol.traits import metadata_empty_means_all, metadata_may_leave_names_out
from core.security.acl import CLUSTER_NAME, Operation, ResourceType
from core.vocabulary.replicas import Placement
from core.vocabulary.topic import TopicInfo, check_topic_name

log = logging.getLogger(__name__)

# The operations that there are on a topic and on the cluster (KIP-430).
_TOPIC_OPERATIONS = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
)  # fmt: skip
_CLUSTER_OPERATIONS = (
    Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE,
)  # fmt: skip
_NOT_ASKED = -0x8000_0000
_ENDPOINT_BROKERS = 1
# KIP-966's max.request.partition.size.limit.
_MAX_PARTITIONS_ANSWERED = 2_000


def metadata(session: KafkaSession, request: MetadataRequest) -> MetadataResponse:
    """Return brokers and topics. Create missing topics if the request and the settings allow it."""
    broker = session.broker
    wanted = request.topics
    if wanted is None or (not wanted and metadata_empty_means_all(session.version)):
        alone = broker.roles.alone
        topics = [_topic(session, t, request, alone) for t in broker.topics.list(include_internal=True)]
    else:
        topics = [_one(session, one, request) for one in wanted]
    session.cacheable = not any(t.error_code for t in topics)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(*one) for one in session.brokers()],
        cluster_id=broker.cluster_id or None,
        controller_id=broker.roles.metadata_leader,
        topics=topics,
        cluster_authorized_operations=_cluster_operations(session, request),
    )


def _one(
    session: KafkaSession, wanted: MetadataRequestTopic, request: MetadataRequest
) -> MetadataResponseTopic:
    broker, name = session.broker, wanted.name
    try:
        if wanted.topic_id != NIL:
            name = broker.topics.name_of(wanted.topic_id)
        if name is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, "A topic needs a name or an id.")
        return _topic(session, broker.topics.get(name), request, broker.roles.alone)
    except BrokerError as error:
        code = error.code
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name is not None:
        code = _create(session, name, request.allow_auto_topic_creation)
    # Versions that ask by id but have no null name send an empty one.
    unnamed = None if metadata_may_leave_names_out(session.version) else ""
    shown = unnamed if name is None or wanted.topic_id != NIL else name
    return MetadataResponseTopic(code, shown, wanted.topic_id)


def _create(session: KafkaSession, name: str, allowed: bool) -> ErrorCode:
    """Return the answer for a missing topic. As in Kafka, its creation begins and the client retries."""
    try:
        check_topic_name(name)
    except BrokerError as error:
        return error.code
    broker = session.broker
    if (
        not allowed
        or not broker.config.auto_create_topics
        or broker.roles.metadata_leader != broker.config.broker_id
    ):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    may = session.rights.may
    if not may(Operation.CREATE, ResourceType.CLUSTER) and not may(
        Operation.CREATE, ResourceType.TOPIC, name
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    task = asyncio.get_running_loop().create_task(_auto_create(session, name))
    session.listener.tasks.add(task)
    task.add_done_callback(session.listener.tasks.discard)
    return ErrorCode.LEADER_NOT_AVAILABLE


async def _auto_create(session: KafkaSession, name: str) -> None:
    try:
        await session.broker.topics.get_or_create(name)
    except BrokerError as error:
        log.warning("topic %r could not be created: %s", name, error.message)


def _topic(
    session: KafkaSession, topic: TopicInfo, request: MetadataRequest, alone: Placement | None
) -> MetadataResponseTopic:
    if alone is not None:
        # Shared, because a topic may have ten thousand partitions.
        node, epoch = alone.leader, alone.leader_epoch
        one = [node]
        partitions = [MetadataResponsePartition(0, p, node, epoch, one, one) for p in range(topic.partitions)]
    else:
        partitions = [_partition(p, session.broker.roles.placed(topic, p)) for p in range(topic.partitions)]
    return MetadataResponseTopic(
        0,
        topic.name,
        topic.topic_id,
        topic.internal,
        partitions,
        _topic_operations(session, topic.name) if request.include_topic_authorized_operations else _NOT_ASKED,
    )


def _topic_operations(session: KafkaSession, name: str) -> int:
    return session.rights.operations(ResourceType.TOPIC, name, _TOPIC_OPERATIONS)


def _cluster_operations(session: KafkaSession, request: MetadataRequest | DescribeClusterRequest) -> int:
    """Return what the caller may do on the cluster; nothing for one that may not describe it."""
    if not request.include_cluster_authorized_operations:
        return _NOT_ASKED
    if not session.rights.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return session.rights.operations(ResourceType.CLUSTER, CLUSTER_NAME, _CLUSTER_OPERATIONS)


def _partition(number: int, where: Placement) -> MetadataResponsePartition:
    error = ErrorCode.NONE if where.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error, number, where.leader, where.leader_epoch, list(where.replicas), list(where.isr)
    )


def describe_cluster(session: KafkaSession, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Return the brokers. Controllers have no endpoints of their own."""
    if request.endpoint_type != _ENDPOINT_BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="Only the endpoints of brokers (type 1) can be asked for here.",
            endpoint_type=request.endpoint_type,
        )
    broker = session.broker
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.roles.metadata_leader,
        brokers=[DescribeClusterBroker(*one) for one in session.brokers()],
        cluster_authorized_operations=_cluster_operations(session, request),
    )


def describe_topic_partitions(
    session: KafkaSession, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Partitions of topics in order of their names, page by page (KIP-966); no names means all topics."""
    broker = session.broker
    names = sorted({t.name for t in request.topics}) or [
        t.name for t in broker.topics.list(include_internal=True)
    ]
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name, first_partition = request.cursor.topic_name, request.cursor.partition_index
    left = min(max(request.response_partition_limit, 1), _MAX_PARTITIONS_ANSWERED)
    response = DescribeTopicPartitionsResponse(topics=[])
    for name in names:
        if name < first_name:
            continue
        start = first_partition if name == first_name else 0
        try:
            topic = broker.topics.get(name)
        except BrokerError as error:
            response.topics.append(DescribeTopicPartitionsResponseTopic(error.code, name))
            continue
        if left == 0:
            response.next_cursor = Cursor(name, start)
            break
        end = min(topic.partitions, start + left)
        response.topics.append(_described(session, topic, range(start, end)))
        left -= max(end - start, 0)
        if end < topic.partitions:
            response.next_cursor = Cursor(name, end)
            break
    return response


def _described(
    session: KafkaSession, topic: TopicInfo, partitions: range
) -> DescribeTopicPartitionsResponseTopic:
    placed = [(p, session.broker.roles.placed(topic, p)) for p in partitions]
    return DescribeTopicPartitionsResponseTopic(
        0,
        topic.name,
        topic.topic_id,
        topic.internal,
        [
            DescribeTopicPartitionsResponsePartition(
                ErrorCode.NONE if where.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                p,
                where.leader,
                where.leader_epoch,
                list(where.replicas),
                list(where.isr),
                [],
                [],
            )
            for p, where in placed
        ],
        _topic_operations(session, topic.name),
    )


_DESCRIBE_TOPIC = ((Operation.DESCRIBE, ResourceType.TOPIC),)

HANDLERS = table(
    Handler(3, metadata, needs=_DESCRIBE_TOPIC, cached=True),
    Handler(60, describe_cluster, needs=()),
    Handler(75, describe_topic_partitions, needs=_DESCRIBE_TOPIC),
)
