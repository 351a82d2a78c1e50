"""ListTransactions (key 66): transactions of a coordinator, by state and producer (KIP-664).

Versions 0–2, flexible from 0.

Version 1 filters by duration (KIP-994), 2 by a pattern of the id (KIP-1152).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class ListTransactionsRequest(Message):
    """ListTransactions request."""

    state_filters: Annotated[list[str], F("0+")] = []
    producer_id_filters: Annotated[list[Int64], F("0+")] = []
    duration_filter: Annotated[Int64, F("1+")] = -1
    transactional_id_pattern: Annotated[str | None, F("2+", nullable="2+")] = None


class TransactionState(Message):
    """An entry of `ListTransactionsResponse.transaction_states`."""

    transactional_id: Annotated[str, F("0+")] = ""
    producer_id: Annotated[Int64, F("0+")] = 0
    transaction_state: Annotated[str, F("0+")] = ""


class ListTransactionsResponse(Message):
    """ListTransactions response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    unknown_state_filters: Annotated[list[str], F("0+")] = []
    transaction_states: Annotated[list[TransactionState], F("0+")] = []
