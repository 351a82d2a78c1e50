"""A data directory with one log in it, and the few lines that tests of logs need all the time."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from core.clock import ManualClock
from core.config import Config
from core.log.log import Log
from core.log.recovery import LastKnown, open_log
from core.log.segment import Segment
from core.log.shared import LogShared
from core.records.batch import batches, build_batch, decode_all, read_header
from core.records.record import NewRecord, Record
from core.topic_config import TopicConfig
from core.types import AppendResult, TopicPartition

TP = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID("6f2b1a52-93a3-4b5c-9d52-0f6d4c8e1a77")
# Small enough that a few batches have several index entries.
INTERVAL = 200
MAX_BYTES = 1 << 26


def records(
    *values: bytes | str | None, key: bytes | None = None, time: int | None = None
) -> list[NewRecord]:
    """One record per value."""
    return [
        NewRecord(key=key, value=value.encode() if isinstance(value, str) else value, timestamp=time)
        for value in values
    ]


class Shelf:
    """One partition on disk under a manual clock. `open` gives its log as a start of the broker would."""

    def __init__(self, root: Path, *, interval: int = INTERVAL, **config: object) -> None:
        self.root = root
        self.directory = root / str(TP)
        self.clock = ManualClock()
        self.settings = Config()
        self.shared = self.share()
        self.config = replace(TopicConfig(index_interval_bytes=interval), **config)  # type: ignore[arg-type]
        self.directory.mkdir(parents=True, exist_ok=True)

    def share(self) -> LogShared:
        """What the logs of a new process share."""
        return LogShared(self.settings, self.clock)

    def open(
        self,
        *,
        recovery_point: int | None = None,
        clean: bool = False,
        log_start: int = 0,
        compacted: int = 0,
    ) -> Log:
        """The log, opened by a new process that knows this of it."""
        self.shared = self.share()
        known = LastKnown(recovery_point, log_start, compacted, clean)
        return open_log(self.shared, TP, TOPIC_ID, self.config, str(self.directory), known)

    def reopen_cleanly(self, log: Log) -> Log:
        """Flush and close the log, and open it after a clean shutdown."""
        flush(log)
        start, end = log.offsets.log_start_offset, log.flushed_offset
        log.close()
        return self.open(recovery_point=end, clean=True, log_start=start)

    def copy(self, target: Path) -> Self:
        """The same files at another place."""
        other = type(self)(target)
        other.config = self.config
        shutil.rmtree(other.directory)
        shutil.copytree(self.directory, other.directory)
        return other


def append(
    log: Log,
    new: Sequence[NewRecord],
    *,
    epoch: int = 0,
    now_ms: int = 1_700_000_000_000,
    **options: int,
) -> AppendResult:
    """Append one batch."""
    batch = build_batch(new, now_ms=now_ms, **options)
    return log.append(batch, [read_header(batch)], leader_epoch=epoch)


def flush(log: Log) -> None:
    """fsync a log here and now."""
    task = log.begin_flush()
    if task is not None:
        task.run()
        log.finish_flush(task, None)


def read_all(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Every record from `offset` on (the start of the log if None), by as many reads as it takes."""
    start, _, end, _ = log.offsets
    offset = start if offset is None else offset
    first = offset
    found: list[Record] = []
    while offset < end:
        read = log.read(offset, max_bytes, min_one=True)
        if read.slice is None:
            break
        data = read.slice.read()
        assert len(data) == read.slice.length
        headers = [header for _, header in batches(data)]
        found += decode_all(data, max_bytes=MAX_BYTES)
        assert headers[-1].next_offset > offset
        offset = headers[-1].next_offset
    return [record for record in found if record.offset >= first]


def values(log: Log) -> list[bytes | None]:
    """The values of all records."""
    return [record.value for record in read_all(log)]


def index_entries(segment: Segment) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """All entries of the offset index and the time index."""
    segment.load()
    return (
        [segment.offsets.entry(i) for i in range(segment.offsets.count)],
        [segment.times.entry(i) for i in range(segment.times.count)],
    )
