"""DescribeTopicPartitions (key 75): partitions of topics, page by page (KIP-966).

Version 0, flexible from 0.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Message


class TopicRequest(Message):
    """An entry of `DescribeTopicPartitionsRequest.topics`."""

    name: Annotated[str, F("0+")] = ""


class Cursor(Message):
    """`DescribeTopicPartitionsRequest.cursor`."""

    topic_name: Annotated[str, F("0+")] = ""
    partition_index: Annotated[Int32, F("0+")] = 0


class DescribeTopicPartitionsRequest(Message):
    """DescribeTopicPartitions request."""

    topics: Annotated[list[TopicRequest], F("0+")] = []
    response_partition_limit: Annotated[Int32, F("0+")] = 2000
    # Where the page before ended.
    cursor: Annotated[Cursor | None, F("0+", nullable="0+")] = None


class DescribeTopicPartitionsResponsePartition(Message):
    """An entry of `DescribeTopicPartitionsResponseTopic.partitions`."""

    error_code: Annotated[Int16, F("0+")] = 0
    partition_index: Annotated[Int32, F("0+")] = 0
    leader_id: Annotated[Int32, F("0+")] = 0
    leader_epoch: Annotated[Int32, F("0+")] = -1
    replica_nodes: Annotated[list[Int32], F("0+")] = []
    isr_nodes: Annotated[list[Int32], F("0+")] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, F("0+", nullable="0+")] = None
    last_known_elr: Annotated[list[Int32] | None, F("0+", nullable="0+")] = None
    offline_replicas: Annotated[list[Int32], F("0+")] = []


class DescribeTopicPartitionsResponseTopic(Message):
    """An entry of `DescribeTopicPartitionsResponse.topics`."""

    error_code: Annotated[Int16, F("0+")] = 0
    name: Annotated[str | None, F("0+", nullable="0+")] = ""
    topic_id: Annotated[UUID, F("0+")] = NIL
    is_internal: Annotated[bool, F("0+")] = False
    partitions: Annotated[list[DescribeTopicPartitionsResponsePartition], F("0+")] = []
    topic_authorized_operations: Annotated[Int32, F("0+")] = -0x8000_0000


class DescribeTopicPartitionsResponse(Message):
    """DescribeTopicPartitions response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    topics: Annotated[list[DescribeTopicPartitionsResponseTopic], F("0+")] = []
    # Null on the last page.
    next_cursor: Annotated[Cursor | None, F("0+", nullable="0+")] = None
