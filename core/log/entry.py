"""What the manager knows of one partition, whether its log is open or not."""

from __future__ import annotations

import uuid

from core.log.log import Log
from core.topic_config import TopicConfig


class LogEntry:
    """One partition: a few numbers, and the log once it was opened."""

    __slots__ = (
        "checked", "cleaned_offset", "closed_size", "config", "due_ms", "log", "log_start_offset", "recovery_point",
        "topic_id", "uncleanable",
    )  # fmt: skip

    def __init__(
        self,
        topic_id: uuid.UUID,
        config: TopicConfig,
        recovery_point: int | None,
        log_start_offset: int,
        cleaned_offset: int,
    ) -> None:
        self.topic_id = topic_id
        self.config = config
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        # The first offset that compaction has not seen.
        self.cleaned_offset = cleaned_offset
        self.log: Log | None = None
        # Bytes of the log while it is not open; None until they are looked up.
        self.closed_size: int | None = None
        # Whether the log was opened in this process, and so its end is known to be whole.
        self.checked = False
        # When retention has to look again, in wall milliseconds.
        self.due_ms = 0
        # Whether compaction found a batch that it cannot read. Reset by a new config or a restart.
        self.uncleanable = False

    def set_config(self, config: TopicConfig) -> None:
        """Take another config, for the log too if it is open."""
        self.config = config
        self.due_ms = 0
        self.uncleanable = False
        if self.log is not None:
            self.log.config = config

    def refresh(self) -> None:
        """Take the offsets over from the open log."""
        log = self.log
        if log is not None:
            self.recovery_point = log.flushed_offset
            self.log_start_offset = log.offsets.log_start_offset

    def unload(self) -> None:
        """Close the log; it is opened again at need."""
        if self.log is not None:
            self.refresh()
            self.closed_size = self.log.size
            self.log.close()
            self.log = None
