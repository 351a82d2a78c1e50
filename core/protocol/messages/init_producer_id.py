"""InitProducerId (key 22): a producer id and epoch, for idempotence and transactions (KIP-98).

Versions 0–5, flexible from 2.

Version 3 can raise the epoch of an id it has (KIP-360). Version 6 prepares two-phase commit (KIP-939): it is
unfinished, and Kafka does not advertise it either.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class InitProducerIdRequest(Message):
    """InitProducerId request."""

    # Null for an idempotent producer without transactions.
    transactional_id: Annotated[str | None, F("0+", nullable="0+")] = None
    transaction_timeout_ms: Annotated[Int32, F("0+")] = 0
    # −1 for a new one.
    producer_id: Annotated[Int64, F("3+")] = -1
    producer_epoch: Annotated[Int16, F("3+")] = -1


class InitProducerIdResponse(Message):
    """InitProducerId response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    producer_id: Annotated[Int64, F("0+")] = -1
    producer_epoch: Annotated[Int16, F("0+")] = 0
