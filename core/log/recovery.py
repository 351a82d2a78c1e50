"""Opening a log: put in order what the last process has left, and check what cannot be trusted.

After a clean shutdown the batches are trusted, and opening looks at the end of the last segment only. After a
crash everything from the recovery point on is read batch by batch: magic, length, offset, leader epoch, CRC.
The log ends at the first batch that is not whole; what follows was never acknowledged as durable.

Below the recovery point the log was fsynced, so damage there is the disk's doing. It is reported, and never
mended by cutting: readers of the damaged place get CORRUPT_MESSAGE, and if the end itself is lost, the log goes
on at the recovery point, so that no offset is given out a second time.

Opening needs no space on the disk: what cannot be written now is kept in memory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from dataclasses import dataclass, field

from core.errors import BrokerError
from core.log import files
from core.log.checkpoint import LEADER_EPOCHS
from core.log.epochs import UNKNOWN, LeaderEpochs
from core.log.log import Log, LogShared
from core.log.producer_state import Snapshots, replay_producers
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
from core.topic_config import TopicConfig
from core.types import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LastKnown:
    """What the checkpoints say of a log; all of it may be out of date, none of it is ever ahead."""

    # Up to where the log is on the disk; None if nothing is known.
    recovery_point: int | None = None
    log_start_offset: int = 0
    # Up to where compaction may have left holes; None if that is not known.
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
    shared: LogShared,
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
        shared: LogShared,
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
        # Whether the last segment must not be appended to: it was a sealed one, or is damaged.
        self._needs_segment = False

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
        producers = replay_producers(
            self._tp,
            self._segments,
            snapshots,
            self._end,
            limit=self._shared.config.max_producers_per_partition,
            now_ms=int(self._shared.clock.monotonic() * 1000),
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
            damage=self._damage,
        )

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
        """Let a compacted segment take the place of those it was made of: step 4 of `core.log.cleaner`.

        Old segments after its last offset hold nothing that is not superseded; they may stay. Raises OSError.
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
            # What is left of a cut at the very beginning: nothing was written in any of these epochs.
            self._epochs.truncate_to(0)
            return
        if not (self._known.clean and self._end_is_whole()):
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
        """Check everything from the recovery point on; cut the log after the last whole batch.

        Whether the leader epochs are known: not if the batches contradict what was read of them.
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
        """The epoch of batches in front of a place in segment `index`, as that segment or the one before begins."""
        if not position and not index:
            return UNKNOWN
        try:
            return self._segments[index if position else index - 1].first_batch(0).leader_epoch
        except BrokerError:
            return UNKNOWN

    def _is_dense(self, segment: Segment, last: bool) -> bool:
        """Return whether no offset can be missing in a segment but by loss.

        Compaction never touches the last one. Of the others, in doubt, they may have holes: to keep one that a
        power loss has torn costs offsets, to cut where there was only compaction would cost records.
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
            # Batches that are appended after bytes which cannot be walked over would be hard to find.
            self._needs_segment = segment is self._segments[-1]
        return reached

    def _cut(self, index: int, result: Scan) -> None:
        """Let the log end within segment `index`, and remove the later segments."""
        segment = self._segments[index]
        lost = segment.size - result.position + sum(s.size for s in self._segments[index + 1 :])
        logger.warning(
            "%s: the log ends at offset %d, %d bytes behind it are not whole batches and are cut off: %s",
            self._tp, result.next_offset, lost, result.reason,
        )  # fmt: skip
        self._needs_segment = self._needs_segment or index < len(self._segments) - 1
        self._drop(index + 1)
        segment.size = result.position
        segment.cut_back()
        segment.mark_loaded()
        if segment.indexed_end > result.next_offset:
            segment.rebuild_indexes("it was cut in front of a batch that had been taken for good")

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

    # --- the start of the log, and what may not be used again ----------------------------------------------

    def _find_start(self) -> int:
        start = self._known.log_start_offset
        return max(start, self._segments[0].base_offset) if self._segments else start

    def _keep_offsets_unused(self, start: int) -> None:
        """Make sure that the log goes on above every offset that was given out durably."""
        point = self._known.recovery_point or 0
        if max(self._end, start) < point:
            self._report(f"it ends at {self._end}, but was flushed up to {point}; these records are lost")
        floor = max(point, start, self._end)
        if self._segments and self._end == floor and not self._needs_segment:
            return
        if start > self._end:
            # All that is there lies below the start of the log.
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
            # On the disk at once, so that the one before it is not taken for the active segment next time.
            with contextlib.suppress(OSError):
                segment.log.appending()

    def _report(self, what: str) -> None:
        self._damage = what
        logger.error("%s is damaged: %s", self._tp, what)


def _write_again(segment: Segment, position: int, end: int) -> None:
    """Write the bytes that are there once more, so that the next fsync really brings them to the disk.

    If the last process died after an fsync had failed, the kernel may hold pages that it never wrote and thinks
    are clean; an fsync would then promise what is not there. Costs nothing where the pages are dirty anyway.
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
    """Remove what a crash left half done. What the disk does not let go stays for the next start."""
    with contextlib.suppress(OSError):
        for path in found.leftovers:
            files.remove_if_present(path)
        for path, base in found.indexes.items():
            if base not in found.logs:
                files.remove_if_present(path)
        for path, base in found.sidecar_swaps.items():
            if base not in found.swaps:
                files.remove_if_present(path)
