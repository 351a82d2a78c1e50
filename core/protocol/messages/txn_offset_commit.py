"""TxnOffsetCommit (key 28): positions of a group inside a transaction (KIP-98).

Versions 0–5, flexible from 3.

Version 3 carries the member, so that a fenced one is refused (KIP-447).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class TxnOffsetCommitRequestPartition(Message):
    """An entry of `TxnOffsetCommitRequestTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    committed_offset: Annotated[Int64, F("0+")] = 0
    committed_leader_epoch: Annotated[Int32, F("2+")] = -1
    committed_metadata: Annotated[str | None, F("0+", nullable="0+")] = ""


class TxnOffsetCommitRequestTopic(Message):
    """An entry of `TxnOffsetCommitRequest.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[TxnOffsetCommitRequestPartition], F("0+")] = []


class TxnOffsetCommitRequest(Message):
    """TxnOffsetCommit request."""

    transactional_id: Annotated[str, F("0+")] = ""
    group_id: Annotated[str, F("0+")] = ""
    producer_id: Annotated[Int64, F("0+")] = 0
    producer_epoch: Annotated[Int16, F("0+")] = 0
    generation_id: Annotated[Int32, F("3+")] = -1
    member_id: Annotated[str, F("3+")] = ""
    group_instance_id: Annotated[str | None, F("3+", nullable="3+")] = None
    topics: Annotated[list[TxnOffsetCommitRequestTopic], F("0+")] = []


class TxnOffsetCommitResponsePartition(Message):
    """An entry of `TxnOffsetCommitResponseTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0


class TxnOffsetCommitResponseTopic(Message):
    """An entry of `TxnOffsetCommitResponse.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[TxnOffsetCommitResponsePartition], F("0+")] = []


class TxnOffsetCommitResponse(Message):
    """TxnOffsetCommit response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    topics: Annotated[list[TxnOffsetCommitResponseTopic], F("0+")] = []
