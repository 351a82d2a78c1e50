"""The run of segments: which one holds an offset, and what a read of it gives."""

from __future__ import annotations

import os
from pathlib import Path

from core.log.log import Log
from core.log.segments import NOT_FOUND, Segments
from core.records.batch import batches
from core.vocabulary.partition import EARLIEST, LATEST
from tests.core.log.shelf import Shelf, append, records

NOW = 2_000_000_000_000


def run(tmp_path: Path) -> Segments:
    log = Shelf(tmp_path, segment_bytes=300).open()
    for i in range(9):
        append(log, records(f"{i}" * 60, time=1000 + i))
    return log.segments


def test_the_segment_of_an_offset_is_the_last_that_begins_before(tmp_path: Path) -> None:
    segments = run(tmp_path)
    assert [s.base_offset for s in segments.all] == [0, 2, 4, 6, 8]
    assert [segments.index_of(o) for o in (-1, 0, 1, 2, 5, 8, 99)] == [0, 0, 0, 1, 2, 4, 4]
    assert (segments.first_offset, segments.base_offsets) == (0, {0, 2, 4, 6, 8})


def test_sealed_segments_are_told_with_their_ends(tmp_path: Path) -> None:
    segments = run(tmp_path)
    assert [(s.base_offset, end) for s, end in segments.after(-1)] == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert [end for _, end in segments.after(4)] == [6, 8]
    assert [end for _, end in segments.after(5)] == [6, 8]
    assert segments.after(8) == []
    assert [s.sealed for s in segments.all] == [True] * 4 + [False]


def test_sizes_follow_what_is_replaced(tmp_path: Path) -> None:
    segments = run(tmp_path)
    sizes = [s.size for s in segments.all]
    assert segments.size == sum(sizes)
    segments.replace(segments.all[:2], [])
    assert segments.size == sum(sizes[2:])
    gone = segments.all[:2]
    segments.replace(gone, [gone[0]])
    assert (segments.size, [s.base_offset for s in segments.all]) == (sizes[2] + sizes[4], [4, 8])
    assert segments.active.base_offset == 8


def test_a_read_ends_with_its_segment(tmp_path: Path) -> None:
    segments = run(tmp_path)
    for offset in range(9):
        got = segments.slice(offset, 9, 9, 10**6, True)
        assert got is not None
        found = [h.base_offset for _, h in batches(got[0].read())]
        end = min(offset // 2 * 2 + 2, 9)
        assert (found, got[1]) == (list(range(offset, end)), end)


def test_a_segment_that_compaction_has_emptied_is_passed_by(tmp_path: Path) -> None:
    segments = run(tmp_path)
    for empty in segments.all[1:3]:
        empty.size = 0
        empty.forget(0)
    got = segments.slice(2, 9, 9, 10**6, True)
    assert got is not None
    assert next(batches(got[0].read()))[1].base_offset == 6


def test_times_are_looked_for_from_the_start_on(tmp_path: Path) -> None:
    segments = run(tmp_path)
    assert segments.find_time(1003, 0, 1000) == (1003, 3, 0)
    assert segments.find_time(0, 5, 1000) == (1005, 5, 0)
    assert segments.find_time(1009, 0, 1000) == NOT_FOUND
    assert segments.find_max_time(0, 1000) == (1008, 8, 0)


def listed(log: Log, timestamp: int, limit: int) -> list[int]:
    return log.segments.offsets_before(timestamp, limit, log.offsets, now_ms=NOW)


def test_list_offsets_v0_lists_segments_newest_first(tmp_path: Path) -> None:
    log = Shelf(tmp_path, segment_bytes=300).open()
    for i in range(5):
        append(log, records(f"{i}" * 60))
    assert listed(log, LATEST, 10) == [5, 4, 2, 0]
    assert listed(log, LATEST, 2) == [5, 4]
    assert listed(log, LATEST, -1) == []
    assert listed(log, EARLIEST, 10) == [0]
    log.truncate_prefix(1)
    assert listed(log, EARLIEST, 10) == [1]
    assert listed(log, LATEST, 10) == [5, 4, 2, 1]


def test_a_time_gives_the_segments_last_written_before(tmp_path: Path) -> None:
    log = Shelf(tmp_path, segment_bytes=300).open()
    for i in range(5):
        append(log, records(f"{i}" * 60))
    for i, segment in enumerate(log.segments.all):
        os.utime(segment.log.path, (1000 + i, 1000 + i))
    assert listed(log, 1_001_500, 10) == [2, 0]
    assert listed(log, 999_000, 10) == []
    assert listed(log, NOW - 1, 10) == [4, 2, 0]
    assert listed(log, NOW, 10) == [5, 4, 2, 0], "the end is of now"


def test_an_empty_log_lists_its_start(tmp_path: Path) -> None:
    assert listed(Shelf(tmp_path).open(), LATEST, 10) == [0]
