"""DeleteTopics (key 20): topics to delete.

Versions 0–6, flexible from 4.

Version 5 answers a message (KIP-599), 6 takes names or ids (KIP-516).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Message


class DeleteTopicState(Message):
    """An entry of `DeleteTopicsRequest.topics`."""

    name: Annotated[str | None, F("6+", nullable="6+")] = None
    topic_id: Annotated[UUID, F("6+")] = NIL


class DeleteTopicsRequest(Message):
    """DeleteTopics request."""

    topics: Annotated[list[DeleteTopicState], F("6+")] = []
    topic_names: Annotated[list[str], F("0-5")] = []
    timeout_ms: Annotated[Int32, F("0+")] = 0


class DeletableTopicResult(Message):
    """An entry of `DeleteTopicsResponse.responses`."""

    name: Annotated[str | None, F("0+", nullable="6+")] = ""
    topic_id: Annotated[UUID, F("6+")] = NIL
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("5+", nullable="5+")] = None


class DeleteTopicsResponse(Message):
    """DeleteTopics response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    responses: Annotated[list[DeletableTopicResult], F("0+")] = []
