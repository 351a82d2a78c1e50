"""DeleteShareGroupOffsets (key 92): let a share group forget topics (KIP-932).

Version 0, flexible from 0.

The group must be empty.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Message


class RequestTopic(Message):
    """An entry of `DeleteShareGroupOffsetsRequest.topics`."""

    topic_name: Annotated[str, F("0+")] = ""


class DeleteShareGroupOffsetsRequest(Message):
    """DeleteShareGroupOffsets request."""

    group_id: Annotated[str, F("0+")] = ""
    topics: Annotated[list[RequestTopic], F("0+")] = []


class ResponseTopic(Message):
    """An entry of `DeleteShareGroupOffsetsResponse.responses`."""

    topic_name: Annotated[str, F("0+")] = ""
    topic_id: Annotated[UUID, F("0+")] = NIL
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None


class DeleteShareGroupOffsetsResponse(Message):
    """DeleteShareGroupOffsets response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    responses: Annotated[list[ResponseTopic], F("0+")] = []
