"""ListGroups (key 16): all groups of a broker.

Versions 0–5, flexible from 3.

Version 4 filters by state (KIP-518), 5 by type (KIP-848).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class ListGroupsRequest(Message):
    """ListGroups request."""

    # Empty lists all states.
    states_filter: Annotated[list[str], F("4+")] = []
    # Empty lists all types.
    types_filter: Annotated[list[str], F("5+")] = []


class ListedGroup(Message):
    """An entry of `ListGroupsResponse.groups`."""

    group_id: Annotated[str, F("0+")] = ""
    protocol_type: Annotated[str, F("0+")] = ""
    group_state: Annotated[str, F("4+")] = ""
    group_type: Annotated[str, F("5+")] = ""


class ListGroupsResponse(Message):
    """ListGroups response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    groups: Annotated[list[ListedGroup], F("0+")] = []
