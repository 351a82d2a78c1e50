"""The offsets that ListOffsets v0 lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.log.old_offsets import EARLIEST, LATEST, segment_offsets
from tests.core.log.shelf import Shelf, append, records

NOW = 2_000_000_000_000


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path, segment_bytes=300)


def test_segments_are_listed_newest_first(shelf: Shelf) -> None:
    log = shelf.open()
    for i in range(5):
        append(log, records(f"{i}" * 60))
    assert segment_offsets(log, LATEST, 10, now_ms=NOW) == [5, 4, 2, 0]
    assert segment_offsets(log, LATEST, 2, now_ms=NOW) == [5, 4]
    assert segment_offsets(log, LATEST, -1, now_ms=NOW) == []
    assert segment_offsets(log, EARLIEST, 10, now_ms=NOW) == [0]
    log.truncate_prefix(1)
    assert segment_offsets(log, EARLIEST, 10, now_ms=NOW) == [1]
    assert segment_offsets(log, LATEST, 10, now_ms=NOW) == [5, 4, 2, 1]


def test_a_time_gives_the_segments_last_written_before(shelf: Shelf) -> None:
    log = shelf.open()
    for i in range(5):
        append(log, records(f"{i}" * 60))
    for i, segment in enumerate(log.segments.all):
        os.utime(segment.log.path, (1000 + i, 1000 + i))
    assert segment_offsets(log, 1_001_500, 10, now_ms=NOW) == [2, 0]
    assert segment_offsets(log, 999_000, 10, now_ms=NOW) == []
    assert segment_offsets(log, NOW - 1, 10, now_ms=NOW) == [4, 2, 0]
    assert segment_offsets(log, NOW, 10, now_ms=NOW) == [5, 4, 2, 0], "the end is of now"


def test_an_empty_log_has_its_start(shelf: Shelf) -> None:
    assert segment_offsets(shelf.open(), LATEST, 10, now_ms=NOW) == [0]
