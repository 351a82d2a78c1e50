"""Checkpoints of several threads: whole, never going back, durable when they say so."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from core.log.checkpoint import read_offsets
from core.log.checkpoint_task import CheckpointFiles
from core.types import TopicPartition
from tests.core.log.disk import Disk

TP = TopicPartition("orders", 0)
NAME = "recovery-point-offset-checkpoint"


def test_an_older_checkpoint_does_not_overwrite_a_newer_one(tmp_path: Path) -> None:
    checkpoints = CheckpointFiles(str(tmp_path))
    old, new = checkpoints.task({NAME: {TP: 1}}), checkpoints.task({NAME: {TP: 2}})
    new.run()
    old.run()
    assert read_offsets(str(tmp_path / NAME)) == {TP: 2}


def test_an_older_task_makes_durable_what_a_newer_one_only_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = CheckpointFiles(str(tmp_path))
    waited_for, hasty = checkpoints.task({NAME: {TP: 1}}), checkpoints.task({NAME: {TP: 2}})
    disk = Disk(monkeypatch)
    hasty.run(durable=False)
    assert not [call for call in disk.calls if call.startswith("sync")]
    waited_for.run()
    assert disk.calls.count("sync_path") == 2
    disk.calls.clear()
    waited_for.run()
    hasty.run()
    assert disk.calls == []


def test_a_checkpoint_that_failed_may_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = CheckpointFiles(str(tmp_path))
    checkpoints.task({NAME: {TP: 1}}).run()
    task = checkpoints.task({NAME: {TP: 2}})
    with Disk(monkeypatch).failing(errno.ENOSPC, "write"), pytest.raises(OSError, match="space"):
        task.run()
    assert read_offsets(str(tmp_path / NAME)) == {TP: 1}
    task.run()
    assert read_offsets(str(tmp_path / NAME)) == {TP: 2}


def test_many_threads_leave_the_newest(tmp_path: Path) -> None:
    checkpoints = CheckpointFiles(str(tmp_path))
    tasks = [checkpoints.task({NAME: {TopicPartition("t", i): n for i in range(200)}}) for n in range(30)]
    threads = [threading.Thread(target=task.run) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set((read_offsets(str(tmp_path / NAME)) or {}).values()) == {29}
