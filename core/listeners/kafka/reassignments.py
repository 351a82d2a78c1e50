"""ListPartitionReassignments, AlterPartitionReassignments, AlterReplicaLogDirs: replicas stay where they are.

A topic keeps the replicas that it was created with, and a broker has one data directory. So no move is ever under
way. A move to the place where the replica is already succeeds; each other one is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from core.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from core.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from core.security.acl import Operation, ResourceType
from core.types import TopicPartition
from core.vocabulary.topic import TopicInfo


def list_partition_reassignments(
    session: KafkaSession, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return an empty list; as in Kafka, also for topics that do not exist."""
    if (denied := session.rights.denial(Operation.DESCRIBE, ResourceType.CLUSTER)) is not None:
        return ListPartitionReassignmentsResponse(error_code=denied.code, error_message=denied.message)
    return ListPartitionReassignmentsResponse()


def alter_partition_reassignments(
    session: KafkaSession, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Accept the replicas that a partition has; refuse all others with INVALID_REPLICA_ASSIGNMENT.

    To cancel a move is NO_REASSIGNMENT_IN_PROGRESS. Each partition has its own error.
    """
    if (denied := session.rights.denial(Operation.ALTER, ResourceType.CLUSTER)) is not None:
        refused = [
            ReassignableTopicResponse(
                topic.name,
                [
                    ReassignablePartitionResponse(p.partition_index, denied.code, denied.message)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return AlterPartitionReassignmentsResponse(
            error_code=denied.code, error_message=denied.message, responses=refused
        )
    brokers = {broker_id for broker_id, _, _ in session.brokers()}
    responses = []
    for topic in request.topics:
        answered = ReassignableTopicResponse(topic.name, [])
        for asked in topic.partitions:
            code, message = ErrorCode.NONE, None
            try:
                _reassign(session.listener.broker.topics.get(topic.name), asked, brokers)
            except BrokerError as error:
                code, message = error.code, error.message
            answered.partitions.append(ReassignablePartitionResponse(asked.partition_index, code, message))
        responses.append(answered)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=responses
    )


def _reassign(topic: TopicInfo, asked: ReassignablePartition, brokers: set[int]) -> None:
    tp = TopicPartition(topic.name, asked.partition_index)
    if not 0 <= tp.partition < topic.partitions:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic {topic.name!r} has no partition {tp.partition}; it has {topic.partitions}, counted from 0.",
        )
    if asked.replicas is None:
        raise BrokerError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            f"No reassignment of {tp} is in progress: this broker does not move replicas.",
        )
    present = list(topic.replicas) or sorted(brokers)
    if asked.replicas != present:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, _refusal(tp, asked.replicas, present, brokers)
        )


def _refusal(tp: TopicPartition, wanted: Sequence[int], present: Sequence[int], brokers: set[int]) -> str:
    if not wanted:
        return f"The replica list of {tp} is empty."
    if len(set(wanted)) < len(wanted):
        return f"The replica list of {tp} names a broker more than once."
    if unknown := sorted(set(wanted) - brokers):
        return f"The replica list of {tp} includes broker {unknown[0]}, but there is no such broker."
    replicas = ", ".join(map(str, present))
    return (
        f"The replicas of {tp} stay on {replicas}, in this order: a topic keeps the replicas that it was created "
        "with. Create another topic with the assignment that you want, and copy the records."
    )


def alter_replica_log_dirs(
    session: KafkaSession, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Accept the data directory for partitions that are in it; another path is LOG_DIR_NOT_FOUND."""
    # The right on the cluster is enough here, whatever the rights on the topics.
    broker = session.listener.broker
    own = str(broker.config.data_dir.absolute())
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic.name, []))
            for partition in topic.partitions:
                code = ErrorCode.NONE
                try:
                    session.rights.require(Operation.ALTER, ResourceType.CLUSTER)
                    if directory.path != own:
                        raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND, f"The one log directory is {own}.")
                    broker.partitions.info(TopicPartition(topic.name, partition))
                except BrokerError as error:
                    code = error.code
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition, code))
    return AlterReplicaLogDirsResponse(results=list(results.values()))


HANDLERS = table(
    Handler(34, alter_replica_log_dirs, needs=((Operation.ALTER, ResourceType.CLUSTER),)),
    Handler(45, alter_partition_reassignments, needs=((Operation.ALTER, ResourceType.CLUSTER),)),
    Handler(46, list_partition_reassignments, needs=((Operation.DESCRIBE, ResourceType.CLUSTER),)),
)
