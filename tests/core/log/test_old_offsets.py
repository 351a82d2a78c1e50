"""The offsets that ListOffsets v0 lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.log.old_offsets import EARLIEST, LATEST, segment_offsets
from tests.core.log.shelf import Shelf, append, records


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path, segment_bytes=300)


def test_segments_are_listed_newest_first(shelf: Shelf) -> None:
    log = shelf.open()
    for i in range(5):
        append(log, records(f"{i}" * 60))
    assert segment_offsets(log, LATEST, 10) == [5, 4, 2, 0]
    assert segment_offsets(log, LATEST, 2) == [5, 4]
    assert segment_offsets(log, LATEST, -1) == []
    assert segment_offsets(log, EARLIEST, 10) == [0]
    log.truncate_prefix(1)
    assert segment_offsets(log, EARLIEST, 10) == [1]
    assert segment_offsets(log, LATEST, 10) == [5, 4, 2, 1]


def test_a_time_gives_the_segments_last_written_before(shelf: Shelf) -> None:
    log = shelf.open()
    for i in range(5):
        append(log, records(f"{i}" * 60))
    for i, segment in enumerate(log.segments.all):
        os.utime(segment.log.path, (1000 + i, 1000 + i))
    assert segment_offsets(log, 1_001_500, 10) == [2, 0]
    assert segment_offsets(log, 999_000, 10) == []


def test_an_empty_log_has_its_start(shelf: Shelf) -> None:
    assert segment_offsets(shelf.open(), LATEST, 10) == [0]
