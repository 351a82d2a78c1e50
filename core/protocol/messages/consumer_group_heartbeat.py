"""ConsumerGroupHeartbeat (key 68): the one request of the new group protocol: join, stay, leave (KIP-848).

Versions 0–1, flexible from 0.

Member epoch 0 joins, −1 leaves, −2 leaves for a while as a static member. Version 1 subscribes by
pattern.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Message


class TopicPartitions(Message):
    """An entry of `ConsumerGroupHeartbeatRequest.topic_partitions`."""

    topic_id: Annotated[UUID, F("0+")] = NIL
    partitions: Annotated[list[Int32], F("0+")] = []


class ConsumerGroupHeartbeatRequest(Message):
    """ConsumerGroupHeartbeat request."""

    group_id: Annotated[str, F("0+")] = ""
    member_id: Annotated[str, F("0+")] = ""
    member_epoch: Annotated[Int32, F("0+")] = 0
    instance_id: Annotated[str | None, F("0+", nullable="0+")] = None
    rack_id: Annotated[str | None, F("0+", nullable="0+")] = None
    # −1 where it has not changed; null below likewise.
    rebalance_timeout_ms: Annotated[Int32, F("0+")] = -1
    subscribed_topic_names: Annotated[list[str] | None, F("0+", nullable="0+")] = None
    subscribed_topic_regex: Annotated[str | None, F("1+", nullable="1+")] = None
    server_assignor: Annotated[str | None, F("0+", nullable="0+")] = None
    topic_partitions: Annotated[list[TopicPartitions] | None, F("0+", nullable="0+")] = None


class Assignment(Message):
    """`ConsumerGroupHeartbeatResponse.assignment`."""

    topic_partitions: Annotated[list[TopicPartitions], F("0+")] = []


class ConsumerGroupHeartbeatResponse(Message):
    """ConsumerGroupHeartbeat response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    member_id: Annotated[str | None, F("0+", nullable="0+")] = None
    member_epoch: Annotated[Int32, F("0+")] = 0
    heartbeat_interval_ms: Annotated[Int32, F("0+")] = 0
    assignment: Annotated[Assignment | None, F("0+", nullable="0+")] = None
