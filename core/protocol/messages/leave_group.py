"""LeaveGroup (key 13): members leave a group.

Versions 0–5, flexible from 4.

Version 3 takes many at once, static ones among them (KIP-345), 5 a reason (KIP-800).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class MemberIdentity(Message):
    """An entry of `LeaveGroupRequest.members`."""

    member_id: Annotated[str, F("3+")] = ""
    group_instance_id: Annotated[str | None, F("3+", nullable="3+")] = None
    reason: Annotated[str | None, F("5+", nullable="5+")] = None


class LeaveGroupRequest(Message):
    """LeaveGroup request."""

    group_id: Annotated[str, F("0+")] = ""
    member_id: Annotated[str, F("0-2")] = ""
    members: Annotated[list[MemberIdentity], F("3+")] = []


class MemberResponse(Message):
    """An entry of `LeaveGroupResponse.members`."""

    member_id: Annotated[str, F("3+")] = ""
    group_instance_id: Annotated[str | None, F("3+", nullable="3+")] = None
    error_code: Annotated[Int16, F("3+")] = 0


class LeaveGroupResponse(Message):
    """LeaveGroup response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    members: Annotated[list[MemberResponse], F("3+")] = []
