"""The size of a log that is closed: only its segments count, and what is not there is nothing."""

from __future__ import annotations

from pathlib import Path

from core.log.sizes import SizeTask
from core.types import TopicPartition


def test_segments_count_and_indexes_do_not(tmp_path: Path) -> None:
    for name, size in (
        ("00000000000000000000.log", 100),
        ("00000000000000000100.log", 23),
        ("x.index", 1000),
    ):
        (tmp_path / name).write_bytes(b"x" * size)
    here, nowhere = TopicPartition("a", 0), TopicPartition("a", 1)
    task = SizeTask([(here, str(tmp_path)), (nowhere, str(tmp_path / "none"))])
    task.run()
    assert task.sizes == {here: 123, nowhere: 0}
