"""GetTelemetrySubscriptions (key 71): which metrics a client shall push (KIP-714).

Version 0, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int8, Int16, Int32, Message


class GetTelemetrySubscriptionsRequest(Message):
    """GetTelemetrySubscriptions request."""

    client_instance_id: Annotated[UUID, F("0+")] = NIL


class GetTelemetrySubscriptionsResponse(Message):
    """GetTelemetrySubscriptions response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    client_instance_id: Annotated[UUID, F("0+")] = NIL
    subscription_id: Annotated[Int32, F("0+")] = 0
    accepted_compression_types: Annotated[list[Int8], F("0+")] = []
    push_interval_ms: Annotated[Int32, F("0+")] = 0
    telemetry_max_bytes: Annotated[Int32, F("0+")] = 0
    delta_temporality: Annotated[bool, F("0+")] = False
    requested_metrics: Annotated[list[str], F("0+")] = []
