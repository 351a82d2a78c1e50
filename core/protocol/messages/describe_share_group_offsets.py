"""DescribeShareGroupOffsets (key 90): where the partitions of share groups begin, and what is left (KIP-932).

Versions 0–1, flexible from 0.

Version 1 has the lag (KIP-1226).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Int64, Message


class RequestTopic(Message):
    """An entry of `RequestGroup.topics`."""

    topic_name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[Int32], F("0+")] = []


class RequestGroup(Message):
    """An entry of `DescribeShareGroupOffsetsRequest.groups`."""

    group_id: Annotated[str, F("0+")] = ""
    # Null is all partitions of the group.
    topics: Annotated[list[RequestTopic] | None, F("0+", nullable="0+")] = []


class DescribeShareGroupOffsetsRequest(Message):
    """DescribeShareGroupOffsets request."""

    groups: Annotated[list[RequestGroup], F("0+")] = []


class ResponsePartition(Message):
    """An entry of `ResponseTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    # −1 if the group has not begun with the partition.
    start_offset: Annotated[Int64, F("0+")] = 0
    leader_epoch: Annotated[Int32, F("0+")] = 0
    # Records that are not settled; −1 is unknown.
    lag: Annotated[Int64, F("1+")] = -1
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None


class ResponseTopic(Message):
    """An entry of `ResponseGroup.topics`."""

    topic_name: Annotated[str, F("0+")] = ""
    topic_id: Annotated[UUID, F("0+")] = NIL
    partitions: Annotated[list[ResponsePartition], F("0+")] = []


class ResponseGroup(Message):
    """An entry of `DescribeShareGroupOffsetsResponse.groups`."""

    group_id: Annotated[str, F("0+")] = ""
    topics: Annotated[list[ResponseTopic], F("0+")] = []
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None


class DescribeShareGroupOffsetsResponse(Message):
    """DescribeShareGroupOffsets response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    groups: Annotated[list[ResponseGroup], F("0+")] = []
