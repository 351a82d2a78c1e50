"""EndTxn (key 26): a transaction is committed or aborted (KIP-98).

Versions 0–5, flexible from 3.

Version 5 returns the producer id and epoch to continue with (KIP-890).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class EndTxnRequest(Message):
    """EndTxn request."""

    transactional_id: Annotated[str, F("0+")] = ""
    producer_id: Annotated[Int64, F("0+")] = 0
    producer_epoch: Annotated[Int16, F("0+")] = 0
    # False aborts.
    committed: Annotated[bool, F("0+")] = False


class EndTxnResponse(Message):
    """EndTxn response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    producer_id: Annotated[Int64, F("5+")] = -1
    producer_epoch: Annotated[Int16, F("5+")] = -1
