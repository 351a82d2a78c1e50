"""AlterShareGroupOffsets (key 91): let partitions of a share group begin elsewhere (KIP-932).

Version 0, flexible from 0.

The group must be empty.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Int64, Message


class RequestPartition(Message):
    """An entry of `RequestTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    start_offset: Annotated[Int64, F("0+")] = 0


class RequestTopic(Message):
    """An entry of `AlterShareGroupOffsetsRequest.topics`."""

    topic_name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[RequestPartition], F("0+")] = []


class AlterShareGroupOffsetsRequest(Message):
    """AlterShareGroupOffsets request."""

    group_id: Annotated[str, F("0+")] = ""
    topics: Annotated[list[RequestTopic], F("0+")] = []


class ResponsePartition(Message):
    """An entry of `ResponseTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None


class ResponseTopic(Message):
    """An entry of `AlterShareGroupOffsetsResponse.responses`."""

    topic_name: Annotated[str, F("0+")] = ""
    topic_id: Annotated[UUID, F("0+")] = NIL
    partitions: Annotated[list[ResponsePartition], F("0+")] = []


class AlterShareGroupOffsetsResponse(Message):
    """AlterShareGroupOffsets response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    responses: Annotated[list[ResponseTopic], F("0+")] = []
