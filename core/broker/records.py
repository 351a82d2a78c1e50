"""Single records, for listeners and surfaces without batches: produce builds batches, read opens them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from core.broker.chunks import chunks_below
from core.broker.drafts import draft_topic
from core.broker.open_batches import OpenBatches
from core.broker.partitions import Partitions
from core.broker.topic_table import TopicTable
from core.broker.topics import Topics
from core.clock import Clock, TimeSlice
from core.errors import BrokerError, ErrorCode
from core.records.aborted import AbortedRecords
from core.records.batch import batches, build_batch
from core.records.header import BatchHeader
from core.records.partitioner import StickyPartitions, partition_for_key
from core.records.record import NewRecord, Record
from core.types import LogRead, TopicPartition
from core.vocabulary.one_shot import Draft
from core.vocabulary.records import (
    UNDONE,
    AppendRecords,
    Fetched,
    FetchedAll,
    FetchRead,
    ProduceResult,
    ReadResult,
    refuse_batch,
)
from core.vocabulary.settlements import Fault, RefusedError
from core.vocabulary.topic import TopicInfo
from core.vocabulary.transactions import ProducerIdAndEpoch

logger = logging.getLogger(__name__)

_FIRST_OR_ANY = {0, None}


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
        self._open_batches = open_batches
        self._sticky = sticky

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
        for number, indexes in self.by_partition(topic, info.partitions, records, partition).items():
            tp = TopicPartition(topic, number)
            for chunk, batch in self.batches_below(info.config.max_message_bytes, records, indexes, now):
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
        """The indexes of the records for each partition, as `produce` distributes them over `partitions`.

        `sticky` is the partition of those that have no other; below 0 it is the next in turn.
        """
        if partitions == 1 and {record.partition for record in records} <= _FIRST_OR_ANY:
            return {0: range(len(records))}
        groups: dict[int, list[int]] = {}
        for index, record in enumerate(records):
            number = record.partition if record.partition is not None else partition
            if number is None and record.key is not None:
                number = partition_for_key(record.key, partitions)
            elif number is None:
                if sticky < 0:
                    sticky = self.next_in_turn(topic, partitions)
                number = sticky
            group = groups.get(number)
            if group is None:
                groups[number] = [index]
            else:
                group.append(index)
        return dict(groups)

    def next_in_turn(self, topic: str, partitions: int) -> int:
        """The partition for the next records without a key."""
        return self._sticky.choose(topic, partitions)

    def batches_below(
        self, limit: int, records: Sequence[NewRecord], indexes: Sequence[int], now: int
    ) -> list[tuple[Sequence[int], bytearray]]:
        """Batches of at most `limit` bytes with the indexes of their records; a larger record is alone."""
        whole = build_batch(
            records if len(indexes) == len(records) else [records[i] for i in indexes], now_ms=now
        )
        if len(whole) <= limit or len(indexes) == 1:
            return [(indexes, whole)]
        chunks = chunks_below(limit, records, indexes)
        return [(chunk, build_batch([records[i] for i in chunk], now_ms=now)) for chunk in chunks]

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
        partition, first, append_time = tp.partition, done.base_offset, done.log_append_time
        if append_time >= 0:
            made = [ProduceResult(partition, first + i, append_time) for i in range(len(indexes))]
        else:
            chosen = records if len(indexes) == len(records) else [records[index] for index in indexes]
            made = [
                ProduceResult(partition, offset, now if record.timestamp is None else record.timestamp)
                for offset, record in enumerate(chosen, first)
            ]
        if len(made) == len(results):
            results[:] = made
            return
        for index, result in zip(indexes, made, strict=True):
            results[index] = result

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
        nothing = None
        if first is not None and first.next_offset > offset:
            offset = first.next_offset
        elif first is not None:
            nothing = FetchedAll([Fetched(tp, LogRead(None, first.offsets))], 0, False, first.event)
        monotonic = self._clock.monotonic
        until = monotonic() + wait_ms / 1000
        time_slice = TimeSlice(self._clock)
        while True:
            (one,) = await self._partitions.fetch(
                [FetchRead(tp, offset, max_bytes, committed=committed)],
                max_bytes=max_bytes,
                min_bytes=min_bytes,
                wait_ms=max(round((until - monotonic()) * 1000), 0),
                first=nothing,
            )
            result = self._decoded(one, offset, max_records)
            if result.records or result.next_offset == offset:
                return result
            offset, nothing = result.next_offset, None
            await time_slice.give_way()

    def read_now(
        self, tp: TopicPartition, offset: int, *, max_bytes: int, max_records: int, committed: bool = True
    ) -> ReadResult:
        """Return the records of `read` that exist now, of one piece of the log, without a wait.

        There may be none although there are more further on: if `next_offset` has moved, continue there.
        """
        fetched = self._partitions.fetch_now(
            [FetchRead(tp, offset, max_bytes, committed=committed)], max_bytes=max_bytes
        )
        return self._decoded(fetched.answers[0], offset, max_records, fetched.event)

    def _decoded(self, one: Fetched, offset: int, max_records: int, event: int = -1) -> ReadResult:
        if one.error is not None:
            raise one.error
        assert one.read is not None
        tp = one.tp
        records: list[Record] = []
        next_offset = offset
        if one.read.slice is not None:
            data = one.read.slice.read()
            aborted = AbortedRecords(one.read.aborted)
            for position, header in batches(data):
                if header.next_offset <= offset:
                    continue
                next_offset = header.next_offset
                if aborted.hides(header):
                    continue
                room = max_records - len(records)
                wanted = self._decode(data, position, header, offset, room + 1, tp)
                if wanted is None:
                    if records:
                        next_offset = header.base_offset
                        break
                    raise _unreadable(header, tp)
                if len(wanted) > room:
                    next_offset = wanted[room].offset
                    records += wanted[:room]
                    break
                records += wanted
        return ReadResult(records, one.read.offsets, next_offset, event)

    def _decode(
        self,
        data: bytes,
        position: int,
        header: BatchHeader,
        offset: int,
        limit: int,
        tp: TopicPartition,
    ) -> list[Record] | None:
        """The first `limit` records of one batch from `offset` on; None if the batch is broken inside."""
        whose = self._table.get(tp.topic).topic_id.int, tp.partition
        try:
            return self._open_batches.read(whose, data, position, header, offset, limit)
        except BrokerError as error:
            logger.warning("%s: the batch at offset %d: %s", tp, header.base_offset, error.message)
            return None


def _unreadable(header: BatchHeader, tp: TopicPartition) -> BrokerError:
    """A client can store garbage in a batch with a right checksum. The error names the offset to continue at."""
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The batch at offset {header.base_offset} of {tp} cannot be read; continue at offset "
        f"{header.next_offset}.",
        next_offset=header.next_offset,
    )
