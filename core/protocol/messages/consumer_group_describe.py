"""ConsumerGroupDescribe (key 69): state and members of groups of the new protocol (KIP-848).

Versions 0–1, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int8, Int16, Int32, Message, Value


class ConsumerGroupDescribeRequest(Message):
    """ConsumerGroupDescribe request."""

    group_ids: Annotated[list[str], F("0+")] = []
    include_authorized_operations: Annotated[bool, F("0+")] = False


class TopicPartitions(Message):
    """An entry of `Assignment.topic_partitions`."""

    topic_id: Annotated[UUID, F("0+")] = NIL
    topic_name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[Int32], F("0+")] = []


class Assignment(Value, frozen=True):
    """`Member.assignment`."""

    topic_partitions: Annotated[list[TopicPartitions], F("0+")] = []


class Member(Message):
    """An entry of `DescribedGroup.members`."""

    member_id: Annotated[str, F("0+")] = ""
    instance_id: Annotated[str | None, F("0+", nullable="0+")] = None
    rack_id: Annotated[str | None, F("0+", nullable="0+")] = None
    member_epoch: Annotated[Int32, F("0+")] = 0
    client_id: Annotated[str, F("0+")] = ""
    client_host: Annotated[str, F("0+")] = ""
    subscribed_topic_names: Annotated[list[str], F("0+")] = []
    subscribed_topic_regex: Annotated[str | None, F("0+", nullable="0+")] = None
    assignment: Annotated[Assignment, F("0+")] = Assignment()
    target_assignment: Annotated[Assignment, F("0+")] = Assignment()
    # 0 classic, 1 consumer, −1 not known.
    member_type: Annotated[Int8, F("1+")] = -1


class DescribedGroup(Message):
    """An entry of `ConsumerGroupDescribeResponse.groups`."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    group_id: Annotated[str, F("0+")] = ""
    group_state: Annotated[str, F("0+")] = ""
    group_epoch: Annotated[Int32, F("0+")] = 0
    assignment_epoch: Annotated[Int32, F("0+")] = 0
    assignor_name: Annotated[str, F("0+")] = ""
    members: Annotated[list[Member], F("0+")] = []
    authorized_operations: Annotated[Int32, F("0+")] = -0x8000_0000


class ConsumerGroupDescribeResponse(Message):
    """ConsumerGroupDescribe response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    groups: Annotated[list[DescribedGroup], F("0+")] = []
