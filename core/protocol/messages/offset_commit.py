"""OffsetCommit (key 8): positions of a group, to be kept.

Versions 0–10, flexible from 8.

Version 1 carries a time stamp per partition, 2–4 a retention, 6 leader epochs (KIP-320), 7 static
members (KIP-345), 9 member epochs, 10 topic ids (KIP-848).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Int64, Message


class OffsetCommitRequestPartition(Message):
    """An entry of `OffsetCommitRequestTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    committed_offset: Annotated[Int64, F("0+")] = 0
    committed_leader_epoch: Annotated[Int32, F("6+")] = -1
    # −1 means now.
    commit_timestamp: Annotated[Int64, F("1")] = -1
    committed_metadata: Annotated[str | None, F("0+", nullable="0+")] = ""


class OffsetCommitRequestTopic(Message):
    """An entry of `OffsetCommitRequest.topics`."""

    name: Annotated[str, F("0-9")] = ""
    topic_id: Annotated[UUID, F("10+")] = NIL
    partitions: Annotated[list[OffsetCommitRequestPartition], F("0+")] = []


class OffsetCommitRequest(Message):
    """OffsetCommit request."""

    group_id: Annotated[str, F("0+")] = ""
    # −1 from a consumer that manages its partitions itself.
    generation_id_or_member_epoch: Annotated[Int32, F("1+")] = -1
    member_id: Annotated[str, F("1+")] = ""
    group_instance_id: Annotated[str | None, F("7+", nullable="7+")] = None
    # −1 leaves it to the broker.
    retention_time_ms: Annotated[Int64, F("2-4")] = -1
    topics: Annotated[list[OffsetCommitRequestTopic], F("0+")] = []


class OffsetCommitResponsePartition(Message):
    """An entry of `OffsetCommitResponseTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0


class OffsetCommitResponseTopic(Message):
    """An entry of `OffsetCommitResponse.topics`."""

    name: Annotated[str, F("0-9")] = ""
    topic_id: Annotated[UUID, F("10+")] = NIL
    partitions: Annotated[list[OffsetCommitResponsePartition], F("0+")] = []


class OffsetCommitResponse(Message):
    """OffsetCommit response."""

    throttle_time_ms: Annotated[Int32, F("3+")] = 0
    topics: Annotated[list[OffsetCommitResponseTopic], F("0+")] = []
