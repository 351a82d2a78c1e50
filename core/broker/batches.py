"""The verbs on batches: append, fetch, search by time, delete. Record bytes pass through as they are."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence

from core.broker.state import PartitionInfo
from core.broker.time_slice import Breath
from core.broker.topics import TopicVerbs
from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.log.old_offsets import segment_offsets
from core.log.producer_state import ProducerState
from core.records.validation import ProduceBatches, validate_produce
from core.types import AppendResult, TimestampOffset, TopicPartition
from core.vocabulary.records import Fetched as Fetched
from core.vocabulary.records import FetchRead as FetchRead

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
# Of tiered storage, which there is none of: all of a log is local, and nothing is uploaded or will be.
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


class BatchVerbs(TopicVerbs):
    """Everything that doors do with record batches."""

    # --- append --------------------------------------------------------------------------------------------

    def append(
        self,
        topic_partition: TopicPartition,
        records: memoryview,
        *,
        acks: int = 1,
        built: bool = False,
        converted: ProduceBatches | None = None,
    ) -> AppendResult:
        """Append the record batches of one produce request to one partition; the offsets they got.

        `records` may lie in a receive buffer: offsets are written into it, and nothing keeps it; `built` says that
        they are a batch that this process has just built. `converted` is what a message set of old has become, and
        is appended in their place. The result is in the page cache (it survives the death of the process);
        `durable` says when it is on disk.
        Raises CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP, NOT_ENOUGH_REPLICAS,
        NOT_LEADER_OR_FOLLOWER, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        """
        log = self.log(topic_partition)
        config = log.config
        if converted is not None:
            return self._append(log, topic_partition, converted, acks)
        now = self.clock.wall_ms()
        limit = self.config.max_decompressed_bytes
        checked = validate_produce(records, config, now_ms=now, max_decompressed_bytes=limit, built=built)
        return self._append(log, topic_partition, checked, acks)

    def append_checked(self, topic_partition: TopicPartition, checked: ProduceBatches) -> AppendResult:
        """Append batches that `core.records` has checked against the topic's rules; see `append`."""
        return self._append(self.log(topic_partition), topic_partition, checked, 1)

    def _append(
        self, log: Log, topic_partition: TopicPartition, checked: ProduceBatches, acks: int
    ) -> AppendResult:
        if self.unsettled:
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "The disk refuses to store what a start after a crash has to change before records are taken.",
            )
        copy = self.replicas.get(topic_partition) if self.replicas else None
        if copy is not None:
            epoch = self.replicas.leading(copy, acks)
        else:
            epoch = self.epoch_of(log)
            if acks == -1 and log.config.min_insync_replicas > 1:
                raise BrokerError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"min.insync.replicas of {topic_partition.topic!r} is {log.config.min_insync_replicas}; "
                    "1 is in sync.",
                )
        if not checked.headers:  # an empty message set of old: Kafka answers offset −1 and no error
            return AppendResult(-1, -1, -1, log.offsets.log_start_offset)
        result = log.append(checked.buffer, checked.headers, leader_epoch=epoch)
        if not result.duplicate:
            if copy is not None:
                self.replicas.appended(copy)
            self.purgatory.notify(topic_partition)
            self.touch(topic_partition.topic)
        return result

    def durable(
        self, topic_partition: TopicPartition, acks: int, timeout_ms: int | None = None
    ) -> asyncio.Future[None] | None:
        """A future for the disk where the acks or the topic's flush.messages ask for it; None where not.

        acks=all waits for one shared fsync, so that it survives power loss, and for all in-sync replicas, for
        `timeout_ms` at most; acks=1 is answered from the page cache, which survives kill -9. The future fails
        with KAFKA_STORAGE_ERROR; of a replicated partition also with REQUEST_TIMED_OUT,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER.
        """
        log = self.log(topic_partition)
        if acks != -1 and not log.flush_due:
            return None
        end = log.offsets.log_end_offset
        flushed = self.flusher.durable(log, end)
        copy = self.replicas.get(topic_partition) if acks == -1 and self.replicas else None
        if copy is None:
            return flushed
        limit = self.config.replica_ack_timeout_ms
        wait = limit if timeout_ms is None else min(max(timeout_ms, 0), limit)
        return self.replicas.committed(copy, end, flushed, wait / 1000)

    # --- fetch ---------------------------------------------------------------------------------------------

    def fetch_now(
        self, reads: Sequence[FetchRead], *, max_bytes: int, min_one_each: bool = False
    ) -> tuple[list[Fetched], int, bool]:
        """What can be read at once: the answers in order, their bytes, and whether any is a refusal.

        Batches come whole. At most `max_bytes` in all and each read's own `max_bytes`; but the first batch comes
        also when it alone is larger (KIP-74), and with `min_one_each` that of every read, as long as `max_bytes`
        are not used up.
        """
        fetched: list[Fetched] = []
        total, refused = 0, False
        left = min(max_bytes, self.config.fetch_max_bytes)
        for read in reads:
            try:
                log = self._fetchable(read)
                got = log.read(
                    read.offset, min(left, read.max_bytes), min_one=not total or (min_one_each and left > 0)
                )
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
        min_one_each: bool = False,
    ) -> list[Fetched]:
        """Like `fetch_now`, but wait up to `wait_ms` until there are `min_bytes`, or a refusal to tell."""
        fetched, size, refused = self.fetch_now(reads, max_bytes=max_bytes, min_one_each=min_one_each)
        wait = min(wait_ms, self.config.max_wait_ms) / 1000
        if refused or size >= min_bytes or wait <= 0:
            return fetched

        def check() -> bool:
            nonlocal fetched
            fetched, size, refused = self.fetch_now(reads, max_bytes=max_bytes, min_one_each=min_one_each)
            return refused or size >= min_bytes

        if not await self.purgatory.wait([r.topic_partition for r in reads], wait, check):
            check()
        return fetched

    def _fetchable(self, read: FetchRead) -> Log:
        return self.led_log(read.topic_partition, read.leader_epoch)

    def led_log(self, topic_partition: TopicPartition, leader_epoch: int = -1) -> Log:
        """The log of a partition that this broker leads, in the epoch that the client knows."""
        copy = self.replicas.get(topic_partition) if self.replicas else None
        if copy is None:
            log = self.log(topic_partition)
            self.check_leader_epoch(self.epoch_of(log), leader_epoch)
            return log
        self.check_leader_epoch(copy.replica.epoch, leader_epoch)
        if not copy.replica.leads:
            raise self.replicas.not_leader(copy)
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

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo:
        """The bounds and size of one partition, and who leads and copies it."""
        copy = self.replicas.get(topic_partition) if self.replicas else None
        log = self.log(topic_partition) if copy is None else copy.log
        if copy is None:
            one = (self.config.broker_id,)
            return PartitionInfo(
                topic_partition,
                log.offsets,
                log.size,
                self.epoch_of(log),
                self.config.broker_id,
                one,
                one,
                True,
            )
        replica = copy.replica
        return PartitionInfo(
            topic_partition,
            log.offsets,
            log.size,
            replica.epoch,
            replica.leader,
            replica.replicas,
            tuple(r for r in replica.replicas if r in replica.isr),
            replica.leads,
        )

    def offset_for_time(
        self, topic_partition: TopicPartition, timestamp: int, leader_epoch: int = -1
    ) -> TimestampOffset:
        """The first offset at or after `timestamp` (ms); −1 latest, −2 and −4 earliest, −3 the largest timestamp.

        Offset −1 where no record is that young, and for −5 and −6, which ask for tiered storage. Raises
        UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH.
        """
        log = self.led_log(topic_partition, leader_epoch)
        if timestamp == LATEST:
            self._check_settled(topic_partition)
            return self._in_epoch(topic_partition, log, log.latest())
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return self._in_epoch(topic_partition, log, log.earliest())
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return TimestampOffset(-1, -1, -1)
        if timestamp == MAX_TIMESTAMP:
            return log.max_timestamp()
        if timestamp < 0:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The timestamp {timestamp} has no meaning; use −1 latest, −2 earliest, −3 max timestamp.",
            )
        return log.offset_for_time(timestamp)

    def end_offset_for_epoch(
        self, topic_partition: TopicPartition, epoch: int, current_epoch: int = -1
    ) -> tuple[int, int]:
        """(epoch, end offset) of the largest leader epoch up to `epoch`; (−1, −1) if there is none."""
        log = self.led_log(topic_partition, current_epoch)
        return log.end_offset_for_epoch(epoch, self._current_epoch(topic_partition, log))

    def _current_epoch(self, topic_partition: TopicPartition, log: Log) -> int:
        """The leader epoch in force, in which nothing may have been written yet."""
        copy = self.replicas.get(topic_partition) if self.replicas else None
        return self.epoch_of(log) if copy is None else copy.replica.epoch

    def _in_epoch(self, topic_partition: TopicPartition, log: Log, found: TimestampOffset) -> TimestampOffset:
        """What is to be written next will be of the leader's epoch; as in Kafka, a bound there is so already."""
        if found.offset < log.offsets.log_end_offset:
            return found
        return found._replace(leader_epoch=self._current_epoch(topic_partition, log))

    def _check_settled(self, topic_partition: TopicPartition) -> None:
        """A new leader does not know yet how far the old one had shown its log (KIP-207)."""
        copy = self.replicas.get(topic_partition) if self.replicas else None
        if copy is not None and copy.replica.high_watermark < copy.replica.start:
            raise BrokerError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"The new leader of {topic_partition} has not found out yet what is committed; try again.",
            )

    def segment_offsets(self, topic_partition: TopicPartition, timestamp: int, limit: int) -> list[int]:
        """Base offsets of segments, newest first, as ListOffsets v0 answers them; at most `limit`.

        −1 begins with the end of the log, −2 gives the start only; a time gives the segments last written
        before it.
        """
        return segment_offsets(self.log(topic_partition), timestamp, limit, now_ms=self.clock.wall_ms())

    def active_producers(self, topic_partition: TopicPartition) -> Iterator[ProducerState]:
        """The idempotent producers that the partition remembers."""
        return self.log(topic_partition).active_producers()

    def disk_space(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds the data directory."""
        space = os.statvfs(self.config.data_dir)
        return space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize

    async def delete_records(self, asked: Sequence[tuple[TopicPartition, int]]) -> list[int | BrokerError]:
        """Delete the records below an offset of each partition (−1: the high watermark); the new first offsets.

        One that is refused has its error instead: OFFSET_OUT_OF_RANGE above the high watermark,
        POLICY_VIOLATION for a topic that is compacted alone, UNKNOWN_TOPIC_OR_PARTITION,
        NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR. Durable when it returns.
        """
        results: list[int | BrokerError] = []
        breath = Breath(self.clock)
        for topic_partition, before_offset in asked:
            try:
                results.append(self._truncate_prefix(topic_partition, before_offset))
            except BrokerError as error:
                results.append(error)
            await breath.take()
        if all(isinstance(result, BrokerError) for result in results):
            return results
        # Forgotten again after a crash, deleted records would come back.
        task = self.logs.begin_checkpoint()
        try:
            await asyncio.get_running_loop().run_in_executor(None, task.run)
        except OSError as error:
            refusal = BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The new log start could not be stored ({error.strerror})."
            )
            return [result if isinstance(result, BrokerError) else refusal for result in results]
        return results

    def _truncate_prefix(self, topic_partition: TopicPartition, before_offset: int) -> int:
        log = self.led_log(topic_partition)
        if log.config.compacted and not log.config.deletes:
            raise BrokerError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {topic_partition} are kept by key (cleanup.policy=compact): they cannot be deleted by "
                "offset. Add 'delete' to the policy.",
            )
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
        return log.truncate_prefix(target)
