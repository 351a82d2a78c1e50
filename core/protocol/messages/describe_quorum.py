"""DescribeQuorum (key 55): the voters of the metadata, the leader, and the log end offset of each (KIP-595).

Versions 0–2, flexible from 0.

Version 1 has times (KIP-836), version 2 the addresses of the nodes (KIP-853).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Int64, Message, UInt16


class DescribeQuorumPartition(Message):
    """An entry of `DescribeQuorumTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0


class DescribeQuorumTopic(Message):
    """An entry of `DescribeQuorumRequest.topics`."""

    topic_name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[DescribeQuorumPartition], F("0+")] = []


class DescribeQuorumRequest(Message):
    """DescribeQuorum request."""

    topics: Annotated[list[DescribeQuorumTopic], F("0+")] = []


class ReplicaState(Message):
    """An entry of `DescribedQuorumPartition.current_voters` and `observers`."""

    replica_id: Annotated[Int32, F("0+")] = 0
    replica_directory_id: Annotated[UUID, F("2+")] = NIL
    # The last offset that is known of this replica.
    log_end_offset: Annotated[Int64, F("0+")] = 0
    # Milliseconds of the leader's clock; −1 where it is not known.
    last_fetch_timestamp: Annotated[Int64, F("1+")] = -1
    last_caught_up_timestamp: Annotated[Int64, F("1+")] = -1


class DescribedQuorumPartition(Message):
    """An entry of `DescribedQuorumTopic.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("2+", nullable="2+")] = None
    leader_id: Annotated[Int32, F("0+")] = 0
    leader_epoch: Annotated[Int32, F("0+")] = 0
    high_watermark: Annotated[Int64, F("0+")] = 0
    current_voters: Annotated[list[ReplicaState], F("0+")] = []
    observers: Annotated[list[ReplicaState], F("0+")] = []


class DescribedQuorumTopic(Message):
    """An entry of `DescribeQuorumResponse.topics`."""

    topic_name: Annotated[str, F("0+")] = ""
    partitions: Annotated[list[DescribedQuorumPartition], F("0+")] = []


class Listener(Message):
    """An entry of `Node.listeners`."""

    name: Annotated[str, F("2+")] = ""
    host: Annotated[str, F("2+")] = ""
    port: Annotated[UInt16, F("2+")] = 0


class Node(Message):
    """An entry of `DescribeQuorumResponse.nodes`."""

    node_id: Annotated[Int32, F("2+")] = 0
    listeners: Annotated[list[Listener], F("2+")] = []


class DescribeQuorumResponse(Message):
    """DescribeQuorum response."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("2+", nullable="2+")] = None
    topics: Annotated[list[DescribedQuorumTopic], F("0+")] = []
    nodes: Annotated[list[Node], F("2+")] = []
