"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Versions 0–6, flexible from 3.

Key type 0 is a group, 1 a transaction, 2 a share group. Version 4 asks for many keys at once (KIP-699).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class FindCoordinatorRequest(Message):
    """FindCoordinator request."""

    key: Annotated[str, F("0-3")] = ""
    # 0 a group, 1 a transactional id.
    key_type: Annotated[Int8, F("1+")] = 0
    coordinator_keys: Annotated[list[str], F("4+")] = []


class Coordinator(Message):
    """An entry of `FindCoordinatorResponse.coordinators`."""

    key: Annotated[str, F("4+")] = ""
    node_id: Annotated[Int32, F("4+")] = 0
    host: Annotated[str, F("4+")] = ""
    port: Annotated[Int32, F("4+")] = 0
    error_code: Annotated[Int16, F("4+")] = 0
    error_message: Annotated[str | None, F("4+", nullable="4+")] = None


class FindCoordinatorResponse(Message):
    """FindCoordinator response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("0-3")] = 0
    error_message: Annotated[str | None, F("1-3", nullable="1-3")] = None
    node_id: Annotated[Int32, F("0-3")] = 0
    host: Annotated[str, F("0-3")] = ""
    port: Annotated[Int32, F("0-3")] = 0
    coordinators: Annotated[list[Coordinator], F("4+")] = []
