"""DescribeTransactions (key 65): state of transactional ids (KIP-664).

Version 0, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class DescribeTransactionsRequest(Message):
    """DescribeTransactions request."""

    transactional_ids: Annotated[list[str], F("0+")] = []


class TopicData(Message):
    """An entry of `TransactionState.topics`."""

    topic: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[Int32], F("0+")] = []


class TransactionState(Message):
    """An entry of `DescribeTransactionsResponse.transaction_states`."""

    error_code: Annotated[Int16, F("0+")] = 0
    transactional_id: Annotated[str, F("0+")] = ""
    transaction_state: Annotated[str, F("0+")] = ""
    transaction_timeout_ms: Annotated[Int32, F("0+")] = 0
    # −1 where none is open.
    transaction_start_time_ms: Annotated[Int64, F("0+")] = 0
    producer_id: Annotated[Int64, F("0+")] = 0
    producer_epoch: Annotated[Int16, F("0+")] = 0
    topics: Annotated[list[TopicData], F("0+")] = []


class DescribeTransactionsResponse(Message):
    """DescribeTransactions response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    transaction_states: Annotated[list[TransactionState], F("0+")] = []
