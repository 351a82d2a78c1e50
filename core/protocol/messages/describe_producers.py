"""DescribeProducers (key 61): idempotent producers that a partition remembers (KIP-664).

Version 0, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class TopicRequest(Message):
    """An entry of `DescribeProducersRequest.topics`."""

    name: Annotated[str, F("0+")] = ""
    partition_indexes: Annotated[list[Int32], F("0+")] = []


class DescribeProducersRequest(Message):
    """DescribeProducers request."""

    topics: Annotated[list[TopicRequest], F("0+")] = []


class ProducerState(Message):
    """An entry of `PartitionResponse.active_producers`."""

    producer_id: Annotated[Int64, F("0+")] = 0
    producer_epoch: Annotated[Int32, F("0+")] = 0
    last_sequence: Annotated[Int32, F("0+")] = -1
    last_timestamp: Annotated[Int64, F("0+")] = -1
    coordinator_epoch: Annotated[Int32, F("0+")] = 0
    # −1 outside a transaction.
    current_txn_start_offset: Annotated[Int64, F("0+")] = -1


class PartitionResponse(Message):
    """An entry of `TopicResponse.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    active_producers: Annotated[list[ProducerState], F("0+")] = []


class TopicResponse(Message):
    """An entry of `DescribeProducersResponse.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[PartitionResponse], F("0+")] = []


class DescribeProducersResponse(Message):
    """DescribeProducers response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    topics: Annotated[list[TopicResponse], F("0+")] = []
