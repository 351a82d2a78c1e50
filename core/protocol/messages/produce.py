"""Produce (key 0): batches to append, one per partition.

Versions 0–13, flexible from 9.

Versions 0–1 carry message sets of magic 0, 2 of magic 1, 3 and later record batches of magic 2. acks=0
has no response at all. Version 8 names the records refused (KIP-467), 10 the new leader (KIP-951), 13
topics by id (KIP-516).
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from core.protocol.primitives import NIL
from core.protocol.schema import F, Int16, Int32, Int64, Message, ReceivedRecords, Value


class PartitionProduceData(Message):
    """An entry of `TopicProduceData.partition_data`."""

    index: Annotated[Int32, F("0+")] = 0
    records: Annotated[ReceivedRecords | None, F("0+", nullable="0+")] = None


class TopicProduceData(Message):
    """An entry of `ProduceRequest.topic_data`."""

    name: Annotated[str, F("0-12")] = ""
    topic_id: Annotated[UUID, F("13+")] = NIL
    partition_data: Annotated[list[PartitionProduceData], F("0+")] = []


class ProduceRequest(Message):
    """Produce request."""

    transactional_id: Annotated[str | None, F("3+", nullable="3+")] = None
    # 0 wants no answer, 1 the leader's append, −1 all in-sync replicas.
    acks: Annotated[Int16, F("0+")] = 0
    # How long the leader may wait for the others.
    timeout_ms: Annotated[Int32, F("0+")] = 0
    topic_data: Annotated[list[TopicProduceData], F("0+")] = []


class BatchIndexAndErrorMessage(Message):
    """An entry of `PartitionProduceResponse.record_errors`."""

    # Counted from 0 in the batch.
    batch_index: Annotated[Int32, F("8+")] = 0
    batch_index_error_message: Annotated[str | None, F("8+", nullable="8+")] = None


class LeaderIdAndEpoch(Value, frozen=True):
    """`PartitionProduceResponse.current_leader`."""

    leader_id: Annotated[Int32, F("10+")] = -1
    leader_epoch: Annotated[Int32, F("10+")] = -1


class PartitionProduceResponse(Message):
    """An entry of `TopicProduceResponse.partition_responses`."""

    index: Annotated[Int32, F("0+")] = 0
    error_code: Annotated[Int16, F("0+")] = 0
    # Offset of the first record appended; −1 with an error.
    base_offset: Annotated[Int64, F("0+")] = 0
    # The time stamp that all records got, with LogAppendTime; else −1.
    log_append_time_ms: Annotated[Int64, F("2+")] = -1
    log_start_offset: Annotated[Int64, F("5+")] = -1
    # The records for which the whole batch was refused.
    record_errors: Annotated[list[BatchIndexAndErrorMessage], F("8+")] = []
    error_message: Annotated[str | None, F("8+", nullable="8+")] = None
    current_leader: Annotated[LeaderIdAndEpoch, F("10+", tag=0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Message):
    """An entry of `ProduceResponse.responses`."""

    name: Annotated[str, F("0-12")] = ""
    topic_id: Annotated[UUID, F("13+")] = NIL
    partition_responses: Annotated[list[PartitionProduceResponse], F("0+")] = []


class NodeEndpoint(Message):
    """An entry of `ProduceResponse.node_endpoints`."""

    node_id: Annotated[Int32, F("10+")] = 0
    host: Annotated[str, F("10+")] = ""
    port: Annotated[Int32, F("10+")] = 0
    rack: Annotated[str | None, F("10+", nullable="10+")] = None


class ProduceResponse(Message):
    """Produce response."""

    responses: Annotated[list[TopicProduceResponse], F("0+")] = []
    throttle_time_ms: Annotated[Int32, F("1+")] = 0
    node_endpoints: Annotated[list[NodeEndpoint], F("10+", tag=0)] = []
