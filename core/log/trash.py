"""Files that are renamed already, and removed from the disk later, a few at a time.

Readers that hold a `FileSlice` may still read them until then.
"""

from __future__ import annotations

import contextlib
import heapq
import os
from collections.abc import Sequence

from core.log import files
from core.log.directories import DELETE_SUFFIX
from core.log.segment import DELETED_SUFFIX, LOG_SUFFIX

_DELETED_LOG = LOG_SUFFIX + DELETED_SUFFIX


class Trash:
    """Files that are renamed already and are removed from the disk later, a few at a time."""

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
        """Return at most `limit` paths whose time has come; the caller removes them."""
        taken: list[str] = []
        while self._due and len(taken) < limit and self._due[0][0] <= now:
            taken.append(heapq.heappop(self._due)[1])
        return taken


class Removal:
    """Removes files and directories. What cannot be removed stays for the next start.

    `lasting` are names of small files. They are fsynced in the directory of a segment before it is unlinked, because
    they describe the segments that stay and must no longer depend on the removed one.
    """

    def __init__(self, paths: Sequence[str], lasting: Sequence[str] = ()) -> None:
        self._paths = paths
        self._lasting = lasting

    def run(self) -> None:
        """Remove them. Blocks; raises OSError."""
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                if path.endswith(DELETE_SUFFIX):
                    with os.scandir(path) as entries:
                        inside = [entry.path for entry in entries]
                    for name in inside:
                        files.remove_if_present(name)
                    files.remove_directory(path)
                else:
                    for name in self._lasting if path.endswith(_DELETED_LOG) else ():
                        with contextlib.suppress(FileNotFoundError):
                            files.sync_path(f"{path.rpartition('/')[0]}/{name}")
                    files.remove_if_present(path)
