"""Heartbeat (key 12): a member is alive, and learns of a rebalance.

Versions 0–4, flexible from 4.

Version 3 has static members (KIP-345).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class HeartbeatRequest(Message):
    """Heartbeat request."""

    group_id: Annotated[str, F("0+")] = ""
    generation_id: Annotated[Int32, F("0+")] = 0
    member_id: Annotated[str, F("0+")] = ""
    group_instance_id: Annotated[str | None, F("3+", nullable="3+")] = None


class HeartbeatResponse(Message):
    """Heartbeat response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
