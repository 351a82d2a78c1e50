"""ShareAcknowledge (KIP-932): settle records that a share consumer has acquired. ShareFetch settles them as well.

A request has a position in a share session (`core.queues.share_sessions`). Each partition has its own error, and all
of its acknowledgements are carried out or none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgeTopic,
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from core.protocol.messages.share_fetch import FetchTopic
from core.queues.share_sessions import CLOSING, OPENING, SharedPartition, Sharer
from core.security.acl import Operation, ResourceType
from core.types import TopicPartition
from core.vocabulary.queues import AcknowledgeBatch

_RENEW = 4
_TYPES = range(_RENEW + 1)
# Kafka's clients make ids of 22 characters.
_MAX_MEMBER_ID = 255
# This broker, as a leader, where it is not the leader of the share partition: the client looks for it by itself.
UNKNOWN_LEADER = LeaderIdAndEpoch(-1, -1)
# Errors of a broker that keeps no groups now; a share partition is where they are.
_NOT_HERE = (
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)  # fmt: skip
# Errors of a group, which are errors of the whole request.
_OF_THE_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_AUTHORIZATION_FAILED)


class Outcome(NamedTuple):
    """What became of the acknowledgements of one partition."""

    error: ErrorCode
    message: str | None = None


def sharer_of(session: KafkaSession, group_id: str | None, member_id: str | None) -> Sharer:
    """Return the member that a request names. Raises INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED."""
    if not group_id or not member_id or len(member_id) > _MAX_MEMBER_ID:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"A share consumer names its group and a member id of 1 to {_MAX_MEMBER_ID} characters.",
        )
    session.rights.require(Operation.READ, ResourceType.GROUP, group_id)
    return Sharer(group_id, member_id)


def lock_ms(session: KafkaSession, group_id: str) -> int:
    """Return how long an acquired record of a group is locked; 0 if there is no such group."""
    try:
        return session.listener.broker.queues.get(group_id).settings.lock_ms
    except BrokerError:
        return 0


def of_partition(error: BrokerError) -> Outcome:
    """Return an error as one of a partition. Raises it if it concerns the whole group."""
    if error.code in _OF_THE_GROUP:
        raise error
    if error.code in _NOT_HERE:
        return Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    return Outcome(error.code, error.message)


async def acknowledge_all(
    session: KafkaSession,
    sharer: Sharer,
    topics: Sequence[FetchTopic] | Sequence[AcknowledgeTopic],
    *,
    renews: bool,
) -> dict[SharedPartition, Outcome]:
    """Carry out the acknowledgements of a request; return the outcome of each partition that has any.

    `renews`: whether the request may renew locks. Raises errors of the whole group.
    """
    asked: dict[SharedPartition, list[AcknowledgementBatch]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if partition.acknowledgement_batches:
                place = SharedPartition(topic.topic_id, partition.partition_index)
                asked.setdefault(place, []).extend(partition.acknowledgement_batches)
    # Together, so that they share a commit of the store.
    outcomes = await asyncio.gather(
        *(_acknowledge(session, sharer, place, batches, renews) for place, batches in asked.items())
    )
    return dict(zip(asked, outcomes, strict=True))


async def _acknowledge(
    session: KafkaSession,
    sharer: Sharer,
    place: SharedPartition,
    asked: Sequence[AcknowledgementBatch],
    renews: bool,
) -> Outcome:
    try:
        topic = session.broker.topics.name_of(place.topic_id)
        batches = _checked(asked, renews)
        if any(_RENEW in batch.types for batch in batches):
            _require_renewals(session, sharer.group_id)
        error = await session.broker.queues.acknowledge(
            sharer.group_id, TopicPartition(topic, place.partition), sharer.member_id, batches
        )
    except BrokerError as refused:
        return of_partition(refused)
    if error is ErrorCode.INVALID_RECORD_STATE:
        return Outcome(
            error,
            "Records of the acknowledgement are not acquired by this member, or their lock has run out; none of them "
            "is settled.",
        )
    return Outcome(error)


def _checked(asked: Iterable[AcknowledgementBatch], renews: bool) -> list[AcknowledgeBatch]:
    """Return the batches of a partition. Raises INVALID_REQUEST unless they are ascending, disjoint and complete."""
    end = 0
    checked = []
    for batch in asked:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not end <= first <= last:
            raise _invalid(f"Offsets {first} to {last} are no range that follows the one before.")
        if len(types) != 1 and len(types) != last - first + 1:
            raise _invalid(
                f"Offsets {first} to {last} have {len(types)} types; send one for all, or one for each."
            )
        if any(one not in _TYPES for one in types):
            raise _invalid("A type is none of 0 gap, 1 accept, 2 release, 3 reject, 4 renew.")
        if _RENEW in types and not renews:
            raise _invalid("A request that renews locks says so in IsRenewAck.")
        end = last + 1
        checked.append(AcknowledgeBatch(first, last, tuple(types)))
    return checked


def _require_renewals(session: KafkaSession, group_id: str) -> None:
    if not session.listener.broker.group_configs.of(group_id).share_renew_acknowledge_enable:
        raise BrokerError(
            ErrorCode.INVALID_RECORD_STATE,
            f"Group {group_id!r} has share.renew.acknowledge.enable=false: its locks cannot be renewed.",
        )


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)


async def share_acknowledge(
    session: KafkaSession, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Settle records of a share session; with epoch −1 also end the session."""
    broker = session.listener.broker
    try:
        sharer = sharer_of(session, request.group_id, request.member_id)
        if request.share_session_epoch == OPENING:
            raise BrokerError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH, "Only ShareFetch opens a share session with epoch 0."
            )
        closing = request.share_session_epoch == CLOSING
        if closing:
            broker.share_sessions.close(sharer, session.number)
        else:
            broker.share_sessions.resume(sharer, session.number, request.share_session_epoch)
        try:
            outcomes = await acknowledge_all(session, sharer, request.topics, renews=request.is_renew_ack)
        finally:
            if closing:
                await broker.queues.release_member(sharer.group_id, sharer.member_id)
    except BrokerError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms(session, sharer.group_id), responses=_responses(outcomes)
    )


def _responses(outcomes: Mapping[SharedPartition, Outcome]) -> list[ShareAcknowledgeTopicResponse]:
    topics: dict[object, ShareAcknowledgeTopicResponse] = {}
    for place, outcome in outcomes.items():
        topic = topics.get(place.topic_id)
        if topic is None:
            topic = topics[place.topic_id] = ShareAcknowledgeTopicResponse(place.topic_id, [])
        data = PartitionData(place.partition, outcome.error, outcome.message)
        if outcome.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            data.current_leader = UNKNOWN_LEADER
        topic.partitions.append(data)
    return list(topics.values())


# READ on the topics as well, once there is a session.
HANDLERS = table(Handler(79, share_acknowledge, needs=((Operation.READ, ResourceType.GROUP),)))
