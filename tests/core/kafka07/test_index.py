"""core.kafka07.index: entries of a sidecar, in memory and in the file; what is torn or foreign is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.kafka07.index import AddressIndex, Entry, read_base
from core.log.files import FilePool

ENTRIES = [Entry(1000 + 10 * i, 100 * i, 5000 + 40 * i) for i in range(1, 20)]


def index_in(tmp_path: Path, *, base_address: int = 5000, magic: int = 1) -> AddressIndex:
    return AddressIndex(FilePool(10), f"{tmp_path}/x", magic, 1000, base_address)


def written(tmp_path: Path) -> Path:
    index = index_in(tmp_path)
    index.add(ENTRIES)
    assert index.flush(10_000)
    return Path(index.path)


def test_entries_are_found_by_offset_and_by_address(tmp_path: Path) -> None:
    written(tmp_path)
    index = index_in(tmp_path)
    assert index.load() and index.count == len(ENTRIES)
    assert index.entries(0, 100) == ENTRIES and index.last == ENTRIES[-1]
    assert index.entry(index.search(1055, 0)) == ENTRIES[4]
    assert index.entry(index.search(5040, 2)) == ENTRIES[0]
    assert index.search(5039, 2) == -1 and index.entry(-1) == Entry(1000, 0, 5000)


def test_only_entries_of_durable_records_are_written(tmp_path: Path) -> None:
    index = index_in(tmp_path)
    index.add(ENTRIES)
    assert not index.flush(1050)
    assert index.entries(0, 100) == ENTRIES and index.entries(3, 7) == ENTRIES[3:7]
    again = index_in(tmp_path)
    assert again.load() and again.entries(0, 100) == ENTRIES[:5]


@pytest.mark.parametrize("cut", range(1, 61, 7))
def test_a_torn_end_costs_the_entries_in_it(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    index = index_in(tmp_path)
    assert index.load() and index.entries(0, 100) == ENTRIES[: len(ENTRIES) - (cut + 19) // 20]
    index.add(ENTRIES[index.count :])
    index.flush(10_000)
    again = index_in(tmp_path)
    assert again.load() and again.entries(0, 100) == ENTRIES


def test_a_sidecar_of_another_place_or_magic_is_not_taken(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert not index_in(tmp_path, base_address=5001).load()
    path.rename(tmp_path / "x.legacy0")
    assert not index_in(tmp_path, magic=0).load()
    assert read_base(str(tmp_path / "x.legacy0")) == (1, 1000, 5000)
    assert read_base(str(path)) is None


def test_a_flipped_bit_within_is_told_when_it_is_met(tmp_path: Path) -> None:
    path = written(tmp_path)
    data = bytearray(path.read_bytes())
    data[28 + 20 * 5 + 3] ^= 4
    path.write_bytes(data)
    index = index_in(tmp_path)
    assert index.load()
    assert index.entry(4) == ENTRIES[4]
    with pytest.raises(ValueError, match="damaged"):
        index.entry(5)
    with pytest.raises(ValueError, match="damaged"):
        index.entries(0, 10)
    index.cut(5)
    assert index.entries(0, 100) == ENTRIES[:5]
