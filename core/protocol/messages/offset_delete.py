"""OffsetDelete (key 47): committed positions to delete (KIP-496).

Version 0, never flexible.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Message


class OffsetDeleteRequestPartition(Message):
    """An entry of `OffsetDeleteRequestTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0


class OffsetDeleteRequestTopic(Message):
    """An entry of `OffsetDeleteRequest.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[OffsetDeleteRequestPartition], F("0+")] = []


class OffsetDeleteRequest(Message):
    """OffsetDelete request."""

    group_id: Annotated[str, F("0+")] = ""
    topics: Annotated[list[OffsetDeleteRequestTopic], F("0+")] = []


class OffsetDeleteResponsePartition(Message):
    """An entry of `OffsetDeleteResponseTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0


class OffsetDeleteResponseTopic(Message):
    """An entry of `OffsetDeleteResponse.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[OffsetDeleteResponsePartition], F("0+")] = []


class OffsetDeleteResponse(Message):
    """OffsetDelete response."""

    error_code: Annotated[Int16, F("0+")] = 0
    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    topics: Annotated[list[OffsetDeleteResponseTopic], F("0+")] = []
