"""ShareFetch (KIP-932): acquire records for a share consumer, and settle what it had acquired before.

The answer holds whole batches of the log, as slices of files, and says which of their offsets are acquired. Without
any record it waits up to MaxWaitMs for an append, or for records that the queue has got back. It is sent with the
first records: to collect more up to MinBytes would use up the time of their locks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.listeners.kafka.share_acknowledge import (
    UNKNOWN_LEADER,
    Outcome,
    acknowledge_all,
    lock_ms,
    of_partition,
    sharer_of,
)
from core.listeners.kafka.throttling import FetchQuota
from core.protocol.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from core.queues.share_sessions import CLOSING, OPENING, SharedPartition, Sharer, ShareSession
from core.security.acl import Operation, ResourceType
from core.types import TopicPartition
from core.vocabulary.queues import Acquired, work_key

# The modes of acquisition (KIP-1206).
_BATCHES, _RECORDS = 0, 1


class _ShareFetch:
    """One request in progress: what was acquired, and what is left of its limits."""

    def __init__(
        self, session: KafkaSession, request: ShareFetchRequest, sharer: Sharer, share_session: ShareSession
    ) -> None:
        self.session = session
        self.request = request
        self.sharer = sharer
        self.share_session = share_session
        self.quota = FetchQuota(session)
        self.settled: dict[SharedPartition, Outcome] = {}
        self.acquired: dict[SharedPartition, Acquired] = {}
        self.errors: dict[SharedPartition, Outcome] = {}
        self.records_left = request.max_records
        limit = min(request.max_bytes, session.listener.broker.config.fetch_max_bytes)
        self.bytes_left = self.quota.readable(limit)

    async def run(self) -> ShareFetchResponse:
        """Return the answer. Raises errors of the whole group."""
        request = self.request
        self.settled = await acknowledge_all(
            self.session, self.sharer, request.topics, renews=request.is_renew_ack
        )
        fetches = (
            self.records_left > 0 and request.share_session_epoch != CLOSING and not request.is_renew_ack
        )
        throttle_ms = self.quota.exceeded() if fetches else 0
        if fetches and not throttle_ms:
            await self._acquire()
            if not self._done() and request.max_wait_ms > 0 and request.min_bytes > 0:
                await self._wait()
        size = sum(piece.length for one in self.acquired.values() for piece in one.records)
        answer = ShareFetchResponse(
            throttle_ms or self.quota.count(size),
            acquisition_lock_timeout_ms=lock_ms(self.session, self.sharer.group_id),
            responses=self._responses(),
        )
        self.share_session.served(self.acquired)
        return answer

    def _done(self) -> bool:
        # A settlement is answered at once: its sender waits for it.
        return bool(self.acquired or self.errors or self.settled)

    async def _wait(self) -> None:
        """Acquire again after each event that may bring records, until the client's time is over."""
        broker = self.session.listener.broker
        until = broker.clock.monotonic() + min(self.request.max_wait_ms, broker.config.max_wait_ms) / 1000
        keys = self._keys()
        while (left := until - broker.clock.monotonic()) > 0:
            waiting = asyncio.ensure_future(broker.purgatory.wait(keys, left, lambda: True))
            waiting.add_done_callback(_looked_at)
            try:
                # The wait begins before the look, so that it misses no event.
                await asyncio.sleep(0)
                await self._acquire()
                if self._done():
                    return
                if not await waiting:
                    # At the deadline; also at the stop of the broker.
                    return
            except BrokerError as error:
                if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                    raise
                return  # too many wait already: an empty answer, the client asks again
            finally:
                waiting.cancel()
            await self._acquire()
            if self._done():
                return

    def _keys(self) -> list[Hashable]:
        keys: list[Hashable] = []
        for place in self.share_session.partitions:
            try:
                tp = self._tp(place)
            except BrokerError:
                continue
            keys += (tp, work_key(self.sharer.group_id, tp))
        return keys

    def _tp(self, place: SharedPartition) -> TopicPartition:
        return TopicPartition(self.session.broker.topics.name_of(place.topic_id), place.partition)

    async def _acquire(self) -> None:
        """Acquire what is there, a partition after the other, up to the limits of the request."""
        for place in list(self.share_session.partitions):
            if self.records_left <= 0 or self.bytes_left <= 0:
                return
            # What it gives later may lie before what it has given, and an answer is in the order of offsets.
            if place in self.acquired or place in self.errors:
                continue
            try:
                got = await self.session.broker.queues.acquire(
                    self.sharer.group_id,
                    self._tp(place),
                    self.sharer.member_id,
                    max_records=self.records_left,
                    max_bytes=self.bytes_left,
                    batch_size=max(self.request.batch_size, 1),
                    strict=self.request.share_acquire_mode == _RECORDS,
                )
            except BrokerError as error:
                self.errors[place] = of_partition(error)
                continue
            if got.ranges:
                self.acquired[place] = got
                self.records_left -= sum(one.last - one.first + 1 for one in got.ranges)
                self.bytes_left -= sum(piece.length for piece in got.records)

    def _responses(self) -> list[ShareFetchableTopicResponse]:
        """Return all partitions of a new session; later only those with news."""
        places = dict.fromkeys((*self.settled, *self.acquired, *self.errors))
        if self.request.share_session_epoch == OPENING:
            places = dict.fromkeys((*self.share_session.partitions, *places))
        topics: dict[UUID, ShareFetchableTopicResponse] = {}
        for place in places:
            topic = topics.get(place.topic_id)
            if topic is None:
                topic = topics[place.topic_id] = ShareFetchableTopicResponse(place.topic_id, [])
            topic.partitions.append(self._partition(place))
        return list(topics.values())

    def _partition(self, place: SharedPartition) -> PartitionData:
        data = PartitionData(place.partition, records=b"")
        if (failed := self.errors.get(place)) is not None:
            data.error_code, data.error_message = failed
        if (settled := self.settled.get(place)) is not None:
            data.acknowledge_error_code, data.acknowledge_error_message = settled
        if ErrorCode.NOT_LEADER_OR_FOLLOWER in (data.error_code, data.acknowledge_error_code):
            data.current_leader = UNKNOWN_LEADER
        if (got := self.acquired.get(place)) is not None:
            data.records = list(got.records)
            data.acquired_records = [AcquiredRecords(*one) for one in got.ranges]
        return data


def _looked_at(waiting: asyncio.Future[bool]) -> None:
    """Take note of the error of a wait that ended while nothing waited for it."""
    if not waiting.cancelled():
        waiting.exception()


def _check(request: ShareFetchRequest) -> None:
    """Raise INVALID_REQUEST for a request that contradicts itself."""
    if request.share_acquire_mode not in (_BATCHES, _RECORDS):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Acquire mode {request.share_acquire_mode} is unknown; 0 takes whole batches, 1 a limit of records.",
        )
    if request.is_renew_ack and (
        request.max_wait_ms > 0 or request.min_bytes > 0 or request.max_bytes > 0 or request.max_records > 0
    ):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "A ShareFetch that renews locks fetches nothing: MaxWaitMs, MinBytes, MaxBytes and MaxRecords must be 0.",
        )
    if request.share_session_epoch == OPENING and any(
        partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
    ):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "A new share session has nothing to acknowledge; send it with the next epoch.",
        )


async def share_fetch(session: KafkaSession, request: ShareFetchRequest) -> ShareFetchResponse:
    """Serve one request of a share session: settle, then acquire."""
    broker = session.listener.broker
    try:
        sharer = sharer_of(session, request.group_id, request.member_id)
        _check(request)
        share_session = _session(session, request, sharer)
        closing = request.share_session_epoch == CLOSING
        try:
            return await _ShareFetch(session, request, sharer, share_session).run()
        finally:
            if closing:
                await broker.queues.release_member(sharer.group_id, sharer.member_id)
    except BrokerError as error:
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # So that the client does not ask again at once.
            wait = min(max(request.max_wait_ms, 0), broker.config.max_wait_ms) / 1000
            await broker.purgatory.wait((), wait, lambda: False)
        return ShareFetchResponse(error_code=error.code, error_message=error.message)


def _session(session: KafkaSession, request: ShareFetchRequest, sharer: Sharer) -> ShareSession:
    """Return the share session of a request, with its partitions as the request wants them."""
    sessions, epoch = session.listener.broker.share_sessions, request.share_session_epoch
    if epoch == CLOSING:
        return sessions.close(sharer, session.number)
    if epoch == OPENING:
        found = sessions.open(sharer, session.number)
    else:
        found = sessions.resume(sharer, session.number, epoch)
    found.update(
        (
            SharedPartition(topic.topic_id, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        ),
        (
            SharedPartition(topic.topic_id, partition)
            for topic in request.forgotten_topics_data
            for partition in topic.partitions
        ),
    )
    return found


HANDLERS = table(
    Handler(
        78,
        share_fetch,
        needs=((Operation.READ, ResourceType.GROUP), (Operation.READ, ResourceType.TOPIC)),
    )
)
