"""Fetch sessions (KIP-227): a consumer names its partitions once, later requests and answers carry changes.

States of a request, by (session id, session epoch):

    (0, −1)   no session: a full request, a full answer
    (0, 0)    a full request that asks for a session; the answer names its id, or 0 if the table is full
    (id, 0)   the same, and the session `id` ends
    (id, −1)  the session `id` ends; a full request, a full answer
    (id, n)   incremental: `n` must be the next epoch (INVALID_FETCH_SESSION_EPOCH else; an id that is not
              known: FETCH_SESSION_ID_NOT_FOUND). The answer holds only partitions with news.

A session belongs to a principal, and to no connection: its answers name what it reads, so that the session of another
principal is not known. The number of sessions is bounded: if the table is full, a new one replaces
the least recently used one, if that was idle for two minutes (Kafka's min.incremental.fetch.session.eviction.ms).
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from core.security.principal import ANONYMOUS, Principal

_EVICTION_SECONDS = 120.0
_MAX_EPOCH = 2**31 - 1
_FULL_EPOCHS = (-1, 0)

TopicKey = str | UUID


class SessionPartition:
    """One partition that a session reads, and what the last answer said about it."""

    __slots__ = ("asked", "sent_high_watermark", "sent_log_start", "topic")

    def __init__(self, topic: TopicKey, asked: FetchPartition) -> None:
        self.topic = topic
        self.asked = asked
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def has_news(self, answer: PartitionData) -> bool:
        """Whether an incremental answer must hold this partition; note what it says."""
        news = bool(
            answer.error_code
            or answer.records
            or answer.high_watermark != self.sent_high_watermark
            or answer.log_start_offset != self.sent_log_start
        )
        self.sent_high_watermark = answer.high_watermark
        self.sent_log_start = answer.log_start_offset
        if answer.error_code:
            self.sent_high_watermark = -1  # the first good answer after an error is news
        return news


class FetchSession:
    """The partitions of one session in the order in which they are served. `id` 0 is no session."""

    __slots__ = ("epoch", "id", "incremental", "last_used", "owner", "partitions")

    def __init__(self, session_id: int, owner: Principal) -> None:
        self.id = session_id
        self.owner = owner
        self.epoch = 0
        self.incremental = False
        self.last_used = 0.0
        self.partitions: dict[tuple[TopicKey, int], SessionPartition] = {}

    def update(self, request: FetchRequest, by_id: bool) -> None:
        """Take over what the request adds, changes and forgets."""
        for topic in request.topics:
            key: TopicKey = topic.topic_id if by_id else topic.topic
            for asked in topic.partitions:
                known = self.partitions.get((key, asked.partition))
                if known is None:
                    self.partitions[key, asked.partition] = SessionPartition(key, asked)
                else:
                    known.asked = asked
        for forgotten in request.forgotten_topics_data:
            key = forgotten.topic_id if by_id else forgotten.topic
            for partition in forgotten.partitions:
                self.partitions.pop((key, partition), None)

    def served(self, keys: Iterable[tuple[TopicKey, int]]) -> None:
        """Move partitions that just got records after the others, so that each has its turn."""
        for key in keys:
            one = self.partitions.pop(key, None)
            if one is not None:
                self.partitions[key] = one


class FetchSessions:
    """The sessions of one listener."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, by_id: bool, owner: Principal = ANONYMOUS) -> FetchSession:
        """Return the session of `owner` that the request names, updated by it; a new one for a full request.

        Raises FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.
        """
        if request.session_epoch in _FULL_EPOCHS:
            if self._of(request, owner) is not None:
                del self._sessions[request.session_id]
            session = FetchSession(self._new_id() if request.session_epoch == 0 else 0, owner)
            if session.id:
                self._sessions[session.id] = session
                session.epoch = 1
        else:
            session = self._resume(request, owner)
        session.last_used = self._clock.monotonic()
        session.update(request, by_id)
        return session

    def _of(self, request: FetchRequest, owner: Principal) -> FetchSession | None:
        session = self._sessions.get(request.session_id)
        return session if session is not None and session.owner == owner else None

    def _resume(self, request: FetchRequest, owner: Principal) -> FetchSession:
        session = self._of(request, owner)
        if session is None:
            raise BrokerError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"There is no fetch session {request.session_id}."
            )
        self._sessions[session.id] = self._sessions.pop(session.id)  # the most recently used is last
        if request.session_epoch != session.epoch:
            raise BrokerError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"Fetch session {session.id} expects epoch {session.epoch}, not {request.session_epoch}.",
            )
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.incremental = True
        return session

    def _new_id(self) -> int:
        if len(self._sessions) >= self._limit:
            oldest = next(iter(self._sessions.values()))
            if self._clock.monotonic() - oldest.last_used < _EVICTION_SECONDS:
                return 0
            del self._sessions[oldest.id]
        while True:
            session_id = self._clock.randrange(2**31 - 1) + 1
            if session_id not in self._sessions:
                return session_id
