"""What is not on the disk yet, and the task that brings it there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from core.log.flush import FlushTask, Unflushed
from tests.core.log.disk import Disk
from tests.core.log.shelf import Shelf, append, records


def test_a_task_syncs_files_then_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(tmp_path, segment_bytes=200)
    log = shelf.open()
    for i in range(3):
        append(log, records(f"{i}" * 60))
    disk = Disk(monkeypatch)
    task = log.begin_flush()
    assert task is not None
    task.run()
    # Three logs; two indexes each of the sealed two; epochs, the directory, the one above.
    assert disk.calls == ["sync"] * 3 + ["sync_path"] * 7


def test_an_index_that_is_not_there_is_no_failure(tmp_path: Path) -> None:
    FlushTask([], [str(tmp_path / "nothing"), str(tmp_path)], 0, 0).run()


def test_a_failure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Disk(monkeypatch).failing(errno.EIO, "sync_path"), pytest.raises(OSError, match="error"):
        FlushTask([], [str(tmp_path)], 0, 0).run()


def test_what_came_after_the_task_began_stays_unflushed(tmp_path: Path) -> None:
    log = Shelf(tmp_path).open()
    append(log, records("a"))
    first, second = log.segments.active, log.new_segment(99)
    unflushed = Unflushed(0)
    unflushed.since = 1.0
    unflushed.add_segment(first, 5)
    task = unflushed.task(second, 8, ["x"])
    unflushed.add_segment(second, 12)
    unflushed.add_name()
    unflushed.done(task, 15, now=3.0)
    assert (unflushed.offset, unflushed.records, unflushed.since) == (8, 7, 3.0)
    assert unflushed.segments == [second]
    assert unflushed
    after = unflushed.task(log.new_segment(100), 15, ["x"])
    assert after.names > task.names
    unflushed.done(after, 15, now=4.0)
    assert not unflushed
    assert (unflushed.offset, unflushed.since) == (15, None)


def test_a_task_that_ends_late_takes_nothing_back(tmp_path: Path) -> None:
    log = Shelf(tmp_path).open()
    unflushed = Unflushed(0)
    early = unflushed.task(log.segments.active, 5, ())
    late = unflushed.task(log.segments.active, 9, ())
    unflushed.done(late, 9, now=1.0)
    unflushed.done(early, 9, now=2.0)
    assert (unflushed.offset, unflushed.records) == (9, 0)


def test_a_removed_segment_needs_no_flush(tmp_path: Path) -> None:
    log = Shelf(tmp_path).open()
    unflushed = Unflushed(0)
    one, other = log.new_segment(1), log.new_segment(2)
    unflushed.add_segment(one, 2)
    unflushed.add_segment(other, 3)
    unflushed.drop([one])
    assert unflushed.segments == [other]
