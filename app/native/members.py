"""Members of groups over HTTP: join, sync, heartbeat, leave; so that a shell script can be a real member.

    joined=$(curl -d '{"topics":["orders"]}' …/groups/g/members)            member_id, generation_id
    curl -d '{"generation_id":1}' …/groups/g/members/$member_id:sync        its partitions
    curl -d '{"generation_id":1}' …/groups/g/members/$member_id:heartbeat   204; 409: join again

A rebalance may take longer than a request should. 202 means that it continues: ask again with the member id.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from typing import Annotated

from fastapi import Path, Query, Request, Response

from app.errors import Problem, field_error
from app.http.parameters import PATH_NAME
from app.http.waiting import check_share, counted, share
from app.native.dependencies import BrokerDep
from app.native.group_schemas import (
    AssignedPartition,
    AssignmentToBring,
    HeartbeatBody,
    JoinedMemberDetail,
    MemberJoined,
    MemberSynced,
    MemberToJoin,
    SyncBody,
)
from app.native.groups import GroupId
from core.types import TopicPartition
from core.vocabulary.groups import JoinReply, JoinRequest, SyncRequest
from core.vocabulary.member_metadata import assignment_of, owned_partitions, wanted_topics

MemberId = Annotated[
    str,
    Path(
        description="The id that the member was given.",
        max_length=40_000,
        json_schema_extra=PATH_NAME | {"maxLength": 1_000},
    ),
]
# What a client should let pass before it asks again, in seconds; the wait itself was in the request.
_ASK_AGAIN = {"retry-after": "1"}


async def join_group(
    broker: BrokerDep, request: Request, response: Response, group: GroupId, wanted: MemberToJoin
) -> MemberJoined:
    """Become a member, or join the next generation; 202 while the others have not joined yet.

    With `topics` the broker offers what usual clients understand and assigns if this member is to lead.
    """
    asked = JoinRequest(
        wanted.member_id,
        wanted.protocol_type,
        (),
        wanted.session_timeout_ms,
        wanted.rebalance_timeout_ms,
        wanted.client_id,
        f"/{request.client.host if request.client else ''}",
        wanted.group_instance_id,
    )
    members = broker.groups.members
    check_share(request.scope)
    if (wanted.topics is None) == (wanted.protocols is None):
        raise _invalid("A member names its topics, or its protocols with their metadata.", "#/topics")
    if wanted.topics is not None:
        joined = members.join_topics(
            group, asked, wanted.topics, wait_ms=wanted.wait_ms, assignor=wanted.assignor or ""
        )
    else:
        if wanted.assignor is not None:
            raise _invalid("With protocols of its own a member votes by their order.", "#/assignor")
        asked.protocols = tuple(
            (one.name, _bytes(one.metadata, f"#/protocols/{index}/metadata"))
            for index, one in enumerate(wanted.protocols or ())
        )
        joined = members.join(group, asked, wait_ms=wanted.wait_ms)
    with counted(request.scope):
        joining = await joined
    if joining.reply is None:
        response.status_code = 202
        response.headers.update(_ASK_AGAIN)
        return MemberJoined(group_id=group, member_id=joining.member_id, joined=False)
    return _joined(group, joining.reply)


async def sync_group(
    broker: BrokerDep, request: Request, response: Response, group: GroupId, member: MemberId, body: SyncBody
) -> MemberSynced:
    """The member's partitions in this generation; 202 while the leader has not assigned yet."""
    brought = [(one.member_id, _assignment(one, index)) for index, one in enumerate(body.assignments or ())]
    with share(request.scope):
        reply = await broker.groups.members.sync(
            group,
            SyncRequest(member, body.generation_id, brought, body.group_instance_id),
            wait_ms=body.wait_ms,
        )
    synced = MemberSynced(
        group_id=group, member_id=member, synced=reply is not None, generation_id=body.generation_id
    )
    if reply is None:
        response.status_code = 202
        response.headers.update(_ASK_AGAIN)
    else:
        synced.partitions = [
            AssignedPartition(topic=t, partition=p) for t, p in owned_partitions(reply.assignment)
        ]
        synced.assignment = b64encode(reply.assignment).decode()
    return synced


async def heartbeat(broker: BrokerDep, group: GroupId, member: MemberId, body: HeartbeatBody) -> Response:
    """Say that the member lives. 409 says that it has to join again, 404 that it is a member no more."""
    await broker.groups.members.heartbeat(group, member, body.generation_id, body.group_instance_id)
    return Response(status_code=204)


async def leave_group(
    broker: BrokerDep,
    group: GroupId,
    member: MemberId,
    group_instance_id: Annotated[str | None, Query(max_length=1000)] = None,
) -> Response:
    """Leave; the others share its partitions at once."""
    await broker.groups.members.leave(group, member, group_instance_id)
    return Response(status_code=204)


def _joined(group: str, reply: JoinReply) -> MemberJoined:
    leads = reply.leader_id == reply.member_id
    return MemberJoined(
        group_id=group,
        member_id=reply.member_id,
        joined=True,
        generation_id=reply.generation,
        leader_id=reply.leader_id,
        protocol_type=reply.protocol_type,
        protocol=reply.protocol,
        members=[
            JoinedMemberDetail(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                topics=wanted_topics(one.metadata),
                metadata=b64encode(one.metadata).decode(),
            )
            for one in reply.members
        ]
        if leads
        else None,
    )


def _assignment(one: AssignmentToBring, index: int) -> bytes:
    where = f"#/assignments/{index}"
    if (one.partitions is None) == (one.assignment is None):
        raise _invalid("A member gets partitions, or an assignment in base64.", where)
    if one.assignment is not None:
        return _bytes(one.assignment, f"{where}/assignment")
    return assignment_of(TopicPartition(p.topic, p.partition) for p in one.partitions or ())


def _bytes(text: str, pointer: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _invalid("This is not base64.", pointer) from None


def _invalid(detail: str, pointer: str) -> Problem:
    return Problem("invalid-request", detail, errors=[field_error(detail, pointer=pointer)])
