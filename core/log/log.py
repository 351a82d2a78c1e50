"""One partition: a run of segments, read by offset or time, appended to at the end.

    log start ≤ ... deleted or readable ... ≤ flushed offset ≤ log end

- An append assigns offsets in place and is one write. Bytes of a write that failed are cut off, so the file
  always ends behind a whole batch; if even that fails, the log takes nothing more until a restart.
- What lies below `flushed_offset` is on the disk. An fsync that failed makes the log failed as well: nobody
  knows any more what is on the disk, so nothing may be acknowledged. Reads go on in both cases.
- Only whole segments are ever removed, the oldest first, and only the log's last segment is ever written.

Single-threaded: all of it runs on the event loop, except `FlushTask.run`. Opening is in `core.log.recovery`.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator, Sequence

from core.errors import BrokerError, ErrorCode
from core.log import files
from core.log.epochs import LeaderEpochs
from core.log.flush import FlushTask, Unflushed
from core.log.numbering import assign_all, note_all
from core.log.producer_state import ProducerStates, RememberedBatch, Snapshots
from core.log.segment import DELETED_SUFFIX, INT32_MAX, SWAP_SUFFIX, Segment
from core.log.segments import Segments
from core.log.shared import LogContext
from core.records.batch import assign
from core.records.header import BatchHeader
from core.topic_config import TopicConfig
from core.types import AppendResult, LogOffsets, LogRead, ProducerState, TimestampOffset, TopicPartition

logger = logging.getLogger(__name__)

# What `Log.failure` says of a log that is no more.
DELETED = "the partition is deleted"

# A checkpoint writes a producer snapshot also when no producer wrote, after so many bytes: what lies behind
# the newest snapshot is walked over at the next start.
SNAPSHOT_BYTES = 16 * 1024 * 1024


class Log:
    """The log of one partition. `core.log.recovery.open_log` makes one from a directory."""

    __slots__ = (
        "_context", "_end", "_producers", "_segments", "_snapshot_size", "_snapshots",
        "_start", "_unflushed", "cleaning", "config", "damage", "directory", "epochs", "failure", "topic_id",
        "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        context: LogContext,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: TopicConfig,
        directory: str,
        *,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        flushed_offset: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        snapshots: Snapshots,
    ) -> None:
        self._context = context
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        # May be replaced at any time; holds from the next append on.
        self.config = config
        self.directory = directory
        # Why the log takes no more appends until a restart; None while it does.
        self.failure: str | None = None
        # What recovery found broken below the recovery point; None if nothing.
        self.damage: str | None = None
        # Whether compaction is at work: meanwhile no segment is removed.
        self.cleaning = False
        self.epochs = epochs
        self._segments = Segments(segments)
        self._start = log_start_offset
        self._end = log_end_offset
        self._producers = producers
        self._snapshots = snapshots
        self._snapshot_size = self.size
        self._unflushed = Unflushed(flushed_offset)
        if flushed_offset < log_end_offset:
            for segment, end in self._segments.after(flushed_offset):
                self._unflushed.add_segment(segment, end)
            self._note_dirty(log_end_offset - flushed_offset)

    # --- what it is ----------------------------------------------------------------------------------------

    @property
    def offsets(self) -> LogOffsets:
        """First offset kept, first not readable, next to be written; the last two are one on a single node."""
        return LogOffsets(self._start, self._end, self._end)

    @property
    def flushed_offset(self) -> int:
        """Everything below is on the disk."""
        return self._unflushed.offset

    @property
    def unflushed(self) -> bool:
        """Whether there is something that is not on the disk."""
        return bool(self._unflushed)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._segments.size

    @property
    def leader_epoch(self) -> int:
        """The newest leader epoch, −1 before the first append."""
        return self.epochs.latest

    @property
    def segments(self) -> Segments:
        """The segments; the last one is the active one."""
        return self._segments

    @property
    def producers(self) -> ProducerStates:
        """What is known of idempotent producers."""
        return self._producers

    def active_producers(self) -> Iterator[ProducerState]:
        """The idempotent producers that are remembered, for DescribeProducers."""
        return self._producers.active()

    def end_offset_for_epoch(self, epoch: int, current: int = -1) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above `epoch`; (−1, −1) if it is not known (KIP-101).

        `current` is the epoch of the leader, in which nothing may have been written yet.
        """
        return self.epochs.end_offset_for(epoch, self._end, current)

    # --- append --------------------------------------------------------------------------------------------

    def append(
        self, buffer: bytearray | memoryview, headers: Sequence[BatchHeader], *, leader_epoch: int
    ) -> AppendResult:
        """Append whole, validated batches; `headers` are theirs. Offsets and epoch are written into `buffer`.

        A batch of an idempotent producer that is in the log already is not appended again, but answered as the
        first time (`duplicate`). Raises OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
        RECORD_LIST_TOO_LARGE above segment.bytes, KAFKA_STORAGE_ERROR when the disk refuses (details: errno);
        the log is then as before.
        """
        if self.failure is not None:
            raise self._failed()
        first = headers[0]
        if first.producer_id >= 0:
            known = self._producers.check(first)
            if known is not None:
                return self._duplicate(first, known)
        size = len(buffer)
        base = self._end
        if len(headers) == 1:
            assign(buffer, 0, base_offset=base, leader_epoch=leader_epoch)
            last = base + first.last_offset_delta
            max_timestamp = first.max_timestamp
        else:
            last, max_timestamp = assign_all(buffer, headers, base, leader_epoch)
        active = self._segments.active
        config = self.config
        if active.size and (
            active.size + size > config.segment_bytes
            or max_timestamp - active.age_from > config.roll_ms
            or last - active.base_offset > INT32_MAX
            or active.first_timestamp < 0
            or active.full
        ):
            active = self._roll_if_due(size, last, max_timestamp)
        elif size > config.segment_bytes:
            raise self._too_large(size)
        if leader_epoch != self.epochs.latest:
            self._assign_epoch(leader_epoch)
        position = active.size
        try:
            active.write(buffer, size)
        except OSError as error:
            raise self._write_failed(error) from error
        self._end = last + 1
        if len(headers) == 1:
            active.note(position, last, size, max_timestamp)
        else:
            note_all(active, headers, base, position)
        if first.producer_id >= 0:
            self._producers.update(first, base, int(self._context.clock.monotonic() * 1000))
        unflushed = self._unflushed
        if unflushed.since is None:
            self._note_dirty(last + 1 - base)
        else:
            unflushed.records += last + 1 - base
        time = first.max_timestamp if first.attributes & 8 else -1
        return AppendResult(base, last, time, self._start)

    def _duplicate(self, header: BatchHeader, known: RememberedBatch) -> AppendResult:
        time = known.timestamp if header.timestamp_type else -1
        return AppendResult(known.base_offset, known.last_offset, time, self._start, duplicate=True)

    def _roll_if_due(self, size: int, last_offset: int, max_timestamp: int) -> Segment:
        """The segment for a batch, a new one if the active one is too large, too old or has a full index."""
        active, config = self._segments.active, self.config
        if size > config.segment_bytes:
            raise self._too_large(size)
        fits = active.size + size <= config.segment_bytes and last_offset - active.base_offset <= INT32_MAX
        if fits and not active.full:
            # Age: by the batches' own time, or by ours where the first batch has none, as Kafka does.
            if active.first_timestamp >= 0:
                age = max_timestamp - active.age_from
            else:
                age = self._context.clock.wall_ms() - active.created_ms
            if age <= config.roll_ms:
                return active
        self.roll()
        return self._segments.active

    def roll(self) -> None:
        """Seal the active segment and begin a new one, unless it is empty. Raises KAFKA_STORAGE_ERROR."""
        active = self._segments.active
        if self.failure is not None:
            raise self._failed()
        if active.size == 0 and active.base_offset == self._end:
            return
        segment = self.new_segment(self._end)
        try:
            # At once: what was sealed must not be taken for the active segment at the next start.
            segment.log.appending()
        except OSError as error:
            raise self._write_failed(error) from error
        active.seal()
        self._unflushed.add_segment(active, self._end)
        self._segments.add(segment)
        self._unflushed.add_name()
        self.snapshot()

    def new_segment(self, base_offset: int, size: int = 0) -> Segment:
        """A segment object of this log; nothing happens on the disk."""
        context = self._context
        return Segment(
            context.pool,
            self.directory,
            base_offset,
            interval=self.config.index_interval_bytes,
            created_ms=context.clock.wall_ms(),
            size=size,
            index_bytes=self.config.segment_index_bytes,
            jitter_ms=context.jitter_ms(self.config),
        )

    def _assign_epoch(self, epoch: int) -> None:
        if epoch < self.epochs.latest:
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"Leader epoch {epoch} of {self.topic_partition} is over; now it is {self.epochs.latest}.",
            )
        try:
            self.epochs.assign(epoch, self._end)
        except OSError as error:
            raise self._write_failed(error) from error
        self._unflushed.add_name()

    def _too_large(self, size: int) -> BrokerError:
        return BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The batches have {size} bytes, but a segment of {self.topic_partition} holds "
            f"{self.config.segment_bytes} (segment.bytes).",
            limit=self.config.segment_bytes,
        )

    def _write_failed(self, error: OSError) -> BrokerError:
        """Cut off what a failed write left behind; the log goes on if that works."""
        try:
            self._segments.active.cut_back()
        except OSError as second:
            self._fail(f"a failed write could not be cut off: {second}")
        self._context.complain(self.topic_partition, error)
        return self._storage_error(f"The disk refuses to write: {error.strerror}.", error)

    # --- read ----------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, min_one: bool, end_offset: int | None = None) -> LogRead:
        """Whole batches from the one that holds `offset` on: at most `max_bytes`, of one segment, not copied.

        With `min_one` the first batch is given even if it is larger. Nothing from `end_offset` on is given,
        which must lie between batches. Raises OFFSET_OUT_OF_RANGE (details: log_start_offset, high_watermark),
        CORRUPT_MESSAGE where the log is damaged, KAFKA_STORAGE_ERROR.
        """
        end = self._end
        if not self._start <= offset <= end:
            raise self._out_of_range(offset)
        offsets = self.offsets
        bound = end if end_offset is None or end_offset > end else end_offset
        if offset >= bound:
            return LogRead(None, offsets)
        try:
            return LogRead(self._segments.slice(offset, bound, end, max_bytes, min_one), offsets)
        except OSError as error:
            raise self._storage_error(f"The disk refuses to read: {error.strerror}.", error) from error

    def _out_of_range(self, offset: int) -> BrokerError:
        return BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {self.topic_partition} is out of range: the log holds "
            f"{self._start} up to {self._end}.",
            log_start_offset=self._start,
            high_watermark=self.offsets.high_watermark,
        )

    # --- time ----------------------------------------------------------------------------------------------

    def offset_for_time(self, timestamp: int) -> TimestampOffset:
        """The first record whose timestamp is not before `timestamp`; (−1, −1, −1) if there is none."""
        with self._reading():
            return self._segments.find_time(
                timestamp, self._start, self._context.config.max_decompressed_bytes
            )

    def max_timestamp(self) -> TimestampOffset:
        """The first record that has the largest timestamp of the log (KIP-734); (−1, −1, −1) if it is empty."""
        with self._reading():
            return self._segments.find_max_time(self._start, self._context.config.max_decompressed_bytes)

    def earliest(self) -> TimestampOffset:
        """The log start offset, without a timestamp."""
        return TimestampOffset(-1, self._start, self.epochs.epoch_for(self._start))

    def latest(self) -> TimestampOffset:
        """The log end offset, without a timestamp."""
        return TimestampOffset(-1, self._end, self.epochs.latest)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._storage_error(f"The disk refuses to read: {error.strerror}.", error) from error

    # --- flush ---------------------------------------------------------------------------------------------

    @property
    def flush_deadline(self) -> float | None:
        """When flush.ms asks for an fsync at the latest, in monotonic seconds; None if all is flushed."""
        since = self._unflushed.since
        return None if since is None else since + self.config.flush_ms / 1000

    @property
    def flush_due(self) -> bool:
        """Whether flush.messages asks for an fsync before the last append is answered."""
        return self._unflushed.records >= self.config.flush_messages

    def begin_flush(self) -> FlushTask | None:
        """What to fsync so that all that is there now is on the disk; None if it is. Run it in a thread.

        Raises KAFKA_STORAGE_ERROR if the log has failed.
        """
        if self.failure is not None:
            raise self._failed()
        if not self._unflushed:
            return None
        paths = [self.directory, self.directory.rpartition("/")[0]]
        if self.epochs.latest >= 0:
            paths.insert(0, self.epochs.path)
        with self._reading():
            return self._unflushed.task(self._segments.active, self._end, paths)

    def finish_flush(self, task: FlushTask, error: OSError | None) -> None:
        """Take the outcome of a `FlushTask`: it holds up to `task.end_offset`, or the log has failed for good."""
        if error is not None:
            self._fail(f"fsync failed: {error}")
        elif self.failure is None:
            self._unflushed.done(task, self._end, self._context.clock.monotonic())
            if not self._unflushed:
                self._context.dirty.discard(self)

    def _note_dirty(self, records: int) -> None:
        self._unflushed.since = self._context.clock.monotonic()
        self._unflushed.records += records
        self._context.dirty.add(self)
        self._context.touched[self] = None

    # --- checkpoint and close ------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write what shortens the next start: index entries and a producer snapshot. Never fails."""
        for segment in self._unflushed.segments:
            segment.flush_indexes()
        self._segments.active.flush_indexes()
        if self._producers.changed or self.size - self._snapshot_size > SNAPSHOT_BYTES:
            self.snapshot()

    def snapshot(self) -> None:
        """Write the producer state as of the log's end."""
        self._snapshots.take(self._end, self._producers.encode())
        self._snapshots.prune(self._segments.base_offsets)
        self._producers.changed = False
        self._snapshot_size = self.size

    def close(self) -> None:
        """Write indexes and producer state, let go of all files. Flush before; nothing may be called after."""
        self._context.forget(self)
        for segment in self._segments.all:
            segment.flush_indexes()
        if self._end and (self._end not in self._snapshots.offsets or self._producers.changed):
            self.snapshot()
        self.release()

    def abandon(self) -> None:
        """The partition is deleted: take nothing more, let go of all files without writing."""
        self.failure = DELETED
        self._context.forget(self)
        self.release()

    def release(self) -> None:
        """Let go of all files; they are opened again at need."""
        for segment in self._segments.all:
            segment.close()

    # --- removal -------------------------------------------------------------------------------------------

    def truncate_prefix(self, offset: int) -> int:
        """Delete what lies below `offset` (DeleteRecords); the new log start, which never goes back.

        It is durable once the manager has written a checkpoint. Raises OFFSET_OUT_OF_RANGE beyond the end.
        """
        if offset > self._end:
            raise self._out_of_range(offset)
        if offset > self._start:
            self._start = offset
            self.epochs.truncate_prefix(offset)
            self.remove_segments(self._segments.index_of(offset))
        return self._start

    def remove_segments(self, count: int) -> None:
        """Remove the oldest `count` sealed segments; their files go after a delay. Stops where the disk refuses."""
        if self.cleaning:
            return
        for segment in self._segments.all[:-1][:count]:
            try:
                self._context.legacy.before_removal(self, [segment])
                self._remove_files(segment)
            except OSError as error:
                logger.error("%s: segment %d stays: %s", self.topic_partition, segment.base_offset, error)
                return
            self._segments.replace([segment], [])
            self._unflushed.drop([segment])
            self._snapshots.remove(segment.base_offset)
            self._start = max(self._start, self._segments.first_offset)
            self.epochs.truncate_prefix(self._start)

    def _remove_files(self, segment: Segment) -> None:
        """Take a segment's files out of the log's sight. Raises OSError."""
        segment.close()
        now, delay = self._context.clock.monotonic(), self.config.file_delete_delay_ms / 1000
        for path in [*segment.sidecars(), *segment.paths()]:
            with contextlib.suppress(FileNotFoundError):
                files.rename(path, path + DELETED_SUFFIX)
                self._context.trash.add(path + DELETED_SUFFIX, now, delay)

    def swap_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Put the compacted segment `new` in the place of `old`; its log is there as a durable .swap file.

        Whoever still reads an old file can go on. If the disk refuses in the middle, the log has failed: what
        lies there is for recovery to put in order. Raises OSError.
        """
        try:
            for segment in old:
                if segment.base_offset != new.base_offset:
                    self._remove_files(segment)
                    self._snapshots.remove(segment.base_offset)
            old[0].close()
            files.remove_if_present(new.offsets.path)
            files.remove_if_present(new.times.path)
            files.rename(new.log.path + SWAP_SUFFIX, new.log.path)
        except OSError as error:
            self._fail(f"compaction could not put its segment in place: {error}")
            raise
        new.seal()
        self._segments.replace(old, [new])
        self._unflushed.drop(old)

    # --- failure -------------------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
            self._context.dirty.discard(self)
            logger.critical("%s takes no more appends until a restart: %s", self.topic_partition, reason)

    def _failed(self) -> BrokerError:
        if self.failure == DELETED:
            return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} is deleted.")
        return self._storage_error(f"The log has failed and needs a restart of the broker: {self.failure}.")

    def _storage_error(self, message: str, error: OSError | None = None) -> BrokerError:
        return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, message, errno=error.errno if error else None)
