"""A data directory with all its logs, and the brokers that open it one after the other."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from pathlib import Path

from core.clock import ManualClock
from core.config import Config
from core.log.manager import LogManager
from core.topic_config import TopicConfig
from core.types import TopicPartition

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("other-topic", 3)
ID = uuid.UUID(int=0x1234)
CONFIG = TopicConfig(segment_bytes=400)


class Home:
    """A data directory, and brokers that open it one after the other."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.root = root / "data"
        self.clock = ManualClock()
        self.settings = replace(Config(), **settings)  # type: ignore[arg-type]
        self.topics: dict[TopicPartition, tuple[uuid.UUID, TopicConfig]] = {}
        self.deleted: set[uuid.UUID] = set()

    def start(self) -> LogManager:
        manager = LogManager(self.root, self.settings, self.clock)
        manager.load(((tp, topic_id, config) for tp, (topic_id, config) in self.topics.items()), self.deleted)
        return manager

    def create(self, manager: LogManager, tp: TopicPartition = TP, config: TopicConfig = CONFIG) -> None:
        self.topics[tp] = (ID, config)
        manager.create(tp, ID, config)

    def names(self) -> set[str]:
        return set(os.listdir(self.root))

    def work(self, manager: LogManager, seconds: float, step: float = 1.0) -> None:
        """Let time pass with background work, chores carried out at once."""
        for _ in range(int(seconds / step)):
            self.clock.advance(step)
            for _ in range(1000):
                chore = manager.background_step()
                if chore is not None:
                    chore.run()
                    manager.finish_chore(chore, None)
                if not manager.background_pending:
                    break
            else:
                raise AssertionError("background work does not end")


def open_files(root: Path) -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target.startswith(str(root)):
            found.append(target)
    return found
