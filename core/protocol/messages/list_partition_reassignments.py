"""ListPartitionReassignments (key 46): moves of replicas that are under way (KIP-455).

Version 0, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class ListPartitionReassignmentsTopics(Message):
    """An entry of `ListPartitionReassignmentsRequest.topics`."""

    name: Annotated[str, F("0+")] = ""
    partition_indexes: Annotated[list[Int32], F("0+")] = []


class ListPartitionReassignmentsRequest(Message):
    """ListPartitionReassignments request."""

    timeout_ms: Annotated[Int32, F("0+")] = 60000
    topics: Annotated[list[ListPartitionReassignmentsTopics] | None, F("0+", nullable="0+")] = None


class OngoingPartitionReassignment(Message):
    """An entry of `OngoingTopicReassignment.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    replicas: Annotated[list[Int32], F("0+")] = []
    adding_replicas: Annotated[list[Int32], F("0+")] = []
    removing_replicas: Annotated[list[Int32], F("0+")] = []


class OngoingTopicReassignment(Message):
    """An entry of `ListPartitionReassignmentsResponse.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[OngoingPartitionReassignment], F("0+")] = []


class ListPartitionReassignmentsResponse(Message):
    """ListPartitionReassignments response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    topics: Annotated[list[OngoingTopicReassignment], F("0+")] = []
