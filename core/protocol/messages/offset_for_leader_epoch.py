"""OffsetForLeaderEpoch (key 23): where a leader epoch ended.

Versions 0–4, flexible from 4.

Version 2 carries the epoch that the client knows (KIP-320).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int16, Int32, Int64, Message


class OffsetForLeaderPartition(Message):
    """An entry of `OffsetForLeaderTopic.partitions`."""

    partition: Annotated[Int32, F("0+")] = 0
    current_leader_epoch: Annotated[Int32, F("2+")] = -1
    leader_epoch: Annotated[Int32, F("0+")] = 0


class OffsetForLeaderTopic(Message):
    """An entry of `OffsetForLeaderEpochRequest.topics`."""

    topic: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[OffsetForLeaderPartition], F("0+")] = []


class OffsetForLeaderEpochRequest(Message):
    """OffsetForLeaderEpoch request."""

    # −1 from a consumer, −2 where it may be either.
    replica_id: Annotated[Int32, F("3+")] = -2
    topics: Annotated[list[OffsetForLeaderTopic], F("0+")] = []


class EpochEndOffset(Message):
    """An entry of `OffsetForLeaderTopicResult.partitions`."""

    error_code: Annotated[Int16, F("0+")] = 0
    partition: Annotated[Int32, F("0+")] = 0
    leader_epoch: Annotated[Int32, F("1+")] = -1
    # First offset of the next epoch; −1 where the epoch is not known.
    end_offset: Annotated[Int64, F("0+")] = -1


class OffsetForLeaderTopicResult(Message):
    """An entry of `OffsetForLeaderEpochResponse.topics`."""

    topic: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[EpochEndOffset], F("0+")] = []


class OffsetForLeaderEpochResponse(Message):
    """OffsetForLeaderEpoch response."""

    throttle_time_ms: Annotated[Int32, F("2+")] = 0
    topics: Annotated[list[OffsetForLeaderTopicResult], F("0+")] = []
