"""Single records, for listeners and surfaces without batches: produce builds batches, read opens them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from core.batches.decoding import Decoder
from core.batches.distribution import Distribution, take_results
from core.batches.open_batches import OpenBatches
from core.batches.reading import RecordReader
from core.broker.drafts import draft_topic
from core.broker.partitions import Partitions
from core.broker.topic_table import TopicTable
from core.broker.topics import Topics
from core.clock import Clock
from core.errors import BrokerError
from core.records.partitioner import StickyPartitions
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.one_shot import Draft
from core.vocabulary.records import (
    UNDONE,
    AppendRecords,
    ProduceResult,
    ReadResult,
    refuse_batch,
)
from core.vocabulary.settlements import Fault, RefusedError
from core.vocabulary.topic import TopicInfo
from core.vocabulary.transactions import ProducerIdAndEpoch


class Records:
    """Single records, as `broker.records`: produce builds batches of them, read opens batches."""

    def __init__(
        self,
        clock: Clock,
        topics: Topics,
        table: TopicTable,
        partitions: Partitions,
        open_batches: OpenBatches,
        sticky: StickyPartitions,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._table = table
        self._partitions = partitions
        self._reader = RecordReader(
            clock, partitions, Decoder(open_batches), lambda name: table.get(name).topic_id
        )
        self._distribution = Distribution(sticky)

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
        """Append records that are not batches yet; one result for each, in order.

        The partition of a record is its own `partition`, else the `partition` of the call, else by its key (murmur2,
        as the Java client does), else one partition per call, which rotates. A missing topic is created if the
        settings allow it. `timeout_ms` is for acks=all, as in `durable`. `append` appends the records of each batch
        in the place of this. Raises UNKNOWN_TOPIC_OR_PARTITION when the topic may not be created.
        """
        info = self._table.find(topic) or await self._topics.get_or_create(topic)
        if partition is not None:
            self._partitions.log(TopicPartition(topic, partition))
        results: list[ProduceResult] = [UNDONE] * len(records)
        waits: list[tuple[asyncio.Future[None], Sequence[int]]] = []
        now = self._clock.wall_ms()
        for number, indexes in self._distribution.by_partition(
            topic, info.partitions, records, partition
        ).items():
            tp = TopicPartition(topic, number)
            for chunk, batch in self._distribution.batches_below(
                info.config.max_message_bytes, records, indexes, now
            ):
                try:
                    self._append_batch(tp, records, chunk, batch, acks, now, results, append)
                    waiting = self._partitions.durable(tp, acks, timeout_ms)
                except BrokerError as error:
                    refuse_batch(results, chunk, number, error)
                    continue
                if waiting is not None:
                    waits.append((waiting, chunk))
        for waiting, chunk in waits:
            try:
                await waiting
            except BrokerError as error:
                refuse_batch(results, chunk, results[chunk[0]].partition, error)
        return results

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
        """Build and check the batches of a transaction; append nothing. See `facade.Records.draft`."""
        faults: list[Fault] = []
        found: list[TopicInfo] = []
        for topic in records:
            try:
                found.append(self._table.find(topic) or await self._topics.get_or_create(topic))
            except BrokerError as error:
                faults.append(Fault((topic,), error))
        now = self._clock.wall_ms()
        drafts = []
        for info in found:
            drafts += draft_topic(
                info, records[info.name], producer, now, self.by_partition, self._partitions, faults
            )
        if faults:
            raise RefusedError(faults)
        return drafts

    def _append_batch(
        self,
        tp: TopicPartition,
        records: Sequence[NewRecord],
        indexes: Sequence[int],
        batch: bytearray,
        acks: int,
        now: int,
        results: list[ProduceResult],
        append: AppendRecords | None,
    ) -> None:
        if append is None:
            done = self._partitions.append(tp, memoryview(batch), acks=acks, built=True)
        else:
            done = append(tp, [records[index] for index in indexes], now)
        take_results(results, records, indexes, tp.partition, done, now)

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
        """Return decoded records from `offset` on, at least one if there is any; wait as `Partitions.fetch` does.

        With `committed` (read_committed) only records below the last stable offset are returned, and none of aborted
        transactions. Reading continues after a run of those and of markers, so that the end is reached; then
        `next_offset` lies after them. `first` is what `read_now` has returned for this offset, without records; the
        wait begins with it instead of another read. Raises OFFSET_OUT_OF_RANGE with the bounds in `details`,
        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, CORRUPT_MESSAGE.
        """
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
        """Return the records of `read` that exist now, of one piece of the log, without a wait.

        There may be none although there are more further on: if `next_offset` has moved, continue there.
        """
        return self._reader.read_now(
            tp, offset, max_bytes=max_bytes, max_records=max_records, committed=committed
        )
