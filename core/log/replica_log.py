"""A log as one of several copies: shown up to what is committed, appended to as its leader was, cut where it erred.

Nothing here decides who leads or what is committed: `core.replication` does. A log without replicas shows all it
has; for it, this class adds one comparison.

A cut, step by step, and what a crash leaves behind:

    0  the recovery point goes back to the cut, durably (the caller: `begin_cut`, then a checkpoint)
    1  producer snapshots behind the cut go            the log is as before
    2  segments behind it go, the newest first         a log that ends at the end of a segment
    3  the segment with the cut is cut, in one call    cut, with epochs of batches that are gone
    4  the list of leader epochs is cut                done; fsynced with the next flush

After each of them recovery finds whole batches up to some end between the cut and the old one, drops the epochs
and snapshots behind it, and the follower cuts again. Without step 0 it would believe that the records up to the
old recovery point were lost, and leave a hole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from core.errors import BrokerError, ErrorCode
from core.log.flush import FlushTask, Unflushed
from core.log.log import Log
from core.log.replay import replay_producers
from core.log.segment import INT32_MAX, Segment
from core.records.header import LENGTH_OVERHEAD, BatchHeader
from core.types import LogOffsets, LogRead, TimestampOffset

NO_LIMIT = 2**63 - 1
_NOT_FOUND = TimestampOffset(-1, -1, -1)


class ReplicaLog(Log):
    """The log of one partition, on whichever side of the replication."""

    __slots__ = ("_cutting", "_flushing", "_outdated", "visible")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """See `Log`."""
        # Consumers are shown nothing from this offset on; without replicas there is no limit.
        self.visible = NO_LIMIT
        # From where on a cut is about to be made.
        self._cutting = NO_LIMIT
        # The fsync under way, and one that was begun before the last cut.
        self._flushing: FlushTask | None = None
        self._outdated: FlushTask | None = None
        super().__init__(*args, **kwargs)

    # --- what is shown -------------------------------------------------------------------------------------

    @property
    def offsets(self) -> LogOffsets:
        """First offset kept, first not readable (the high watermark), next to be written."""
        end, visible = self._end, self.visible
        return LogOffsets(self._start, end if end < visible else visible, end)

    def read(self, offset: int, max_bytes: int, *, min_one: bool, end_offset: int | None = None) -> LogRead:
        """See `Log.read`. Without `end_offset`, up to the high watermark."""
        if end_offset is None and self.visible < self._end:
            end_offset = self.visible
        return super().read(offset, max_bytes, min_one=min_one, end_offset=end_offset)

    def offset_for_time(self, timestamp: int) -> TimestampOffset:
        """See `Log.offset_for_time`; what is not committed is not found."""
        found = super().offset_for_time(timestamp)
        return found if found.offset < self.visible else _NOT_FOUND

    def max_timestamp(self) -> TimestampOffset:
        """See `Log.max_timestamp`; while the youngest record is not committed, none is found."""
        found = super().max_timestamp()
        return found if found.offset < self.visible else _NOT_FOUND

    def latest(self) -> TimestampOffset:
        """The high watermark, without a timestamp."""
        if self.visible >= self._end:
            return super().latest()
        return TimestampOffset(-1, self.visible, self.epochs.epoch_for(self.visible))

    # --- following -----------------------------------------------------------------------------------------

    def append_copy(self, buffer: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Append the leader's batches, byte for byte, at the leader's offsets.

        The caller has checked that they are whole, and their checksums. Offsets may jump where the leader has
        compacted, never go back: that raises CORRUPT_MESSAGE. Raises KAFKA_STORAGE_ERROR; what was appended
        before it stays.
        """
        if self.failure is not None:
            raise self._failed()
        position = 0
        for run in self._runs(headers):
            size = sum(header.batch_length + LENGTH_OVERHEAD for header in run)
            self._append_run(buffer[position : position + size], run, size)
            position += size

    def _runs(self, headers: Sequence[BatchHeader]) -> Iterator[list[BatchHeader]]:
        """The batches in groups that are written at once: of one leader epoch, and no larger than a segment."""
        run: list[BatchHeader] = []
        room = self.config.segment_bytes - self._segments.active.size
        end = self._end
        for header in headers:
            if header.base_offset < end:
                raise BrokerError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"The leader sent offset {header.base_offset} of {self.topic_partition}, where {end} comes next.",
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
        now_ms = int(self._context.clock.monotonic() * 1000)
        producers = self._producers
        for header in run:
            batch_size = header.batch_length + LENGTH_OVERHEAD
            active.note(position, header.last_offset, batch_size, header.max_timestamp)
            position += batch_size
            if header.producer_id >= 0:
                producers.update(header, header.base_offset, now_ms)
        if self._unflushed.since is None:
            self._note_dirty(last + 1 - before)
        else:
            self._unflushed.records += last + 1 - before

    # --- cutting -------------------------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        """Everything below is on the disk, and will stay."""
        return min(self._unflushed.offset, self._cutting)

    def begin_cut(self, offset: int) -> None:
        """Step 0: what lies from `offset` on is promised to nobody any more. A checkpoint must follow.

        Raises KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE where the place cannot be found.
        """
        with self._reading():
            end = self._place(max(offset, self._start))[2] if offset < self._end else offset
        self._cutting = min(end, self._cutting)

    def _place(self, offset: int) -> tuple[int, int, int]:
        """(segment, position, end of the log) of a cut at `offset`: in front of the batch that holds it."""
        index = self._segments.index_of(offset)
        segment = self._segments.all[index]
        position = segment.locate(offset)
        if position < segment.size:
            return index, position, min(offset, segment.first_batch(position).base_offset)
        return index, position, offset

    def truncate_to(self, offset: int) -> int:
        """Drop everything from `offset` on, after `begin_cut` and a checkpoint; the log's end.

        A batch that reaches beyond the offset goes as a whole. Raises KAFKA_STORAGE_ERROR; in the midst of
        compaction, and where the disk refuses, which leaves the log failed until a restart.
        """
        if self.failure is not None:
            raise self._failed()
        if self.cleaning:
            raise self._storage_error("The log is being compacted; try again.")
        offset = max(offset, self._start)
        if offset < self._end:
            try:
                self._truncate(offset)
            except OSError as error:
                self._fail(f"it could not be cut at {offset}: {error}")
                raise self._storage_error(f"The disk refuses to cut: {error.strerror}.", error) from error
        self._cutting = NO_LIMIT
        return self._end

    def start_at(self, offset: int) -> None:
        """Drop everything and begin again at `offset`: the leader has nothing older. Raises KAFKA_STORAGE_ERROR."""
        self.begin_cut(self._start)
        if self.failure is not None:
            raise self._failed()
        if self.cleaning:
            raise self._storage_error("The log is being compacted; try again.")
        try:
            self._drop_from(0, offset)
        except OSError as error:
            self._fail(f"it could not begin again at {offset}: {error}")
            raise self._storage_error(f"The disk refuses to cut: {error.strerror}.", error) from error
        self._start = self._end = offset
        self.epochs.replace([])
        self._after_cut()
        self._unflushed.offset = offset
        self._cutting = NO_LIMIT

    def _truncate(self, offset: int) -> None:
        index, position, end = self._place(offset)
        segments = self._segments.all
        segment = segments[index]
        self._snapshots.truncate_to(end)
        if position == 0:
            self._drop_from(index, end)
        else:
            self._remove(segments[index + 1 :])
            segment.flush_indexes()
            segment.shorten(position, end)
            self._segments.replace(segments[index + 1 :], [])
        self._end = end
        self.epochs.truncate_to(end)
        self._after_cut()

    def _drop_from(self, index: int, end: int) -> None:
        """Remove the segments from `index` on; an empty one begins at `end`."""
        gone = self._segments.all[index:]
        self._remove(gone)
        segment = self.new_segment(end)
        segment.log.appending()
        segment.mark_loaded()
        self._segments.replace(gone, [segment])
        self._snapshots.truncate_to(0 if index == 0 else end)

    def _remove(self, segments: Sequence[Segment]) -> None:
        for segment in reversed(segments):
            self._remove_files(segment)

    def _after_cut(self) -> None:
        """Producers as of the new end; everything counts as not flushed from here on."""
        self._producers = replay_producers(
            self.topic_partition,
            self._segments.all,
            self._snapshots,
            self._end,
            limit=self._context.config.max_producers_per_partition,
            now_ms=int(self._context.clock.monotonic() * 1000),
        )
        self._snapshot_size = self.size
        unflushed = Unflushed(min(self._unflushed.offset, self._end))
        for sealed, end in self._segments.after(unflushed.offset):
            unflushed.add_segment(sealed, end)
        unflushed.add_name()
        self._unflushed = unflushed
        # An fsync under way speaks of the log before the cut.
        self._outdated = self._flushing
        self._context.legacy.truncated(self)
        self._note_dirty(self._end - unflushed.offset)

    # --- flush ---------------------------------------------------------------------------------------------

    def begin_flush(self) -> FlushTask | None:
        """See `Log.begin_flush`."""
        self._flushing = super().begin_flush()
        return self._flushing

    def finish_flush(self, task: FlushTask, error: OSError | None) -> None:
        """See `Log.finish_flush`. One that was begun before a cut says nothing of what was appended after it."""
        if task is self._flushing:
            self._flushing = None
        if task is self._outdated and error is None:
            self._outdated = None
            return
        super().finish_flush(task, error)
