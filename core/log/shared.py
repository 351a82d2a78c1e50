"""What all logs of one broker share: settings, the clock, open files, and lists of work to be done later."""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING

from core.clock import Clock
from core.config import Config
from core.kafka07.views import LegacyViews
from core.log.files import FilePool
from core.topic_config import TopicConfig

if TYPE_CHECKING:
    from core.log.log import Log

logger = logging.getLogger(__name__)

# One line about write errors in so many seconds.
COMPLAIN_SECONDS = 5.0


class Trash:
    """Files that are renamed already and go from the disk a little later, in small portions."""

    __slots__ = ("_delay", "_due")

    def __init__(self, delay_seconds: float) -> None:
        self._delay = delay_seconds
        # A heap: the delays of topics differ.
        self._due: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def add(self, path: str, now: float, delay_seconds: float | None = None) -> None:
        """Remove `path`, a file or a directory with all that is in it, after a delay. `now` is monotonic."""
        heapq.heappush(self._due, (now + (self._delay if delay_seconds is None else delay_seconds), path))

    def take(self, now: float, limit: int) -> list[str]:
        """At most `limit` paths whose time has come; the caller removes them."""
        taken: list[str] = []
        while self._due and len(taken) < limit and self._due[0][0] <= now:
            taken.append(heapq.heappop(self._due)[1])
        return taken


class LogContext:
    """The surroundings of a log."""

    __slots__ = (
        "_complained", "_silent", "clock", "config", "dirty", "legacy", "pool", "producer_id_expiration_ms",
        "touched", "trash",
    )  # fmt: skip

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.pool = FilePool(config.max_open_files)
        self.trash = Trash(config.file_delete_delay_ms / 1000)
        # How long a log remembers a producer that does not write.
        self.producer_id_expiration_ms = config.producer_id_expiration_ms
        # Logs that hold something which is not fsynced yet. A log enters and leaves it by itself.
        self.dirty: set[Log] = set()
        # Logs that were appended to since their indexes were last written, the longest waiting first.
        self.touched: dict[Log, None] = {}
        # How Kafka 0.7 sees those of them that it has asked for.
        self.legacy = LegacyViews(self.pool, config.max_decompressed_bytes)
        # When a write error was last logged, in monotonic seconds, and how many were not since.
        self._complained = -COMPLAIN_SECONDS
        self._silent = 0

    def jitter_ms(self, config: TopicConfig) -> int:
        """Return by how much earlier than segment.ms the next segment is rolled: a random time."""
        most = min(config.segment_jitter_ms, config.segment_ms)
        return self.clock.randrange(most) if most else 0

    def forget(self, log: Log) -> None:
        """A log is closed, or no more."""
        self.dirty.discard(log)
        self.touched.pop(log, None)
        self.legacy.forget(log)

    def complain(self, what: object, error: OSError) -> None:
        """Log a write error, but not one line for each of a thousand requests a second on a full disk."""
        now = self.clock.monotonic()
        if now - self._complained < COMPLAIN_SECONDS:
            self._silent += 1
            return
        more = f" ({self._silent} more since the last such line)" if self._silent else ""
        logger.error("%s: the disk refuses to write: %s%s", what, error, more)
        self._complained, self._silent = now, 0
