"""What a log promises of the disk: fsync, and what it does when the disk refuses (R6, R7)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from tests.core.log.disk import Disk
from tests.core.log.shelf import Shelf, append, flush, records, values


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def refused(call: Callable[[], object], code: ErrorCode) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        call()
    assert caught.value.code is code
    return caught.value


# --- flush -------------------------------------------------------------------------------------------------


def test_a_flush_covers_what_was_there_when_it_began(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    log = shelf.open()
    append(log, records("a", "b"))
    disk = Disk(monkeypatch)
    task = log.begin_flush()
    assert task is not None
    append(log, records("c"))
    task.run()
    assert disk.calls.count("sync") == 1
    assert disk.calls.count("sync_path") == 3  # the epochs, the directory, the one above: all new
    log.finish_flush(task, None)
    assert (log.flushed_offset, log.offsets.log_end_offset) == (2, 3)
    assert log in shelf.shared.dirty
    disk.calls.clear()
    flush(log)
    assert (log.flushed_offset, disk.calls.count("sync"), disk.calls.count("sync_path")) == (3, 1, 0)
    assert log not in shelf.shared.dirty
    assert log.begin_flush() is None


def test_a_flush_covers_segments_that_were_rolled_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Shelf(tmp_path, segment_bytes=200).open()
    for i in range(6):
        append(log, records(f"{i}" * 60))
    count = len(log.segments.all)
    disk = Disk(monkeypatch)
    task = log.begin_flush()
    assert task is not None
    append(log, records("y" * 60))
    append(log, records("z" * 60))
    task.run()
    assert disk.calls.count("sync") == count
    log.finish_flush(task, None)
    disk.calls.clear()
    flush(log)
    # The one that was active then, if it was written on, and those after it.
    assert disk.calls.count("sync") == len(log.segments.all) - count
    assert disk.calls.count("sync_path") >= 2 * (len(log.segments.all) - count - 1)
    assert log.flushed_offset == 8


def test_settings_ask_for_a_flush_by_number_and_by_time(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, flush_messages=3, flush_ms=5000)
    log = shelf.open()
    assert (log.flush_due, log.flush_deadline) == (False, None)
    append(log, records("a", "b"))
    started = shelf.clock.monotonic()
    shelf.clock.advance(1)
    assert (log.flush_due, log.flush_deadline) == (False, started + 5)
    append(log, records("c"))
    assert (log.flush_due, log.flush_deadline) == (True, started + 5)
    flush(log)
    assert (log.flush_due, log.flush_deadline) == (False, None)


def test_after_a_failed_fsync_nothing_is_taken_until_a_restart(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = shelf.open()
    append(log, records("a"))
    disk = Disk(monkeypatch)
    task = log.begin_flush()
    assert task is not None
    with disk.failing(errno.EIO, "sync"), pytest.raises(OSError) as caught:
        task.run()
    log.finish_flush(task, caught.value)
    assert log.flushed_offset == 0
    refused(lambda: append(log, records("b")), ErrorCode.KAFKA_STORAGE_ERROR)
    refused(log.begin_flush, ErrorCode.KAFKA_STORAGE_ERROR)
    # A later task that began before and succeeded proves nothing.
    log.finish_flush(task, None)
    assert log.flushed_offset == 0
    assert values(log) == [b"a"]


# --- a disk that refuses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_write_that_fails_leaves_no_trace_and_the_log_continues(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    log = shelf.open()
    append(log, records("a"), producer_id=7, producer_epoch=0, base_sequence=0)
    disk = Disk(monkeypatch)
    with disk.failing(code, "write"):
        for _ in range(3):
            error = refused(
                lambda: append(log, records("b" * 99), producer_id=7, producer_epoch=0, base_sequence=1),
                ErrorCode.KAFKA_STORAGE_ERROR,
            )
            assert error.details["errno"] == code
            assert values(log) == [b"a"]
    append(log, records("b"), producer_id=7, producer_epoch=0, base_sequence=1)
    assert values(log) == [b"a", b"b"]
    assert values(shelf.open()) == [b"a", b"b"]


def test_a_log_whose_failed_write_cannot_be_cut_off_takes_nothing_more(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = shelf.open()
    append(log, records("a"))
    disk = Disk(monkeypatch)
    with disk.failing(errno.ENOSPC, "write", "truncate"):
        refused(lambda: append(log, records("b")), ErrorCode.KAFKA_STORAGE_ERROR)
    refused(lambda: append(log, records("c")), ErrorCode.KAFKA_STORAGE_ERROR)
    assert values(log) == [b"a"]
    log = shelf.open()
    assert values(log) == [b"a"]
    append(log, records("b"))
    assert values(log) == [b"a", b"b"]


def test_each_effect_of_a_roll_may_meet_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    for at in range(12):
        shelf = Shelf(tmp_path / str(at), segment_bytes=300)
        log = shelf.open()
        taken = []
        for i in range(3):
            append(log, records(f"{i}" * 60))
            taken.append(f"{i}".encode() * 60)
        with disk.failing(errno.ENOSPC, "write", "pwrite", "open_file", "rename", at=at):
            for i in range(3, 6):
                try:
                    append(log, records(f"{i}" * 60), epoch=i)
                    taken.append(f"{i}".encode() * 60)
                except BrokerError as error:
                    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                assert values(log) == taken
        append(log, records("last"), epoch=9)
        taken.append(b"last")
        assert values(log) == taken
        assert values(shelf.open()) == taken
        assert values(shelf.reopen_cleanly(log)) == taken


def test_a_log_opens_for_reading_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(tmp_path, segment_bytes=400)
    log = shelf.open()
    for i in range(12):
        append(log, records(f"{i}" * 60), producer_id=1, producer_epoch=0, base_sequence=i)
    log.close()
    for name in os.listdir(shelf.directory):
        if not name.endswith(".log"):
            (shelf.directory / name).unlink()
    disk = Disk(monkeypatch)
    disk.fail(errno.ENOSPC, "write", "pwrite", "open_file", "make_directory")
    log = shelf.open()
    assert [v[:2] for v in values(log) if v] == [f"{i}".encode() * (2 if i < 10 else 1) for i in range(12)]
    assert log.offset_for_time(0).offset == 0
    refused(lambda: append(log, records("x")), ErrorCode.KAFKA_STORAGE_ERROR)
    disk.heal()
    assert append(log, records("x"), producer_id=1, producer_epoch=0, base_sequence=12).base_offset == 12
