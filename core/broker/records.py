"""Records for doors that have no batches: produce builds them, read opens them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from core.broker.batches import BatchVerbs
from core.errors import BrokerError, ErrorCode
from core.records.batch import batches, build_batch
from core.records.header import HEADER_SIZE, BatchHeader
from core.records.partitioner import partition_for_key
from core.records.record import NewRecord, Record
from core.types import TopicPartition
from core.vocabulary.records import UNDONE as UNDONE
from core.vocabulary.records import Fetched, FetchRead
from core.vocabulary.records import ProduceResult as ProduceResult
from core.vocabulary.records import ReadResult as ReadResult
from core.vocabulary.records import refuse_batch as refuse_batch

logger = logging.getLogger(__name__)

# What one record adds to a batch beside its key, value and headers, at most: varints and header counts.
_RECORD_OVERHEAD = 40
_FIRST_OR_ANY = {0, None}


class RecordVerbs(BatchVerbs):
    """Everything that doors do with single records."""

    # --- produce -------------------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: int = -1,
        partition: int | None = None,
        timeout_ms: int | None = None,
    ) -> list[ProduceResult]:
        """Append records that are not batches yet; one result for each, in order.

        A record goes to its own `partition`, else to the `partition` of the call, else by its key (murmur2,
        as the Java client does), else to one partition per call, which rotates. A topic that does not exist
        is created where the settings allow it. `timeout_ms` is for acks=all, as in `durable`. Raises
        UNKNOWN_TOPIC_OR_PARTITION when the topic may not be created.
        """
        info = self._topics.get(topic) or await self.topic_or_create(topic)
        if partition is not None:
            self.log(TopicPartition(topic, partition))
        results: list[ProduceResult] = [UNDONE] * len(records)
        waits: list[tuple[asyncio.Future[None], Sequence[int]]] = []
        now = self.clock.wall_ms()
        for number, indexes in self.by_partition(topic, info.partitions, records, partition).items():
            address = TopicPartition(topic, number)
            for chunk, batch in self.batches_below(info.config.max_message_bytes, records, indexes, now):
                try:
                    self._append_batch(address, records, chunk, batch, acks, now, results)
                    waiting = self.durable(address, acks, timeout_ms)
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
        """The indexes of the records for each partition, as `produce` distributes them over so many.

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
        chunks: list[list[int]] = []
        size = limit
        for index in indexes:
            needed = _record_size(records[index])
            if size + needed > limit - HEADER_SIZE:
                chunks.append([])
                size = 0
            chunks[-1].append(index)
            size += needed
        return [(chunk, build_batch([records[i] for i in chunk], now_ms=now)) for chunk in chunks]

    def _append_batch(
        self,
        address: TopicPartition,
        records: Sequence[NewRecord],
        indexes: Sequence[int],
        batch: bytearray,
        acks: int,
        now: int,
        results: list[ProduceResult],
    ) -> None:
        done = self.append(address, memoryview(batch), acks=acks, built=True)
        partition, first, append_time = address.partition, done.base_offset, done.log_append_time
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
        topic_partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        max_records: int,
        wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> ReadResult:
        """Decoded records from `offset` on; waits as `fetch` does. At least one record is always delivered.

        Raises OFFSET_OUT_OF_RANGE with the bounds in `details`, UNKNOWN_TOPIC_OR_PARTITION, CORRUPT_MESSAGE.
        """
        read = FetchRead(topic_partition, offset, max_bytes)
        (one,) = await self.fetch([read], max_bytes=max_bytes, min_bytes=min_bytes, wait_ms=wait_ms)
        return self._decoded(one, offset, max_records)

    def read_now(
        self, topic_partition: TopicPartition, offset: int, *, max_bytes: int, max_records: int
    ) -> ReadResult:
        """`read` of what is there, without waiting."""
        ((one,), _, _) = self.fetch_now([FetchRead(topic_partition, offset, max_bytes)], max_bytes=max_bytes)
        return self._decoded(one, offset, max_records)

    def _decoded(self, one: Fetched, offset: int, max_records: int) -> ReadResult:
        if one.error is not None:
            raise one.error
        assert one.read is not None
        topic_partition = one.topic_partition
        records: list[Record] = []
        next_offset = offset
        if one.read.slice is not None:
            data = one.read.slice.read()
            for position, header in batches(data):
                if header.next_offset <= offset:
                    continue
                next_offset = header.next_offset
                if header.is_control:
                    continue
                room = max_records - len(records)
                wanted = self._decode(data, position, header, offset, room + 1, topic_partition)
                if wanted is None:
                    if records:
                        next_offset = header.base_offset
                        break
                    raise _unreadable(header, topic_partition)
                if len(wanted) > room:
                    next_offset = wanted[room].offset
                    records += wanted[:room]
                    break
                records += wanted
        return ReadResult(records, one.read.offsets, next_offset)

    def _decode(
        self,
        data: bytes,
        position: int,
        header: BatchHeader,
        offset: int,
        limit: int,
        topic_partition: TopicPartition,
    ) -> list[Record] | None:
        """The first `limit` records of one batch from `offset` on; None if the batch is broken inside."""
        whose = self.topic(topic_partition.topic).topic_id.int, topic_partition.partition
        try:
            return self.opened.read(whose, data, position, header, offset, limit)
        except BrokerError as error:
            logger.warning(
                "%s: the batch at offset %d: %s", topic_partition, header.base_offset, error.message
            )
            return None


def _unreadable(header: BatchHeader, topic_partition: TopicPartition) -> BrokerError:
    """A client with a right checksum can store garbage inside a batch; its reader is told where to go on."""
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The batch at offset {header.base_offset} of {topic_partition} cannot be read; go on at offset "
        f"{header.next_offset}.",
        next_offset=header.next_offset,
    )


def _record_size(record: NewRecord) -> int:
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) * 4 + len(value or b"") + 10
    return size
