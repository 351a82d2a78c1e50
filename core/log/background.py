"""Work that can wait: retention, compaction, removal of files. One small step at a time, in turns."""

from __future__ import annotations

import logging
from collections.abc import Callable

from core.errors import BrokerError
from core.log.cleaner import CleanerPass, needs_compaction, roll_overdue
from core.log.entry import LogEntry
from core.log.flush import Chore
from core.log.log import Log
from core.log.retention import SettledTime, apply_retention, next_check_ms
from core.log.shared import LogShared
from core.log.trash import Removal
from core.types import TopicPartition

logger = logging.getLogger(__name__)

# Files removed in one chore: a directory of a large partition is removed in a few.
REMOVALS_PER_CHORE = 100
# A step ends after this much time, or after this many partitions.
STEP_SECONDS = 0.004
PARTITIONS_PER_STEP = 500


class Background:
    """The turns of background work over all logs.

    A sweep looks at all partitions, a few at a time: retention, and which of them need compaction. These are
    compacted one after the other. Logs that are not open are opened for it, and closed again.
    """

    def __init__(
        self,
        shared: LogShared[Log],
        entries: dict[TopicPartition, LogEntry],
        open_log: Callable[[TopicPartition, LogEntry], Log],
    ) -> None:
        self._shared = shared
        self._entries = entries
        self._open = open_log
        self._time = SettledTime(shared.clock)
        self._outstanding: Chore | None = None
        self._chore_error: OSError | None = None
        config = shared.config
        self._interval = min(config.retention_check_interval_ms, config.compaction_interval_ms) / 1000
        self._next_sweep = shared.clock.monotonic() + self._interval
        self._sweep: list[TopicPartition] = []
        # Partitions that wait for compaction, the longest waiting first.
        self._dirty: dict[TopicPartition, None] = {}
        self._pass: CleanerPass | None = None
        self._cleaning: LogEntry | None = None

    @property
    def pending(self) -> bool:
        """Whether the next step has something to do at once."""
        return self._outstanding is None and bool(self._sweep or self._dirty or self._pass)

    def step(self) -> Chore | None:
        """Do one step; see `LogManager.background_step`."""
        if self._outstanding is not None:
            return None
        now = self._shared.clock.monotonic()
        deadline = now + STEP_SECONDS
        if paths := self._shared.trash.take(now, REMOVALS_PER_CHORE):
            self._outstanding = Removal(paths, self._shared.lasting_files)
        elif self._pass is not None or self._dirty:
            self._outstanding = self._compact(deadline)
        if self._outstanding is None:
            if not self._sweep and now >= self._next_sweep:
                self._sweep = list(self._entries)[::-1]
                self._next_sweep = now + self._interval
            self._sweep_some(deadline)
        return self._outstanding

    def finish(self, chore: Chore, error: OSError | None) -> None:
        """A chore is done."""
        if chore is not self._outstanding:
            return
        self._outstanding = None
        if not isinstance(chore, Removal):  # the cleaner's
            self._chore_error = error
        elif error is not None:
            logger.error("Files could not be removed: %s", error)

    def forget(self, entry: LogEntry) -> None:
        """The partition is deleted, or closed."""
        if entry is self._cleaning:
            self._stop()

    def close(self) -> None:
        """Stop where it is."""
        self._stop()
        self._sweep.clear()
        self._dirty.clear()

    # --- retention -----------------------------------------------------------------------------------------

    def _sweep_some(self, deadline: float) -> None:
        for _ in range(PARTITIONS_PER_STEP):
            if not self._sweep:
                return
            tp = self._sweep.pop()
            entry = self._entries.get(tp)
            if entry is not None and (entry.log is not None or entry.due_ms <= self._time.now_ms()):
                try:
                    self._look_after(tp, entry)
                except (BrokerError, OSError) as error:
                    logger.error("retention of %s failed: %s", tp, error)
            if self._shared.clock.monotonic() >= deadline:
                return

    def _look_after(self, tp: TopicPartition, entry: LogEntry) -> None:
        was_open = entry.log is not None
        log = entry.log or self._open(tp, entry)
        if log.failure is None and not log.cleaning:
            apply_retention(log, self._time.now_ms())
            if log.config.compacted and not entry.uncleanable:
                roll_overdue(log, self._time.now_ms())
                if needs_compaction(log, entry.cleaned_offset, self._time.now_ms()):
                    self._dirty[tp] = None
        silent_ms = self._shared.producer_id_expiration_ms
        log.producers.expire(int(self._shared.clock.monotonic() * 1000) - silent_ms)
        if not was_open and not log.unflushed and tp not in self._dirty:
            entry.due_ms = next_check_ms(log, entry.cleaned_offset)
            entry.unload()

    # --- compaction ----------------------------------------------------------------------------------------

    def _compact(self, deadline: float) -> Chore | None:
        if self._pass is None:
            tp = next(iter(self._dirty))
            del self._dirty[tp]
            entry = self._entries.get(tp)
            if entry is None:
                return None
            try:
                log = entry.log or self._open(tp, entry)
            except BrokerError:
                return None
            self._cleaning = entry
            self._pass = CleanerPass(self._shared, log, entry.cleaned_offset, self._time.now_ms())
        error, self._chore_error = self._chore_error, None
        chore = self._pass.step(deadline, error)
        if self._pass.finished and self._cleaning is not None:
            self._cleaning.cleaned_offset = self._pass.cleaned_offset
            self._cleaning.uncleanable = self._pass.failure is not None
            self._pass = self._cleaning = None
        return chore

    def _stop(self) -> None:
        if self._pass is not None:
            self._pass.abort()
        self._pass = self._cleaning = None
        if not isinstance(self._outstanding, Removal):
            self._outstanding = None
        self._chore_error = None
