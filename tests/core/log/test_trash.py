"""Files that are removed a little later, in portions."""

from __future__ import annotations

from pathlib import Path

from core.log.trash import Removal, Trash


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


def test_a_directory_is_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0.0123-delete"
    directory.mkdir()
    for name in "abc":
        (directory / name).write_bytes(b"x")
    Removal([str(directory), str(tmp_path / "gone already"), str(tmp_path / "gone-delete")]).run()
    assert list(tmp_path.iterdir()) == []
