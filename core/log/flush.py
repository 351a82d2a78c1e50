"""What a log has to fsync: collected on the event loop, done in a thread.

The thread gets descriptors and paths, never the log. A failed fsync is not retried: the kernel may have dropped the
pages that it could not write, and would then report success.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Protocol

from core.log import files
from core.log.files import OpenFile
from core.log.segment import Segment


class Chore(Protocol):
    """Something that blocks, to be run in a thread."""

    def run(self) -> None:
        """Do it. Blocks; raises OSError."""
        ...


class FlushTask:
    """One fsync of a log: everything below `end_offset` is on the disk when `run` returns.

    Many callers share it: it serves every append below `end_offset`.
    """

    __slots__ = ("_files", "_paths", "end_offset", "names", "source")

    def __init__(
        self,
        open_files: Sequence[OpenFile],
        paths: Sequence[str],
        end_offset: int = 0,
        names: int = 0,
        source: Unflushed | None = None,
    ) -> None:
        self._files = tuple(open_files)
        # Small files first, then the directories that name them.
        self._paths = tuple(paths)
        self.end_offset = end_offset
        # How many new names the log had when the task was made; the log's own count.
        self.names = names
        # What the log had to flush when the task was made. A truncation replaces it by another object.
        self.source = source

    def begin(self) -> None:
        """Let the kernel begin to write the files, so that those of several logs are written together."""
        for file in self._files:
            files.begin_sync(file.fd)

    def run(self) -> None:
        """fsync the files, then the directories that name them. Blocks; raises OSError."""
        for file in self._files:
            files.sync(file.fd)
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):  # an index that could not be written to a full disk
                files.sync_path(path)


class Unflushed:
    """What of a log is not on the disk yet: records, sealed segments, names of files."""

    __slots__ = ("_names", "_names_flushed", "_segments", "offset", "records", "since")

    def __init__(self, offset: int) -> None:
        # Everything below is on the disk.
        self.offset = offset
        # Records appended since, and when the first of them was, in monotonic seconds; None if there is none.
        self.records = 0
        self.since: float | None = None
        # Sealed segments, each with the offset at which it ends.
        self._segments: list[tuple[Segment, int]] = []
        # New names in the directory so far, and those of them that are known to be on the disk.
        self._names = 1
        self._names_flushed = 0

    def __bool__(self) -> bool:
        return self.since is not None or bool(self._segments)

    @property
    def segments(self) -> list[Segment]:
        """Sealed segments that are not fsynced."""
        return [segment for segment, _ in self._segments]

    def add_segment(self, segment: Segment, end_offset: int) -> None:
        """A segment was sealed at `end_offset`."""
        self._segments.append((segment, end_offset))

    def add_name(self) -> None:
        """A file was created or replaced."""
        self._names += 1

    def drop(self, segments: Iterable[Segment]) -> None:
        """These segments are no longer part of the log."""
        gone = set(segments)
        self._segments = [item for item in self._segments if item[0] not in gone]

    def task(self, active: Segment, end_offset: int, paths: Sequence[str]) -> FlushTask:
        """Return the fsync that makes everything up to `end_offset` durable. `paths` hold the names. Raises OSError.

        It includes the indexes of sealed segments, because recovery does not check all their entries.
        """
        sealed = self.segments
        handles = [segment.log.reading() for segment in [*sealed, active] if segment.size]
        indexes = [path for segment in sealed for path in (segment.times.path, segment.offsets.path)]
        names = paths if self._names > self._names_flushed else ()
        return FlushTask(handles, [*indexes, *names], end_offset, self._names, self)

    def done(self, task: FlushTask, end_offset: int, now: float) -> None:
        """Note that the task has succeeded; the log ends at `end_offset` by now.

        A task that was made before a truncation is ignored: its records may have been truncated since.
        """
        if task.source is not self:
            return
        end = min(task.end_offset, end_offset)
        self.offset = max(self.offset, end)
        self._names_flushed = max(self._names_flushed, task.names)
        self._segments = [(segment, last) for segment, last in self._segments if last > end]
        self.records = end_offset - self.offset
        self.since = now if self.records else None
