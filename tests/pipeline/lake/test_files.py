"""Names of files say what is in them, and can be read back."""

from __future__ import annotations

import pytest

from pipeline.lake.files import file_name, hive_directory, hive_value, parse_name


@pytest.mark.parametrize("topic", ["orders", "a-b", "a.b-0-7", "x_y"])
@pytest.mark.parametrize("mark", ["", "0123abcd"])
def test_a_name_is_read_back(topic: str, mark: str) -> None:
    assert parse_name("day=2025-01-31/" + file_name(topic, 3, 7, 2**62, mark)) == (topic, 3, 7, 2**62)


@pytest.mark.parametrize(
    "name", ["part-00000.parquet", "orders-0-1-2.parquet", f"orders-0-{0:020}-{1:020}.csv"]
)
def test_a_foreign_name_is_none_of_ours(name: str) -> None:
    assert parse_name(name) is None


def test_names_sort_as_offsets_do() -> None:
    assert file_name("t", 0, 9, 9) < file_name("t", 0, 10, 10) < file_name("t", 0, 100, 1000)


def test_hive_directories_are_escaped() -> None:
    assert hive_directory({"a": "x/y=z", "b": None}) == "a=x%2Fy%3Dz/b=__HIVE_DEFAULT_PARTITION__/"
    assert [hive_value(value) for value in (None, True, 7, "x")] == [None, "true", "7", "x"]
