"""SyncGroup (key 14): the leader sends the assignments, and each member gets its own.

Versions 0–5, flexible from 4.

Version 3 has static members (KIP-345), 5 the protocol type and name (KIP-559).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class SyncGroupRequestAssignment(Message):
    """An entry of `SyncGroupRequest.assignments`."""

    member_id: Annotated[str, F("0+")] = ""
    assignment: Annotated[bytes, F("0+")] = b""


class SyncGroupRequest(Message):
    """SyncGroup request."""

    group_id: Annotated[str, F("0+")] = ""
    generation_id: Annotated[Int32, F("0+")] = 0
    member_id: Annotated[str, F("0+")] = ""
    group_instance_id: Annotated[str | None, F("3+", nullable="3+")] = None
    protocol_type: Annotated[str | None, F("5+", nullable="5+")] = None
    protocol_name: Annotated[str | None, F("5+", nullable="5+")] = None
    # From the leader alone.
    assignments: Annotated[list[SyncGroupRequestAssignment], F("0+")] = []


class SyncGroupResponse(Message):
    """SyncGroup response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    protocol_type: Annotated[str | None, F("5+", nullable="5+")] = None
    protocol_name: Annotated[str | None, F("5+", nullable="5+")] = None
    # Opaque; for consumers see `consumer_protocol`.
    assignment: Annotated[bytes, F("0+")] = b""
