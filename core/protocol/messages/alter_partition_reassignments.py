"""AlterPartitionReassignments (key 45): replicas to move between brokers (KIP-455).

Versions 0–1, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class ReassignablePartition(Message):
    """An entry of `ReassignableTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    # Null cancels.
    replicas: Annotated[list[Int32] | None, F("0+", nullable="0+")] = None


class ReassignableTopic(Message):
    """An entry of `AlterPartitionReassignmentsRequest.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[ReassignablePartition], F("0+")] = []


class AlterPartitionReassignmentsRequest(Message):
    """AlterPartitionReassignments request."""

    timeout_ms: Annotated[Int32, F("0+")] = 60000
    allow_replication_factor_change: Annotated[bool, F("1+")] = True
    topics: Annotated[list[ReassignableTopic], F("0+")] = []


class ReassignablePartitionResponse(Message):
    """An entry of `ReassignableTopicResponse.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None


class ReassignableTopicResponse(Message):
    """An entry of `AlterPartitionReassignmentsResponse.responses`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[ReassignablePartitionResponse], F("0+")] = []


class AlterPartitionReassignmentsResponse(Message):
    """AlterPartitionReassignments response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    allow_replication_factor_change: Annotated[bool, F("1+")] = True
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    responses: Annotated[list[ReassignableTopicResponse], F("0+")] = []
