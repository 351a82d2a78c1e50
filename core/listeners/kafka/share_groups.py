"""Share groups (KIP-932): ShareGroupHeartbeat, ShareGroupDescribe, and where their partitions begin."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages import alter_share_group_offsets as alter
from core.protocol.messages import delete_share_group_offsets as delete
from core.protocol.messages import describe_share_group_offsets as offsets
from core.protocol.messages.share_group_describe import (
    Assignment as DescribedAssignment,
)
from core.protocol.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from core.protocol.messages.share_group_describe import (
    TopicPartitions as DescribedPartitions,
)
from core.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from core.protocol.primitives import NIL
from core.security.acl import Operation, ResourceType
from core.security.authorizer import is_denial
from core.types import TopicPartition
from core.vocabulary.queues import PartitionStats
from core.vocabulary.share_groups import ASSIGNOR, ShareGroupView, ShareHeartbeat, ShareMemberView

_OPERATIONS = (
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
)  # fmt: skip
_NOT_ASKED = -0x8000_0000
# The start offset and the leader epoch of a partition that the group does not read.
_NONE = -1


async def heartbeat(
    session: KafkaSession, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """Let a member join, stay or leave."""
    reply = await session.broker.groups.shares.heartbeat(
        request.group_id,
        ShareHeartbeat(
            request.member_id,
            request.member_epoch,
            request.subscribed_topic_names,
            request.rack_id,
            session.client_id or "",
            # As Java writes an address that has no name.
            f"/{session.peer_host}",
        ),
    )
    assignment = None
    if reply.assignment is not None:
        assignment = Assignment([TopicPartitions(one, list(p)) for one, p in reply.assignment.items()])
    return ShareGroupHeartbeatResponse(
        0,
        reply.error,
        reply.message,
        reply.member_id,
        reply.member_epoch,
        reply.heartbeat_interval_ms,
        assignment,
    )


def describe(session: KafkaSession, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe share groups with their members."""
    return ShareGroupDescribeResponse(
        groups=[
            _described(session, group_id, asked=request.include_authorized_operations)
            for group_id in request.group_ids
        ]
    )


def _described(session: KafkaSession, group_id: str, *, asked: bool) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(ErrorCode.INVALID_GROUP_ID)
    try:
        view = session.broker.groups.shares.describe(group_id)
    except BrokerError as error:
        return DescribedGroup(error.code, None if is_denial(error) else error.message, group_id)
    if view is None:
        message = f"Group {group_id} is not a share group."
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, message, group_id)
    operations = _NOT_ASKED
    if asked:
        operations = session.rights.operations(ResourceType.GROUP, group_id, _OPERATIONS)
    return DescribedGroup(
        0,
        None,
        group_id,
        view.state,
        view.epoch,
        view.epoch,
        ASSIGNOR,
        _members(session, view),
        operations,
    )


def _members(session: KafkaSession, view: ShareGroupView) -> list[Member]:
    names: dict[UUID, str] = {}
    for member in view.members:
        for topic_id in member.assignment:
            if topic_id not in names:
                try:
                    names[topic_id] = session.listener.broker.topics.name_of(topic_id)
                except BrokerError:
                    names[topic_id] = ""  # deleted; its members are told so with their next heartbeats
    return [_member(member, names) for member in view.members]


def _member(member: ShareMemberView, names: Mapping[UUID, str]) -> Member:
    partitions = [
        DescribedPartitions(topic_id, names[topic_id], list(numbers))
        for topic_id, numbers in member.assignment.items()
        if names[topic_id]
    ]
    return Member(
        member.member_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        list(member.topics),
        DescribedAssignment(partitions),
    )


# --- offsets -----------------------------------------------------------------------------------------------


def describe_offsets(
    session: KafkaSession, request: offsets.DescribeShareGroupOffsetsRequest
) -> offsets.DescribeShareGroupOffsetsResponse:
    """Return where the partitions of groups begin, and how many of their records are not settled."""
    return offsets.DescribeShareGroupOffsetsResponse(
        groups=[_offsets(session, one) for one in request.groups]
    )


def _offsets(session: KafkaSession, asked: offsets.RequestGroup) -> offsets.ResponseGroup:
    try:
        session.rights.require(Operation.DESCRIBE, ResourceType.GROUP, asked.group_id)
        stats = {one.tp: one for one in session.broker.queues.stats(asked.group_id).partitions}
    except BrokerError as error:
        return offsets.ResponseGroup(asked.group_id, [], error.code, error.message)
    wanted: dict[str, list[int]] = {}
    if asked.topics is None:
        for tp in sorted(stats):
            wanted.setdefault(tp.topic, []).append(tp.partition)
    else:
        wanted = {topic.topic_name: topic.partitions for topic in asked.topics}
    return offsets.ResponseGroup(
        asked.group_id, [_offsets_of(session, topic, numbers, stats) for topic, numbers in wanted.items()]
    )


def _offsets_of(
    session: KafkaSession, topic: str, numbers: list[int], stats: Mapping[TopicPartition, PartitionStats]
) -> offsets.ResponseTopic:
    try:
        topic_id = session.broker.topics.get(topic).topic_id
    except BrokerError as error:
        failed = [
            offsets.ResponsePartition(number, _NONE, _NONE, _NONE, error.code, error.message)
            for number in numbers
        ]
        return offsets.ResponseTopic(topic, NIL, failed)
    return offsets.ResponseTopic(
        topic,
        topic_id,
        [_offset(session, number, stats.get(TopicPartition(topic, number)), topic) for number in numbers],
    )


def _offset(
    session: KafkaSession, number: int, found: PartitionStats | None, topic: str
) -> offsets.ResponsePartition:
    if found is None:
        return offsets.ResponsePartition(number, _NONE, 0, _NONE)
    epoch = session.listener.broker.partitions.info(TopicPartition(topic, number)).leader_epoch
    lag = found.available + found.in_flight + found.delayed + found.archiving
    return offsets.ResponsePartition(number, found.start, max(epoch, 0), lag)


async def alter_offsets(
    session: KafkaSession, request: alter.AlterShareGroupOffsetsRequest
) -> alter.AlterShareGroupOffsetsResponse:
    """Let partitions of a group without members begin elsewhere."""
    wanted: dict[TopicPartition, int] = {}
    results: dict[TopicPartition, tuple[ErrorCode, str | None]] = {}
    try:
        session.rights.require(Operation.READ, ResourceType.GROUP, request.group_id)
        for topic in request.topics:
            error = _unreadable(session, topic.topic_name)
            for partition in topic.partitions:
                tp = TopicPartition(topic.topic_name, partition.partition_index)
                if error is not None:
                    results[tp] = error.code, error.message
                elif partition.start_offset < 0:
                    results[tp] = ErrorCode.INVALID_REQUEST, "An offset is 0 or greater."
                else:
                    wanted[tp] = partition.start_offset
        moved = await session.broker.queues.move(request.group_id, wanted)
    except BrokerError as refused:
        return alter.AlterShareGroupOffsetsResponse(0, refused.code, refused.message)
    results |= {tp: (code, None) for tp, code in moved.items()}
    return alter.AlterShareGroupOffsetsResponse(
        responses=[
            alter.ResponseTopic(
                topic.topic_name,
                _topic_id(session, topic.topic_name),
                [
                    alter.ResponsePartition(
                        one.partition_index, *results[TopicPartition(topic.topic_name, one.partition_index)]
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def delete_offsets(
    session: KafkaSession, request: delete.DeleteShareGroupOffsetsRequest
) -> delete.DeleteShareGroupOffsetsResponse:
    """Let a group without members forget topics."""
    topics = list(dict.fromkeys(one.topic_name for one in request.topics))
    results: dict[str, tuple[ErrorCode, str | None]] = {}
    try:
        session.rights.require(Operation.DELETE, ResourceType.GROUP, request.group_id)
        for topic in topics:
            if (error := _unreadable(session, topic)) is not None:
                results[topic] = error.code, error.message
        left = [topic for topic in topics if topic not in results]
        codes = await session.broker.queues.forget(request.group_id, left)
    except BrokerError as refused:
        return delete.DeleteShareGroupOffsetsResponse(0, refused.code, refused.message)
    results |= {topic: (code, None) for topic, code in zip(left, codes, strict=True)}
    return delete.DeleteShareGroupOffsetsResponse(
        responses=[
            delete.ResponseTopic(topic, _topic_id(session, topic), *results[topic]) for topic in topics
        ]
    )


def _unreadable(session: KafkaSession, topic: str) -> BrokerError | None:
    """Return why the caller may not read a topic; None if it may and the topic exists."""
    if (denied := session.rights.denial(Operation.READ, ResourceType.TOPIC, topic)) is not None:
        return denied
    try:
        session.broker.topics.get(topic)
    except BrokerError as error:
        return error
    return None


def _topic_id(session: KafkaSession, topic: str) -> UUID:
    try:
        return session.broker.topics.get(topic).topic_id
    except BrokerError:
        return NIL


_READ_GROUP = (Operation.READ, ResourceType.GROUP)
_DESCRIBE_GROUP = (Operation.DESCRIBE, ResourceType.GROUP)
_DESCRIBE_TOPIC = (Operation.DESCRIBE, ResourceType.TOPIC)

# The others look at topics once they know the group: DESCRIBE to see them, READ to move or forget them.
HANDLERS = table(
    Handler(76, heartbeat, needs=(_READ_GROUP, _DESCRIBE_TOPIC)),
    Handler(77, describe, needs=(_DESCRIBE_GROUP,)),
    Handler(90, describe_offsets, needs=(_DESCRIBE_GROUP,)),
    Handler(91, alter_offsets, needs=(_READ_GROUP,)),
    Handler(92, delete_offsets, needs=((Operation.DELETE, ResourceType.GROUP),)),
)
