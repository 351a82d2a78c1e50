"""Open a log: put the files of the last process in order, and check what may be damaged.

After a clean shutdown the batches are trusted, and only the end of the last segment is checked. After a crash
everything from the recovery point on is read batch by batch: magic, length, offset, leader epoch, CRC. The log ends
at the first incomplete batch. What follows was never acknowledged as durable.

Below the recovery point the log was fsynced, so damage there is an error of the disk. It is reported, and the log is
not truncated: readers of the damaged place get CORRUPT_MESSAGE. If the end itself is lost, the log continues at the
recovery point, so that no offset is used a second time.

Opening needs no free space on the disk: what cannot be written is kept in memory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from dataclasses import dataclass, field

from core.errors import BrokerError
from core.log import files
from core.log.aborted import TRANSACTION_INDEX_SUFFIX, AbortedTransactions
from core.log.checkpoint import LEADER_EPOCHS
from core.log.epochs import UNKNOWN, LeaderEpochs
from core.log.log import Log
from core.log.producer_state import INT64_MAX, Snapshots, replay_producers
from core.log.scan import SCAN_WINDOW, EpochCheck, Scan, scan
from core.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Reached,
    Segment,
)
from core.log.shared import LogShared
from core.topic_config import TopicConfig
from core.types import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LastKnown:
    """The values of a log in the checkpoints. All may be too low, none is ever too high."""

    # The offset below which the log is on the disk; None if it is not known.
    recovery_point: int | None = None
    log_start_offset: int = 0
    # The offset below which compaction may have left holes; None if it is not known.
    compacted_until: int | None = 0
    # Whether the broker was shut down cleanly, so that the end of the log needs no check.
    clean: bool = False


@dataclass(slots=True)
class _Directory:
    """The files of a partition by kind, each by its base offset."""

    logs: dict[int, int] = field(default_factory=dict)
    swaps: dict[int, int] = field(default_factory=dict)
    indexes: dict[str, int] = field(default_factory=dict)
    sidecar_swaps: dict[str, int] = field(default_factory=dict)
    snapshots: list[int] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)


def open_log(
    shared: LogShared[Log],
    tp: TopicPartition,
    topic_id: uuid.UUID,
    config: TopicConfig,
    directory: str,
    known: LastKnown,
) -> Log:
    """Open the log in `directory`, which may be missing or empty. Raises OSError if it cannot be read."""
    return _Opening(shared, tp, config, directory, known).open(topic_id)


class _Opening:
    """One log being opened."""

    def __init__(
        self,
        shared: LogShared[Log],
        tp: TopicPartition,
        config: TopicConfig,
        directory: str,
        known: LastKnown,
    ) -> None:
        self._shared = shared
        self._tp = tp
        self._config = config
        self._directory = directory
        self._known = known
        self._epochs = LeaderEpochs(f"{directory}/{LEADER_EPOCHS}")
        self._segments: list[Segment] = []
        self._end = 0
        self._damage: str | None = None
        # Whether the last segment accepts no appends: it was sealed, or is damaged.
        self._needs_segment = False
        # The offset below which what lies beside the batches was fsynced with them.
        self._trusted_until = INT64_MAX

    def open(self, topic_id: uuid.UUID) -> Log:
        """Do all steps in their order; return the log."""
        found = _list_directory(self._directory, self._shared.sidecar_suffixes)
        _tidy(found)
        for base in sorted(found.swaps):
            self._finish_swap(base, found)
        self._segments = [self._segment(base, size) for base, size in sorted(found.logs.items())]
        self._find_end()
        start = self._find_start()
        self._keep_offsets_unused(start)
        snapshots = Snapshots(self._directory, found.snapshots)
        snapshots.truncate_to(self._end)
        aborted = self._aborted(found)
        producers = replay_producers(
            self._tp,
            self._segments,
            snapshots,
            self._end,
            limit=self._shared.config.max_producers_per_partition,
            now_ms=int(self._shared.clock.monotonic() * 1000),
            aborted=aborted,
            aborted_from=self._trusted_until,
        )
        return Log(
            self._shared,
            self._tp,
            topic_id,
            self._config,
            self._directory,
            segments=self._segments,
            log_start_offset=start,
            log_end_offset=self._end,
            flushed_offset=self._flushed(),
            epochs=self._epochs,
            producers=producers,
            snapshots=snapshots,
            aborted=aborted,
            damage=self._damage,
        )

    def _aborted(self, found: _Directory) -> AbortedTransactions:
        """Return the aborted transactions of the segments, without the entries that a crash may have left or torn."""
        bases = {segment.base_offset for segment in self._segments}
        kept = [
            base
            for path, base in found.indexes.items()
            if path.endswith(TRANSACTION_INDEX_SUFFIX) and base in bases
        ]
        aborted = AbortedTransactions(self._directory, kept)
        aborted.truncate_to(min(self._trusted_until, self._end))
        return aborted

    def _flushed(self) -> int:
        if self._known.clean and self._known.recovery_point is None:
            return self._end
        return min(self._known.recovery_point or 0, self._end)

    def _segment(self, base_offset: int, size: int = 0) -> Segment:
        return Segment(
            self._shared.pool,
            self._directory,
            base_offset,
            interval=self._config.index_interval_bytes,
            created_ms=self._shared.clock.wall_ms(),
            size=size,
            index_bytes=self._config.segment_index_bytes,
            jitter_ms=self._shared.jitter_ms(self._config),
        )

    def _finish_swap(self, base: int, found: _Directory) -> None:
        """Replace the old segments by the compacted one that was made of them: step 4 of `core.log.cleaner`.

        Old segments after its last offset have only superseded records; they may stay. Raises OSError.
        """
        compacted = self._segment(base, found.swaps[base])
        path = compacted.log.path
        compacted.log.path = path + SWAP_SUFFIX
        end = base + 1
        try:
            for _, header in compacted.walk():
                end = header.next_offset
        except BrokerError:
            self._report(f"the compacted segment {base} is torn and was not taken")
            if base in found.logs:
                files.unlink(path + SWAP_SUFFIX)
                for sidecar in self._shared.sidecars(compacted):
                    files.remove_if_present(sidecar + SWAP_SUFFIX)
                return
        compacted.close()
        logger.warning("%s: the compaction of the segment %d is completed", self._tp, base)
        for old in [old for old in found.logs if base <= old < end]:
            segment = self._segment(old)
            for stale in [*segment.paths(), *(self._shared.sidecars(segment) if old != base else ())]:
                if stale != path:
                    files.remove_if_present(stale)
            del found.logs[old]
        for sidecar in self._shared.sidecars(compacted):
            with contextlib.suppress(FileNotFoundError):
                files.rename(sidecar + SWAP_SUFFIX, sidecar)
        files.rename(path + SWAP_SUFFIX, path)
        found.logs[base] = found.swaps[base]

    # --- the end of the log --------------------------------------------------------------------------------

    def _find_end(self) -> None:
        epochs_known = self._epochs.load()
        if not self._segments:
            # Left of a truncation at the log start offset: nothing was written in any of these epochs.
            self._epochs.truncate_to(0)
            return
        if not (self._known.clean and self._end_is_whole()):
            self._trusted_until = self._known.recovery_point or 0
            epochs_known = self._recover(epochs_known)
        if not epochs_known:
            self._find_epochs()
        self._epochs.truncate_to(self._end)

    def _end_is_whole(self) -> bool:
        """Take the end from the last segment's last batch. False if it does not end after a batch."""
        active = self._segments[-1]
        try:
            active.load()
            self._end = active.base_offset
            position = active.last_anchor()
            for _, header in active.walk(position):
                self._end = header.next_offset
            if active.damaged:
                return False
        except BrokerError:
            logger.error("%s does not end with a whole batch after a clean shutdown", self._tp)
            return False
        point = self._known.recovery_point
        return point is None or self._end >= point

    def _recover(self, epochs_known: bool) -> bool:
        """Check everything from the recovery point on; truncate the log after the last whole batch.

        Return whether the leader epochs are known. They are not if the batches contradict the file.
        """
        point = self._known.recovery_point or 0
        first = next((i for i, s in enumerate(self._segments) if s.base_offset > point), len(self._segments))
        first = max(first - 1, 0)
        position, offset = self._resume_at(self._segments[first], point)
        epochs = EpochCheck(self._epochs if epochs_known else None, self._epoch_before(first, position))
        for i in range(first, len(self._segments)):
            segment = self._segments[i]
            if i > first:
                position, offset = 0, segment.base_offset
                segment.forget(0)
            last = i == len(self._segments) - 1
            result = scan(
                segment,
                position,
                offset,
                limit=None if last else self._segments[i + 1].base_offset,
                dense=self._is_dense(segment, last),
                epochs=epochs,
            )
            self._end = result.next_offset
            _write_again(segment, position, result.position)
            if result.reason is not None:
                self._cut(i, result)
                break
            segment.mark_loaded()
            if not last:
                segment.seal()
        if epochs.doubtful:
            logger.warning(
                "%s: the leader epochs do not fit the log and are read from its batches again", self._tp
            )
        return epochs_known and not epochs.doubtful

    def _epoch_before(self, index: int, position: int) -> int:
        """Return the epoch before a position in segment `index`, by the first batch there or in the one before."""
        if not position and not index:
            return UNKNOWN
        try:
            return self._segments[index if position else index - 1].first_batch(0).leader_epoch
        except BrokerError:
            return UNKNOWN

    def _is_dense(self, segment: Segment, last: bool) -> bool:
        """Return whether a missing offset in a segment must be a loss.

        Compaction never changes the last segment. The others may have holes. If one is kept although a power loss has
        torn it, offsets are lost. If it were truncated after a mere compaction, records would be lost.
        """
        until = self._known.compacted_until
        in_doubt = not last and (until is None or self._config.compacted)
        return not in_doubt and segment.base_offset >= (until or 0)

    def _resume_at(self, segment: Segment, point: int) -> Reached:
        """Return where the batch of the recovery point begins, and which offset is expected there."""
        if point <= segment.base_offset:
            segment.forget(0)
            return Reached(0, segment.base_offset)
        reached = segment.load_until(point)
        if segment.damaged:
            self._report(f"batches of the segment {segment.base_offset} below {point} cannot be read")
            # Batches that are appended after unreadable bytes would be hard to find.
            self._needs_segment = segment is self._segments[-1]
        return reached

    def _cut(self, index: int, result: Scan) -> None:
        """Let the log end within segment `index`, and remove the later segments."""
        segment = self._segments[index]
        lost = segment.size - result.position + sum(s.size for s in self._segments[index + 1 :])
        logger.warning(
            "%s: the log ends at offset %d; the %d bytes after it are not whole batches and are truncated: %s",
            self._tp, result.next_offset, lost, result.reason,
        )  # fmt: skip
        self._needs_segment = self._needs_segment or index < len(self._segments) - 1
        self._drop(index + 1)
        segment.size = result.position
        segment.cut_back()
        segment.mark_loaded()
        if segment.indexed_end > result.next_offset:
            segment.rebuild_indexes("it was truncated before a batch that had been accepted")

    def _find_epochs(self) -> None:
        """Find the leader epochs in the batches: only segments in which the epoch changes are walked."""
        entries: list[tuple[int, int]] = []
        with contextlib.suppress(BrokerError):
            full = [segment for segment in self._segments if segment.size]
            for i, segment in enumerate(full):
                latest = entries[-1][0] if entries else -1
                after = full[i + 1].first_batch(0).leader_epoch if i + 1 < len(full) else None
                if after == latest:
                    continue
                for _, header in segment.walk():
                    if header.leader_epoch > latest:
                        latest = header.leader_epoch
                        entries.append((latest, header.base_offset))
        if entries:
            self._epochs.replace(entries)

    def _drop(self, index: int) -> None:
        """Remove the segments from `index` on, the last one first, so that a crash leaves no gap."""
        for segment in reversed(self._segments[index:]):
            segment.close()
            for path in [*self._shared.sidecars(segment), *segment.paths()]:
                files.remove_if_present(path)
        del self._segments[index:]

    # --- the start of the log, and offsets that must not be used again -------------------------------------

    def _find_start(self) -> int:
        start = self._known.log_start_offset
        return max(start, self._segments[0].base_offset) if self._segments else start

    def _keep_offsets_unused(self, start: int) -> None:
        """Make sure that the log continues above every offset that was durable."""
        point = self._known.recovery_point or 0
        if max(self._end, start) < point:
            self._report(f"it ends at {self._end}, but was flushed up to {point}; these records are lost")
        floor = max(point, start, self._end)
        if self._segments and self._end == floor and not self._needs_segment:
            return
        if start > self._end:
            # All records are below the start of the log.
            self._drop(0)
        self._end = floor
        if self._segments:
            last = self._segments[-1]
            last.mark_loaded()
            last.seal()
            if last.size == 0 and last.base_offset != floor:
                self._drop(len(self._segments) - 1)
            elif last.base_offset == floor:
                return
        segment = self._segment(floor)
        self._segments.append(segment)
        if len(self._segments) > 1:
            # fsynced at once, or the next start would take the segment before it for the active one.
            with contextlib.suppress(OSError):
                segment.log.appending()

    def _report(self, what: str) -> None:
        self._damage = what
        logger.error("%s is damaged: %s", self._tp, what)


def _write_again(segment: Segment, position: int, end: int) -> None:
    """Write the same bytes again, so that the next fsync really writes them to the disk.

    If the last process died after a failed fsync, the kernel may hold unwritten pages that it believes to be clean.
    An fsync would then succeed without writing them. If the pages are dirty anyway, this costs nothing.
    """
    try:
        if position < end:
            segment.log.release()  # a descriptor for appending would append
            fd = segment.log.updating().fd
            while position < end:
                data = os.pread(fd, min(SCAN_WINDOW, end - position), position)
                position += files.pwrite(fd, data, position)
    except OSError as error:
        logger.warning("%s cannot be written: %s", segment.log.path, error)
    segment.log.release()


def _list_directory(directory: str, sidecar_suffixes: tuple[str, ...]) -> _Directory:
    """Sort the files of a partition's directory; no files if it is missing. Raises OSError."""
    found = _Directory()
    try:
        entries = os.scandir(directory)
    except FileNotFoundError:
        return found
    with entries:
        for entry in entries:
            _classify(entry, found, sidecar_suffixes)
    return found


def _classify(entry: os.DirEntry[str], found: _Directory, sidecar_suffixes: tuple[str, ...]) -> None:
    stem, suffix = entry.name[:20], entry.name[20:]
    base = int(stem) if stem.isascii() and stem.isdigit() and len(stem) == 20 else None
    if suffix.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)) or entry.name.endswith(".tmp"):
        found.leftovers.append(entry.path)
    elif base is None:
        return
    elif suffix == LOG_SUFFIX:
        found.logs[base] = entry.stat().st_size
    elif suffix == LOG_SUFFIX + SWAP_SUFFIX:
        found.swaps[base] = entry.stat().st_size
    elif suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, *sidecar_suffixes):
        found.indexes[entry.path] = base
    elif suffix.startswith(sidecar_suffixes) and suffix.endswith(SWAP_SUFFIX):
        found.sidecar_swaps[entry.path] = base
    elif suffix == SNAPSHOT_SUFFIX:
        found.snapshots.append(base)


def _tidy(found: _Directory) -> None:
    """Remove the incomplete files of a crash. A file that cannot be removed stays for the next start."""
    with contextlib.suppress(OSError):
        for path in found.leftovers:
            files.remove_if_present(path)
        for path, base in found.indexes.items():
            if base not in found.logs:
                files.remove_if_present(path)
        for path, base in found.sidecar_swaps.items():
            if base not in found.swaps:
                files.remove_if_present(path)
