"""Fetch of a follower: it names its replica id, may read up to the log end offset, and its offset is trusted."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from core.vocabulary.replicas import FollowerFetched, FollowerRead


async def replica_fetch(session: KafkaSession, replica: int, request: FetchRequest) -> FetchResponse:
    """Serve a follower; it names topics by id and has no session."""
    broker = session.broker
    try:
        broker.roles.check_peer(replica)
    except BrokerError as error:
        return FetchResponse(error_code=error.code)
    if not broker.roles.is_peer(replica):
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    reads = [
        FollowerRead(
            topic.topic_id,
            asked.partition,
            asked.current_leader_epoch,
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.high_watermark,
        )
        for topic in request.topics
        for asked in topic.partitions
    ]
    max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
    fetched = await broker.roles.follower_fetch(
        replica, reads, max_bytes=max_bytes, wait_ms=request.max_wait_ms
    )
    responses: dict[UUID, FetchableTopicResponse] = {}
    for read, got in zip(reads, fetched, strict=True):
        topic = responses.get(read.topic_id)
        if topic is None:
            topic = responses[read.topic_id] = FetchableTopicResponse("", read.topic_id, [])
        topic.partitions.append(_answer(read, got))
    return FetchResponse(responses=list(responses.values()))


def _answer(read: FollowerRead, got: FollowerFetched) -> PartitionData:
    if got.read is None:
        assert got.error is not None
        return _refusal(read, got.error)
    bounds = got.read.offsets
    records: Any = got.read.slice if got.read.slice is not None else b""
    return PartitionData(
        read.partition,
        0,
        bounds.high_watermark,
        bounds.high_watermark,
        bounds.log_start_offset,
        aborted_transactions=None,
        records=records,
    )


def _refusal(read: FollowerRead, error: BrokerError) -> PartitionData:
    data = PartitionData(read.partition, error.code, -1, aborted_transactions=None, records=b"")
    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        data.log_start_offset = int(str(error.details.get("log_start_offset", -1)))
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        data.current_leader = LeaderIdAndEpoch(
            int(str(error.details.get("leader", -1))), int(str(error.details.get("leader_epoch", -1)))
        )
    return data
