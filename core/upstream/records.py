"""Single records of the cluster, as `broker.records`: produce through one producer for all callers, read windows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from core.batches.decoding import Decoder
from core.batches.distribution import Distribution, take_results
from core.batches.open_batches import OpenBatches
from core.batches.reading import RecordReader
from core.client.producer import Part, Producer
from core.clock import Clock
from core.errors import BrokerError
from core.records.partitioner import StickyPartitions
from core.records.record import NewRecord
from core.types import TopicPartition
from core.upstream.bounds import Bounds
from core.upstream.failures import about
from core.upstream.partitions import Partitions
from core.upstream.topics import Topics
from core.vocabulary.capabilities import unsupported
from core.vocabulary.one_shot import Draft
from core.vocabulary.records import UNDONE, AppendRecords, ProduceResult, ReadResult, refuse_batch
from core.vocabulary.transactions import ProducerIdAndEpoch


class Records:
    """Produce and read single records."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        partitions: Partitions,
        bounds: Bounds,
        producer: Producer,
        open_batches: OpenBatches,
        sticky: StickyPartitions,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._partitions = partitions
        self._bounds = bounds
        self._producer = producer
        self._distribution = Distribution(sticky)
        self._reader = RecordReader(
            clock, partitions, Decoder(open_batches), lambda name: topics.get(name).topic_id
        )

    # --- produce -------------------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: int = -1,
        partition: int | None = None,
        timeout_ms: int | None = None,
        append: AppendRecords | None = None,
    ) -> list[ProduceResult]:
        """See `facade.Records.produce`. acks=0 waits for the leader as acks=1 does."""
        info = self._topics.find(topic) or await self._topics.get_or_create(topic)
        if partition is not None:
            self._partitions.check(TopicPartition(topic, partition))
        if append is not None:
            raise unsupported("Records cannot be appended as a part of something else in a cluster.")
        results: list[ProduceResult] = [UNDONE] * len(records)
        now = self._clock.wall_ms()
        waits: list[tuple[int, Sequence[int], asyncio.Future[list[Part]]]] = []
        groups = self._distribution.by_partition(topic, info.partitions, records, partition)
        for number, indexes in groups.items():
            tp = TopicPartition(topic, number)
            chosen = records if len(indexes) == len(records) else [records[index] for index in indexes]
            try:
                self._partitions.check(tp)
                sent = self._producer.send(tp, chosen, now_ms=now, acks=acks, timeout_ms=timeout_ms)
            except BrokerError as error:
                refuse_batch(results, indexes, number, error)
                continue
            waits.append((number, indexes, sent))
        for number, indexes, sent in waits:
            try:
                parts = await sent
            except BrokerError as error:
                refuse_batch(results, indexes, number, about(TopicPartition(topic, number), error))
                continue
            self._take(TopicPartition(topic, number), records, indexes, parts, acks, now, results)
        return results

    def _take(
        self,
        tp: TopicPartition,
        records: Sequence[NewRecord],
        indexes: Sequence[int],
        parts: Sequence[Part],
        acks: int,
        now: int,
        results: list[ProduceResult],
    ) -> None:
        for part in parts:
            first, count, done, error = part.first, part.count, part.result, part.error
            some = indexes if len(parts) == 1 else indexes[first : first + count]
            if done is None:
                assert error is not None
                refuse_batch(results, some, tp.partition, about(tp, _numbered_from(error, first)))
                continue
            take_results(results, records, some, tp.partition, done, now)
            if acks == -1:
                self._bounds.appended(tp, done.last_offset + 1)

    def by_partition(
        self,
        topic: str,
        partitions: int,
        records: Sequence[NewRecord],
        partition: int | None = None,
        sticky: int = -1,
    ) -> dict[int, Sequence[int]]:
        """See `facade.Records.by_partition`."""
        return self._distribution.by_partition(topic, partitions, records, partition, sticky)

    def next_in_turn(self, topic: str, partitions: int) -> int:
        """See `facade.Records.next_in_turn`."""
        return self._distribution.next_in_turn(topic, partitions)

    def batches_below(
        self, limit: int, records: Sequence[NewRecord], indexes: Sequence[int], now: int
    ) -> list[tuple[Sequence[int], bytearray]]:
        """See `facade.Records.batches_below`."""
        return self._distribution.batches_below(limit, records, indexes, now)

    async def draft(
        self, records: Mapping[str, Sequence[NewRecord]], producer: ProducerIdAndEpoch
    ) -> list[Draft]:
        """See `facade.Records.draft`."""
        raise unsupported("A gateway has no transactions over HTTP; use the Kafka port of the cluster.")

    # --- read ----------------------------------------------------------------------------------------------

    async def read(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        max_records: int,
        wait_ms: int = 0,
        min_bytes: int = 1,
        first: ReadResult | None = None,
        committed: bool = True,
    ) -> ReadResult:
        """See `facade.Records.read`."""
        return await self._reader.read(
            tp,
            offset,
            max_bytes=max_bytes,
            max_records=max_records,
            wait_ms=wait_ms,
            min_bytes=min_bytes,
            first=first,
            committed=committed,
        )

    def read_now(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, max_records: int, committed: bool = True
    ) -> ReadResult:
        """See `facade.Records.read_now`. Raises `NotAtHandError` for what was not brought to hand."""
        return self._reader.read_pieces(
            tp, offset, max_bytes=max_bytes, max_records=max_records, committed=committed
        )


def _numbered_from(error: BrokerError, first: int) -> BrokerError:
    """Return an error whose record errors are numbered within its part; `Part` numbers them in the whole call."""
    at_fault = error.details.get("record_errors")
    if not first or not isinstance(at_fault, list):
        return error
    moved = [(number - first, message) for number, message in at_fault]
    return BrokerError(error.code, error.message, **{**error.details, "record_errors": moved})
