"""OffsetFetch (key 9): the committed positions of one group, from version 8 of many.

Versions 0–10, flexible from 6.

Null topics (version 2 and later) ask for all. Version 7 can insist on stable offsets (KIP-447), 9
carries member epochs, 10 topic ids (KIP-848).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Int64, Message


class OffsetFetchRequestTopic(Message):
    """An entry of `OffsetFetchRequest.topics`."""

    name: Annotated[str, F("0-7")] = ""
    partition_indexes: Annotated[list[Int32], F("0-7")] = []


class OffsetFetchRequestTopics(Message):
    """An entry of `OffsetFetchRequestGroup.topics`."""

    name: Annotated[str, F("8-9")] = ""
    topic_id: Annotated[UUID, F("10+")] = NIL
    partition_indexes: Annotated[list[Int32], F("8+")] = []


class OffsetFetchRequestGroup(Message):
    """An entry of `OffsetFetchRequest.groups`."""

    group_id: Annotated[str, F("8+")] = ""
    member_id: Annotated[str | None, F("9+", nullable="9+")] = None
    member_epoch: Annotated[Int32, F("9+")] = -1
    topics: Annotated[list[OffsetFetchRequestTopics] | None, F("8+", nullable="8+")] = []


class OffsetFetchRequest(Message):
    """OffsetFetch request."""

    group_id: Annotated[str, F("0-7")] = ""
    # Null asks for all.
    topics: Annotated[list[OffsetFetchRequestTopic] | None, F("0-7", nullable="2-7")] = []
    groups: Annotated[list[OffsetFetchRequestGroup], F("8+")] = []
    # Refuses while transactions with offsets are open.
    require_stable: Annotated[bool, F("7+")] = False


class OffsetFetchResponsePartition(Message):
    """An entry of `OffsetFetchResponseTopic.partitions`."""

    partition_index: Annotated[Int32, F("0-7")] = 0
    # −1 where nothing was committed, with error 0.
    committed_offset: Annotated[Int64, F("0-7")] = 0
    committed_leader_epoch: Annotated[Int32, F("5-7")] = -1
    metadata: Annotated[str | None, F("0-7", nullable="0-7")] = ""
    error_code: Annotated[Int16, F("0-7")] = 0


class OffsetFetchResponseTopic(Message):
    """An entry of `OffsetFetchResponse.topics`."""

    name: Annotated[str, F("0-7")] = ""
    partitions: Annotated[list[OffsetFetchResponsePartition], F("0-7")] = []


class OffsetFetchResponsePartitions(Message):
    """An entry of `OffsetFetchResponseTopics.partitions`."""

    partition_index: Annotated[Int32, F("8+")] = 0
    committed_offset: Annotated[Int64, F("8+")] = 0
    committed_leader_epoch: Annotated[Int32, F("8+")] = -1
    metadata: Annotated[str | None, F("8+", nullable="8+")] = ""
    error_code: Annotated[Int16, F("8+")] = 0


class OffsetFetchResponseTopics(Message):
    """An entry of `OffsetFetchResponseGroup.topics`."""

    name: Annotated[str, F("8-9")] = ""
    topic_id: Annotated[UUID, F("10+")] = NIL
    partitions: Annotated[list[OffsetFetchResponsePartitions], F("8+")] = []


class OffsetFetchResponseGroup(Message):
    """An entry of `OffsetFetchResponse.groups`."""

    group_id: Annotated[str, F("8+")] = ""
    topics: Annotated[list[OffsetFetchResponseTopics], F("8+")] = []
    error_code: Annotated[Int16, F("8+")] = 0


class OffsetFetchResponse(Message):
    """OffsetFetch response."""

    throttle_time_ms: Annotated[Int32, F("3+")] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], F("0-7")] = []
    error_code: Annotated[Int16, F("2-7")] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], F("8+")] = []
