"""Where tests keep their data: in memory, because most of a short test was the wait for a disk.

A broker that is opened and closed syncs files and directories 24 times, and thousands of tests open one. What a disk
does is a matter of the tests in `ABOUT_DISKS`, which run on the disk that the machine has.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

# A file system in memory on every Linux. Containers may make it small, or mount it so that no program runs from it.
MEMORY = Path("/dev/shm")
# Ten times what was ever there at once: what a test wrote is deleted when it has passed.
NEEDED_BYTES = 4 << 30
NEEDED_BYTES_FAST = 1 << 30
# Where Python makes temporary directories, and pytest its own; processes that tests start inherit it.
VARIABLE = "TMPDIR"
# Where that was before; pytest's other processes inherit it.
DISK = "TESTS_ON_DISK"
TESTS = Path(__file__).resolve().parent
# Directories of tests/ with kills, full disks, memory that is measured, and files of earlier releases.
ABOUT_DISKS = {"crash", "limits", "upgrade"}


def is_fit(directory: Path, needed: int) -> bool:
    """Whether tests may write there: it is there, has enough space, and programs can run from it."""
    if not os.access(directory, os.W_OK | os.X_OK):
        return False
    executable = not os.statvfs(directory).f_flag & os.ST_NOEXEC
    return executable and shutil.disk_usage(directory).free >= needed


def keep_in_memory(needed: int = NEEDED_BYTES) -> None:
    """Make the temporary directories of this run in memory, where that is possible; a TMPDIR that is set stays."""
    if VARIABLE not in os.environ and is_fit(MEMORY, needed):
        os.environ[DISK] = tempfile.gettempdir()
        os.environ[VARIABLE] = str(MEMORY)
        tempfile.tempdir = None  # it may have been found before


def disk_for(path: Path) -> str | None:
    """Where a test of this file makes its directory instead of in memory; None if it need not."""
    about_disks = path.is_relative_to(TESTS) and path.relative_to(TESTS).parts[0] in ABOUT_DISKS
    return os.environ.get(DISK) if about_disks else None
