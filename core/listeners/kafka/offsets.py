"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: the bounds of partitions."""

from __future__ import annotations

from collections.abc import Awaitable

from core.clock import TimeSlice
from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from core.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from core.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from core.protocol.traits import knows_isolation, list_offsets_knows, list_offsets_old_style
from core.security.acl import Operation, ResourceType
from core.types import TopicPartition

# Partitions of one request that are looked up in one step. A lookup by time takes 20 to 50 µs.
_IN_ONE_STEP = 50
_READ_COMMITTED = 1


def list_offsets(
    session: KafkaSession, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Return offsets by time; each partition has its own error."""
    if sum(len(topic.partitions) for topic in request.topics) > _IN_ONE_STEP:
        return _list_many(session, request)
    committed = _reads_committed(session, request)
    topics = [
        ListOffsetsTopicResponse(t.name, [_list_one(session, t.name, p, committed) for p in t.partitions])
        for t in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


async def _list_many(session: KafkaSession, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Return the same for a long list. It may take seconds, so other tasks may run between two steps."""
    time_slice = TimeSlice(session.broker.clock)
    committed = _reads_committed(session, request)
    topics = []
    for topic in request.topics:
        found = []
        for asked in topic.partitions:
            found.append(_list_one(session, topic.name, asked, committed))
            await time_slice.give_way()
        topics.append(ListOffsetsTopicResponse(topic.name, found))
    return ListOffsetsResponse(topics=topics)


def _reads_committed(session: KafkaSession, request: ListOffsetsRequest) -> bool:
    """Whether the client asks as read_committed; one from before transactions reads no other records."""
    return request.isolation_level == _READ_COMMITTED or not knows_isolation(2, session.version)


def _list_one(
    session: KafkaSession, topic: str, asked: ListOffsetsPartition, committed: bool
) -> ListOffsetsPartitionResponse:
    tp = TopicPartition(topic, asked.partition_index)
    try:
        if list_offsets_old_style(session.version):
            offsets = session.broker.partitions.segment_offsets(tp, asked.timestamp, asked.max_num_offsets)
            return ListOffsetsPartitionResponse(asked.partition_index, old_style_offsets=offsets)
        if not list_offsets_knows(session.version, asked.timestamp):
            return ListOffsetsPartitionResponse(asked.partition_index, ErrorCode.UNSUPPORTED_VERSION)
        found = session.broker.partitions.offset_for_time(
            tp, asked.timestamp, asked.current_leader_epoch, committed=committed
        )
        return ListOffsetsPartitionResponse(
            asked.partition_index,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )
    except BrokerError as error:
        return ListOffsetsPartitionResponse(asked.partition_index, error.code)


def offset_for_leader_epoch(
    session: KafkaSession, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Where the records of a leader epoch end (KIP-101, KIP-279)."""
    if request.replica_id >= 0:
        try:
            session.broker.roles.check_peer(request.replica_id)
        except BrokerError as error:
            return OffsetForLeaderEpochResponse(
                topics=[
                    OffsetForLeaderTopicResult(
                        t.topic, [EpochEndOffset(error.code, p.partition) for p in t.partitions]
                    )
                    for t in request.topics
                ]
            )
    topics = [
        OffsetForLeaderTopicResult(t.topic, [_end_of_epoch(session, t.topic, p) for p in t.partitions])
        for t in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _end_of_epoch(session: KafkaSession, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        epoch, end = session.broker.partitions.end_offset_for_epoch(
            TopicPartition(topic, asked.partition), asked.leader_epoch, asked.current_leader_epoch
        )
        return EpochEndOffset(0, asked.partition, epoch, end)
    except BrokerError as error:
        return EpochEndOffset(error.code, asked.partition)


async def delete_records(session: KafkaSession, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Delete records below an offset; −1 means the high watermark."""
    asked = [
        (TopicPartition(t.name, p.partition_index), p.offset) for t in request.topics for p in t.partitions
    ]
    results = iter(await session.broker.partitions.delete_records(asked))
    topics = [
        DeleteRecordsTopicResult(t.name, [_deleted(p.partition_index, next(results)) for p in t.partitions])
        for t in request.topics
    ]
    return DeleteRecordsResponse(topics=topics)


def _deleted(partition: int, result: int | BrokerError) -> DeleteRecordsPartitionResult:
    if isinstance(result, BrokerError):
        return DeleteRecordsPartitionResult(partition, -1, result.code)
    return DeleteRecordsPartitionResult(partition, result)


HANDLERS = table(
    Handler(2, list_offsets, needs=((Operation.DESCRIBE, ResourceType.TOPIC),)),
    Handler(23, offset_for_leader_epoch, needs=((Operation.DESCRIBE, ResourceType.TOPIC),)),
    Handler(21, delete_records, needs=((Operation.DELETE, ResourceType.TOPIC),)),
)
