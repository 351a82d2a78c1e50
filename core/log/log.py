"""One partition on disk: a run of segments, read by offset or time, appended to at the end.

    log start offset ≤ ... readable ... ≤ high watermark ≤ log end offset
    log start offset ≤ ... stable ...   ≤ last stable offset ≤ high watermark
    log start offset ≤ ... fsynced ...  ≤ flushed offset ≤ log end offset

- An append assigns offsets in place and is one write. If the write fails, the log cuts off its bytes, so that the
  file always ends after a whole batch. If that fails too, the log refuses appends until the broker restarts.
- Everything below `flushed_offset` is on the disk. An fsync that fails makes the log failed as well: the broker no
  longer knows what is on the disk, so it must not acknowledge anything. Reads continue in both cases.
- Only whole segments are removed, the oldest first. Only the last segment is written.
- A follower appends its leader's batches as they are, and truncates what its leader does not have
  (`core.log.truncation`). `core.replication` decides which broker leads, what is committed and where to truncate. A
  log without replicas is committed up to its end.

Single-threaded: all of it runs on the event loop, except `FlushTask.run`. `core.log.recovery` opens logs.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator, Sequence

from core.errors import BrokerError, ErrorCode
from core.log import files
from core.log.aborted import AbortedTransactions
from core.log.epochs import LeaderEpochs
from core.log.flush import FlushTask, Unflushed
from core.log.numbering import assign_all, note_all
from core.log.producer_state import (
    EndedTransaction,
    ProducerStates,
    RememberedBatch,
    Snapshots,
    aborted_entry,
    replay_producers,
)
from core.log.segment import DELETED_SUFFIX, INT32_MAX, SWAP_SUFFIX, Segment
from core.log.segments import NOT_FOUND, Segments
from core.log.shared import LogShared
from core.log.truncation import begin_again, cut, find_place
from core.records.batch import assign
from core.records.control import EndMarker, build_marker, read_marker
from core.records.header import LENGTH_OVERHEAD, BatchHeader, read_header
from core.topic_config import TopicConfig
from core.types import (
    AbortedTransaction,
    AppendResult,
    LogOffsets,
    LogRead,
    ProducerState,
    TimestampOffset,
    TopicPartition,
)

logger = logging.getLogger(__name__)

# The `Log.failure` of a log whose partition was deleted.
DELETED = "the partition is deleted"
# An offset that no log reaches.
NO_LIMIT = 2**63 - 1

# A checkpoint writes a producer snapshot after this many records, also if no producer wrote: the next start reads the
# headers of all batches after the newest snapshot.
SNAPSHOT_RECORDS = 10_000


class Log:
    """The log of one partition. `core.log.recovery.open_log` makes one from a directory."""

    __slots__ = (
        "_cutting", "_end", "_producers", "_segments", "_shared", "_snapshots", "_start", "_unflushed", "aborted",
        "cleaning", "config", "damage", "directory", "epochs", "failure", "topic_id", "tp", "visible",
    )  # fmt: skip

    def __init__(
        self,
        shared: LogShared[Log],
        tp: TopicPartition,
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
        aborted: AbortedTransactions,
        damage: str | None = None,
    ) -> None:
        self._shared = shared
        self.tp = tp
        self.topic_id = topic_id
        # May be replaced at any time; the next append uses it.
        self.config = config
        self.directory = directory
        # Why the log refuses appends until a restart; None while it accepts them.
        self.failure: str | None = None
        # What recovery found broken below the recovery point; None if nothing.
        self.damage = damage
        # Whether compaction is running. Until it ends no segment is removed and nothing is cut.
        self.cleaning = False
        # The high watermark: consumers read only below it. No limit without replicas.
        self.visible = NO_LIMIT
        # The offset at which the log is about to be truncated.
        self._cutting = NO_LIMIT
        self.epochs = epochs
        self._segments = Segments(segments)
        self._start = log_start_offset
        self._end = log_end_offset
        self._producers = producers
        self._snapshots = snapshots
        # The aborted transactions, which read_committed consumers must not see.
        self.aborted = aborted
        self._unflushed = Unflushed(flushed_offset)
        if flushed_offset < log_end_offset:
            for segment, end in self._segments.after(flushed_offset):
                self._unflushed.add_segment(segment, end)
            self._note_dirty(log_end_offset - flushed_offset)

    # --- what it is ----------------------------------------------------------------------------------------

    @property
    def offsets(self) -> LogOffsets:
        """Return log start offset, high watermark, log end offset and last stable offset.

        High watermark and log end offset are equal without replicas.
        """
        end, visible, start = self._end, self.visible, self._start
        bound = end if end < visible else visible
        first = self._producers.first_unstable
        stable = bound if first is None else max(min(first, bound), start)
        return LogOffsets(start, bound, end, stable)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open, and everything is committed (read_committed reads to it)."""
        return self.offsets.last_stable_offset

    @property
    def flushed_offset(self) -> int:
        """The offset below which everything is on the disk, and will not be cut off."""
        return min(self._unflushed.offset, self._cutting)

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
        """Yield the idempotent producers that are remembered, for DescribeProducers."""
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

        A duplicate batch of an idempotent producer is not appended again; it gets its first answer (`duplicate`).
        Raises OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, RECORD_LIST_TOO_LARGE above segment.bytes,
        KAFKA_STORAGE_ERROR when the disk refuses (details: errno); the log is then as before.
        """
        if self.failure is not None:
            raise self._failed()
        first = headers[0]
        if first.producer_id >= 0:
            known = self._producers.check(first)
            if known is not None:
                return self._duplicate(first, known)
        return self._append(buffer, headers, leader_epoch)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        marker: EndMarker,
        *,
        leader_epoch: int,
        bumped: bool = False,
    ) -> AppendResult | None:
        """Append the marker that ends a producer's transaction here. None, and no append, if it is there already.

        `bumped` says that the epoch is that of the next transaction (KIP-890). Raises what `append` raises, and
        TRANSACTION_COORDINATOR_FENCED for a coordinator epoch that is over.
        """
        if self.failure is not None:
            raise self._failed()
        coordinator_epoch = marker.coordinator_epoch
        if not self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch, bumped=bumped):
            return None
        now_ms = self._shared.clock.wall_ms()
        batch = build_marker(producer_id, producer_epoch, marker, now_ms=now_ms)
        return self._append(batch, (read_header(batch),), leader_epoch, marker)

    def _append(
        self,
        buffer: bytearray | memoryview,
        headers: Sequence[BatchHeader],
        leader_epoch: int,
        marker: EndMarker | None = None,
    ) -> AppendResult:
        """Number, write and note batches that may be appended; `marker` is in the only one."""
        first = headers[0]
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
            now_ms = int(self._shared.clock.monotonic() * 1000)
            if marker is None:
                self._producers.update(first, base, now_ms)
            else:
                self._note_end(self._producers.end(first, marker.coordinator_epoch, base, now_ms), marker)
        unflushed = self._unflushed
        if unflushed.since is None:
            self._note_dirty(last + 1 - base)
        else:
            unflushed.records += last + 1 - base
        time = first.max_timestamp if first.attributes & 8 else -1
        return AppendResult(base, last, time, self._start)

    def _note_end(self, ended: EndedTransaction | None, marker: EndMarker) -> None:
        """Index a transaction that a marker at the log's end has aborted."""
        if ended is None or marker.commit:
            return
        self.aborted.add(self._segments.active.base_offset, aborted_entry(ended, self._producers))
        self._unflushed.add_name()

    def aborted_between(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in this range, by first offset. Raises KAFKA_STORAGE_ERROR."""
        with self._reading():
            return self.aborted.between(offset, end_offset)

    def _duplicate(self, header: BatchHeader, known: RememberedBatch) -> AppendResult:
        time = known.timestamp if header.timestamp_type else -1
        return AppendResult(known.base_offset, known.last_offset, time, self._start, duplicate=True)

    def _roll_if_due(self, size: int, last_offset: int, max_timestamp: int) -> Segment:
        """Return the segment for a batch, a new one if the active one is too large, too old or has a full index."""
        active, config = self._segments.active, self.config
        if size > config.segment_bytes:
            raise self._too_large(size)
        fits = active.size + size <= config.segment_bytes and last_offset - active.base_offset <= INT32_MAX
        if fits and not active.full:
            # Age: by the batches' own time, or by ours where the first batch has none, as Kafka does.
            if active.first_timestamp >= 0:
                age = max_timestamp - active.age_from
            else:
                age = self._shared.clock.wall_ms() - active.created_ms
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
            # At once, or the next start would take the sealed segment for the active one.
            segment.log.appending()
        except OSError as error:
            raise self._write_failed(error) from error
        active.seal()
        self._unflushed.add_segment(active, self._end)
        self._segments.add(segment)
        self._unflushed.add_name()
        self.snapshot()

    def new_segment(self, base_offset: int, size: int = 0) -> Segment:
        """Return a segment object of this log; nothing happens on the disk."""
        shared = self._shared
        return Segment(
            shared.pool,
            self.directory,
            base_offset,
            interval=self.config.index_interval_bytes,
            created_ms=shared.clock.wall_ms(),
            size=size,
            index_bytes=self.config.segment_index_bytes,
            jitter_ms=shared.jitter_ms(self.config),
        )

    def _assign_epoch(self, epoch: int) -> None:
        if epoch < self.epochs.latest:
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"Leader epoch {epoch} of {self.tp} is over; now it is {self.epochs.latest}.",
            )
        try:
            self.epochs.assign(epoch, self._end)
        except OSError as error:
            raise self._write_failed(error) from error
        self._unflushed.add_name()

    def _too_large(self, size: int) -> BrokerError:
        return BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The batches have {size} bytes, but a segment of {self.tp} holds "
            f"{self.config.segment_bytes} (segment.bytes).",
            limit=self.config.segment_bytes,
        )

    def _write_failed(self, error: OSError) -> BrokerError:
        """Truncate the bytes of a failed write. If that succeeds, the log continues."""
        try:
            self._segments.active.cut_back()
        except OSError as second:
            self._fail(f"the bytes of a failed write could not be truncated: {second}")
        self._shared.complain(self.tp, error)
        return self._storage_error(f"The disk refuses to write: {error.strerror}.", error)

    # --- append as a follower ------------------------------------------------------------------------------

    def append_copy(self, buffer: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Append the leader's batches, byte for byte, at the leader's offsets.

        The caller has checked that they are whole, and their checksums. Offsets may jump where the leader has
        compacted. Offsets that decrease raise CORRUPT_MESSAGE. Raises KAFKA_STORAGE_ERROR; batches that were appended
        before it stay.
        """
        if self.failure is not None:
            raise self._failed()
        position = 0
        for run in self._runs(headers):
            size = sum(header.batch_length + LENGTH_OVERHEAD for header in run)
            self._append_run(buffer[position : position + size], run, size)
            position += size

    def _runs(self, headers: Sequence[BatchHeader]) -> Iterator[list[BatchHeader]]:
        """Yield the batches in groups that are written at once: of one leader epoch, and no larger than a segment."""
        run: list[BatchHeader] = []
        room = self.config.segment_bytes - self._segments.active.size
        end = self._end
        for header in headers:
            if header.base_offset < end:
                raise BrokerError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"The leader sent offset {header.base_offset} of {self.tp}, where {end} comes next.",
                )
            end = header.next_offset
            size = header.batch_length + LENGTH_OVERHEAD
            if run and (size > room or header.leader_epoch != run[-1].leader_epoch):
                yield run
                run, room = [], self.config.segment_bytes - self._segments.active.size
            run.append(header)
            room -= size
        if run:
            yield run

    def _append_run(self, data: memoryview, run: list[BatchHeader], size: int) -> None:
        first, last = run[0], run[-1].last_offset
        active = self._segments.active
        if active.size and (
            active.size + size > self.config.segment_bytes
            or last - active.base_offset > INT32_MAX
            or active.full
        ):
            self.roll()
            active = self._segments.active
        if first.leader_epoch > self.epochs.latest:
            try:
                self.epochs.assign(first.leader_epoch, first.base_offset)
            except OSError as error:
                raise self._write_failed(error) from error
            self._unflushed.add_name()
        position = active.size
        try:
            active.write(data, size)
        except OSError as error:
            raise self._write_failed(error) from error
        before, self._end = self._end, last + 1
        now_ms = int(self._shared.clock.monotonic() * 1000)
        producers = self._producers
        at = 0
        for header in run:
            batch_size = header.batch_length + LENGTH_OVERHEAD
            active.note(position, header.last_offset, batch_size, header.max_timestamp)
            if header.is_control:
                marker = read_marker(data[at : at + batch_size], header)
                if marker is not None:
                    ended = producers.end(header, marker.coordinator_epoch, header.base_offset, now_ms)
                    self._note_end(ended, marker)
            elif header.producer_id >= 0:
                producers.update(header, header.base_offset, now_ms)
            position += batch_size
            at += batch_size
        if self._unflushed.since is None:
            self._note_dirty(last + 1 - before)
        else:
            self._unflushed.records += last + 1 - before

    # --- read ----------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        end_offset: int | None = None,
        committed: bool = False,
    ) -> LogRead:
        """Return whole batches from the one that holds `offset` on: at most `max_bytes`, of one segment, not copied.

        With `min_one` the first batch is returned even if it is larger. Nothing from `end_offset` on is returned,
        which must lie between batches; without it, nothing from the high watermark on. With `committed` nothing from
        the last stable offset on, and the aborted transactions are told (read_committed). Raises OFFSET_OUT_OF_RANGE
        (details: log_start_offset, high_watermark), CORRUPT_MESSAGE where the log is damaged, KAFKA_STORAGE_ERROR.
        """
        end = self._end
        if not self._start <= offset <= end:
            raise self._out_of_range(offset)
        offsets = self.offsets
        stable = offsets.last_stable_offset
        bound = offsets.high_watermark if end_offset is None else end_offset
        if committed and bound > stable:
            bound = stable
        if bound > end:
            bound = end
        if offset >= bound:
            return LogRead(None, offsets, stable)
        try:
            found = self._segments.slice(offset, bound, end, max_bytes, min_one)
            if found is None:
                return LogRead(None, offsets, stable)
            if not committed or not self.aborted.has_files:
                return LogRead(found[0], offsets, stable)
            until = found[1] if found[1] >= 0 else bound
            return LogRead(found[0], offsets, stable, self.aborted.between(offset, until))
        except OSError as error:
            raise self._storage_error(f"The disk refuses to read: {error.strerror}.", error) from error

    def _out_of_range(self, offset: int) -> BrokerError:
        return BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {self.tp} is out of range: the log holds {self._start} up to {self._end}.",
            log_start_offset=self._start,
            high_watermark=self.offsets.high_watermark,
        )

    # --- time ----------------------------------------------------------------------------------------------

    def offset_for_time(self, timestamp: int, *, committed: bool = False) -> TimestampOffset:
        """Return the first record that is not older than `timestamp`; (−1, −1, −1) if there is none.

        Only below the high watermark; with `committed` below the last stable offset.
        """
        with self._reading():
            found = self._segments.find_time(
                timestamp, self._start, self._shared.config.max_decompressed_bytes
            )
        return found if found.offset < self._bound(committed) else NOT_FOUND

    def _bound(self, committed: bool) -> int:
        return self.last_stable_offset if committed else self.visible

    def max_timestamp(self, *, committed: bool = False) -> TimestampOffset:
        """Return the first record that has the largest timestamp of the log (KIP-734).

        (−1, −1, −1) if the log is empty, or if that record may not be read yet, as in `offset_for_time`.
        """
        with self._reading():
            found = self._segments.find_max_time(self._start, self._shared.config.max_decompressed_bytes)
        return found if found.offset < self._bound(committed) else NOT_FOUND

    def earliest(self) -> TimestampOffset:
        """Return the log start offset, without a timestamp."""
        return TimestampOffset(-1, self._start, self.epochs.epoch_for(self._start))

    def latest(self, *, committed: bool = False) -> TimestampOffset:
        """Return the high watermark, or with `committed` the last stable offset, without a timestamp."""
        if committed and (stable := self.last_stable_offset) < min(self._end, self.visible):
            return TimestampOffset(-1, stable, self.epochs.epoch_for(stable))
        if self.visible >= self._end:
            return TimestampOffset(-1, self._end, self.epochs.latest)
        return TimestampOffset(-1, self.visible, self.epochs.epoch_for(self.visible))

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._storage_error(f"The disk refuses to read: {error.strerror}.", error) from error

    # --- flush ---------------------------------------------------------------------------------------------

    @property
    def flush_deadline(self) -> float | None:
        """Return when flush.ms requires the next fsync, in monotonic seconds; None if all is flushed."""
        since = self._unflushed.since
        return None if since is None else since + self.config.flush_ms / 1000

    @property
    def flush_due(self) -> bool:
        """Whether flush.messages asks for an fsync before the last append is answered."""
        return self._unflushed.records >= self.config.flush_messages

    def begin_flush(self) -> FlushTask | None:
        """Return the task that fsyncs all that the log holds now; None if all is flushed. Run it in a thread.

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
            paths[:0] = self.aborted.write_all()
            return self._unflushed.task(self._segments.active, self._end, paths)

    def finish_flush(self, task: FlushTask, error: OSError | None) -> None:
        """Take the outcome of a `FlushTask`: it holds up to `task.end_offset`, or the log has failed for good."""
        if error is not None:
            self._fail(f"fsync failed: {error}")
        elif self.failure is None:
            self._unflushed.done(task, self._end, self._shared.clock.monotonic())
            if not self._unflushed:
                self._shared.dirty.discard(self)

    def _note_dirty(self, records: int) -> None:
        self._unflushed.since = self._shared.clock.monotonic()
        self._unflushed.records += records
        self._shared.dirty.add(self)
        self._shared.touched[self] = None

    # --- checkpoint and close ------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write what shortens the next start: index entries and a producer snapshot. Never fails."""
        for segment in self._unflushed.segments:
            segment.flush_indexes()
        self._segments.active.flush_indexes()
        if self._producers.changed or self._end - self._snapshots.newest > SNAPSHOT_RECORDS:
            self.snapshot()

    def snapshot(self) -> None:
        """Write the producer state as of the log's end."""
        self._snapshots.take(self._end, self._producers.encode())
        self._snapshots.prune(self._segments.base_offsets)
        self._producers.changed = False

    def close(self) -> None:
        """Write indexes and producer state, close all files. Flush before it; call no other method after it."""
        self._shared.forget(self)
        for segment in self._segments.all:
            segment.flush_indexes()
        if self._end and (self._end not in self._snapshots.offsets or self._producers.changed):
            self.snapshot()
        self.release()

    def abandon(self) -> None:
        """The partition is deleted: accept no more appends, and close all files without writing."""
        self.failure = DELETED
        self._shared.forget(self)
        self.release()

    def release(self) -> None:
        """Close all files; they are reopened when needed."""
        for segment in self._segments.all:
            segment.close()

    # --- removal -------------------------------------------------------------------------------------------

    def truncate_prefix(self, offset: int) -> int:
        """Delete what is below `offset` (DeleteRecords). Return the log start offset, which never decreases.

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
        """Remove the oldest `count` sealed segments; delete their files later. Stop at an error of the disk."""
        if self.cleaning:
            return
        for segment in self._segments.all[:-1][:count]:
            try:
                for subscriber in self._shared.subscribers:
                    subscriber.removing(self, segment)
                self._remove_files(segment)
            except OSError as error:
                logger.error("%s: segment %d stays: %s", self.tp, segment.base_offset, error)
                return
            self._segments.replace([segment], [])
            self._unflushed.drop([segment])
            self._snapshots.remove(segment.base_offset)
            self._start = max(self._start, self._segments.first_offset)
            self.epochs.truncate_prefix(self._start)

    def _remove_files(self, segment: Segment) -> None:
        """Rename a segment's files, so that they no longer belong to the log. Raises OSError."""
        segment.close()
        self.aborted.forget(segment.base_offset)
        now, delay = self._shared.clock.monotonic(), self.config.file_delete_delay_ms / 1000
        for path in [*self._shared.sidecars(segment), *segment.paths()]:
            with contextlib.suppress(FileNotFoundError):
                files.rename(path, path + DELETED_SUFFIX)
                self._shared.trash.add(path + DELETED_SUFFIX, now, delay)

    def swap_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace the segments `old` by the compacted segment `new`, whose log is a durable .swap file.

        Readers of an old file can continue. After an error in the middle the log has failed: recovery puts the files
        in order at the next start. Raises OSError.
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

    # --- cut -----------------------------------------------------------------------------------------------

    def begin_cut(self, offset: int) -> None:
        """Step 0 of a truncation (`core.log.truncation`): promise nothing from `offset` on. Then write a checkpoint.

        Raises KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE where the place cannot be found.
        """
        with self._reading():
            end = find_place(self._segments, max(offset, self._start)).end if offset < self._end else offset
        self._cutting = min(end, self._cutting)

    def truncate_to(self, offset: int) -> int:
        """Drop everything from `offset` on, after `begin_cut` and a checkpoint; return the log end offset.

        A batch that reaches beyond `offset` is dropped as a whole. Raises KAFKA_STORAGE_ERROR while compaction
        runs, and if the disk refuses; then the log has failed until a restart.
        """
        self._check_may_cut()
        offset = max(offset, self._start)
        if offset < self._end:
            try:
                place = find_place(self._segments, offset)
                cut(self._segments, self._snapshots, place, self.new_segment, self._remove_files)
                self._end = place.end
                self.epochs.truncate_to(place.end)
                self._after_cut()
            except OSError as error:
                self._fail(f"it could not be truncated at {offset}: {error}")
                raise self._storage_error(
                    f"The disk refuses to truncate: {error.strerror}.", error
                ) from error
        self._cutting = NO_LIMIT
        return self._end

    def start_at(self, offset: int) -> None:
        """Drop everything and begin again at `offset`, because the leader has nothing older.

        Call it after `begin_cut` of the log start offset and a checkpoint. Raises KAFKA_STORAGE_ERROR.
        """
        self._check_may_cut()
        try:
            begin_again(self._segments, self._snapshots, offset, self.new_segment, self._remove_files)
        except OSError as error:
            self._fail(f"it could not begin again at {offset}: {error}")
            raise self._storage_error(f"The disk refuses to truncate: {error.strerror}.", error) from error
        self._start = self._end = offset
        self.epochs.replace([])
        self._after_cut()
        self._unflushed.offset = offset
        self._cutting = NO_LIMIT

    def _check_may_cut(self) -> None:
        if self.failure is not None:
            raise self._failed()
        if self.cleaning:
            raise self._storage_error("The log is being compacted; try again.")

    def _after_cut(self) -> None:
        """Take the producers of the new end, and count everything after it as not flushed. Raises OSError."""
        self.aborted.truncate_to(self._end)
        self._producers = replay_producers(
            self.tp,
            self._segments.all,
            self._snapshots,
            self._end,
            limit=self._shared.config.max_producers_per_partition,
            now_ms=int(self._shared.clock.monotonic() * 1000),
        )
        # A new object: an fsync from before the truncation does not cover what is appended after it.
        unflushed = Unflushed(min(self._unflushed.offset, self._end))
        for sealed, end in self._segments.after(unflushed.offset):
            unflushed.add_segment(sealed, end)
        unflushed.add_name()
        self._unflushed = unflushed
        for subscriber in self._shared.subscribers:
            subscriber.cut(self)
        self._note_dirty(self._end - unflushed.offset)

    # --- failure -------------------------------------------------------------------------------------------

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
            self._shared.dirty.discard(self)
            logger.critical("%s takes no more appends until a restart: %s", self.tp, reason)

    def _failed(self) -> BrokerError:
        if self.failure == DELETED:
            return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.tp} is deleted.")
        return self._storage_error(f"The log has failed and needs a restart of the broker: {self.failure}.")

    def _storage_error(self, message: str, error: OSError | None = None) -> BrokerError:
        return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, message, errno=error.errno if error else None)
