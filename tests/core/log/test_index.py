"""The sparse indexes: Kafka's bytes, searches over file and memory alike, and files that are no index."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from core.log import index
from core.log.files import FilePool
from core.log.index import OffsetIndex, TimeIndex
from tests.core.log.disk import Disk


def offsets(tmp_path: Path) -> OffsetIndex:
    return OffsetIndex(FilePool(4), str(tmp_path / "0.index"))


def test_entries_are_laid_out_as_kafka_does(tmp_path: Path) -> None:
    one = offsets(tmp_path)
    one.add(5, 1000)
    one.add(9, 2000)
    assert one.flush()
    assert (tmp_path / "0.index").read_bytes() == struct.pack(">iiii", 5, 1000, 9, 2000)
    times = TimeIndex(FilePool(4), str(tmp_path / "0.timeindex"))
    times.add(1_700_000_000_000, 7)
    times.flush()
    assert (tmp_path / "0.timeindex").read_bytes() == struct.pack(">qi", 1_700_000_000_000, 7)


@pytest.mark.parametrize("written", [0, 1, 7, 19, 20])
def test_a_search_finds_the_nearest_entry_below_in_file_and_memory(tmp_path: Path, written: int) -> None:
    one = offsets(tmp_path)
    for i in range(20):
        one.add(i * 10, i * 100)
        if i + 1 == written:
            one.flush()
    assert one.count == 20
    for value in range(-5, 220):
        assert one.search(value) == sum(entry <= value for entry in range(0, 200, 10))
    for value in range(-50, 2100, 30):
        assert one.search(value, 1) == sum(entry <= value for entry in range(0, 2000, 100))
    assert [one.entry(i) for i in range(20)] == [(i * 10, i * 100) for i in range(20)]


def test_an_index_comes_back_from_its_file(tmp_path: Path) -> None:
    one = offsets(tmp_path)
    for i in range(1, 6):
        one.add(i, i * 10)
    one.seal()
    again = offsets(tmp_path)
    assert again.load()
    assert (again.count, again.last) == (5, (5, 50))
    assert not again.unwritten
    again.add(6, 60)
    again.flush()
    third = offsets(tmp_path)
    assert third.load()
    assert third.count == 6


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7,
        b"\0" * 16,
        struct.pack(">iiii", 5, 10, 5, 20),
        struct.pack(">iiii", 5, 10, 6, 10),
        struct.pack(">ii", -1, 10),
        struct.pack(">ii", 1, -10),
    ],
)
def test_what_cannot_be_an_index_is_not_taken(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "0.index").write_bytes(data)
    one = offsets(tmp_path)
    assert not one.load()
    assert (one.count, one.last) == (0, None)
    one.add(3, 30)
    one.flush()
    assert (tmp_path / "0.index").read_bytes() == struct.pack(">ii", 3, 30)


def test_a_missing_file_is_no_index_and_is_made_by_a_flush(tmp_path: Path) -> None:
    one = offsets(tmp_path)
    assert not one.load()
    assert one.flush()
    assert (tmp_path / "0.index").read_bytes() == b""
    assert one.load()


@pytest.mark.parametrize("written", [0, 3, 5])
@pytest.mark.parametrize("kept", range(6))
def test_entries_can_be_dropped_from_the_end(tmp_path: Path, written: int, kept: int) -> None:
    one = offsets(tmp_path)
    for i in range(1, 6):
        one.add(i, i * 10)
        if i == written:
            one.flush()
    one.keep(kept)
    assert [one.entry(i) for i in range(one.count)] == [(i, i * 10) for i in range(1, kept + 1)]
    one.add(9, 90)
    one.flush()
    assert (tmp_path / "0.index").stat().st_size == 8 * (kept + 1)


def test_a_full_disk_keeps_entries_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = offsets(tmp_path)
    one.add(1, 10)
    one.flush()
    one.add(2, 20)
    one.add(3, 30)
    with Disk(monkeypatch).failing(errno.ENOSPC, "pwrite"):
        assert not one.flush()
    assert one.unwritten
    assert [one.entry(i) for i in range(3)] == [(1, 10), (2, 20), (3, 30)]
    assert one.flush()
    assert (tmp_path / "0.index").read_bytes() == struct.pack(">6i", 1, 10, 2, 20, 3, 30)


def test_memory_is_bounded(tmp_path: Path) -> None:
    one = offsets(tmp_path)
    for i in range(1, index.PENDING_LIMIT // 8 * 3):
        one.add(i, i)
    assert len(one._pending) < index.PENDING_LIMIT
    assert one.search(10_000) == 10_000
