"""Compaction: of all records with one key, the newest stays. One pass over one log, in bounded steps.

    1  map      read the dirty part: key → offset of its newest record
    2  copy     per group of sealed segments: the records that stay, into <base>.log.cleaned; fsync (thread)
    3  commit   rename to <base>.log.swap; fsync the directory (thread)
    4  swap     remove the old segments' files; <base>.log.swap becomes <base>.log

After a crash before the commit the old segments are used, and the .cleaned file is removed. From the commit on the
.swap file is used: recovery repeats step 4 (`core.log.recovery`). A crash at any point loses no record that should
stay.

What stays (KIP-58, KIP-534, and Kafka's cleaner):

- offsets, always
- a record, unless a newer one has its key
- a tombstone until `delete.retention.ms` after its first compaction; that time is written into its batch
- the last batch of each idempotent producer, if necessary without records, because it has the sequence number
- of an aborted transaction nothing but its marker; see `core.log.cleaned_transactions`

Records without a key are dropped. The active segment is not compacted, and no record that is not fsynced: if the
newer record of a key were lost, the older one must still be there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
from collections.abc import Generator, Sequence

from core.errors import BrokerError, ErrorCode
from core.log import files
from core.log.cleaned_transactions import CleanedTransactions, IndexOfCompacted
from core.log.events import Companion
from core.log.flush import Chore, FlushTask
from core.log.log import Log
from core.log.retention import newest_ms, oldest_ms
from core.log.segment import CLEANED_SUFFIX, INT32_MAX, LOG_SUFFIX, SWAP_SUFFIX, Segment, file_stem
from core.log.shared import LogShared
from core.records.batch import check_crc, read_header, read_records, rebuild_batch
from core.records.control import read_marker
from core.records.header import LENGTH_OVERHEAD, BatchHeader
from core.records.record import Record
from core.topic_config import LONG_MAX
from core.types import AbortedTransaction

logger = logging.getLogger(__name__)

# A key below this length is its own fingerprint, all others are hashed to just this length.
FINGERPRINT_SIZE = 16
# Output is written in pieces of this size.
WRITE_SIZE = 1024 * 1024


def dirty_segments(log: Log, cleaned_offset: int, now_ms: int) -> list[Segment]:
    """Return the sealed, durable, old enough segments that hold something compaction has not seen."""
    found = []
    youngest_ms = now_ms - log.config.min_compaction_lag_ms
    # Uncommitted records are not compacted: a follower may have to truncate them, and needs the older records then.
    # Nor is what an open transaction has written: if it is aborted, the older record of a key is the newest.
    settled = min(log.flushed_offset, log.last_stable_offset)
    for segment, end in log.segments.after(cleaned_offset):
        if end > settled:
            break
        if log.config.min_compaction_lag_ms and newest_ms(segment) > youngest_ms:
            break
        found.append(segment)
    return found


def dirty_ratio(log: Log, cleaned_offset: int, now_ms: int) -> float:
    """Return the share of what could be compacted that is new, from 0 to 1."""
    dirty = dirty_segments(log, cleaned_offset, now_ms)
    if not dirty:
        return 0.0
    total = sum(s.size for s in log.segments.all if s.base_offset <= dirty[-1].base_offset)
    return sum(segment.size for segment in dirty) / total if total else 0.0


def needs_compaction(log: Log, cleaned_offset: int, now_ms: int) -> bool:
    """Return whether enough of the log is new, or some of it has waited for longer than max.compaction.lag.ms."""
    ratio = dirty_ratio(log, cleaned_offset, now_ms)
    if ratio == 0.0 or ratio >= log.config.min_cleanable_dirty_ratio:
        return ratio > 0.0
    since_ms = now_ms - log.config.max_compaction_lag_ms
    return any(oldest_ms(segment) < since_ms for segment in dirty_segments(log, cleaned_offset, now_ms))


def roll_overdue(log: Log, now_ms: int) -> None:
    """Seal the active segment once its first record is older than max.compaction.lag.ms, so that it can be compacted.

    Kafka does so with the next append (KIP-354); a topic that is at rest keeps the promise as well here. Raises
    KAFKA_STORAGE_ERROR.
    """
    active = log.segments.active
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms < LONG_MAX and active.size and oldest_ms(active) < now_ms - lag_ms:
        log.roll()


class CleanerPass:
    """One pass over one log. `step` until `finished`; `cleaned_offset` is then the first offset not seen."""

    def __init__(self, shared: LogShared[Log], log: Log, cleaned_offset: int, now_ms: int) -> None:
        self._shared = shared
        self._log = log
        self._now_ms = now_ms
        self._newest: dict[bytes, int] = {}
        self._spent = 0
        self._deadline = 0.0
        self._started = False
        self._run = self._whole_pass()
        self._output: _Output | None = None
        self.cleaned_offset = cleaned_offset
        self.finished = False
        # Why the log cannot be compacted; None if it can.
        self.failure: str | None = None
        log.cleaning = True

    def step(self, deadline: float, error: OSError | None = None) -> Chore | None:
        """Continue until about `deadline` (monotonic), or until the bytes of one step are used up.

        The caller runs the returned task in a thread, and passes its outcome to the next step as `error`.
        """
        self._spent = 0
        self._deadline = deadline
        try:
            if self._started:
                return self._run.send(error)
            self._started = True
            return next(self._run)
        except StopIteration:
            self._end()
        except (OSError, BrokerError, ValueError) as failure:
            self._end()
            # A full disk is a passing error. An unreadable batch stays unreadable.
            if isinstance(failure, BrokerError) and failure.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                self.failure = str(failure)
            logger.error("%s: compaction stopped: %s", self._log.tp, failure)
        return None

    def abort(self) -> None:
        """Stop. The current group of segments stays as it was."""
        self._run.close()
        self._end()

    def _end(self) -> None:
        self.finished = True
        self._log.cleaning = False
        self._newest.clear()
        if self._output is not None:
            self._output.discard()
            self._output = None

    def _whole_pass(self) -> Generator[Chore | None, OSError | None, None]:
        log = self._log
        dirty = dirty_segments(log, self.cleaned_offset, self._now_ms)
        if not dirty:
            return
        yield from self._prepare(dirty[-1].base_offset)
        end_offset = yield from self._map(dirty)
        keep = set(log.producers.last_offsets().values())
        transactions = self._transactions(0, end_offset)
        for group in _groups(log, end_offset):
            if not (yield from self._copy(group, end_offset, keep, transactions)):
                return
        self.cleaned_offset = end_offset

    def _prepare(self, until: int) -> Generator[Chore | None, OSError | None, None]:
        """Let subscribers prepare for the compaction of the segments that begin at `until` or below."""
        for subscriber in self._shared.subscribers:
            for chore in subscriber.before_compaction(self._log, until):
                error = yield chore
                if error is not None:
                    raise error

    def _transactions(self, offset: int, end_offset: int) -> CleanedTransactions:
        return CleanedTransactions(self._log.aborted_between(offset, end_offset))

    # --- map -----------------------------------------------------------------------------------------------

    def _map(self, dirty: Sequence[Segment]) -> Generator[Chore | None, OSError | None, int]:
        """Fill the map from the dirty segments. Return the offset up to which it covers all records."""
        newest = self._newest
        limit = self._shared.config.compaction_max_keys
        end_offset = self.cleaned_offset
        transactions = self._transactions(end_offset, self._end_of(dirty[-1]))
        for segment in dirty:
            for position, header in segment.walk(segment.locate(self.cleaned_offset)):
                if len(newest) >= limit:
                    return end_offset
                if header.is_control:
                    self._end_transaction(transactions, segment.read_batch(position, header), header)
                elif not transactions.is_aborted(header):
                    for record in self._read(segment, position, header)[1]:
                        if record.key is not None:
                            newest[fingerprint(record.key)] = record.offset
                end_offset = header.next_offset
                if self._tired(header):
                    yield None
            end_offset = max(end_offset, self._end_of(segment))
        return end_offset

    def _end_of(self, segment: Segment) -> int:
        following = self._log.segments.after(segment.base_offset)
        return following[0][1] if following else segment.base_offset

    def _tired(self, header: BatchHeader) -> bool:
        self._spent += header.batch_length
        return (
            self._spent >= self._shared.config.compaction_step_bytes
            or self._shared.clock.monotonic() >= self._deadline
        )

    def _read(self, segment: Segment, position: int, header: BatchHeader) -> tuple[bytes, list[Record]]:
        data = segment.read_batch(position, header)
        if not check_crc(data, 0, header):
            raise segment.corrupt(position, "a batch has a wrong checksum")
        if header.record_count == 0:
            return data, []
        return data, read_records(data, 0, header, max_bytes=self._shared.config.max_decompressed_bytes)

    # --- copy ----------------------------------------------------------------------------------------------

    def _copy(
        self, group: list[Segment], end_offset: int, keep: set[int], transactions: CleanedTransactions
    ) -> Generator[Chore | None, OSError | None, bool]:
        """Write what stays of some segments into one that replaces them. Return False if it must be done again."""
        log = self._log
        others = self._companions(group)
        if others is None:
            return False
        index = IndexOfCompacted(log.aborted, group[0].base_offset)
        companions: list[Companion] = [*others, *([index] if log.aborted.has_files else [])]
        output = self._output = _Output(log, group[0].base_offset, companions)
        for segment in group:
            for position, header in segment.walk():
                data, records = self._read(segment, position, header)
                batch: bytes | bytearray | None = data
                if header.is_control:
                    met, aborted = self._end_transaction(transactions, data, header)
                    if aborted is not None:
                        index.keep(aborted)
                    if not met and header.base_offset < end_offset:
                        batch = self._filter_marker(header, data, records)
                else:
                    aborted_batch = transactions.is_aborted(header)
                    if header.base_offset < end_offset:
                        staying = [] if aborted_batch else records
                        batch = self._filter(header, data, staying, keep)
                for companion in companions:
                    companion.take(segment, header, records, batch, output.segment.size, whole=batch is data)
                if batch is not None:
                    output.add(batch)
                if self._tired(header):
                    yield None
        output.finish()
        error = yield FlushTask([output.file], [path for companion in companions for path in companion.paths])
        if error is not None:
            raise error
        try:
            if not all(companion.hold() for companion in companions):
                return False  # the next pass has companions that know the changes
            yield from self._swap(output, group, companions)
        finally:
            for companion in companions:
                companion.release()
        return True

    def _companions(self, group: Sequence[Segment]) -> list[Companion] | None:
        """Return what the subscribers add to a compaction; None if one of them is not ready. Raises OSError."""
        companions = []
        for subscriber in self._shared.subscribers:
            companion = subscriber.compacting(self._log, group)
            if companion is None:
                return None
            companions.append(companion)
        return companions

    def _swap(
        self, output: _Output, group: list[Segment], companions: Sequence[Companion]
    ) -> Generator[Chore | None, OSError | None, None]:
        """Let the new segment count, and put it in the place of the old ones."""
        log = self._log
        output.commit(files.modified(group[-1].log.path))
        error = yield FlushTask([], [log.directory])
        if error is not None:
            raise error
        self._output = None
        for companion in companions:
            companion.swap()
        log.swap_segments(group, output.segment)
        for companion in companions:
            companion.done()

    def _end_transaction(
        self, transactions: CleanedTransactions, data: bytes, header: BatchHeader
    ) -> tuple[bool, AbortedTransaction | None]:
        """Take a control batch; see `CleanedTransactions.end`. One that ends no transaction stays."""
        marker = read_marker(data, header)
        return (True, None) if marker is None else transactions.end(header, marker)

    def _filter_marker(
        self, header: BatchHeader, data: bytes, records: list[Record]
    ) -> bytes | bytearray | None:
        """Return a marker of which no records are left; None once it has been so for delete.retention.ms."""
        horizon = header.delete_horizon
        if horizon is None:
            horizon = self._now_ms + self._log.config.delete_retention_ms
            return rebuild_batch(header, records, delete_horizon=horizon)
        # The last marker of a producer that has no batches left has its epoch.
        needed = self._log.producers.marked_epochs().get(header.producer_id) == header.producer_epoch
        return None if horizon <= self._now_ms and not needed else data

    def _filter(
        self, header: BatchHeader, data: bytes, records: list[Record], keep: set[int]
    ) -> bytes | bytearray | None:
        """Return what stays of a batch; None if nothing does."""
        newest, horizon = self._newest, header.delete_horizon
        tombstones_over = horizon is not None and horizon <= self._now_ms
        staying = [
            record
            for record in records
            if record.key is not None
            and newest.get(fingerprint(record.key), -1) <= record.offset
            and not (record.value is None and tombstones_over)
        ]
        if not staying:
            # A batch without records stays if it has the last sequence of its producer.
            return rebuild_batch(header, []) if header.last_offset in keep else None
        if horizon is None and any(record.value is None for record in staying):
            horizon = self._now_ms + self._log.config.delete_retention_ms
            return rebuild_batch(header, staying, delete_horizon=horizon)
        return data if len(staying) == header.record_count else rebuild_batch(header, staying)


class _Output:
    """The segment that compaction writes: its file under other names until it counts, its indexes in memory."""

    def __init__(self, log: Log, base_offset: int, companions: Sequence[Companion]) -> None:
        self._companions = companions
        self._stem = file_stem(log.directory, base_offset) + LOG_SUFFIX
        fd = files.open_file(self._stem + CLEANED_SUFFIX, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.file = files.OpenFile(fd, writable=True)
        self.segment = log.new_segment(base_offset)
        self.segment.forget(0)
        self._buffer = bytearray()

    def add(self, batch: bytes | bytearray) -> None:
        """Append a batch. Raises OSError."""
        segment = self.segment
        header = read_header(batch)
        size = header.batch_length + LENGTH_OVERHEAD
        if segment.size + size > INT32_MAX:
            raise OSError(errno.EFBIG, "the compacted segment is too large")
        segment.note(segment.size, header.last_offset, size, header.max_timestamp)
        segment.size += size
        self._buffer += batch
        if len(self._buffer) >= WRITE_SIZE:
            self.write()

    def write(self) -> None:
        """Write what waits. Raises OSError."""
        view = memoryview(bytes(self._buffer))
        while view:
            view = view[files.write(self.file.fd, view) :]
        self._buffer.clear()

    def finish(self) -> None:
        """Write all that is left: the file is whole. Raises OSError."""
        self.write()
        for companion in self._companions:
            companion.finish(self.segment.size)

    def commit(self, modified: float) -> None:
        """From here on the file counts, after a crash too. It is as old as the youngest that it replaces."""
        files.set_modified(self._stem + CLEANED_SUFFIX, modified)
        files.rename(self._stem + CLEANED_SUFFIX, self._stem + SWAP_SUFFIX)

    def discard(self) -> None:
        """Remove the file, under either of its names; the old segments are all there."""
        for companion in self._companions:
            companion.discard()
        with contextlib.suppress(OSError):
            files.remove_if_present(self._stem + SWAP_SUFFIX)
            files.remove_if_present(self._stem + CLEANED_SUFFIX)


def fingerprint(key: bytes) -> bytes:
    """Return what the map has for a key: a short key itself, or a hash for which no collision can be made."""
    if len(key) < FINGERPRINT_SIZE:
        return key
    return hashlib.blake2b(key, digest_size=FINGERPRINT_SIZE).digest()


def _groups(log: Log, end_offset: int) -> list[list[Segment]]:
    """Return the sealed segments below `end_offset`, side by side as many as one segment may hold."""
    groups: list[list[Segment]] = []
    size = 0
    for segment, end in log.segments.after(-1):
        if segment.base_offset >= end_offset:
            break
        fits = groups and size + segment.size <= log.config.segment_bytes
        if fits and end - groups[-1][0].base_offset <= INT32_MAX:
            groups[-1].append(segment)
            size += segment.size
        else:
            groups.append([segment])
            size = segment.size
    return groups
