"""The types that all packages share."""

from __future__ import annotations

from pathlib import Path

from core.types import FileSlice, TopicPartition


def test_a_partition_is_written_as_its_directory_is_called() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_a_slice_reads_its_bytes_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        assert FileSlice(file, 2, 5).read() == b"23456"
        assert FileSlice(file, 8, 5).read() == b"89"


def test_a_slice_can_be_read_after_its_file_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"still here")
    with path.open("rb") as file:
        part = FileSlice(file, 0, 5)
        path.unlink()
        assert part.read() == b"still"
