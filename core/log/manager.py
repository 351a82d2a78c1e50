"""All logs of a broker: opened when they are first asked for, flushed, cleaned, deleted, and closed in order.

    <data directory>/
      <topic>-<partition>/                  one log
      <topic>-<partition>.<hex>-delete/     a log that is deleted a little later
      <topic>-<partition>.<hex>-stray/      a log of no known topic; the operator decides
      recovery-point-offset-checkpoint      the offset below which each log is on the disk
      log-start-offset-checkpoint           where each log starts, if DeleteRecords moved it
      cleaner-offset-checkpoint             the offset below which each log is compacted
      .kafka_cleanshutdown                  there only after a clean shutdown

The topic metadata decides which partitions exist, not the directories. `load` takes the list of partitions, and the
list of deleted topics whose files may be left. Any other directory is renamed and kept, because the metadata may be
an old copy, or that of another directory. After a clean shutdown `load` opens no log.

Blocking work (fsync, removal of large files) is returned as a task; call its `run` in a thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from core.clock import Clock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.log import files
from core.log.background import Background
from core.log.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_TEXT,
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    encode_partition_metadata,
    read_offsets,
    read_topic_id,
)
from core.log.checkpoint_task import CheckpointFiles, CheckpointTask
from core.log.directories import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    holds_records,
    is_ours,
    partition_of,
    set_aside,
)
from core.log.entry import LogEntry
from core.log.events import LogSubscriber
from core.log.files import FilePool
from core.log.flush import Chore
from core.log.log import Log
from core.log.recovery import LastKnown, open_log
from core.log.segment import LOG_SUFFIX
from core.log.shared import LogShared
from core.topic_config import TopicConfig
from core.types import TopicPartition

logger = logging.getLogger(__name__)


# Logs whose indexes and producer states one checkpoint writes, on the event loop, 0.1 ms each. The next checkpoint
# writes the others. A crash before that costs them only a longer read of headers.
LOGS_PER_CHECKPOINT = 100
# With more unflushed logs the system first writes all of them in the disk's own order. 10,000 fsyncs one by one take
# 16 s, and a tenth of that if little is left for each.
MANY_LOGS = 32


class SizeTask:
    """Looks up how large some logs are that are not open: `run` in a thread, then `sizes` has the bytes."""

    def __init__(self, directories: Sequence[tuple[TopicPartition, str]]) -> None:
        self._directories = directories
        self.sizes: dict[TopicPartition, int] = {}

    def run(self) -> None:
        """Add up the segments of each log; a directory that is missing counts as empty."""
        for tp, directory in self._directories:
            try:
                with os.scandir(directory) as found:
                    self.sizes[tp] = sum(e.stat().st_size for e in found if e.name.endswith(LOG_SUFFIX))
            except OSError:
                self.sizes[tp] = 0


class LogManager:
    """The logs of one data directory. Everything but the tasks it hands out runs on the event loop."""

    def __init__(self, data_dir: Path, config: Config, clock: Clock) -> None:
        self._root = os.fspath(data_dir)
        self._config = config
        self._clock = clock
        self._shared: LogShared[Log] = LogShared(config, clock)
        self._files = CheckpointFiles(self._root)
        self._entries: dict[TopicPartition, LogEntry] = {}
        self._background = Background(self._shared, self._entries, self._open)
        # Whether the checkpoints tell where compaction may have left holes.
        self._holes_known = True
        # Whether the last shutdown was clean, so that logs need no check when they are opened.
        self._clean = False
        # Partitions whose logs could not be opened at the start, so that their ends are unknown.
        self._unreadable: set[TopicPartition] = set()
        # The newest leader epoch in any log that was opened, −1 if there is none.
        self.newest_epoch = -1
        # Called for each log with an open transaction, when it is opened.
        self._found_open: Callable[[TopicPartition, Log], None] | None = None
        # Topics that were deleted and whose directories may not be out of the way.
        self._deleted: set[uuid.UUID] = set()

    def subscribe(self, subscriber: LogSubscriber) -> None:
        """Report the events of all logs to a subscriber (`core.log.events`). Call it before `load`."""
        self._shared.subscribe(subscriber)

    def watch_open_transactions(self, found: Callable[[TopicPartition, Log], None]) -> None:
        """Call `found` with each log that is opened from now on and in which a transaction is open."""
        self._found_open = found

    # --- start ---------------------------------------------------------------------------------------------

    def load(
        self,
        entries: Iterable[tuple[TopicPartition, uuid.UUID, TopicConfig]],
        deleted: Iterable[uuid.UUID] = (),
    ) -> None:
        """Take the partitions that exist. After a crash all their logs are checked now, else nothing is opened.

        `deleted` are topics of which directories may be left, and which are removed now.
        Raises OSError if the data directory cannot be read. A log that cannot be opened does not stop the
        start: it answers KAFKA_STORAGE_ERROR.
        """
        with contextlib.suppress(FileExistsError):
            files.make_directory(self._root)
        self._deleted = set(deleted)
        self._clean = files.read_whole(f"{self._root}/{CLEAN_SHUTDOWN}") is not None
        if self._clean:
            files.unlink(f"{self._root}/{CLEAN_SHUTDOWN}")
            files.sync_path(self._root)
        points = self._read_checkpoint(RECOVERY_POINTS) or {}
        starts = self._read_checkpoint(LOG_START_OFFSETS) or {}
        cleaned = self._read_checkpoint(CLEANER_OFFSETS)
        for tp, topic_id, config in entries:
            cleaned_offset = (cleaned or {}).get(tp, 0)
            self._entries[tp] = LogEntry(topic_id, config, points.get(tp), starts.get(tp, 0), cleaned_offset)
        self._holes_known = cleaned is not None or not self._entries
        if cleaned is None and not self._entries:
            # Written once, at the first start, so that later a missing file means a lost one.
            with contextlib.suppress(OSError):
                self.begin_checkpoint().run()
        present = self._sort_directories()
        if not self._clean:
            for tp in present:
                self._check(tp)

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int] | None:
        path = f"{self._root}/{name}"
        offsets = read_offsets(path)
        if offsets is None and (self._clean or files.read_whole(path) is not None):
            logger.warning("%s is missing or torn; more of the logs is read instead", path)
        return offsets

    def _sort_directories(self) -> list[TopicPartition]:
        """Return the partitions that have a directory. Rename the directories of deleted topics for removal."""
        present = []
        now = self._clock.monotonic()
        with os.scandir(self._root) as directory:
            found = [(entry.name, entry.path) for entry in directory if entry.is_dir(follow_symlinks=False)]
        for name, path in found:
            if name.endswith(DELETE_SUFFIX):
                self._shared.trash.add(path, now)
                continue
            tp = partition_of(name)
            if tp is None:
                continue
            if tp in self._entries:
                present.append(tp)
            elif is_ours(path):
                self._clear(name, "belongs to no topic that exists")
        return present

    def with_records(self) -> list[str]:
        """Return the names of partitions whose directories hold records, also those of no known topic."""
        try:
            with os.scandir(self._root) as directory:
                found = [(e.name, e.path) for e in directory if e.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return sorted(
            name for name, path in found if partition_of(name) and is_ours(path) and holds_records(path)
        )

    def _check(self, tp: TopicPartition) -> None:
        """Open a log after a crash, which checks it; keep it open only if it has something to be flushed."""
        entry = self._entries[tp]
        try:
            log = self._open(tp, entry)
        except BrokerError:
            self._unreadable.add(tp)
            return
        flushed = log.flushed_offset >= log.offsets.log_end_offset
        # What is open in a log is asked for right after the start.
        if flushed and not log.damage and log.producers.first_unstable is None:
            self._unload(entry)

    def recovered_ends(self) -> dict[TopicPartition, int]:
        """Return where each log ends, right after a `load` that found no clean shutdown; empty after a clean one.

        Between the last fsync and the end of the last run a log may have been longer. A log that could not be
        opened is left out.
        """
        if self._clean:
            return {}
        known = ((tp, self.known(tp)) for tp in self._entries if tp not in self._unreadable)
        return {tp: max(bounds[0], bounds[1]) for tp, bounds in known if bounds is not None}

    # --- logs ----------------------------------------------------------------------------------------------

    def get(self, tp: TopicPartition) -> Log:
        """Return the log of a partition; open it first if needed.

        Raises UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR.
        """
        entry = self._entries.get(tp)
        if entry is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {tp}.")
        return entry.log or self._open(tp, entry)

    @property
    def producer_id_expiration_ms(self) -> int:
        """How long logs remember a producer that does not write; may be changed at any time."""
        return self._shared.producer_id_expiration_ms

    @producer_id_expiration_ms.setter
    def producer_id_expiration_ms(self, value: int) -> None:
        self._shared.producer_id_expiration_ms = value

    @property
    def pool(self) -> FilePool:
        """The open files of all logs, within one limit; a subscriber's files count too."""
        return self._shared.pool

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def opened(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield the logs that are open."""
        for tp, entry in self._entries.items():
            if entry.log is not None:
                yield tp, entry.log

    @property
    def open_count(self) -> int:
        """Logs that are open."""
        return sum(entry.log is not None for entry in self._entries.values())

    def known(self, tp: TopicPartition) -> tuple[int, int, int] | None:
        """Return log start offset, log end offset and bytes, without opening the log; None for an unknown partition.

        A log that is not open has its last known offsets, and 0 bytes until `begin_sizes` has found its size.
        """
        entry = self._entries.get(tp)
        if entry is None:
            return None
        log = entry.log
        if log is not None:
            start, end, _, _ = log.offsets
            return start, end, log.size
        return entry.log_start_offset, entry.recovery_point or 0, entry.closed_size or 0

    def stable_end(self, tp: TopicPartition) -> int | None:
        """Return the last stable offset, without opening the log; None for an unknown partition.

        A log that is not open has its last known end. A transaction may be open in it.
        """
        entry = self._entries.get(tp)
        if entry is None:
            return None
        return entry.recovery_point or 0 if entry.log is None else entry.log.last_stable_offset

    def begin_sizes(self) -> SizeTask | None:
        """Return the task that looks up logs that are not open and whose size is unknown; None if there are none."""
        unknown = [
            (tp, self._path(tp)) for tp, e in self._entries.items() if e.log is None and e.closed_size is None
        ]
        return SizeTask(unknown) if unknown else None

    def finish_sizes(self, task: SizeTask) -> None:
        """Keep what the task has found, where the log was not opened meanwhile."""
        for tp, size in task.sizes.items():
            entry = self._entries.get(tp)
            if entry is not None and entry.closed_size is None:
                entry.closed_size = size

    def create(self, tp: TopicPartition, topic_id: uuid.UUID, config: TopicConfig) -> None:
        """A new, empty partition. Its files are made by the first append. Raises KAFKA_STORAGE_ERROR.

        Its directory is recognized by `topic_id`: one that is left of a former topic of that name is not used.
        """
        path = self._path(tp)
        try:
            try:
                files.make_directory(path)
            except FileExistsError:
                self._clear(str(tp), "is in the way of a new topic")
                files.make_directory(path)
            files.write_whole(
                f"{path}/{PARTITION_METADATA}", encode_partition_metadata(topic_id), durable=False
            )
        except OSError as error:
            raise _storage_error(f"The directory of {tp} cannot be made", error) from error
        self._entries[tp] = LogEntry(topic_id, config, 0, 0, 0)

    def update_config(self, topic: str, config: TopicConfig) -> None:
        """Give all partitions of a topic another config. It takes effect at the next append or check."""
        self.update_configs({topic: config})

    def update_configs(self, configs: Mapping[str, TopicConfig]) -> None:
        """Give all partitions of some topics another config, in one pass over all partitions."""
        for tp, entry in self._entries.items():
            config = configs.get(tp.topic)
            if config is not None:
                entry.set_config(config)

    def delete(self, topic: str) -> None:
        """Delete all partitions of a topic at once; their files are removed a little later.

        Readers that hold a FileSlice can still read it. Call it after the topic is deleted from the metadata.
        """
        gone = [tp for tp in self._entries if tp.topic == topic]
        for tp in gone:
            entry = self._entries.pop(tp)
            self._background.forget(entry)
            if entry.log is not None:
                entry.log.abandon()
            if not self._discard(str(tp), entry.config.file_delete_delay_ms / 1000):
                self._deleted.add(entry.topic_id)
        if gone:
            # A topic of the same name must not inherit the offsets of this one.
            with contextlib.suppress(OSError):
                self.begin_checkpoint().run(durable=False)

    def _clear(self, name: str, why: str) -> None:
        """Remove a directory of no topic if its topic was deleted or it has no records; else keep it."""
        path = f"{self._root}/{name}"
        if read_topic_id(f"{path}/{PARTITION_METADATA}") in self._deleted or not holds_records(path):
            logger.warning("%s %s and is removed", path, why)
            self._discard(name)
            return
        kept = set_aside(name, self._clock.uuid4().hex, STRAY_SUFFIX)
        try:
            files.rename(path, f"{self._root}/{kept}")
        except OSError as error:
            logger.error("%s %s, and cannot be renamed: %s", path, why, error)
        else:
            logger.warning("%s %s; as its topic was not deleted, its records are kept in %s", path, why, kept)

    def _discard(self, name: str, delay_seconds: float | None = None) -> bool:
        """Move a partition's directory out of the way, and out of the data directory a little later."""
        target = f"{self._root}/{set_aside(name, self._clock.uuid4().hex, DELETE_SUFFIX)}"
        try:
            files.rename(f"{self._root}/{name}", target)
        except FileNotFoundError:
            return True
        except OSError as error:
            logger.error("%s cannot be removed: %s", name, error)
            return False
        self._shared.trash.add(target, self._clock.monotonic(), delay_seconds)
        return True

    def _path(self, tp: TopicPartition) -> str:
        return f"{self._root}/{tp.topic}-{tp.partition}"

    def _open(self, tp: TopicPartition, entry: LogEntry) -> Log:
        path = self._path(tp)
        try:
            self._own_directory(tp, entry, path)
            known = LastKnown(
                recovery_point=entry.recovery_point,
                log_start_offset=entry.log_start_offset,
                compacted_until=entry.cleaned_offset if self._holes_known else None,
                clean=self._clean or entry.checked,
            )
            log = open_log(self._shared, tp, entry.topic_id, entry.config, path, known)
        except OSError as error:
            logger.error("%s cannot be opened: %s", tp, error)
            raise _storage_error(f"The log of {tp} cannot be opened", error) from error
        entry.log = log
        entry.checked = True
        self.newest_epoch = max(self.newest_epoch, log.leader_epoch)
        if self._found_open is not None and log.producers.first_unstable is not None:
            self._found_open(tp, log)
        return log

    def _own_directory(self, tp: TopicPartition, entry: LogEntry, path: str) -> None:
        """Make sure that the directory is there and the topic's own, not one of a former topic of that name."""
        found = read_topic_id(f"{path}/{PARTITION_METADATA}")
        if found == entry.topic_id:
            return
        if found is not None:
            self._clear(str(tp), "holds another topic of the same name")
            files.make_directory(path)
            entry.recovery_point, entry.log_start_offset, entry.cleaned_offset = 0, 0, 0
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                files.make_directory(path)
            files.write_whole(
                f"{path}/{PARTITION_METADATA}", encode_partition_metadata(entry.topic_id), durable=False
            )

    def _unload(self, entry: LogEntry) -> None:
        if entry.log is not None:
            entry.unload()

    # --- durability ----------------------------------------------------------------------------------------

    def unflushed(self) -> list[Log]:
        """Return the logs that hold something which is not fsynced, for the flusher."""
        return list(self._shared.dirty)

    def write_states(self) -> None:
        """Write index entries and producer states, of a part of the logs that were appended to.

        Call it before the flush of a checkpoint: the next start takes producer states up to the recovery point only.
        """
        touched = self._shared.touched
        for log in list(touched)[:LOGS_PER_CHECKPOINT]:
            log.checkpoint()
            del touched[log]
            if log in self._shared.dirty:
                touched[log] = None

    def begin_checkpoint(self) -> CheckpointTask:
        """Return a task that writes recovery points and start offsets. Call `run` in a thread.

        Flush the logs first, or the recovery points stay where they were.
        """
        points: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        cleaned: dict[TopicPartition, int] = {}
        for tp, entry in self._entries.items():
            entry.refresh()
            if entry.recovery_point is not None:
                points[tp] = entry.recovery_point
            if entry.log_start_offset:
                starts[tp] = entry.log_start_offset
            if entry.cleaned_offset:
                cleaned[tp] = entry.cleaned_offset
        return self._files.task(
            {RECOVERY_POINTS: points, LOG_START_OFFSETS: starts, CLEANER_OFFSETS: cleaned}
        )

    def checkpoint(self) -> None:
        """Write a checkpoint here and now. Blocks for some fsyncs; raises OSError."""
        self.write_states()
        self.begin_checkpoint().run()

    def close(self, *, settled: bool = True) -> None:
        """Flush and close all logs; leave the marker of a clean shutdown if all of that worked. Blocks.

        Not `settled`: part of the work after an unclean start is not done, so the next start has to do it.
        """
        clean = settled
        # What is opened from here on is not flushed any more.
        self._found_open = None
        self._background.close()
        unflushed = self.unflushed()
        if len(unflushed) > MANY_LOGS:
            files.sync_everything()
        for log in unflushed:
            clean &= _flush(log)
        for tp, entry in self._entries.items():
            if not self._clean and not entry.checked:
                with contextlib.suppress(BrokerError):
                    self._open(tp, entry)
                clean &= entry.checked
            if entry.log is not None:
                clean &= entry.log.failure is None
                entry.log.close()
        try:
            self.checkpoint()
            if clean:
                files.write_whole(f"{self._root}/{CLEAN_SHUTDOWN}", CLEAN_SHUTDOWN_TEXT, durable=True)
        except OSError as error:
            logger.error("The next start will check all logs: %s", error)
        if not clean:
            logger.error("Not all logs could be closed in order; the next start will check them.")

    # --- background ----------------------------------------------------------------------------------------

    def background_step(self) -> Chore | None:
        """Do a few milliseconds of retention, compaction or removal of files.

        Run the returned chore in a thread and pass it to `finish_chore`; until then further steps do nothing.
        `background_pending` is true if the next step has work at once.
        """
        return self._background.step()

    def finish_chore(self, chore: Chore, error: OSError | None) -> None:
        """Take the outcome of a chore."""
        self._background.finish(chore, error)

    @property
    def background_pending(self) -> bool:
        """Whether the next background step has something to do at once."""
        return self._background.pending


def _flush(log: Log) -> bool:
    """Flush a log here and now."""
    try:
        task = log.begin_flush()
    except BrokerError:
        return False
    if task is None:
        return True
    try:
        task.run()
    except OSError as error:
        log.finish_flush(task, error)
        return False
    log.finish_flush(task, None)
    return True


def _storage_error(what: str, error: OSError) -> BrokerError:
    return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error.strerror}.", errno=error.errno)
