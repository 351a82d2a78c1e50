"""Deaths at system calls, a full disk and a failing fsync under a real broker: a few of each (R5, R6, R7)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash import disk_faults

POINTS = {"kill": 2, "enospc": 1, "eio": 1}


@pytest.mark.client("strace")
@pytest.mark.timeout(300)
def test_a_system_call_that_fails_breaks_no_promise(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    counted = disk_faults.count(tmp_path)
    assert counted.calls["rename"] > 10 and counted.calls["fdatasync"] > 10, counted
    for kind, points in POINTS.items():
        print(disk_faults.run(tmp_path, kind, points, seed, counted))


def test_files_that_belong_to_nothing_are_noticed(tmp_path: Path) -> None:
    known = ("metadata.db", "metadata.db-wal", "plain-0", "plain-0/00000000000000000000.log", ".lock")
    leaked = (
        "plain-0/00000000000000000000.log.deleted",
        "plain-0.0123-delete",
        "x.tmp",
        "plain-0/x.snapshot",
    )
    for name in (*known, *leaked):
        path = tmp_path / name
        path.mkdir() if name.endswith(("-0", "-delete")) else path.touch()
    assert disk_faults.leaks(tmp_path) == sorted(leaked)
