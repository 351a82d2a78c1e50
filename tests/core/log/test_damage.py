"""Finding the next whole batch after damaged bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.log import damage
from core.log.damage import find_batch
from core.records.batch import assign, build_batch
from core.records.record import NewRecord


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log"


def found(path: Path, data: bytes, position: int = 0, minimum: int = 0) -> int | None:
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        return find_batch(fd, position, len(data), minimum)
    finally:
        os.close(fd)


def batch(offset: int, size: int = 50) -> bytes:
    made = build_batch([NewRecord(value=b"\2" * size)], now_ms=5)
    assign(made, 0, base_offset=offset, leader_epoch=0)
    return bytes(made)


def test_a_batch_is_found_after_anything(path: Path) -> None:
    chance = random.Random(1)
    for length in (0, 1, 15, 16, 17, 60, 61, 62, 999):
        for garbage in (bytes(length), b"\2" * length, b"\xff" * length, chance.randbytes(length)):
            assert found(path, garbage + batch(7)) == length
            assert found(path, garbage + batch(7) + batch(8)) == length


def test_a_batch_that_is_not_whole_is_no_batch(path: Path) -> None:
    good = batch(7)
    assert found(path, good[:-1]) is None
    for at in (8, 11, 16, 17, 21, 30, 70):
        bad = bytearray(good)
        bad[at] ^= 1
        assert found(path, bytes(bad)) is None
    assert found(path, good[:-2] + batch(8)) == len(good) - 2
    assert found(path, b"") is None


def test_offsets_below_the_minimum_are_not_wanted(path: Path) -> None:
    data = b"junk" + batch(7) + batch(9)
    assert found(path, data, minimum=8) == 4 + len(batch(7))
    assert found(path, data, minimum=10) is None
    assert found(path, data, position=5) == 4 + len(batch(7))


@pytest.mark.parametrize("window", [1, 30, 64, 100, 1000])
def test_a_batch_may_lie_across_what_is_read_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(damage, "WINDOW", window)
    for length in range(90, 130, 3):
        assert found(path, b"\2" * length + batch(7)) == length


def test_the_search_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "SEARCH_LIMIT", 500)
    assert found(path, bytes(400) + batch(7)) == 400
    assert found(path, bytes(600) + batch(7)) is None
