"""What all logs of one broker share: settings, clock, open files, subscribers, and work to be done later."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar

from core.clock import Clock
from core.config import Config
from core.log.aborted import TRANSACTION_INDEX_SUFFIX
from core.log.events import LogSubscriber, WatchedLog
from core.log.files import FilePool
from core.log.segment import Segment
from core.log.trash import Trash
from core.topic_config import TopicConfig

logger = logging.getLogger(__name__)

# The type of log; `core.log.log` imports this module.
L = TypeVar("L", bound=WatchedLog)

# The least number of seconds between two lines about write errors.
COMPLAIN_SECONDS = 5.0


class LogShared(Generic[L]):
    """What all logs of one broker share: settings, clock, open files, subscribers, and work to be done later."""

    __slots__ = (
        "_complained", "_silent", "clock", "config", "dirty", "lasting_files", "pool", "producer_id_expiration_ms",
        "sidecar_suffixes", "subscribers", "touched", "trash",
    )  # fmt: skip

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.pool = FilePool(config.max_open_files)
        self.trash = Trash(config.file_delete_delay_ms / 1000)
        # How long a log remembers a producer that does not write.
        self.producer_id_expiration_ms = config.producer_id_expiration_ms
        # Logs that hold something which is not fsynced yet. A log adds and removes itself.
        self.dirty: set[L] = set()
        # Logs that were appended to since their indexes were last written, the longest waiting first.
        self.touched: dict[L, None] = {}
        # See `core.log.events`.
        self.subscribers: list[LogSubscriber] = []
        self.sidecar_suffixes: tuple[str, ...] = (TRANSACTION_INDEX_SUFFIX,)
        self.lasting_files: tuple[str, ...] = ()
        # When a write error was last logged, in monotonic seconds, and how many were not since.
        self._complained = -COMPLAIN_SECONDS
        self._silent = 0

    def subscribe(self, subscriber: LogSubscriber) -> None:
        """Add a subscriber. Call it before the first log is opened."""
        self.subscribers.append(subscriber)
        self.sidecar_suffixes += tuple(subscriber.sidecar_suffixes)
        self.lasting_files += tuple(subscriber.lasting_files)

    def sidecars(self, segment: Segment) -> list[str]:
        """Return the paths of the files that subscribers may have next to a segment."""
        return [segment.stem + suffix for suffix in self.sidecar_suffixes]

    def jitter_ms(self, config: TopicConfig) -> int:
        """Return by how much earlier than segment.ms the next segment is rolled: a random time."""
        most = min(config.segment_jitter_ms, config.segment_ms)
        return self.clock.randrange(most) if most else 0

    def forget(self, log: L) -> None:
        """Drop a log that is closed or deleted."""
        self.dirty.discard(log)
        self.touched.pop(log, None)
        for subscriber in self.subscribers:
            subscriber.closed(log)

    def complain(self, what: object, error: OSError) -> None:
        """Log a write error, but not one line for each of a thousand requests a second on a full disk."""
        now = self.clock.monotonic()
        if now - self._complained < COMPLAIN_SECONDS:
            self._silent += 1
            return
        more = f" ({self._silent} more since the last such line)" if self._silent else ""
        logger.error("%s: the disk refuses to write: %s%s", what, error, more)
        self._complained, self._silent = now, 0
