"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups to whose members the broker assigns (KIP-848).

Members commit and fetch offsets as those of the classic protocol do, with their epoch in place of the generation
(`group_offsets`); tools list and delete their groups as all others (`groups`).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.groups import GROUP_OPERATIONS
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol import traits
from core.protocol.messages import consumer_group_describe as describe
from core.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from core.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from core.security.acl import Operation, ResourceType
from core.security.authorizer import is_denial
from core.vocabulary.consumer_groups import (
    JOINING,
    ConsumerGroupView,
    ConsumerHeartbeat,
    ConsumerMemberView,
    Partitions,
    TopicShare,
)

_NOT_ASKED = -0x8000_0000


async def consumer_group_heartbeat(
    session: KafkaSession, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """Join a group, stay in it, or leave; the answer has the partitions of the member when they change."""
    new_member_id = ""
    if not traits.heartbeat_has_its_member_id(session.version) and request.member_epoch == JOINING:
        # As Kafka's Uuid.toString.
        new_id = session.listener.broker.clock.uuid4()
        new_member_id = base64.urlsafe_b64encode(new_id.bytes).rstrip(b"=").decode()
    reply = await session.broker.groups.consumer_heartbeat(
        request.group_id,
        ConsumerHeartbeat(
            request.member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            request.subscribed_topic_names,
            request.subscribed_topic_regex,
            request.server_assignor,
            _owned(request.topic_partitions),
            session.client_id or "",
            # As Java writes an address that has no name.
            f"/{session.peer_host}",
            new_member_id,
        ),
    )
    if reply.error:
        return ConsumerGroupHeartbeatResponse(error_code=reply.error, error_message=reply.message)
    return ConsumerGroupHeartbeatResponse(
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None if reply.assignment is None else _assignment(reply.assignment),
    )


def _owned(topics: Sequence[TopicPartitions] | None) -> dict[UUID, list[int]] | None:
    if topics is None:
        return None
    owned: dict[UUID, list[int]] = {}
    for topic in topics:
        owned.setdefault(topic.topic_id, []).extend(topic.partitions)
    return owned


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment([TopicPartitions(topic, sorted(numbers)) for topic, numbers in partitions.items()])


def consumer_group_describe(
    session: KafkaSession, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe groups of this protocol, with epochs, assignments and targets; GROUP_ID_NOT_FOUND for all others."""
    groups = []
    for group_id in request.group_ids:
        try:
            view = session.broker.groups.describe_consumer(group_id)
            if view is None:
                raise _missing(session, group_id)
        except BrokerError as error:
            message = None if is_denial(error) else error.message
            groups.append(DescribedGroup(error.code, message, group_id))
            continue
        operations = _NOT_ASKED
        if request.include_authorized_operations:
            operations = session.rights.operations(ResourceType.GROUP, group_id, GROUP_OPERATIONS)
        groups.append(_described(view, operations))
    return ConsumerGroupDescribeResponse(groups=groups)


def _missing(session: KafkaSession, group_id: str) -> BrokerError:
    other = session.broker.groups.describe(group_id)
    why = "not found." if other is None else f"is not a consumer group, but a {other.group_type} group."
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {why}")


def _described(view: ConsumerGroupView, operations: int) -> DescribedGroup:
    return DescribedGroup(
        0,
        None,
        view.group_id,
        view.state,
        view.group_epoch,
        view.assignment_epoch,
        view.assignor,
        [_member(member) for member in view.members],
        operations,
    )


def _member(member: ConsumerMemberView) -> describe.Member:
    return describe.Member(
        member.member_id,
        member.group_instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        list(member.topics),
        member.pattern,
        _shares(member.assignment),
        _shares(member.target),
        member.kind,
    )


def _shares(shares: Sequence[TopicShare]) -> describe.Assignment:
    return describe.Assignment(
        [describe.TopicPartitions(one.topic_id, one.topic, list(one.partitions)) for one in shares]
    )


HANDLERS = table(
    Handler(
        68,
        consumer_group_heartbeat,
        needs=((Operation.READ, ResourceType.GROUP), (Operation.DESCRIBE, ResourceType.TOPIC)),
    ),
    # And DESCRIBE on the topics that members of the group read (CVE-2026-41115); the request names none.
    Handler(69, consumer_group_describe, needs=((Operation.DESCRIBE, ResourceType.GROUP),)),
)
