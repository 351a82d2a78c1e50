"""AddPartitionsToTxn (key 24): partitions that join a transaction (KIP-98).

Versions 0–5, flexible from 3.

From version 4 brokers ask for many transactions at once, or only verify (KIP-890); clients stay at the
old fields.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class AddPartitionsToTxnTopic(Message):
    """An entry of `AddPartitionsToTxnTransaction.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[Int32], F("0+")] = []


class AddPartitionsToTxnTransaction(Message):
    """An entry of `AddPartitionsToTxnRequest.transactions`."""

    transactional_id: Annotated[str, F("4+")] = ""
    producer_id: Annotated[Int64, F("4+")] = 0
    producer_epoch: Annotated[Int16, F("4+")] = 0
    verify_only: Annotated[bool, F("4+")] = False
    topics: Annotated[list[AddPartitionsToTxnTopic], F("4+")] = []


class AddPartitionsToTxnRequest(Message):
    """AddPartitionsToTxn request."""

    transactions: Annotated[list[AddPartitionsToTxnTransaction], F("4+")] = []
    v3_and_below_transactional_id: Annotated[str, F("0-3")] = ""
    v3_and_below_producer_id: Annotated[Int64, F("0-3")] = 0
    v3_and_below_producer_epoch: Annotated[Int16, F("0-3")] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], F("0-3")] = []


class AddPartitionsToTxnPartitionResult(Message):
    """An entry of `AddPartitionsToTxnTopicResult.results_by_partition`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    partition_error_code: Annotated[Int16, F("0+")] = 0


class AddPartitionsToTxnTopicResult(Message):
    """An entry of `AddPartitionsToTxnResult.topic_results`."""

    name: Annotated[str, F("0+")] = ""
    results_by_partition: Annotated[list[AddPartitionsToTxnPartitionResult], F("0+")] = []


class AddPartitionsToTxnResult(Message):
    """An entry of `AddPartitionsToTxnResponse.results_by_transaction`."""

    transactional_id: Annotated[str, F("4+")] = ""
    topic_results: Annotated[list[AddPartitionsToTxnTopicResult], F("4+")] = []


class AddPartitionsToTxnResponse(Message):
    """AddPartitionsToTxn response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("4+")] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], F("4+")] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], F("0-3")] = []
