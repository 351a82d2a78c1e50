"""CreatePartitions (key 37): more partitions for topics (KIP-195).

Versions 0–3, flexible from 2.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class CreatePartitionsAssignment(Message):
    """An entry of `CreatePartitionsTopic.assignments`."""

    broker_ids: Annotated[list[Int32], F("0+")] = []


class CreatePartitionsTopic(Message):
    """An entry of `CreatePartitionsRequest.topics`."""

    name: Annotated[str, F("0+")] = ""
    # All partitions after the change.
    count: Annotated[Int32, F("0+")] = 0
    # Null lets the broker place them.
    assignments: Annotated[list[CreatePartitionsAssignment] | None, F("0+", nullable="0+")] = []


class CreatePartitionsRequest(Message):
    """CreatePartitions request."""

    topics: Annotated[list[CreatePartitionsTopic], F("0+")] = []
    timeout_ms: Annotated[Int32, F("0+")] = 0
    validate_only: Annotated[bool, F("0+")] = False


class CreatePartitionsTopicResult(Message):
    """An entry of `CreatePartitionsResponse.results`."""

    name: Annotated[str, F("0+")] = ""
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None


class CreatePartitionsResponse(Message):
    """CreatePartitions response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    results: Annotated[list[CreatePartitionsTopicResult], F("0+")] = []
