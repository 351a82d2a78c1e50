"""Fetch: return record batches from an offset, as slices of files, now or when there are enough bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.fetch_conversion import FetchConversion
from core.listeners.kafka.fetch_session import FetchSession, SessionPartition, TopicKey
from core.listeners.kafka.handler import Handler, table
from core.listeners.kafka.listener import KafkaSession
from core.listeners.kafka.throttling import FetchQuota
from core.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from core.protocol.traits import fetch_cuts_every_partition, knows_isolation, names_topics_by_id
from core.security.acl import Operation, ResourceType
from core.types import FileSlice, TopicPartition
from core.vocabulary.records import Fetched, FetchedAll, FetchRead

_READ_COMMITTED = 1
_CONSUMERS = (-1, -2)  # replica ids of ordinary consumers, and of debugging ones


class _Fetch:
    """One request in progress: which partitions, how many bytes, in which record format."""

    def __init__(self, session: KafkaSession, request: FetchRequest, fetch_session: FetchSession) -> None:
        self.session = session
        self.request = request
        self.fetch_session = fetch_session
        # A client from before transactions cannot tell what was aborted, so it gets what is committed.
        self.committed = request.isolation_level == _READ_COMMITTED or not knows_isolation(1, session.version)
        self.by_id = names_topics_by_id(1, session.version)
        self.conversion = FetchConversion(
            session.listener.broker, session.listener.conversions, session.version
        )
        # The sets are cut after conversion, so the read must return the first batch of every partition.
        self.min_one_each = fetch_cuts_every_partition(session.version)
        self.quota = FetchQuota(session)
        self.max_bytes = self.quota.readable(request.max_bytes)
        self.partitions: list[SessionPartition] = list(fetch_session.partitions.values())
        self.reads: list[FetchRead] = []
        self.errors: dict[int, BrokerError] = {}
        for position, one in enumerate(self.partitions):
            try:
                self.reads.append(self._read(one))
            except BrokerError as error:
                self.errors[position] = error

    def _read(self, one: SessionPartition) -> FetchRead:
        name = self.session.broker.topics.name_of(one.topic) if not isinstance(one.topic, str) else one.topic
        asked = one.asked
        return FetchRead(
            TopicPartition(name, asked.partition),
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.current_leader_epoch,
            self.committed,
        )

    def response(self) -> FetchResponse | Awaitable[FetchResponse]:
        """Return the response; an awaitable if there is not enough yet, or the records must be converted."""
        if throttle_ms := self.quota.exceeded():
            return self._throttled(throttle_ms)
        first = self.session.broker.partitions.fetch_now(
            self.reads, max_bytes=self.max_bytes, min_one_each=self.min_one_each
        )
        enough = first.size >= self.request.min_bytes or first.refused or self.errors
        if not enough and self.request.max_wait_ms > 0:
            return self._later(first)
        return self.converted(first.answers) if self.conversion.needed else self.answer(first.answers, None)

    async def _later(self, first: FetchedAll) -> FetchResponse:
        """Return the response once there is enough or the client's time is over."""
        try:
            fetched = await self.session.broker.partitions.fetch(
                self.reads,
                max_bytes=self.max_bytes,
                min_bytes=self.request.min_bytes,
                wait_ms=self.request.max_wait_ms,
                min_one_each=self.min_one_each,
                first=first,
            )
        except BrokerError as error:  # too many long polls: an empty answer, the client retries
            if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                raise
            fetched = self.session.broker.partitions.fetch_now(
                self.reads, max_bytes=self.max_bytes, min_one_each=self.min_one_each
            ).answers
        return await self.converted(fetched) if self.conversion.needed else self.answer(fetched, None)

    async def converted(self, fetched: list[Fetched]) -> FetchResponse:
        """The response message in a format that the client's version knows."""
        return self.answer(fetched, await self.conversion.convert(self.reads, fetched))

    def answer(
        self, fetched: Sequence[Fetched], converted: Sequence[bytes | BrokerError] | None
    ) -> FetchResponse:
        """Return the response message; in an incremental session, only the partitions that have news.

        `converted` has the records or an error for each read. None: the stored batches are sent as they are.
        """
        if throttle_ms := self.quota.exceeded():
            return self._throttled(throttle_ms)
        responses: dict[TopicKey, FetchableTopicResponse] = {}
        size = 0
        with_records: list[tuple[TopicKey, int]] = []
        as_stored: Sequence[None] = [None] * len(fetched)
        results = iter(zip(fetched, converted or as_stored, strict=True))
        for position, one in enumerate(self.partitions):
            error = self.errors.get(position)
            data = self._refusal(one, error) if error is not None else self._partition(one, *next(results))
            news = not self.fetch_session.id or one.has_news(data)
            if not news and self.fetch_session.incremental:
                continue
            if data.records:
                size += data.records.length if isinstance(data.records, FileSlice) else len(data.records)
                with_records.append((one.topic, one.asked.partition))
            topic = responses.get(one.topic)
            if topic is None:
                topic = responses[one.topic] = FetchableTopicResponse(partitions=[])
                if isinstance(one.topic, str):
                    topic.topic = one.topic
                else:
                    topic.topic_id = one.topic
            topic.partitions.append(data)
        self.fetch_session.served(with_records)
        return FetchResponse(self.quota.count(size), 0, self.fetch_session.id, list(responses.values()))

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        """The empty answer of a client beyond its quota. It says nothing of any partition, and is not counted."""
        return FetchResponse(throttle_ms, 0, self.fetch_session.id, [])

    def _partition(
        self, one: SessionPartition, got: Fetched, converted: bytes | BrokerError | None
    ) -> PartitionData:
        error = got.error or (converted if isinstance(converted, BrokerError) else None)
        if error is not None:
            return self._refusal(one, error)
        assert got.read is not None
        bounds = got.read.offsets
        records: Any = got.read.slice if converted is None else converted
        aborted = None
        if self.request.isolation_level == _READ_COMMITTED:
            aborted = [AbortedTransaction(one.producer_id, one.first_offset) for one in got.read.aborted]
        return PartitionData(
            one.asked.partition,
            0,
            bounds.high_watermark,
            got.read.last_stable_offset,
            bounds.log_start_offset,
            aborted_transactions=aborted,
            records=b"" if records is None else records,
        )

    def _refusal(self, one: SessionPartition, error: BrokerError) -> PartitionData:
        data = PartitionData(one.asked.partition, error.code, -1, aborted_transactions=None, records=b"")
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            data.aborted_transactions = []  # as Kafka
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            data.log_start_offset = int(str(error.details.get("log_start_offset", -1)))
        return data


def fetch(session: KafkaSession, request: FetchRequest) -> Any:
    """Serve a fetch of any version, with or without a session."""
    for replica in (request.replica_id, request.replica_state.replica_id):
        if replica not in _CONSUMERS:
            from core.listeners.kafka.replica_fetch import replica_fetch

            return replica_fetch(session, replica, request)
    try:
        by_id = names_topics_by_id(1, session.version)
        fetch_session = session.listener.fetch_sessions.open(request, by_id, session.principal)
    except BrokerError as error:
        return FetchResponse(error_code=error.code, session_id=0)
    return _Fetch(session, request, fetch_session).response()


HANDLERS = table(Handler(1, fetch, needs=((Operation.READ, ResourceType.TOPIC),)))
