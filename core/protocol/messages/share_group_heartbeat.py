"""ShareGroupHeartbeat (key 76): join, stay in and leave a share group (KIP-932).

Version 1, flexible from 0.

Member epoch 0 joins, −1 leaves. The member makes its id itself.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Message


class ShareGroupHeartbeatRequest(Message):
    """ShareGroupHeartbeat request."""

    group_id: Annotated[str, F("1+")] = ""
    member_id: Annotated[str, F("1+")] = ""
    member_epoch: Annotated[Int32, F("1+")] = 0
    rack_id: Annotated[str | None, F("1+", nullable="1+")] = None
    subscribed_topic_names: Annotated[list[str] | None, F("1+", nullable="1+")] = None


class TopicPartitions(Message):
    """An entry of `Assignment.topic_partitions`."""

    topic_id: Annotated[UUID, F("1+")] = NIL
    partitions: Annotated[list[Int32], F("1+")] = []


class Assignment(Message):
    """`ShareGroupHeartbeatResponse.assignment`."""

    topic_partitions: Annotated[list[TopicPartitions], F("1+")] = []


class ShareGroupHeartbeatResponse(Message):
    """ShareGroupHeartbeat response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("1+")] = 0
    error_message: Annotated[str | None, F("1+", nullable="1+")] = None
    member_id: Annotated[str | None, F("1+", nullable="1+")] = None
    member_epoch: Annotated[Int32, F("1+")] = 0
    heartbeat_interval_ms: Annotated[Int32, F("1+")] = 0
    assignment: Annotated[Assignment | None, F("1+", nullable="1+")] = None
