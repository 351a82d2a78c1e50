"""The names of partition directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.log.directories import DELETE_SUFFIX, holds_records, is_ours, partition_of, set_aside
from core.types import TopicPartition


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", TopicPartition("orders", 0)),
        ("a-b-17", TopicPartition("a-b", 17)),
        ("-5", None),
        ("orders", None),
        ("orders-", None),
        ("orders-x", None),
        ("orders-01", None),
        ("orders-٣", None),
        ("orders-0.0123-delete", None),
        ("orders-0.0123-stray", None),
    ],
)
def test_a_name_tells_its_partition(name: str, expected: TopicPartition | None) -> None:
    assert partition_of(name) == expected


@pytest.mark.parametrize("length", [1, 200, 249])
def test_the_name_of_a_deleted_directory_fits(length: int) -> None:
    name = set_aside("n" * length + "-123456", "0" * 32, DELETE_SUFFIX)
    assert len(name) <= 255
    assert name.endswith("." + "0" * 32 + "-delete")
    assert partition_of(name) is None


def test_a_directory_is_ours_if_it_says_so_or_is_empty(tmp_path: Path) -> None:
    assert is_ours(str(tmp_path))
    (tmp_path / "photo").write_bytes(b"")
    assert not is_ours(str(tmp_path))
    (tmp_path / "partition.metadata").write_bytes(b"")
    assert is_ours(str(tmp_path))


def test_a_directory_holds_records_if_a_segment_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").write_bytes(b"x")
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes(b"")
    assert not holds_records(str(tmp_path))
    log.write_bytes(b"x")
    assert holds_records(str(tmp_path))
