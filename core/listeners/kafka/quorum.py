"""DescribeQuorum: the brokers that hold the metadata, as a KRaft quorum of combined nodes would answer (KIP-595).

Every broker of a cluster holds a replica of `__cluster_metadata-0`, so all are voters, and none is an observer. Only
the leader knows how far the others are: another broker forwards the question. A broker alone has no metadata log; it
answers as the leader of an empty one.
"""

from __future__ import annotations

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.describe_quorum import (
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
)
from core.security.acl import Operation, ResourceType
from core.vocabulary.replicas import METADATA

_KEY = 55
_LISTENER = "PLAINTEXT"
_NOT_HERE = "This broker holds no quorum of that partition; ask for __cluster_metadata-0 alone."


async def describe_quorum(session: KafkaSession, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Return leader, epoch, high watermark and voters of `__cluster_metadata-0`.

    Any other question, or more than one, is UNKNOWN_TOPIC_OR_PARTITION for each partition, as in Kafka. While no
    leader is known or it does not answer: NOT_LEADER_OR_FOLLOWER.
    """
    if (denied := session.rights.denial(Operation.DESCRIBE, ResourceType.CLUSTER)) is not None:
        return DescribeQuorumResponse(error_code=denied.code, error_message=denied.message)
    asked = [(t.topic_name, p.partition_index) for t in request.topics for p in t.partitions]
    # Kafka 4.1 says "" and not null where there is no error.
    answer = DescribeQuorumResponse(error_message="")
    if asked != [METADATA]:
        answer.topics = [
            DescribedQuorumTopic(
                topic.topic_name,
                [
                    DescribedQuorumPartition(
                        p.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NOT_HERE
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return answer
    try:
        partition = _described(session) or await _forwarded(session, request)
    except BrokerError as error:
        partition = DescribedQuorumPartition(0, error.code, error.message, -1)
    answer.topics = [DescribedQuorumTopic(METADATA.topic, [partition])]
    answer.nodes = [
        Node(broker_id, [Listener(_LISTENER, host, port)]) for broker_id, host, port in session.brokers()
    ]
    return answer


def _described(session: KafkaSession) -> DescribedQuorumPartition | None:
    """The quorum as its leader knows it; None if this broker does not lead."""
    quorum = session.broker.roles.quorum()
    if quorum is None:
        return None
    return DescribedQuorumPartition(
        0,
        0,
        "",
        quorum.leader,
        quorum.leader_epoch,
        quorum.high_watermark,
        [
            ReplicaState(
                voter.broker_id,
                log_end_offset=voter.log_end_offset,
                last_fetch_timestamp=voter.fetched_ms,
                last_caught_up_timestamp=voter.caught_up_ms,
            )
            for voter in quorum.voters
        ],
    )


async def _forwarded(session: KafkaSession, request: DescribeQuorumRequest) -> DescribedQuorumPartition:
    """The answer of the leader. Raises NOT_LEADER_OR_FOLLOWER."""
    broker, client_id = session.broker, session.client_id
    answer: DescribeQuorumResponse = await broker.roles.ask_metadata_leader(
        client_id, _KEY, session.version, request
    )
    return answer.topics[0].partitions[0]


HANDLERS = table(Handler(_KEY, describe_quorum, needs=((Operation.DESCRIBE, ResourceType.CLUSTER),)))
