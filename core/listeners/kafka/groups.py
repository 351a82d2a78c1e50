"""Groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the admin calls on groups."""

from __future__ import annotations

import logging

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol import traits
from core.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from core.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from core.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from core.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from core.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from core.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from core.security.acl import Operation, ResourceType
from core.security.authorizer import is_denial
from core.vocabulary.groups import GroupView, JoinReply, JoinRequest, Leaver, SyncRequest

log = logging.getLogger(__name__)
# Letters of a member's reason to leave that are logged: Kafka's clients send up to 255.
_REASON = 255
# Kinds of keys that FindCoordinator asks for: a group's and a transactional producer's.
_COORDINATED = (0, 1)
# KIP-430: the operations on a group; the last two since groups have configs (KIP-848).
GROUP_OPERATIONS = (
    Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
)  # fmt: skip
# The resource that a kind of key belongs to.
_KEY_RESOURCES = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
_NOT_ASKED = -0x8000_0000
_CLASSIC = "classic"


# --- membership --------------------------------------------------------------------------------------------


def find_coordinator(session: KafkaSession, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Return the coordinator of each key: the broker that keeps the metadata."""
    error, message = ErrorCode.NONE, "NONE"
    node = session.broker.roles.metadata_leader
    found = next((one for one in session.brokers() if one[0] == node), None)
    if found is None:
        error, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "No broker keeps the groups now; try again."
    node, host, port = found or (-1, "", -1)
    if request.key_type not in _COORDINATED:
        error = ErrorCode.INVALID_REQUEST
        message = f"Key type {request.key_type} has no coordinator here; 0 is a group, 1 a transaction."
        node, host, port = -1, "", -1
    each = message if error else ""
    kind = _KEY_RESOURCES.get(request.key_type, ResourceType.GROUP)
    coordinators = []
    for key in request.coordinator_keys:
        denied = session.rights.denial(Operation.DESCRIBE, kind, key)
        coordinators.append(
            Coordinator(key, node, host, port, error, each)
            if denied is None
            else Coordinator(key, -1, "", -1, denied.code, "")
        )
    # Versions that name many keys leave the one key empty.
    if not request.coordinator_keys:
        denied = session.rights.denial(Operation.DESCRIBE, kind, request.key)
        if denied is not None:
            return FindCoordinatorResponse(0, denied.code, denied.message, -1, "", -1)
    return FindCoordinatorResponse(0, error, message, node, host, port, coordinators)


async def join_group(session: KafkaSession, request: JoinGroupRequest) -> JoinGroupResponse:
    """Add a member to its group; answer at the end of the join phase."""
    reply = await session.broker.groups.join(
        request.group_id,
        JoinRequest(
            request.member_id,
            request.protocol_type,
            tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            session.client_id or "",
            # As Java writes an address that has no name.
            f"/{session.peer_host}",
            request.group_instance_id,
            member_id_required=traits.join_gives_the_id_first(session.version),
            can_skip_assignment=traits.join_may_skip_assignment(session.version),
        ),
    )
    return _refused_join(session, reply) if reply.error else _joined(reply)


def _joined(reply: JoinReply) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        leader=reply.leader_id,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[JoinGroupResponseMember(*member) for member in reply.members],
    )


def _refused_join(session: KafkaSession, reply: JoinReply) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=traits.refused_join_generation(session.version),
        protocol_name=traits.refused_join_protocol(session.version),
        member_id=reply.member_id,
    )


async def sync_group(session: KafkaSession, request: SyncGroupRequest) -> SyncGroupResponse:
    """Return a member's assignment; the group's leader sends the assignments of all members."""
    reply = await session.broker.groups.sync(
        request.group_id,
        SyncRequest(
            request.member_id,
            request.generation_id,
            [(one.member_id, one.assignment) for one in request.assignments],
            request.group_instance_id,
            request.protocol_type,
            request.protocol_name,
        ),
    )
    return SyncGroupResponse(0, reply.error, reply.protocol_type, reply.protocol, reply.assignment)


def heartbeat(session: KafkaSession, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend the session of a member."""
    groups = session.broker.groups
    error = groups.heartbeat(
        request.group_id, request.member_id, request.generation_id, request.group_instance_id
    )
    if not error and traits.heartbeat_is_refused_before_sync(session.version):
        error = groups.before_sync(request.group_id)
    return HeartbeatResponse(0, error)


async def leave_group(session: KafkaSession, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove members; below version 3 a request names one member and gets one error."""
    many = traits.leave_names_many(session.version)
    leavers = [Leaver(m.member_id, m.group_instance_id) for m in request.members]
    for member in request.members:
        if member.reason:
            log.debug(
                "group %r: member %r leaves: %r", request.group_id, member.member_id, member.reason[:_REASON]
            )
    try:
        replies = await session.broker.groups.leave(
            request.group_id, leavers if many else [Leaver(request.member_id)]
        )
    except BrokerError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not many:
        return LeaveGroupResponse(error_code=replies[0].error)
    return LeaveGroupResponse(members=[MemberResponse(*reply) for reply in replies])


# --- admin -------------------------------------------------------------------------------------------------


def describe_groups(session: KafkaSession, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe classic groups with their members.

    A group that is missing or of another type is dead; from version 6 its answer has an error message.
    """
    groups = []
    for group_id in request.groups:
        try:
            view = session.broker.groups.describe(group_id)
        except BrokerError as error:
            message = None if is_denial(error) else error.message
            groups.append(DescribedGroup(error.code, message, group_id))
            continue
        operations = _NOT_ASKED
        if request.include_authorized_operations:
            operations = session.rights.operations(ResourceType.GROUP, group_id, GROUP_OPERATIONS)
        if view is None or view.group_type != _CLASSIC:
            groups.append(_missing(session, group_id, view))
        else:
            groups.append(_described(view, operations))
    return DescribeGroupsResponse(groups=groups)


def _described(view: GroupView, operations: int) -> DescribedGroup:
    return DescribedGroup(
        0,
        None,
        view.group_id,
        view.state,
        view.protocol_type,
        view.protocol,
        [DescribedGroupMember(*member) for member in view.members],
        operations,
    )


def _missing(session: KafkaSession, group_id: str, other: GroupView | None) -> DescribedGroup:
    if traits.describe_knows_missing_groups(session.version):
        message = f"Group {group_id} not found."
        if other is not None:
            message = f"Group {group_id} is not a classic group, but a {other.group_type} group."
        return DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, message, group_id, "Dead")
    return DescribedGroup(0, None, group_id, "Dead")


def list_groups(session: KafkaSession, request: ListGroupsRequest) -> ListGroupsResponse:
    """List all groups, or those in some states and of some types."""
    try:
        listings = session.broker.groups.list(request.states_filter, request.types_filter)
    except BrokerError as error:
        return ListGroupsResponse(error_code=error.code)
    return ListGroupsResponse(groups=[ListedGroup(*listing) for listing in listings])


async def delete_groups(session: KafkaSession, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete groups that have no members, with their offsets."""
    results = []
    for group_id in request.groups_names:
        code = ErrorCode.NONE
        try:
            await session.broker.groups.delete(group_id)
        except BrokerError as error:
            code = error.code
        results.append(DeletableGroupResult(group_id, code))
    return DeleteGroupsResponse(results=results)


_DESCRIBE_GROUP = ((Operation.DESCRIBE, ResourceType.GROUP),)
_READ_GROUP = ((Operation.READ, ResourceType.GROUP),)

HANDLERS = table(
    Handler(10, find_coordinator, needs=_DESCRIBE_GROUP),
    Handler(11, join_group, needs=_READ_GROUP),
    Handler(12, heartbeat, needs=_READ_GROUP),
    Handler(13, leave_group, needs=_READ_GROUP),
    Handler(14, sync_group, needs=_READ_GROUP),
    Handler(15, describe_groups, needs=_DESCRIBE_GROUP),
    Handler(16, list_groups, needs=_DESCRIBE_GROUP),
    Handler(42, delete_groups, needs=((Operation.DELETE, ResourceType.GROUP),)),
)
