"""The names of partition directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.log.directories import delete_name, is_ours, partition_of
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
    ],
)
def test_a_name_tells_its_partition(name: str, expected: TopicPartition | None) -> None:
    assert partition_of(name) == expected


@pytest.mark.parametrize("length", [1, 200, 249])
def test_the_name_of_a_deleted_directory_fits(length: int) -> None:
    name = delete_name("n" * length + "-123456", "0" * 32)
    assert len(name) <= 255
    assert name.endswith("." + "0" * 32 + "-delete")
    assert partition_of(name) is None


def test_a_directory_is_ours_if_it_says_so_or_is_empty(tmp_path: Path) -> None:
    assert is_ours(str(tmp_path))
    (tmp_path / "photo").write_bytes(b"")
    assert not is_ours(str(tmp_path))
    (tmp_path / "partition.metadata").write_bytes(b"")
    assert is_ours(str(tmp_path))
