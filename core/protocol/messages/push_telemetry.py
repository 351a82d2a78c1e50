"""PushTelemetry (key 72): metrics of a client (KIP-714).

Version 0, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int8, Int16, Int32, Message


class PushTelemetryRequest(Message):
    """PushTelemetry request."""

    client_instance_id: Annotated[UUID, F("0+")] = NIL
    subscription_id: Annotated[Int32, F("0+")] = 0
    terminating: Annotated[bool, F("0+")] = False
    compression_type: Annotated[Int8, F("0+")] = 0
    metrics: Annotated[bytes, F("0+")] = b""


class PushTelemetryResponse(Message):
    """PushTelemetry response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
