"""AddOffsetsToTxn (key 25): a group whose offsets join a transaction (KIP-98).

Versions 0–4, flexible from 3.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class AddOffsetsToTxnRequest(Message):
    """AddOffsetsToTxn request."""

    transactional_id: Annotated[str, F("0+")] = ""
    producer_id: Annotated[Int64, F("0+")] = 0
    producer_epoch: Annotated[Int16, F("0+")] = 0
    group_id: Annotated[str, F("0+")] = ""


class AddOffsetsToTxnResponse(Message):
    """AddOffsetsToTxn response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
