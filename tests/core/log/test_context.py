"""What all logs share: files that go a little later."""

from __future__ import annotations

from core.log.context import Trash


def test_files_go_after_the_delay_and_in_portions() -> None:
    trash = Trash(5.0)
    for i in range(10):
        trash.add(f"file{i}", now=float(i))
    assert trash.take(4.9, 100) == []
    assert trash.take(5.0, 100) == ["file0"]
    assert trash.take(9.0, 3) == ["file1", "file2", "file3"]
    assert trash.take(9.0, 3) == ["file4"]
    assert len(trash) == 5
    assert len(trash.take(100.0, 100)) == 5
