"""ListOffsets (key 2): the offset that belongs to a timestamp.

Versions 0–11, flexible from 6.

Timestamp −1 asks for the latest, −2 the earliest, −3 the greatest timestamp (version 7, KIP-734), −4, −5 and
−6 are for tiered storage (versions 8, 9 and 11). Version 0 answers a list of segment offsets, newest first.
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Int64, Message


class ListOffsetsPartition(Message):
    """An entry of `ListOffsetsTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    current_leader_epoch: Annotated[Int32, F("4+")] = -1
    timestamp: Annotated[Int64, F("0+")] = 0
    # How many offsets the answer may list.
    max_num_offsets: Annotated[Int32, F("0")] = 1


class ListOffsetsTopic(Message):
    """An entry of `ListOffsetsRequest.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[ListOffsetsPartition], F("0+")] = []


class ListOffsetsRequest(Message):
    """ListOffsets request."""

    # −1 from a consumer.
    replica_id: Annotated[Int32, F("0+")] = 0
    # With 1, "latest" is the last stable offset.
    isolation_level: Annotated[Int8, F("2+")] = 0
    topics: Annotated[list[ListOffsetsTopic], F("0+")] = []
    timeout_ms: Annotated[Int32, F("10+")] = 0


class ListOffsetsPartitionResponse(Message):
    """An entry of `ListOffsetsTopicResponse.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    old_style_offsets: Annotated[list[Int64], F("0")] = []
    # Of the record found; −1 where none was, and for earliest and latest.
    timestamp: Annotated[Int64, F("1+")] = -1
    offset: Annotated[Int64, F("1+")] = -1
    leader_epoch: Annotated[Int32, F("4+")] = -1


class ListOffsetsTopicResponse(Message):
    """An entry of `ListOffsetsResponse.topics`."""

    name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[ListOffsetsPartitionResponse], F("0+")] = []


class ListOffsetsResponse(Message):
    """ListOffsets response."""

    throttle_time_ms: Annotated[Int32, F("2+")] = 0
    topics: Annotated[list[ListOffsetsTopicResponse], F("0+")] = []
