"""The verbs on records: append, fetch, search by time, delete; and produce and read for doors without batches."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from core.broker.state import BrokerState, PartitionInfo, TopicInfo
from core.broker.topics import TopicVerbs
from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.log.old_offsets import segment_offsets
from core.log.producer_state import ProducerState
from core.records.batch import batches, build_batch, read_records
from core.records.conversion import up_convert
from core.records.header import MAGIC, BatchHeader
from core.records.partitioner import partition_for_key
from core.records.record import NewRecord, Record
from core.records.validation import validate_produce
from core.types import AppendResult, LogOffsets, LogRead, TimestampOffset, TopicPartition

logger = logging.getLogger(__name__)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3

# What one record adds to a batch beside its key, value and headers, at most: varints and header counts.
_RECORD_OVERHEAD = 40


class FetchRead(NamedTuple):
    """One partition of a fetch: from where, how many bytes at most, and the leader epoch the client knows."""

    topic_partition: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1


class Fetched(NamedTuple):
    """The answer for one partition: batches in a file, or the refusal."""

    topic_partition: TopicPartition
    read: LogRead | None
    error: BrokerError | None = None


class ProduceResult(NamedTuple):
    """What became of one record. `timestamp` is the broker's with LogAppendTime, else the record's own."""

    partition: int
    offset: int
    timestamp: int
    error: BrokerError | None = None


class ReadResult(NamedTuple):
    """Decoded records, the partition's bounds, and where the next read goes on."""

    records: list[Record]
    offsets: LogOffsets
    next_offset: int


class RecordVerbs(TopicVerbs):
    """Everything that doors do with records."""

    # --- append --------------------------------------------------------------------------------------------

    def append(
        self, topic_partition: TopicPartition, records: memoryview, *, acks: int = 1, magic: int = MAGIC
    ) -> AppendResult:
        """Append the record batches of one produce request to one partition; the offsets they got.

        `records` may lie in a receive buffer: offsets are written into it, and nothing keeps it. The result
        is in the page cache (it survives the death of the process); `durable` says when it is on disk.
        Raises CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP, NOT_ENOUGH_REPLICAS,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR.
        """
        log = self.log(topic_partition)
        config = log.config
        if acks == -1 and config.min_insync_replicas > 1:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"min.insync.replicas of {topic_partition.topic!r} is {config.min_insync_replicas}; 1 is in sync.",
            )
        now = self.clock.wall_ms()
        limit = self.config.max_decompressed_bytes
        if magic == MAGIC:
            checked = validate_produce(records, config, now_ms=now, max_decompressed_bytes=limit)
        else:
            checked = up_convert(records, config, now_ms=now, max_bytes=limit)
        if not checked.headers:  # an empty message set of old: Kafka answers offset −1 and no error
            return AppendResult(-1, -1, -1, log.offsets.log_start_offset)
        result = log.append(checked.buffer, checked.headers, leader_epoch=current_epoch(log))
        if checked.log_append_time >= 0:
            result = result._replace(log_append_time=checked.log_append_time)
        if not result.duplicate:
            self.purgatory.notify(topic_partition)
            self.touch(topic_partition.topic)
        return result

    def durable(self, topic_partition: TopicPartition, acks: int) -> asyncio.Future[None] | None:
        """A future for the disk where the acks or the topic's flush.messages ask for it; None where not.

        acks=all waits for one shared fsync, so that it survives power loss; acks=1 is answered from the page
        cache, which survives kill -9.
        """
        log = self.log(topic_partition)
        if acks == -1 or log.flush_due:
            return self.flusher.durable(log, log.offsets.log_end_offset)
        return None

    async def produce(
        self, topic: str, records: Sequence[NewRecord], *, acks: int = -1, partition: int | None = None
    ) -> list[ProduceResult]:
        """Append records that are not batches yet; one result for each, in order.

        A record goes to its own `partition`, else to the `partition` of the call, else by its key (murmur2,
        as the Java client does), else to one partition per call, which rotates. A topic that does not exist
        is created where the settings allow it. Raises UNKNOWN_TOPIC_OR_PARTITION when it may not be.
        """
        info = await self.topic_or_create(topic)
        if partition is not None:
            self.log(TopicPartition(topic, partition))
        results: list[ProduceResult | None] = [None] * len(records)
        waits: list[tuple[asyncio.Future[None], list[int]]] = []
        for number, indexes in self._by_partition(info, records, partition).items():
            topic_partition = TopicPartition(topic, number)
            for chunk in self._chunks(records, indexes, info.config.max_message_bytes):
                try:
                    self._append_chunk(topic_partition, records, chunk, acks, results)
                    waiting = self.durable(topic_partition, acks)
                except BrokerError as error:
                    _refuse(results, chunk, number, error)
                    continue
                if waiting is not None:
                    waits.append((waiting, chunk))
        for waiting, chunk in waits:
            try:
                await waiting
            except BrokerError as error:
                for i in chunk:
                    done = results[i]
                    assert done is not None
                    results[i] = ProduceResult(done.partition, -1, -1, error)
        return [r for r in results if r is not None]

    def _by_partition(
        self, info: TopicInfo, records: Sequence[NewRecord], partition: int | None
    ) -> dict[int, list[int]]:
        groups: dict[int, list[int]] = {}
        sticky = -1
        for index, record in enumerate(records):
            number = record.partition if record.partition is not None else partition
            if number is None and record.key is not None:
                number = partition_for_key(record.key, info.partitions)
            elif number is None:
                if sticky < 0:
                    sticky = self._sticky.choose(info.name, info.partitions)
                number = sticky
            groups.setdefault(number, []).append(index)
        return groups

    def _chunks(self, records: Sequence[NewRecord], indexes: list[int], limit: int) -> list[list[int]]:
        """Split so that each batch stays below max.message.bytes, unless one record alone is above it."""
        chunks: list[list[int]] = []
        size = limit + 1
        for index in indexes:
            needed = _record_size(records[index])
            if size + needed > limit - 61:
                chunks.append([])
                size = 0
            chunks[-1].append(index)
            size += needed
        return chunks

    def _append_chunk(
        self,
        topic_partition: TopicPartition,
        records: Sequence[NewRecord],
        chunk: list[int],
        acks: int,
        results: list[ProduceResult | None],
    ) -> None:
        now = self.clock.wall_ms()
        batch = build_batch([records[i] for i in chunk], now_ms=now)
        done = self.append(topic_partition, memoryview(batch), acks=acks)
        for position, index in enumerate(chunk):
            timestamp = records[index].timestamp
            if done.log_append_time >= 0:
                timestamp = done.log_append_time
            results[index] = ProduceResult(
                topic_partition.partition,
                done.base_offset + position,
                now if timestamp is None else timestamp,
            )

    # --- fetch ---------------------------------------------------------------------------------------------

    def fetch_now(
        self, reads: Sequence[FetchRead], *, max_bytes: int, min_one: bool = True
    ) -> tuple[list[Fetched], int, bool]:
        """What can be read at once: the answers in order, their bytes, and whether any is a refusal.

        Batches come whole. At most `max_bytes` in all and each read's own `max_bytes`; with `min_one` the
        first batch comes also when it alone is larger (KIP-74).
        """
        fetched: list[Fetched] = []
        total, refused = 0, False
        left = min(max_bytes, self.config.fetch_max_bytes)
        for read in reads:
            try:
                log = self._fetchable(read)
                got = log.read(read.offset, min(left, read.max_bytes), min_one=min_one and total == 0)
            except BrokerError as error:
                fetched.append(Fetched(read.topic_partition, None, error))
                refused = True
                continue
            if got.slice is not None:
                total += got.slice.length
                left = max(left - got.slice.length, 0)
            fetched.append(Fetched(read.topic_partition, got))
        return fetched, total, refused

    async def fetch(
        self,
        reads: Sequence[FetchRead],
        *,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        min_one: bool = True,
    ) -> list[Fetched]:
        """Like `fetch_now`, but wait up to `wait_ms` until there are `min_bytes`, or a refusal to tell."""
        fetched, size, refused = self.fetch_now(reads, max_bytes=max_bytes, min_one=min_one)
        wait = min(wait_ms, self.config.max_wait_ms) / 1000
        if refused or size >= min_bytes or wait <= 0:
            return fetched

        def check() -> bool:
            nonlocal fetched
            fetched, size, refused = self.fetch_now(reads, max_bytes=max_bytes, min_one=min_one)
            return refused or size >= min_bytes

        if not await self.purgatory.wait([r.topic_partition for r in reads], wait, check):
            check()
        return fetched

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
        bound = self.config.max_decompressed_bytes
        try:
            return read_records(data, position, header, max_bytes=bound, first_offset=offset, limit=limit)
        except BrokerError as error:
            logger.warning(
                "%s: the batch at offset %d: %s", topic_partition, header.base_offset, error.message
            )
            return None

    def _fetchable(self, read: FetchRead) -> Log:
        log = self.log(read.topic_partition)
        self.check_leader_epoch(log, read.leader_epoch)
        return log

    def check_leader_epoch(self, log: Log, epoch: int) -> None:
        """Refuse a client whose idea of the leader epoch is old or from the future (KIP-320); −1 is none."""
        current = current_epoch(log)
        if 0 <= epoch < current:
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH, f"Leader epoch {epoch} is over; now it is {current}."
            )
        if epoch > current:
            raise BrokerError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"Leader epoch {epoch} is not known; now it is {current}."
            )

    # --- bounds --------------------------------------------------------------------------------------------

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo:
        """The bounds and size of one partition."""
        log = self.log(topic_partition)
        return PartitionInfo(topic_partition, log.offsets, log.size, current_epoch(log))

    def offset_for_time(
        self, topic_partition: TopicPartition, timestamp: int, leader_epoch: int = -1
    ) -> TimestampOffset:
        """The first offset at or after `timestamp` (ms); −1 latest, −2 earliest, −3 the largest timestamp.

        Offset −1 where no record is that young. Raises UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH.
        """
        log = self.log(topic_partition)
        self.check_leader_epoch(log, leader_epoch)
        if timestamp == LATEST:
            return log.latest()
        if timestamp == EARLIEST:
            return log.earliest()
        if timestamp == MAX_TIMESTAMP:
            return log.max_timestamp()
        if timestamp < 0:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The timestamp {timestamp} has no meaning here; use −1 latest, −2 earliest, −3 max timestamp.",
            )
        return log.offset_for_time(timestamp)

    def end_offset_for_epoch(
        self, topic_partition: TopicPartition, epoch: int, current_epoch: int = -1
    ) -> tuple[int, int]:
        """(epoch, end offset) of the largest leader epoch up to `epoch`; (−1, −1) if there is none."""
        log = self.log(topic_partition)
        self.check_leader_epoch(log, current_epoch)
        return log.end_offset_for_epoch(epoch)

    def segment_offsets(self, topic_partition: TopicPartition, timestamp: int, limit: int) -> list[int]:
        """Base offsets of segments, newest first, as ListOffsets v0 answers them; at most `limit`.

        −1 begins with the end of the log, −2 gives the start only; a time gives the segments last written
        before it.
        """
        return segment_offsets(self.log(topic_partition), timestamp, limit)

    def active_producers(self, topic_partition: TopicPartition) -> Iterator[ProducerState]:
        """The idempotent producers that the partition remembers."""
        return self.log(topic_partition).active_producers()

    def disk_space(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds the data directory."""
        space = os.statvfs(self.config.data_dir)
        return space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize

    async def delete_records(self, topic_partition: TopicPartition, before_offset: int) -> int:
        """Delete the records below an offset (−1: the high watermark); answers the new first offset.

        Raises OFFSET_OUT_OF_RANGE above the high watermark. Durable when it returns.
        """
        log = self.log(topic_partition)
        bounds = log.offsets
        target = bounds.high_watermark if before_offset == -1 else before_offset
        if not 0 <= target <= bounds.high_watermark:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Records of {topic_partition} can be deleted before an offset from 0 to "
                f"{bounds.high_watermark}, not {before_offset}.",
                log_start_offset=bounds.log_start_offset,
                high_watermark=bounds.high_watermark,
            )
        start = log.truncate_prefix(target)
        # Forgotten again after a crash, deleted records would come back.
        task = self.logs.begin_checkpoint()
        try:
            await asyncio.get_running_loop().run_in_executor(None, task.run)
        except OSError as error:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The new log start could not be stored ({error.strerror})."
            ) from error
        return start

    async def topic_or_create(self, name: str) -> TopicInfo:
        """The topic, created with the defaults if it does not exist and auto-creation is on."""
        found = self._topics.get(name)
        if found is not None:
            return found
        if not self.config.auto_create_topics:
            return self.topic(name)
        try:
            return await self.create_topic(name)
        except BrokerError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        running = self._changing.get(name)
        if running is not None:
            await asyncio.wait([running])
        return self.topic(name)


def _unreadable(header: BatchHeader, topic_partition: TopicPartition) -> BrokerError:
    """A client with a right checksum can store garbage inside a batch; its reader is told where to go on."""
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"The batch at offset {header.base_offset} of {topic_partition} cannot be read; go on at offset "
        f"{header.next_offset}.",
        next_offset=header.next_offset,
    )


def current_epoch(log: Log) -> int:
    """The leader epoch in force: the log's newest, 0 before the first append."""
    return max(log.leader_epoch, 0)


def _record_size(record: NewRecord) -> int:
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) * 4 + len(value or b"") + 10
    return size


def _refuse(
    results: list[ProduceResult | None], chunk: list[int], partition: int, error: BrokerError
) -> None:
    """The records that are at fault get the reason; those that only shared their batch are told so."""
    at_fault = dict(error.details.get("record_errors") or ())  # type: ignore[call-overload]
    for position, index in enumerate(chunk):
        reason = error
        if at_fault and position in at_fault:
            reason = BrokerError(error.code, at_fault[position])
        elif at_fault:
            reason = BrokerError(
                error.code, "Another record of the same batch was refused; send this one again."
            )
        results[index] = ProduceResult(partition, -1, -1, reason)


__all__ = ["BrokerState", "FetchRead", "Fetched", "ProduceResult", "ReadResult", "RecordVerbs"]
