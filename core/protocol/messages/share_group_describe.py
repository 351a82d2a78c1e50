"""ShareGroupDescribe (key 77): state and members of share groups (KIP-932).

Version 1, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Message, Value


class ShareGroupDescribeRequest(Message):
    """ShareGroupDescribe request."""

    group_ids: Annotated[list[str], F("1+")] = []
    include_authorized_operations: Annotated[bool, F("1+")] = False


class TopicPartitions(Message):
    """An entry of `Assignment.topic_partitions`."""

    topic_id: Annotated[UUID, F("1+")] = NIL
    topic_name: Annotated[str, F("1+")] = ""
    partitions: Annotated[list[Int32], F("1+")] = []


class Assignment(Value, frozen=True):
    """`Member.assignment`."""

    topic_partitions: Annotated[list[TopicPartitions], F("1+")] = []


class Member(Message):
    """An entry of `DescribedGroup.members`."""

    member_id: Annotated[str, F("1+")] = ""
    rack_id: Annotated[str | None, F("1+", nullable="1+")] = None
    member_epoch: Annotated[Int32, F("1+")] = 0
    client_id: Annotated[str, F("1+")] = ""
    client_host: Annotated[str, F("1+")] = ""
    subscribed_topic_names: Annotated[list[str], F("1+")] = []
    assignment: Annotated[Assignment, F("1+")] = Assignment()


class DescribedGroup(Message):
    """An entry of `ShareGroupDescribeResponse.groups`."""

    error_code: Annotated[Int16, F("1+")] = 0
    error_message: Annotated[str | None, F("1+", nullable="1+")] = None
    group_id: Annotated[str, F("1+")] = ""
    group_state: Annotated[str, F("1+")] = ""
    group_epoch: Annotated[Int32, F("1+")] = 0
    assignment_epoch: Annotated[Int32, F("1+")] = 0
    assignor_name: Annotated[str, F("1+")] = ""
    members: Annotated[list[Member], F("1+")] = []
    authorized_operations: Annotated[Int32, F("1+")] = -0x8000_0000


class ShareGroupDescribeResponse(Message):
    """ShareGroupDescribe response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    groups: Annotated[list[DescribedGroup], F("1+")] = []
