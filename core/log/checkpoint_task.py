"""Write checkpoints in threads: each as a whole, never over a newer one, and durable when `run` returns."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from core.log import files
from core.log.checkpoint import encode_offsets
from core.types import TopicPartition


class CheckpointFiles:
    """The checkpoint files of one data directory, and the task that may write them next."""

    __slots__ = ("_durable", "_last", "_lock", "_root", "_written")

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        # Numbers of tasks: the last one made, the newest whose contents are in the files, and on the disk.
        self._last = 0
        self._written = 0
        self._durable = 0

    def task(self, contents: Mapping[str, Mapping[TopicPartition, int]]) -> CheckpointTask:
        """Return a task that writes these offsets, by file name. The offsets must not be changed any more."""
        self._last += 1
        return CheckpointTask(self, self._last, contents)

    def write(self, number: int, contents: Mapping[str, Mapping[TopicPartition, int]], durable: bool) -> None:
        """Write the contents of task `number`. If a newer task has written, only wait until that is durable.

        Two tasks may run at once: a periodic one and one that a caller waits for. Raises OSError.
        """
        with self._lock:
            if number > self._written:
                for name, offsets in contents.items():
                    files.write_whole(f"{self._root}/{name}", encode_offsets(offsets), durable=durable)
                self._written = number
                self._durable = number if durable else self._durable
            elif durable and number > self._durable:
                for name in contents:
                    files.sync_path(f"{self._root}/{name}")
                files.sync_path(self._root)
                self._durable = self._written


class CheckpointTask:
    """Checkpoint files to be written. `run` belongs in a thread."""

    __slots__ = ("_contents", "_files", "_number")

    def __init__(
        self,
        checkpoint_files: CheckpointFiles,
        number: int,
        contents: Mapping[str, Mapping[TopicPartition, int]],
    ) -> None:
        self._files = checkpoint_files
        self._number = number
        self._contents = contents

    def run(self, durable: bool = True) -> None:
        """Write, and fsync if `durable`. Blocks; raises OSError, and then the old files are still there."""
        self._files.write(self._number, self._contents, durable)
