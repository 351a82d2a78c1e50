"""A copy of the repository's files, in which building leaves nothing in the repository itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.broker_process import ROOT


def tracked_names() -> list[str]:
    """Return the paths of the files that git tracks, or would."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def copy_tree(to: Path) -> Path:
    """Copy these files to an empty directory, and return it: the tree of a fresh clone."""
    for name in tracked_names():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)
    return to
