"""The data directory, which one process owns: a lock file with its pid keeps a second process out."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from pathlib import Path

from core.errors import StartupError

log = logging.getLogger(__name__)

LOCK_FILE = ".lock"
# The files with the metadata of an embedded broker, and with what a gateway keeps itself.
BROKER_DATABASE, GATEWAY_DATABASE = "metadata.db", "gateway.db"


class DataDirectory:
    """The data directory, owned by this process until `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def acquire(self) -> None:
        """Create the directory, check that it can be written, and lock it. Raises StartupError with one line."""
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(
                self._path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode=0o600
            )
        except OSError as error:
            raise StartupError(
                f"The data directory {self._path} cannot be written ({error.strerror}). "
                "Choose another with --data-dir."
            ) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise StartupError(
                    f"The data directory {self._path} is in use by the process with pid {pid}. "
                    "Stop it, or choose another directory with --data-dir."
                ) from None
            raise StartupError(
                f"The data directory {self._path} cannot be locked ({error.strerror})."
            ) from None
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            # On a full disk the broker starts for reading only. The lock holds without the pid in its file.
            log.warning("cannot write the pid into %s: %s", self._path / LOCK_FILE, error.strerror)

    def release(self) -> None:
        """Unlock the directory."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
