"""Partitions: append, fetch, search by time, delete. Record batches pass through as they are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence

from core.broker.flusher import Flusher
from core.broker.freeze import Freeze
from core.broker.topic_table import TopicTable
from core.broker.unclean_start import LeaderEpochs, UncleanStart
from core.changes import TopicChanges
from core.clock import Clock, TimeSlice
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.log.manager import LogManager
from core.purgatory import Purgatory
from core.records.validation import ProduceBatches, validate_produce
from core.replication.replicas import Replicas
from core.types import AppendResult, LogOffsets, ProducerState, TimestampOffset, TopicPartition
from core.vocabulary.partition import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    PartitionInfo,
)
from core.vocabulary.records import Fetched, FetchedAll, FetchRead
from core.vocabulary.topic import check_partition
from core.vocabulary.transactions import TransactionalWrite


class Partitions:
    """The partitions of one broker, as `broker.partitions`. Record batches pass through as they are."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        logs: LogManager,
        topics: TopicTable,
        replicas: Replicas,
        flusher: Flusher,
        leader_epochs: LeaderEpochs,
        unclean_start: UncleanStart,
        freeze: Freeze,
        purgatory: Purgatory,
        changes: TopicChanges,
    ) -> None:
        self._config = config
        self._clock = clock
        self._logs = logs
        self._topics = topics
        self._replicas = replicas
        self._flusher = flusher
        self._leader_epochs = leader_epochs
        self._unclean_start = unclean_start
        self._freeze = freeze
        self._purgatory = purgatory
        self._changes = changes
        # Appends that were begun for clients which need no answer and may be disconnected; they end before the logs
        # close.
        self.unattended: set[asyncio.Task[None]] = set()

    def log(self, tp: TopicPartition) -> Log:
        """Return the log of a partition, opened if need be.

        Raises UNKNOWN_TOPIC_OR_PARTITION, and NOT_LEADER_OR_FOLLOWER if this broker holds no replica.
        """
        topic = self._topics.get(tp.topic)
        if not 0 <= tp.partition < topic.partitions:
            check_partition(topic, tp.partition)
        if topic.replicas and self._config.broker_id not in topic.replicas:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"This broker holds no replica of {topic.name!r}; the brokers "
                f"{', '.join(map(str, topic.replicas))} do.",
                leader=topic.replicas[0],
            )
        return self._logs.get(tp)

    # --- append --------------------------------------------------------------------------------------------

    def append(
        self,
        tp: TopicPartition,
        records: memoryview,
        *,
        acks: int = 1,
        built: bool = False,
        converted: ProduceBatches | None = None,
        transaction: TransactionalWrite | None = None,
    ) -> AppendResult:
        """Append the record batches of one produce request to one partition; the offsets they got.

        `records` may be a receive buffer: offsets are written into it, and no reference to it is kept. `built`: this
        process has just built the batch. `converted` is a message set (Kafka 0.8 to 0.10) as batches; they are
        appended in place of `records`. The result is in the page cache and survives the death of the process;
        `durable` says when it is on disk.
        Raises CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP, NOT_ENOUGH_REPLICAS,
        NOT_LEADER_OR_FOLLOWER, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        log = self.log(tp)
        config = log.config
        if converted is not None:
            return self._append(log, tp, converted, acks)
        now = self._clock.wall_ms()
        limit = self._config.max_decompressed_bytes
        checked = validate_produce(
            records,
            config,
            now_ms=now,
            max_decompressed_bytes=limit,
            built=built,
            transactional=transaction is not None,
        )
        if transaction is not None and checked.headers[0].is_transactional:
            return self._append_to_transaction(log, tp, checked, acks, transaction)
        return self._append(log, tp, checked, acks)

    def _append_to_transaction(
        self,
        log: Log,
        tp: TopicPartition,
        checked: ProduceBatches,
        acks: int,
        transaction: TransactionalWrite,
    ) -> AppendResult:
        """Append a batch if its transaction is open, in one turn of the loop."""
        header = checked.headers[0]
        transaction.check(tp, header)
        if transaction.begins and header.base_sequence and not log.producers.knows(header.producer_id):
            # The transaction began with a batch that is not here any more.
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {header.producer_id} is not known in {tp}: its sequence must begin with 0, not "
                f"{header.base_sequence}.",
                expected_sequence=0,
            )
        result = self._append(log, tp, checked, acks)
        if not result.duplicate:
            # The log's own name of it, of which there is one for all transactions.
            transaction.appended(log.tp, log.topic_id, result.base_offset, header.record_count)
        return result

    def check(self, tp: TopicPartition, batch: bytearray, now_ms: int) -> ProduceBatches:
        """Check a batch of a transaction, which this process has just built, as `append` does; append nothing.

        Raises as `append`.
        """
        log = self.log(tp)
        checked = validate_produce(
            batch,
            log.config,
            now_ms=now_ms,
            max_decompressed_bytes=self._config.max_decompressed_bytes,
            built=True,
            transactional=True,
        )
        self._freeze.require_thawed()
        self._require_settled()
        if log.config.min_insync_replicas > 1:
            raise _too_few_in_sync(tp, log)
        return checked

    def append_checked(self, tp: TopicPartition, checked: ProduceBatches) -> AppendResult:
        """Append batches that `core.records` has checked against the topic's rules; see `append`."""
        return self._append(self.log(tp), tp, checked, 1)

    def _append(self, log: Log, tp: TopicPartition, checked: ProduceBatches, acks: int) -> AppendResult:
        self._freeze.require_thawed()
        self._require_settled()
        copy = self._replicas.get(tp) if self._replicas else None
        if copy is not None:
            epoch = self._replicas.leading(copy, acks)
        else:
            epoch = self._leader_epochs.of(log)
            if acks == -1 and log.config.min_insync_replicas > 1:
                raise _too_few_in_sync(tp, log)
        if not checked.headers:  # an empty message set: Kafka answers offset −1 and no error
            return AppendResult(-1, -1, -1, log.offsets.log_start_offset)
        result = log.append(checked.buffer, checked.headers, leader_epoch=epoch)
        if not result.duplicate:
            if copy is not None:
                self._replicas.appended(copy)
            self._purgatory.notify(tp)
            self._changes.touch(tp.topic)
        return result

    def _require_settled(self) -> None:
        if self._unclean_start.unsettled:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "The disk refuses to store what a start after a crash has to change before records are taken.",
            )

    def durable(
        self, tp: TopicPartition, acks: int, timeout_ms: int | None = None
    ) -> asyncio.Future[None] | None:
        """A future for the disk where the acks or the topic's flush.messages ask for it; None where not.

        acks=all waits for one shared fsync, so that it survives power loss, and for all in-sync replicas, for
        `timeout_ms` at most; acks=1 is answered from the page cache, which survives kill -9. The future fails
        with KAFKA_STORAGE_ERROR; of a replicated partition also with REQUEST_TIMED_OUT,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
        """
        log = self.log(tp)
        if acks != -1 and not log.flush_due:
            return None
        end = log.offsets.log_end_offset
        flushed = self._flusher.durable(log, end)
        copy = self._replicas.get(tp) if acks == -1 and self._replicas else None
        if copy is None:
            return flushed
        limit = self._config.replica_ack_timeout_ms
        wait = limit if timeout_ms is None else min(max(timeout_ms, 0), limit)
        return self._replicas.committed(copy, end, flushed, wait / 1000)

    # --- fetch ---------------------------------------------------------------------------------------------

    def fetch_now(
        self, reads: Sequence[FetchRead], *, max_bytes: int, min_one_each: bool = False
    ) -> FetchedAll:
        """What can be read at once: the answers in order, their bytes, and whether any is a refusal.

        Batches are whole. At most `max_bytes` in all and each read's own `max_bytes` are returned. The first batch is
        returned even if it is larger (KIP-74); with `min_one_each` so is that of every read, until `max_bytes` are
        used up.
        """
        fetched: list[Fetched] = []
        total, refused = 0, False
        left = min(max_bytes, self._config.fetch_max_bytes)
        for read in reads:
            try:
                log = self._fetchable(read)
                got = log.read(
                    read.offset,
                    min(left, read.max_bytes),
                    min_one=not total or (min_one_each and left > 0),
                    committed=read.committed,
                )
            except BrokerError as error:
                fetched.append(Fetched(read.tp, None, error))
                refused = True
                continue
            if got.slice is not None:
                total += got.slice.length
                left = max(left - got.slice.length, 0)
            fetched.append(Fetched(read.tp, got))
        return FetchedAll(fetched, total, refused, self._changes.event)

    async def fetch(
        self,
        reads: Sequence[FetchRead],
        *,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        min_one_each: bool = False,
        first: FetchedAll | None = None,
    ) -> list[Fetched]:
        """Like `fetch_now`, but wait up to `wait_ms` until there are `min_bytes`, or an error to return.

        `first` is what `fetch_now` has returned for these reads; the wait begins with it instead of another read.
        Raises THROTTLING_QUOTA_EXCEEDED when too many requests wait already.
        """
        if first is None or self._happened(reads, first.event):
            first = self.fetch_now(reads, max_bytes=max_bytes, min_one_each=min_one_each)
        fetched, size, refused, _ = first
        wait = min(wait_ms, self._config.max_wait_ms) / 1000
        if refused or size >= min_bytes or wait <= 0:
            return fetched

        def check() -> bool:
            nonlocal fetched
            fetched, size, refused, _ = self.fetch_now(reads, max_bytes=max_bytes, min_one_each=min_one_each)
            return refused or size >= min_bytes

        if not await self._purgatory.wait([r.tp for r in reads], wait, check):
            check()
        return fetched

    def _happened(self, reads: Sequence[FetchRead], event: int) -> bool:
        """Whether these reads may give something else than at that event. A change of a role is no event."""
        if self._replicas:
            return True
        touched = self._changes.touched
        return event != self._changes.event and any(
            touched.get(read.tp.topic, event + 1) > event for read in reads
        )

    def _fetchable(self, read: FetchRead) -> Log:
        return self.led_log(read.tp, read.leader_epoch)

    def led_log(self, tp: TopicPartition, leader_epoch: int = -1) -> Log:
        """The log of a partition that this broker leads, in the epoch that the client knows."""
        copy = self._replicas.get(tp) if self._replicas else None
        if copy is None:
            log = self.log(tp)
            self.check_leader_epoch(self._leader_epochs.of(log), leader_epoch)
            return log
        self.check_leader_epoch(copy.replica.epoch, leader_epoch)
        if not copy.replica.leads:
            raise self._replicas.not_leader(copy)
        return copy.log

    def check_leader_epoch(self, current: int, epoch: int) -> None:
        """Refuse a client whose idea of the leader epoch is old or from the future (KIP-320); −1 is none."""
        if 0 <= epoch < current:
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH, f"Leader epoch {epoch} is over; now it is {current}."
            )
        if epoch > current:
            raise BrokerError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"Leader epoch {epoch} is not known; now it is {current}."
            )

    # --- bounds --------------------------------------------------------------------------------------------

    def info(self, tp: TopicPartition) -> PartitionInfo:
        """Return the bounds and the size of one partition, its leader and its replicas."""
        copy = self._replicas.get(tp) if self._replicas else None
        log = self.log(tp) if copy is None else copy.log
        if copy is None:
            one = (self._config.broker_id,)
            return PartitionInfo(
                tp,
                log.offsets,
                log.size,
                self._leader_epochs.of(log),
                self._config.broker_id,
                one,
                one,
                True,
            )
        replica = copy.replica
        return PartitionInfo(
            tp,
            log.offsets,
            log.size,
            replica.epoch,
            replica.leader,
            replica.replicas,
            tuple(r for r in replica.replicas if r in replica.isr),
            replica.leads,
        )

    def offsets(self, tp: TopicPartition) -> LogOffsets:
        """Return the offsets of a partition. Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER."""
        return self.log(tp).offsets

    def bounds(self, topic: str, partitions: Iterable[int]) -> list[LogOffsets]:
        """Return the offsets of some partitions of a topic, in their order. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        return [self.log(TopicPartition(topic, partition)).offsets for partition in partitions]

    def offset_for_time(
        self, tp: TopicPartition, timestamp: int, leader_epoch: int = -1, *, committed: bool = False
    ) -> TimestampOffset:
        """The first offset at or after `timestamp` (ms); −1 latest, −2 and −4 earliest, −3 the largest timestamp.

        With `committed` the latest offset is the last stable one, and no record from there on is found.
        Offset −1 where no record is that young, and for −5 and −6, which ask for tiered storage. Raises
        UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH.
        """
        log = self.led_log(tp, leader_epoch)
        if timestamp == LATEST:
            self._check_settled(tp)
            return self._in_epoch(tp, log, log.latest(committed=committed))
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return self._in_epoch(tp, log, log.earliest())
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return TimestampOffset(-1, -1, -1)
        if timestamp == MAX_TIMESTAMP:
            return log.max_timestamp(committed=committed)
        if timestamp < 0:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The timestamp {timestamp} has no meaning; use −1 latest, −2 earliest, −3 max timestamp.",
            )
        return log.offset_for_time(timestamp, committed=committed)

    def end_offset_for_epoch(
        self, tp: TopicPartition, epoch: int, current_epoch: int = -1
    ) -> tuple[int, int]:
        """(epoch, end offset) of the largest leader epoch up to `epoch`; (−1, −1) if there is none."""
        log = self.led_log(tp, current_epoch)
        return log.end_offset_for_epoch(epoch, self._current_epoch(tp, log))

    def _current_epoch(self, tp: TopicPartition, log: Log) -> int:
        """The leader epoch in force, in which nothing may have been written yet."""
        copy = self._replicas.get(tp) if self._replicas else None
        return self._leader_epochs.of(log) if copy is None else copy.replica.epoch

    def _in_epoch(self, tp: TopicPartition, log: Log, found: TimestampOffset) -> TimestampOffset:
        """What is to be written next will be of the leader's epoch; as in Kafka, a bound there is so already."""
        if found.offset < log.offsets.log_end_offset:
            return found
        return found._replace(leader_epoch=self._current_epoch(tp, log))

    def _check_settled(self, tp: TopicPartition) -> None:
        """A new leader does not know yet how far the old one had shown its log (KIP-207)."""
        copy = self._replicas.get(tp) if self._replicas else None
        if copy is not None and copy.replica.high_watermark < copy.replica.start:
            raise BrokerError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"The new leader of {tp} has not found out yet what is committed; try again.",
            )

    def segment_offsets(self, tp: TopicPartition, timestamp: int, limit: int) -> list[int]:
        """Base offsets of segments, newest first, as ListOffsets v0 answers them; at most `limit`.

        −1 begins with the last stable offset, −2 returns the log start offset only, a time the segments last written
        before it.
        """
        log = self.log(tp)
        return log.segments.offsets_before(timestamp, limit, log.offsets, now_ms=self._clock.wall_ms())

    def active_producers(self, tp: TopicPartition) -> Iterator[ProducerState]:
        """The idempotent producers that the partition remembers."""
        return self.log(tp).active_producers()

    def disk_space(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds the data directory."""
        space = os.statvfs(self._config.data_dir)
        return space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize

    async def delete_records(self, asked: Sequence[tuple[TopicPartition, int]]) -> list[int | BrokerError]:
        """Delete the records below an offset of each partition (−1: the high watermark); the new first offsets.

        One that is refused has its error instead: OFFSET_OUT_OF_RANGE above the high watermark,
        POLICY_VIOLATION for a topic that is compacted alone, UNKNOWN_TOPIC_OR_PARTITION,
        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR. Durable when it returns.
        """
        results: list[int | BrokerError] = []
        time_slice = TimeSlice(self._clock)
        for tp, before_offset in asked:
            try:
                results.append(self._truncate_prefix(tp, before_offset))
            except BrokerError as error:
                results.append(error)
            await time_slice.give_way()
        if all(isinstance(result, BrokerError) for result in results):
            return results
        # If a crash could undo it, deleted records would be readable again.
        task = self._logs.begin_checkpoint()
        try:
            await asyncio.get_running_loop().run_in_executor(None, task.run)
        except OSError as error:
            refusal = BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The new log start could not be stored ({error.strerror})."
            )
            return [result if isinstance(result, BrokerError) else refusal for result in results]
        return results

    def _truncate_prefix(self, tp: TopicPartition, before_offset: int) -> int:
        self._freeze.require_thawed()
        log = self.led_log(tp)
        if log.config.compacted and not log.config.deletes:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {tp} are kept by key (cleanup.policy=compact): they cannot be deleted by "
                "offset. Add 'delete' to the policy.",
            )
        bounds = log.offsets
        target = bounds.high_watermark if before_offset == -1 else before_offset
        if not 0 <= target <= bounds.high_watermark:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Records of {tp} can be deleted before an offset from 0 to "
                f"{bounds.high_watermark}, not {before_offset}.",
                log_start_offset=bounds.log_start_offset,
                high_watermark=bounds.high_watermark,
            )
        return log.truncate_prefix(target)


def _too_few_in_sync(tp: TopicPartition, log: Log) -> BrokerError:
    return BrokerError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"min.insync.replicas of {tp.topic!r} is {log.config.min_insync_replicas}; 1 is in sync.",
    )
