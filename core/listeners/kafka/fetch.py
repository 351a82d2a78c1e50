"""Fetch: record batches from an offset on, as slices of files, at once or when there are enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from core.broker.batches import Fetched, FetchRead
from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.fetch_session import FetchSession, SessionPartition, TopicKey
from core.listeners.kafka.handler import Handler, table
from core.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from core.protocol.traits import fetch_magic, fetch_sends_oversized_batch, knows_zstd, names_topics_by_id
from core.records.batch import batches
from core.records.conversion import down_convert
from core.types import LogRead, TopicPartition

if TYPE_CHECKING:
    from core.listeners.kafka.door import KafkaSession

_MAGIC_NOW = 2
_CONSUMERS = (-1, -2)  # replica ids of ordinary consumers, and of debugging ones


class _Fetch:
    """One request under way: which partitions, how many bytes, in which record format."""

    def __init__(self, session: KafkaSession, request: FetchRequest, fetch_session: FetchSession) -> None:
        self.session = session
        self.request = request
        self.fetch_session = fetch_session
        self.by_id = names_topics_by_id(1, session.version)
        self.magic = fetch_magic(session.version)
        self.zstd = knows_zstd(1, session.version)
        # Old formats are cut after conversion, so the first batch must always come.
        self.min_one = fetch_sends_oversized_batch(session.version) or self.magic < _MAGIC_NOW
        self.partitions: list[SessionPartition] = list(fetch_session.partitions.values())
        self.reads: list[FetchRead] = []
        self.errors: dict[int, BrokerError] = {}
        for position, one in enumerate(self.partitions):
            try:
                self.reads.append(self._read(one))
            except BrokerError as error:
                self.errors[position] = error

    def _read(self, one: SessionPartition) -> FetchRead:
        name = self.session.broker.topic_name(one.topic) if not isinstance(one.topic, str) else one.topic
        asked = one.asked
        return FetchRead(
            TopicPartition(name, asked.partition),
            asked.fetch_offset,
            asked.partition_max_bytes,
            asked.current_leader_epoch,
        )

    def now(self) -> FetchResponse | None:
        """The answer, if there is enough to answer at once."""
        fetched, size, refused = self.session.broker.fetch_now(
            self.reads, max_bytes=self.request.max_bytes, min_one=self.min_one
        )
        enough = size >= self.request.min_bytes or refused or self.errors or self.request.max_wait_ms <= 0
        if not enough:
            return None
        return self.answer(fetched)

    async def later(self) -> FetchResponse:
        """The answer, once there is enough or the client's time is over."""
        try:
            fetched = await self.session.broker.fetch(
                self.reads,
                max_bytes=self.request.max_bytes,
                min_bytes=self.request.min_bytes,
                wait_ms=self.request.max_wait_ms,
                min_one=self.min_one,
            )
        except BrokerError as error:  # too many wait: an empty answer, the client comes again
            if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                raise
            fetched, _, _ = self.session.broker.fetch_now(
                self.reads, max_bytes=self.request.max_bytes, min_one=self.min_one
            )
        return self.answer(fetched)

    def answer(self, fetched: Sequence[Fetched]) -> FetchResponse:
        """The response message; of an incremental session, only what is news."""
        responses: dict[TopicKey, FetchableTopicResponse] = {}
        with_records: list[tuple[TopicKey, int]] = []
        results = iter(fetched)
        for position, one in enumerate(self.partitions):
            error = self.errors.get(position)
            data = self._refusal(one, error) if error is not None else self._partition(one, next(results))
            news = not self.fetch_session.id or one.has_news(data)
            if not news and self.fetch_session.incremental:
                continue
            if data.records:
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
        return FetchResponse(0, 0, self.fetch_session.id, list(responses.values()))

    def _partition(self, one: SessionPartition, got: Fetched) -> PartitionData:
        if got.error is not None:
            return self._refusal(one, got.error)
        assert got.read is not None
        bounds = got.read.offsets
        records: Any = got.read.slice
        try:
            if records is None:
                records = b""
            elif self.magic < _MAGIC_NOW:
                records = self._converted(one, got.topic_partition, got.read)
            elif not self.zstd:
                self._refuse_zstd(got.topic_partition)
        except BrokerError as error:
            return self._refusal(one, error)
        return PartitionData(
            one.asked.partition,
            0,
            bounds.high_watermark,
            bounds.high_watermark,
            bounds.log_start_offset,
            aborted_transactions=None,
            records=records,
        )

    def _converted(self, one: SessionPartition, address: TopicPartition, read: LogRead | None) -> bytes:
        """Batches in the client's old format, cut where it asked; reads on behind batches with nothing to show."""
        offset, wanted = one.asked.fetch_offset, max(one.asked.partition_max_bytes, 0)
        limit = self.session.broker.config.max_decompressed_bytes
        while read is not None and read.slice is not None:
            data = read.slice.read()
            converted = down_convert(
                data, self.magic, first_offset=one.asked.fetch_offset, max_bytes=limit, wanted_bytes=wanted
            )
            if converted:
                return converted[:wanted]
            offset = max(header.next_offset for _, header in batches(data))
            (got,), _, _ = self.session.broker.fetch_now(
                [FetchRead(address, offset, max(wanted, 1))], max_bytes=self.request.max_bytes
            )
            read = got.read
        return b""

    def _refuse_zstd(self, address: TopicPartition) -> None:
        if self.session.broker.topic(address.topic).config.compression_type == "zstd":
            raise BrokerError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                "The topic is compressed with zstd; fetch with version 10.",
            )

    def _refusal(self, one: SessionPartition, error: BrokerError) -> PartitionData:
        data = PartitionData(one.asked.partition, error.code, -1, aborted_transactions=None, records=b"")
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            data.log_start_offset = int(str(error.details.get("log_start_offset", -1)))
        return data


def fetch(session: KafkaSession, request: FetchRequest) -> Any:
    """Serve a fetch of any version, with or without a session."""
    if request.replica_id not in _CONSUMERS or request.replica_state.replica_id not in _CONSUMERS:
        return FetchResponse(error_code=ErrorCode.INVALID_REQUEST)
    try:
        fetch_session = session.door.fetch_sessions.open(request, names_topics_by_id(1, session.version))
    except BrokerError as error:
        return FetchResponse(error_code=error.code, session_id=0)
    work = _Fetch(session, request, fetch_session)
    return work.now() or work.later()


HANDLERS = table(Handler(1, fetch))
