"""ElectLeaders: the broker that gets the request becomes leader, in a new epoch. It elects no other broker."""

from __future__ import annotations

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from core.security.acl import Operation, ResourceType
from core.types import TopicPartition

_PREFERRED, _UNCLEAN = 0, 1


async def elect_leaders(session: KafkaSession, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Let this broker lead some partitions, or all that it holds copies of (null).

    The preferred leader of a partition, its first replica, must be asked itself: PREFERRED_LEADER_NOT_AVAILABLE
    says that this broker is not the one. An unclean election takes any replica. ELECTION_NOT_NEEDED: it leads.
    """
    if (denied := session.rights.denial(Operation.ALTER, ResourceType.CLUSTER)) is not None:
        return _refused(request, denied)
    # The right on the cluster is enough here, whatever the rights on the topics.
    broker = session.listener.broker
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    wanted = [
        TopicPartition(topic.topic, partition)
        for topic in request.topic_partitions or ()
        for partition in topic.partitions
    ]
    if request.topic_partitions is None:
        wanted = broker.roles.replicated()
    results: dict[str, ReplicaElectionResult] = {}
    for tp in wanted:
        topic = results.setdefault(tp.topic, ReplicaElectionResult(tp.topic, []))
        try:
            await _elect(session, tp, request.election_type == _UNCLEAN)
            topic.partition_result.append(PartitionResult(tp.partition))
        except BrokerError as error:
            if request.topic_partitions is None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                continue  # as in Kafka: of all partitions, only those are named that were not led before
            topic.partition_result.append(PartitionResult(tp.partition, error.code, error.message))
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _refused(request: ElectLeadersRequest, error: BrokerError) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic.topic,
                [PartitionResult(partition, error.code, error.message) for partition in topic.partitions],
            )
            for topic in request.topic_partitions or ()
        ],
    )


async def _elect(session: KafkaSession, tp: TopicPartition, unclean: bool) -> None:
    broker = session.listener.broker
    info = broker.partitions.info(tp)
    if info.leads:
        raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED, f"This broker leads {tp} already.")
    if not unclean and info.replicas[0] != broker.config.broker_id:
        raise BrokerError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"The preferred leader of {tp} is broker {info.replicas[0]}; send the request there.",
        )
    await session.broker.roles.set(tp, "leader", unclean=unclean)


HANDLERS = table(Handler(43, elect_leaders, needs=((Operation.ALTER, ResourceType.CLUSTER),)))
