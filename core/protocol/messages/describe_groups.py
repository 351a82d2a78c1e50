"""DescribeGroups (key 15): state and members of groups.

Versions 0–6, flexible from 5.

Version 3 has authorized operations (KIP-430), 4 static members (KIP-345), 6 GROUP_ID_NOT_FOUND with a
message (KIP-1043).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class DescribeGroupsRequest(Message):
    """DescribeGroups request."""

    groups: Annotated[list[str], F("0+")] = []
    include_authorized_operations: Annotated[bool, F("3+")] = False


class DescribedGroupMember(Message):
    """An entry of `DescribedGroup.members`."""

    member_id: Annotated[str, F("0+")] = ""
    group_instance_id: Annotated[str | None, F("4+", nullable="4+")] = None
    client_id: Annotated[str, F("0+")] = ""
    client_host: Annotated[str, F("0+")] = ""
    member_metadata: Annotated[bytes, F("0+")] = b""
    member_assignment: Annotated[bytes, F("0+")] = b""


class DescribedGroup(Message):
    """An entry of `DescribeGroupsResponse.groups`."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("6+", nullable="6+")] = None
    group_id: Annotated[str, F("0+")] = ""
    group_state: Annotated[str, F("0+")] = ""
    protocol_type: Annotated[str, F("0+")] = ""
    protocol_data: Annotated[str, F("0+")] = ""
    members: Annotated[list[DescribedGroupMember], F("0+")] = []
    # A bit for each operation; −2³¹ where it was not asked for.
    authorized_operations: Annotated[Int32, F("3+")] = -0x8000_0000


class DescribeGroupsResponse(Message):
    """DescribeGroups response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    groups: Annotated[list[DescribedGroup], F("0+")] = []
