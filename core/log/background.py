"""Work that can wait: retention, compaction, removal of files. One small step at a time, in turns."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from typing import Protocol

from core.log import files
from core.log.context import LogContext
from core.log.entry import LogEntry
from core.log.log import Log
from core.types import TopicPartition

logger = logging.getLogger(__name__)

# Files removed in one chore: a directory of a large partition is gone in a few.
REMOVALS_PER_CHORE = 100


class Chore(Protocol):
    """Something that blocks, to be run in a thread."""

    def run(self) -> None:
        """Do it. Blocks; raises OSError."""
        ...


class Removal:
    """Files and directories to be removed. What cannot be removed stays for the next start."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def run(self) -> None:
        """Remove them."""
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                if path.endswith("-delete"):
                    with os.scandir(path) as entries:
                        inside = [entry.path for entry in entries]
                    for name in inside:
                        files.remove_if_present(name)
                    files.remove_directory(path)
                else:
                    files.remove_if_present(path)


class Background:
    """The turns of background work over all logs."""

    def __init__(
        self,
        context: LogContext,
        entries: dict[TopicPartition, LogEntry],
        open_log: Callable[[TopicPartition, LogEntry], Log],
    ) -> None:
        self._context = context
        self._entries = entries
        self._open = open_log
        self._outstanding: Chore | None = None
        self.pending = False

    def step(self) -> Chore | None:
        """One step; see `LogManager.background_step`."""
        if self._outstanding is not None:
            return None
        now = self._context.clock.monotonic()
        if paths := self._context.trash.take(now, REMOVALS_PER_CHORE):
            self._outstanding = Removal(paths)
            return self._outstanding
        return None

    def finish(self, chore: Chore, error: OSError | None) -> None:
        """A chore is done."""
        assert chore is self._outstanding
        self._outstanding = None
        if error is not None:
            logger.error("Background work failed: %s", error)

    def forget(self, entry: LogEntry) -> None:
        """The partition is deleted."""

    def busy(self) -> Iterable[LogEntry]:
        """Partitions that are being worked on."""
        return ()

    def close(self) -> None:
        """Stop where it is."""
