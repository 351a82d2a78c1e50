"""OffsetCommit, OffsetFetch, OffsetDelete: the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.listeners.kafka.transactions import refuse_late
from core.protocol import traits
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from core.protocol.primitives import NIL
from core.security.acl import Operation, ResourceType
from core.vocabulary.consumer_groups import MemberKind
from core.vocabulary.groups import NO_OFFSET, Commit, CommitRequest, TransactionalCommit
from core.vocabulary.transactions import ProducerIdAndEpoch

# (partition, offset, leader epoch, metadata, error), in the order of both kinds of answer.
_Row = tuple[int, int, int, str, int]


# --- commit ------------------------------------------------------------------------------------------------


async def offset_commit(session: KafkaSession, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Keep positions; each partition has its own error."""
    commits: list[Commit] = []
    refused: list[int] = []
    by_id = traits.names_topics_by_id(8, session.version)
    may_read = session.rights.may(Operation.READ, ResourceType.GROUP, request.group_id)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if may_read else ErrorCode.GROUP_AUTHORIZATION_FAILED
    # About 100,000 of these are made per second. The tuple's own constructor takes half the time.
    new = tuple.__new__
    for topic in request.topics:
        name = _name(session, topic.topic_id) if by_id else topic.name
        refused.append(ErrorCode.NONE if name is not None else unknown)
        if name is not None:
            commits += [
                new(
                    Commit,
                    (
                        name,
                        one.partition_index,
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.committed_metadata,
                        one.commit_timestamp,
                    ),
                )
                for one in topic.partitions
            ]
    results: Sequence[int] = await _commit(
        session,
        request.group_id,
        CommitRequest(
            commits,
            request.member_id,
            request.generation_id_or_member_epoch,
            request.group_instance_id,
            request.retention_time_ms,
            register=traits.offsets_of_zookeeper(session.version),
            any_partition=traits.commit_takes_any_partition(session.version),
        ),
        may_read=may_read,
    )
    if ErrorCode.GROUP_ID_NOT_FOUND in results and not traits.commit_knows_missing_groups(session.version):
        old = {ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION}
        results = [old.get(ErrorCode(result), result) for result in results]
    errors = iter(results)
    topics = [
        OffsetCommitResponseTopic(
            topic.name,
            topic.topic_id,
            # The partitions are the first argument: zip must not take an error of the next topic.
            [
                OffsetCommitResponsePartition(one.partition_index, error)
                for one, error in zip(topic.partitions, repeat(code) if code else errors, strict=False)
            ],
        )
        for topic, code in zip(request.topics, refused, strict=True)
    ]
    return OffsetCommitResponse(topics=topics)


async def _commit(
    session: KafkaSession, group_id: str, request: CommitRequest, *, may_read: bool
) -> Sequence[ErrorCode]:
    """Commit; UNSUPPORTED_VERSION if the client cannot know what a member epoch is, and its member has one."""
    groups = session.broker.groups
    if (
        may_read
        and request.member_id
        and not traits.commit_has_member_epochs(session.version)
        and groups.member_kind(group_id, request.member_id) is MemberKind.CONSUMER
    ):
        return [ErrorCode.UNSUPPORTED_VERSION] * len(request.commits)
    return await groups.commit(group_id, request)


def _name(session: KafkaSession, topic_id: UUID) -> str | None:
    try:
        return session.broker.topics.name_of(topic_id)
    except BrokerError:
        return None


# --- commit in a transaction -------------------------------------------------------------------------------


async def txn_offset_commit(
    session: KafkaSession, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Stage positions that are committed when the transaction is; each partition has its own error (KIP-98)."""
    errors = iter(await _stage(session, request))
    topics = [
        TxnOffsetCommitResponseTopic(
            topic.name,
            [TxnOffsetCommitResponsePartition(one.partition_index, next(errors)) for one in topic.partitions],
        )
        for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


async def _stage(session: KafkaSession, request: TxnOffsetCommitRequest) -> list[ErrorCode]:
    begins = traits.txn_commit_begins_transaction(session.version)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if not begins:
        refuse_late(session, request.transactional_id, producer, of_group=True)
    commits = [
        Commit(
            topic.name,
            one.partition_index,
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata,
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    commit = CommitRequest(commits, request.member_id, request.generation_id, request.group_instance_id)
    staging = TransactionalCommit(request.transactional_id, *producer, commit)
    broker = session.broker
    try:
        # Before the coordinator opens a transaction for it.
        session.rights.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        session.rights.require(Operation.READ, ResourceType.GROUP, request.group_id)
        results = await broker.transactions.stage(
            request.transactional_id,
            producer,
            lambda: broker.groups.stage_transactional(request.group_id, staging),
            begins=begins,
        )
    except BrokerError as error:
        results = [error.code] * len(commits)
    # Not all clients know PRODUCER_FENCED here; Kafka's group coordinator does not say it either.
    told = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH}
    if not traits.txn_commit_knows_loading(session.version):
        told[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return [told.get(result, result) for result in results]


# --- fetch -------------------------------------------------------------------------------------------------


def offset_fetch(session: KafkaSession, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return committed offsets of one group (v0–7) or of many; −1 without an error if none was committed.

    With `require_stable` (v7) a partition of which an open transaction has staged an offset is
    UNSTABLE_OFFSET_COMMIT: its new owner waits for the transaction of the previous one (KIP-447).
    """
    closed = session.broker.groups.closed
    if closed:
        return _refused(session, request, closed)
    if not request.groups and not _may_describe(session, request.group_id):
        return _refused(session, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    stable = request.require_stable
    groups = [_fetch_group(session, group, stable) for group in request.groups]
    wanted = request.topics
    if wanted is None:
        topics = [
            OffsetFetchResponseTopic(name, [OffsetFetchResponsePartition(*row) for row in rows])
            for name, rows in _all(session, request.group_id, stable).items()
        ]
    else:
        topics = [
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        *_fetch_one(session, request.group_id, topic.name, p, stable)
                    )
                    for p in topic.partition_indexes
                ],
            )
            for topic in wanted
        ]
    return OffsetFetchResponse(topics=topics, groups=groups)


def _may_describe(session: KafkaSession, group_id: str) -> bool:
    return session.rights.denial(Operation.DESCRIBE, ResourceType.GROUP, group_id) is None


def _refused(session: KafkaSession, request: OffsetFetchRequest, error: ErrorCode) -> OffsetFetchResponse:
    """The first versions have no error of their own: every partition says it."""
    each = () if traits.offset_fetch_has_one_error(session.version) else request.topics or ()
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [OffsetFetchResponsePartition(p, NO_OFFSET, -1, "", error) for p in topic.partition_indexes],
        )
        for topic in each
    ]
    groups = [OffsetFetchResponseGroup(group.group_id, [], error) for group in request.groups]
    return OffsetFetchResponse(topics=topics, error_code=error, groups=groups)


def _fetch_group(
    session: KafkaSession, group: OffsetFetchRequestGroup, stable: bool
) -> OffsetFetchResponseGroup:
    if not _may_describe(session, group.group_id):
        return OffsetFetchResponseGroup(group.group_id, [], ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = session.broker.groups.check_fetch(group.group_id, group.member_id, group.member_epoch)
    if error:
        return OffsetFetchResponseGroup(group.group_id, [], error)
    topics = []
    by_id = traits.names_topics_by_id(9, session.version)
    if group.topics is None:
        for name, rows in _all(session, group.group_id, stable).items():
            partitions = [OffsetFetchResponsePartitions(*row) for row in rows]
            topics.append(OffsetFetchResponseTopics(name, _id(session, name), partitions))
    for topic in group.topics or ():
        known = _name(session, topic.topic_id) if by_id else topic.name
        partitions = [
            OffsetFetchResponsePartitions(*_fetch_one(session, group.group_id, known, p, stable))
            for p in topic.partition_indexes
        ]
        topics.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions))
    return OffsetFetchResponseGroup(group.group_id, topics)


def _fetch_one(session: KafkaSession, group_id: str, topic: str | None, partition: int, stable: bool) -> _Row:
    if topic is None:
        return (partition, NO_OFFSET, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
    register = traits.offsets_of_zookeeper(session.version)
    try:
        if stable and session.broker.groups.is_unstable(group_id, topic, partition):
            return (partition, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = session.broker.groups.committed(group_id, topic, partition, register=register)
    except BrokerError as error:
        return (partition, NO_OFFSET, -1, "", error.code)
    if found is None:
        return (partition, NO_OFFSET, -1, "", 0)
    return (partition, found.offset, found.leader_epoch, found.metadata, 0)


def _all(session: KafkaSession, group_id: str, stable: bool) -> dict[str, list[_Row]]:
    topics: dict[str, list[_Row]] = {}
    for topic, partition, found in session.broker.groups.all_committed(group_id):
        row: _Row = (partition, found.offset, found.leader_epoch, found.metadata, 0)
        if stable and session.broker.groups.is_unstable(group_id, topic, partition):
            row = (partition, NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        topics.setdefault(topic, []).append(row)
    return topics


def _id(session: KafkaSession, name: str) -> UUID:
    try:
        return session.broker.topics.get(name).topic_id
    except BrokerError:
        return NIL


# --- delete ------------------------------------------------------------------------------------------------


async def offset_delete(session: KafkaSession, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete committed offsets that no member of the group needs (KIP-496)."""
    partitions = [(t.name, p.partition_index) for t in request.topics for p in t.partitions]
    try:
        errors = iter(await session.broker.groups.delete_offsets(request.group_id, partitions))
    except BrokerError as error:
        return OffsetDeleteResponse(error_code=error.code)
    topics = [
        OffsetDeleteResponseTopic(
            t.name, [OffsetDeleteResponsePartition(p.partition_index, next(errors)) for p in t.partitions]
        )
        for t in request.topics
    ]
    return OffsetDeleteResponse(topics=topics)


HANDLERS = table(
    Handler(
        8, offset_commit, needs=((Operation.READ, ResourceType.GROUP), (Operation.READ, ResourceType.TOPIC))
    ),
    Handler(
        9,
        offset_fetch,
        needs=((Operation.DESCRIBE, ResourceType.GROUP), (Operation.DESCRIBE, ResourceType.TOPIC)),
    ),
    Handler(
        28,
        txn_offset_commit,
        needs=(
            (Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
            (Operation.READ, ResourceType.GROUP),
            (Operation.READ, ResourceType.TOPIC),
        ),
    ),
    Handler(
        47,
        offset_delete,
        needs=((Operation.DELETE, ResourceType.GROUP), (Operation.READ, ResourceType.TOPIC)),
    ),
)
