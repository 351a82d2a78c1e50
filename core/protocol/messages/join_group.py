"""JoinGroup (key 11): a member enters a rebalance and waits for the generation it makes.

Versions 0–9, flexible from 6.

Version 1 has a rebalance timeout of its own (KIP-62), 4 the MEMBER_ID_REQUIRED round (KIP-394), 5 static
members (KIP-345), 8 a reason (KIP-800), 9 lets the leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class JoinGroupRequestProtocol(Message):
    """An entry of `JoinGroupRequest.protocols`."""

    name: Annotated[str, F("0+")] = ""
    metadata: Annotated[bytes, F("0+")] = b""


class JoinGroupRequest(Message):
    """JoinGroup request."""

    group_id: Annotated[str, F("0+")] = ""
    session_timeout_ms: Annotated[Int32, F("0+")] = 0
    # −1 takes the session timeout.
    rebalance_timeout_ms: Annotated[Int32, F("1+")] = -1
    # Empty for a new member.
    member_id: Annotated[str, F("0+")] = ""
    # Names a static member.
    group_instance_id: Annotated[str | None, F("5+", nullable="5+")] = None
    protocol_type: Annotated[str, F("0+")] = ""
    # In order of preference; metadata is a subscription for consumers.
    protocols: Annotated[list[JoinGroupRequestProtocol], F("0+")] = []
    reason: Annotated[str | None, F("8+", nullable="8+")] = None


class JoinGroupResponseMember(Message):
    """An entry of `JoinGroupResponse.members`."""

    member_id: Annotated[str, F("0+")] = ""
    group_instance_id: Annotated[str | None, F("5+", nullable="5+")] = None
    metadata: Annotated[bytes, F("0+")] = b""


class JoinGroupResponse(Message):
    """JoinGroup response."""

    throttle_time_ms: Annotated[Int32, F("2+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    generation_id: Annotated[Int32, F("0+")] = -1
    protocol_type: Annotated[str | None, F("7+", nullable="7+")] = None
    protocol_name: Annotated[str | None, F("0+", nullable="7+")] = ""
    leader: Annotated[str, F("0+")] = ""
    skip_assignment: Annotated[bool, F("9+")] = False
    member_id: Annotated[str, F("0+")] = ""
    # The leader alone gets them.
    members: Annotated[list[JoinGroupResponseMember], F("0+")] = []
