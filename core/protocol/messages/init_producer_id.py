"""InitProducerId (key 22): a producer id and epoch, for idempotence and transactions (KIP-98).

Versions 0–6, flexible from 2.

Version 3 can raise the epoch of an id it has (KIP-360), 6 prepares two-phase commit (KIP-939).
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
    enable2_pc: Annotated[bool, F("6+")] = False
    keep_prepared_txn: Annotated[bool, F("6+")] = False


class InitProducerIdResponse(Message):
    """InitProducerId response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    producer_id: Annotated[Int64, F("0+")] = -1
    producer_epoch: Annotated[Int16, F("0+")] = 0
    ongoing_txn_producer_id: Annotated[Int64, F("6+")] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, F("6+")] = -1
