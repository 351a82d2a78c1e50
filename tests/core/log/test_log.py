"""One partition: append, read, times, flush, removal, and what a failing disk does to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.log.shared import LogShared
from core.records.batch import batches, build_batch, read_header, set_log_append_time
from core.records.record import NewRecord
from core.types import LogOffsets, TimestampOffset
from tests.core.log.disk import Disk
from tests.core.log.shelf import Shelf, append, index_entries, read_all, records, values


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def refused(call: Callable[[], object], code: ErrorCode) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        call()
    assert caught.value.code is code
    return caught.value


# --- append ------------------------------------------------------------------------------------------------


def test_an_empty_log_begins_and_ends_at_0(shelf: Shelf) -> None:
    log = shelf.open()
    assert (log.offsets, log.size, log.leader_epoch) == (LogOffsets(0, 0, 0, 0), 0, -1)
    assert log.read(0, 1000, min_one=True).slice is None
    assert log.begin_flush() is None
    assert os.listdir(shelf.directory) == []


def test_offsets_are_dense_and_written_into_the_batch(shelf: Shelf) -> None:
    log = shelf.open()
    first = append(log, records("a", "b"), epoch=3)
    second = append(log, records("c"), epoch=3)
    assert (first.base_offset, first.last_offset, first.log_append_time, first.duplicate) == (0, 1, -1, False)
    assert (second.base_offset, second.last_offset) == (2, 2)
    data = (shelf.directory / "00000000000000000000.log").read_bytes()
    assert [(h.base_offset, h.leader_epoch) for _, h in batches(data)] == [(0, 3), (2, 3)]
    assert [r.offset for r in read_all(log)] == [0, 1, 2]


def test_an_append_is_one_write(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    log = shelf.open()
    append(log, records("a"))
    disk = Disk(monkeypatch)
    for _ in range(50):
        append(log, records("x" * 100))
    assert disk.calls == ["write"] * 50


def test_several_batches_of_one_append_are_numbered_one_after_the_other(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("a"))
    buffer = bytearray().join(build_batch(records(*part), now_ms=5) for part in ("bc", "d", "efg"))
    result = log.append(memoryview(buffer), [h for _, h in batches(buffer)], leader_epoch=0)
    assert (result.base_offset, result.last_offset) == (1, 6)
    assert values(log) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


def test_each_batch_of_an_append_is_indexed_for_itself(shelf: Shelf) -> None:
    log = shelf.open()
    buffer = bytearray().join(build_batch(records("x" * 150), now_ms=i) for i in range(10))
    log.append(buffer, [h for _, h in batches(buffer)], leader_epoch=0)
    offsets, _ = index_entries(log.segments.active)
    assert offsets
    assert {position for _, position in offsets} <= {position for position, _ in batches(buffer)}
    assert log.segments.active.max_timestamp == 9


def test_an_append_with_the_brokers_time_tells_it(shelf: Shelf) -> None:
    log = shelf.open()
    batch = build_batch(records("a"), now_ms=1)
    set_log_append_time(batch, 0, 77)
    assert log.append(batch, [read_header(batch)], leader_epoch=0).log_append_time == 77


def test_a_segment_is_rolled_when_a_batch_does_not_fit(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, segment_bytes=500)
    log = shelf.open()
    for i in range(20):
        append(log, records(f"value {i}" + "x" * 60))
    bases = [s.base_offset for s in log.segments.all]
    assert len(bases) == 7
    assert all(s.size <= 500 for s in log.segments.all)
    assert values(log) == [f"value {i}".encode() + b"x" * 60 for i in range(20)]
    names = set(os.listdir(shelf.directory))
    assert names >= {f"{base:020d}.{kind}" for base in bases[:-1] for kind in ("log", "index", "timeindex")}
    assert f"{bases[-1]:020d}.snapshot" in names


def test_batches_larger_than_a_segment_are_refused(tmp_path: Path) -> None:
    log = Shelf(tmp_path, segment_bytes=200).open()
    error = refused(lambda: append(log, records("x" * 200)), ErrorCode.RECORD_LIST_TOO_LARGE)
    assert error.details["limit"] == 200
    append(log, records("x"))
    refused(lambda: append(log, records("x" * 200)), ErrorCode.RECORD_LIST_TOO_LARGE)
    assert log.offsets.log_end_offset == 1


def test_a_segment_is_rolled_when_the_records_are_too_far_apart_in_time(tmp_path: Path) -> None:
    log = Shelf(tmp_path, segment_ms=1000).open()
    for time in (5000, 5500, 6000, 6001, 7001, 7002):
        append(log, records("a", time=time))
    assert [s.base_offset for s in log.segments.all] == [0, 3, 5]


def test_without_record_times_a_segment_ages_by_the_brokers_clock(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, segment_ms=1000)
    log = shelf.open()
    append(log, records("a", time=-1))
    shelf.clock.advance(0.9)
    append(log, records("b", time=-1))
    shelf.clock.advance(0.2)
    append(log, records("c", time=-1))
    assert [s.base_offset for s in log.segments.all] == [0, 2]


def test_the_age_of_a_segment_survives_a_restart(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, segment_ms=1000)
    log = shelf.open()
    append(log, records("a", time=5000))
    append(log, records("b", time=5900))
    log = shelf.reopen_cleanly(log)
    append(log, records("c", time=6001))
    assert [s.base_offset for s in log.segments.all] == [0, 2]


def test_files_are_private(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("a"))
    log.close()
    modes = {entry.stat().st_mode & 0o777 for entry in os.scandir(shelf.directory)}
    assert modes == {0o600}


# --- idempotent producers ----------------------------------------------------------------------------------


def test_a_batch_that_comes_again_is_answered_as_the_first_time(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("a", "b"), producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, records("other"))
    append(log, records("c"), producer_id=7, producer_epoch=0, base_sequence=2)
    again = append(log, records("a", "b"), producer_id=7, producer_epoch=0, base_sequence=0)
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 1, True)
    assert values(log) == [b"a", b"b", b"other", b"c"]


def test_a_gap_in_the_sequence_is_refused_and_changes_nothing(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("a"), producer_id=7, producer_epoch=0, base_sequence=0)
    refused(
        lambda: append(log, records("c"), producer_id=7, producer_epoch=0, base_sequence=2),
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
    append(log, records("b"), producer_id=7, producer_epoch=0, base_sequence=1)
    assert values(log) == [b"a", b"b"]


@pytest.mark.parametrize("clean", [True, False])
def test_all_five_remembered_batches_are_recognised_after_a_restart(shelf: Shelf, clean: bool) -> None:
    log = shelf.open()
    for i in range(7):
        append(log, records(str(i)), producer_id=7, producer_epoch=1, base_sequence=i)
    log = shelf.reopen_cleanly(log) if clean else shelf.open()
    for i in range(2, 7):
        again = append(log, records(str(i)), producer_id=7, producer_epoch=1, base_sequence=i)
        assert (again.base_offset, again.duplicate) == (i, True)
    refused(
        lambda: append(log, records("1"), producer_id=7, producer_epoch=1, base_sequence=1),
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    )
    assert append(log, records("7"), producer_id=7, producer_epoch=1, base_sequence=7).base_offset == 7


def test_two_batches_of_an_idempotent_producer_at_once_are_refused(shelf: Shelf) -> None:
    log = shelf.open()
    one = build_batch(records("a"), now_ms=5, producer_id=1, producer_epoch=0, base_sequence=0)
    buffer = one + one
    refused(
        lambda: log.append(buffer, [h for _, h in batches(buffer)], leader_epoch=0), ErrorCode.INVALID_RECORD
    )


def test_producers_are_listed(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("a", "b", time=99), producer_id=7, producer_epoch=2, base_sequence=0)
    (state,) = log.active_producers()
    assert (state.producer_id, state.producer_epoch, state.last_sequence, state.last_timestamp) == (
        7,
        2,
        1,
        99,
    )


# --- read --------------------------------------------------------------------------------------------------


def batch_sizes(log_directory: Path) -> list[int]:
    data = b"".join(path.read_bytes() for path in sorted(log_directory.glob("*.log")))
    return [header.size for _, header in batches(data)]


def test_a_read_gives_whole_batches_up_to_the_limit(shelf: Shelf) -> None:
    log = shelf.open()
    for i in range(40):
        append(log, records("x" * (i * 7 % 90), "y"))
    sizes = batch_sizes(shelf.directory)
    for first in range(40):
        for limit in (1, 100, 250, 400, 1000, 3000, 10**6):
            got = log.read(first * 2 + 1, limit, min_one=True).slice
            assert got is not None
            count, total = 0, 0
            while first + count < 40 and total + sizes[first + count] <= limit:
                total += sizes[first + count]
                count += 1
            assert got.length == (total or sizes[first])
            assert next(batches(got.read()))[1].base_offset == first * 2


def test_without_min_one_a_batch_that_is_too_large_is_not_given(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("x" * 500))
    assert log.read(0, 100, min_one=False).slice is None
    assert log.read(0, 1000, min_one=False).slice is not None


def test_a_read_ends_in_front_of_the_end_offset(shelf: Shelf) -> None:
    log = shelf.open()
    for i in range(30):
        append(log, records(f"{i}" * 20))
    for end in range(31):
        got = log.read(0, 10**6, min_one=True, end_offset=end).slice
        data = got.read() if got else b""
        assert [h.base_offset for _, h in batches(data)] == list(range(end))


def test_a_read_out_of_range_tells_the_range(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("a", "b"))
    for offset in (-1, 3):
        error = refused(lambda at=offset: log.read(at, 100, min_one=True), ErrorCode.OFFSET_OUT_OF_RANGE)  # type: ignore[misc]
        assert (error.details["log_start_offset"], error.details["high_watermark"]) == (0, 2)
    assert log.read(2, 100, min_one=True).slice is None


def test_a_reader_at_the_tail_needs_no_search(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    log = shelf.open()
    for _ in range(100):
        append(log, records("x" * 50))
    assert read_all(log)[-1].offset == 99
    calls = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: calls.append(args) or real(*args))
    for i in range(10):
        append(log, records("x"))
        got = log.read(100 + i, 10**6, min_one=True).slice
        assert got is not None
    assert calls == []


def test_a_slice_stays_readable_after_its_segment_is_removed(tmp_path: Path) -> None:
    log = Shelf(tmp_path, segment_bytes=200).open()
    for i in range(10):
        append(log, records(f"value {i}" * 5))
    held = log.read(0, 10**6, min_one=True).slice
    assert held is not None
    log.truncate_prefix(10)
    log.release()
    assert b"value 0" in held.read()


# --- time --------------------------------------------------------------------------------------------------


def test_offsets_are_found_by_time(tmp_path: Path) -> None:
    log = Shelf(tmp_path, segment_bytes=400).open()
    times = [1000, 1010, 1005, 1100, 1090, 1200, 1200, 1150, 1300, 1250, 1400, 1390, 1500]
    for time in times:
        append(log, records("x" * 30, time=time), epoch=4)
    assert len(log.segments.all) > 2
    for wanted in range(990, 1510, 5):
        expected = next(((t, i, 4) for i, t in enumerate(times) if t >= wanted), (-1, -1, -1))
        assert log.offset_for_time(wanted) == TimestampOffset(*expected)
    assert log.max_timestamp() == TimestampOffset(1500, 12, 4)
    assert log.earliest() == TimestampOffset(-1, 0, 4)
    assert log.latest() == TimestampOffset(-1, 13, 4)


def test_a_time_is_found_within_a_compressed_batch(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, [NewRecord(value=b"v", timestamp=t) for t in (10, 30, 20, 40)], codec=1)
    assert log.offset_for_time(25) == TimestampOffset(30, 1, 0)
    assert log.max_timestamp() == TimestampOffset(40, 3, 0)


def test_times_below_the_log_start_are_not_found(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, [NewRecord(value=b"v", timestamp=t) for t in (10, 90, 30)])
    log.truncate_prefix(2)
    assert log.offset_for_time(5) == TimestampOffset(30, 2, 0)
    assert log.offset_for_time(50) == TimestampOffset(-1, -1, -1)


# --- leader epochs -----------------------------------------------------------------------------------------


def test_leader_epochs_are_kept_and_told(shelf: Shelf) -> None:
    log = shelf.open()
    for epoch, count in ((0, 2), (3, 1), (5, 4)):
        for _ in range(count):
            append(log, records("x"), epoch=epoch)
    expected = {-1: (-1, -1), 0: (0, 2), 1: (0, 2), 3: (3, 3), 4: (3, 3), 5: (5, 7), 6: (-1, -1)}
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in expected} == expected
    assert (shelf.directory / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n3 2\n5 3\n"
    log = shelf.open()
    assert log.end_offset_for_epoch(4) == (3, 3)
    refused(lambda: append(log, records("x"), epoch=4), ErrorCode.FENCED_LEADER_EPOCH)


# --- removal -----------------------------------------------------------------------------------------------


def test_delete_records_moves_the_start_and_removes_whole_segments(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, segment_bytes=200)
    log = shelf.open()
    for i in range(10):
        append(log, records(f"{i}" * 60), epoch=i // 4)
    bases = [s.base_offset for s in log.segments.all]
    assert log.truncate_prefix(5) == 5
    assert log.truncate_prefix(3) == 5
    assert log.segments.all[0].base_offset == max(b for b in bases if b <= 5)
    assert [r.offset for r in read_all(log)] == [5, 6, 7, 8, 9]
    assert log.epochs.entries == [(1, 5), (2, 8)]
    refused(lambda: log.read(4, 100, min_one=True), ErrorCode.OFFSET_OUT_OF_RANGE)
    refused(lambda: log.truncate_prefix(11), ErrorCode.OFFSET_OUT_OF_RANGE)
    assert log.truncate_prefix(10) == 10
    assert append(log, records("next"), epoch=2).base_offset == 10
    assert any(name.endswith(".deleted") for name in os.listdir(shelf.directory))
    log = shelf.open(log_start=10)
    assert (log.offsets, values(log)) == (LogOffsets(10, 11, 11, 11), [b"next"])
    assert not any(name.endswith(".deleted") for name in os.listdir(shelf.directory))


def test_a_log_start_beyond_what_survived_is_kept(shelf: Shelf) -> None:
    """Deleted up to 100, then the power failed before the records were fsynced: 100 comes next, not 60."""
    log = shelf.open()
    append(log, records("a", "b"))
    log = shelf.open(log_start=5)
    assert log.offsets == LogOffsets(5, 5, 5, 5)
    assert append(log, records("c")).base_offset == 5
    assert log.damage is None
    assert values(shelf.open(log_start=5)) == [b"c"]


# --- shared ------------------------------------------------------------------------------------------------


def test_a_full_disk_is_complained_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    shared = LogShared(Config(), clock)
    for _ in range(1000):
        shared.complain("orders-0", OSError(28, "No space left on device"))
        clock.advance(0.01)
    assert len(caplog.records) == 2
    assert "orders-0" in caplog.text
    assert "more since" in caplog.text
