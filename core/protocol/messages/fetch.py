"""Fetch (key 1): record bytes from an offset on, waiting for min_bytes.

Versions 0–18, flexible from 12.

Versions 0–1 answer message sets of magic 0, 2–3 of magic 1, 4 and later record batches of magic 2.
Version 7 has sessions (KIP-227), 9 leader epochs (KIP-320), 11 racks (KIP-392), 13 topic ids (KIP-516),
16 node endpoints (KIP-951).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int8, Int16, Int32, Int64, Message, SentRecords, Value


class ReplicaState(Value, frozen=True):
    """`FetchRequest.replica_state`."""

    replica_id: Annotated[Int32, F("15+")] = -1
    replica_epoch: Annotated[Int64, F("15+")] = -1


class FetchPartition(Message):
    """An entry of `FetchTopic.partitions`."""

    partition: Annotated[Int32, F("0+")] = 0
    # What the client believes; −1 where it does not know.
    current_leader_epoch: Annotated[Int32, F("9+")] = -1
    fetch_offset: Annotated[Int64, F("0+")] = 0
    # Epoch of the last record read: the leader answers where logs diverge. −1 is none.
    last_fetched_epoch: Annotated[Int32, F("12+")] = -1
    # From followers only.
    log_start_offset: Annotated[Int64, F("5+")] = -1
    # A first batch above it is sent all the same (KIP-74).
    partition_max_bytes: Annotated[Int32, F("0+")] = 0
    replica_directory_id: Annotated[UUID, F("17+", tag=0)] = NIL
    high_watermark: Annotated[Int64, F("18+", tag=1)] = 0x7FFF_FFFF_FFFF_FFFF


class FetchTopic(Message):
    """An entry of `FetchRequest.topics`."""

    topic: Annotated[str, F("0-12")] = ""
    topic_id: Annotated[UUID, F("13+")] = NIL
    partitions: Annotated[list[FetchPartition], F("0+")] = []


class ForgottenTopic(Message):
    """An entry of `FetchRequest.forgotten_topics_data`."""

    topic: Annotated[str, F("7-12")] = ""
    topic_id: Annotated[UUID, F("13+")] = NIL
    partitions: Annotated[list[Int32], F("7+")] = []


class FetchRequest(Message):
    """Fetch request."""

    cluster_id: Annotated[str | None, F("12+", nullable="12+", tag=0)] = None
    # −1 from a consumer, else the follower that asks.
    replica_id: Annotated[Int32, F("0-14")] = -1
    replica_state: Annotated[ReplicaState, F("15+", tag=1)] = ReplicaState()
    # How long to wait for min_bytes.
    max_wait_ms: Annotated[Int32, F("0+")] = 0
    min_bytes: Annotated[Int32, F("0+")] = 0
    max_bytes: Annotated[Int32, F("3+")] = 0x7FFF_FFFF
    # 0 reads everything, 1 only what is committed.
    isolation_level: Annotated[Int8, F("4+")] = 0
    # 0 has none yet. Epoch 0 asks for one, −1 for a full answer that ends it.
    session_id: Annotated[Int32, F("7+")] = 0
    session_epoch: Annotated[Int32, F("7+")] = -1
    topics: Annotated[list[FetchTopic], F("0+")] = []
    # To be dropped from the session.
    forgotten_topics_data: Annotated[list[ForgottenTopic], F("7+")] = []
    rack_id: Annotated[str, F("11+")] = ""


class EpochEndOffset(Value, frozen=True):
    """`PartitionData.diverging_epoch`."""

    epoch: Annotated[Int32, F("12+")] = -1
    end_offset: Annotated[Int64, F("12+")] = -1


class LeaderIdAndEpoch(Value, frozen=True):
    """`PartitionData.current_leader`."""

    leader_id: Annotated[Int32, F("12+")] = -1
    leader_epoch: Annotated[Int32, F("12+")] = -1


class SnapshotId(Value, frozen=True):
    """`PartitionData.snapshot_id`."""

    end_offset: Annotated[Int64, F("0+")] = -1
    epoch: Annotated[Int32, F("0+")] = -1


class AbortedTransaction(Message):
    """An entry of `PartitionData.aborted_transactions`."""

    producer_id: Annotated[Int64, F("4+")] = 0
    first_offset: Annotated[Int64, F("4+")] = 0


class PartitionData(Message):
    """An entry of `FetchableTopicResponse.partitions`."""

    partition_index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    # First offset that cannot be read yet.
    high_watermark: Annotated[Int64, F("0+")] = 0
    # First offset of the oldest open transaction, else the high watermark.
    last_stable_offset: Annotated[Int64, F("4+")] = -1
    log_start_offset: Annotated[Int64, F("5+")] = -1
    diverging_epoch: Annotated[EpochEndOffset, F("12+", tag=0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, F("12+", tag=1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, F("12+", tag=2)] = SnapshotId()
    # Null unless only what is committed was asked for.
    aborted_transactions: Annotated[list[AbortedTransaction] | None, F("4+", nullable="4+")] = []
    # −1 is the leader itself.
    preferred_read_replica: Annotated[Int32, F("11+")] = -1
    records: Annotated[SentRecords | None, F("0+", nullable="0+")] = None


class FetchableTopicResponse(Message):
    """An entry of `FetchResponse.responses`."""

    topic: Annotated[str, F("0-12")] = ""
    topic_id: Annotated[UUID, F("13+")] = NIL
    partitions: Annotated[list[PartitionData], F("0+")] = []


class NodeEndpoint(Message):
    """An entry of `FetchResponse.node_endpoints`."""

    node_id: Annotated[Int32, F("16+")] = 0
    host: Annotated[str, F("16+")] = ""
    port: Annotated[Int32, F("16+")] = 0
    rack: Annotated[str | None, F("16+", nullable="16+")] = None


class FetchResponse(Message):
    """Fetch response."""

    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    error_code: Annotated[Int16, F("7+")] = 0
    session_id: Annotated[Int32, F("7+")] = 0
    responses: Annotated[list[FetchableTopicResponse], F("0+")] = []
    node_endpoints: Annotated[list[NodeEndpoint], F("16+", tag=0)] = []
