"""Sizes of logs that are not open, looked up in their directories: in a thread, once for each."""

from __future__ import annotations

import os
from collections.abc import Sequence

from core.types import TopicPartition

SEGMENT_SUFFIX = ".log"


class SizeTask:
    """A look at the files of some logs. `run` belongs in a thread; `sizes` has the bytes afterwards."""

    def __init__(self, directories: Sequence[tuple[TopicPartition, str]]) -> None:
        self._directories = directories
        self.sizes: dict[TopicPartition, int] = {}

    def run(self) -> None:
        """Add up the segments of each log; a directory that is not there holds nothing."""
        for tp, directory in self._directories:
            try:
                with os.scandir(directory) as found:
                    self.sizes[tp] = sum(e.stat().st_size for e in found if e.name.endswith(SEGMENT_SUFFIX))
            except OSError:
                self.sizes[tp] = 0
