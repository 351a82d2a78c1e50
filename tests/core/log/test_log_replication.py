"""A log as a copy: the leader's bytes, what is shown of it, and cuts that equal a log which never had the rest."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.records.batch import batches, build_batch
from core.records.header import BatchHeader
from core.types import LogOffsets, TimestampOffset
from tests.core.log.disk import Died, Disk
from tests.core.log.shelf import Shelf, append, flush, index_entries, read_all, records, values

# (records, leader epoch, producer id) of each batch of the leader: epochs change, segments roll, producers return.
BATCHES = [
    (1, 0, -1), (3, 0, 7), (2, 0, 7), (5, 33, -1), (1, 33, 0), (1, 33, 7), (4, 34, 0), (2, 34, 0), (1, 65, -1),
    (6, 65, 7), (1, 65, 7), (2, 66, 9),
]  # fmt: skip
SEGMENT = 420


def leader(path: Path, count: int = len(BATCHES), segment_bytes: int = SEGMENT) -> Log:
    """A log with the first `count` batches, as its leaders have written it."""
    log = Shelf(path, segment_bytes=segment_bytes).open()
    sequences: dict[int, int] = {}
    number = itertools.count()
    for size, epoch, producer in BATCHES[:count]:
        sequence = sequences.get(producer, 0)
        sequences[producer] = sequence + size
        options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        new = [r for n in range(size) for r in records(f"v{next(number)}", time=1000 + 10 * n + epoch)]
        append(log, new, epoch=epoch, **(options if producer >= 0 else {}))
    return log


def all_bytes(log: Log) -> bytes:
    return b"".join(Path(s.log.path).read_bytes() for s in log.segments.all if s.size)


def copy_of(data: bytes) -> tuple[memoryview, list[BatchHeader]]:
    return memoryview(data), [header for _, header in batches(data)]


def follow(path: Path, source: Log, portions: Sequence[int] = (), segment_bytes: int = SEGMENT) -> Log:
    """A copy, fetched a number of batches at a time, or at once."""
    log = Shelf(path, segment_bytes=segment_bytes).open()
    data, headers = copy_of(all_bytes(source))
    for count in portions or [len(headers)]:
        size = sum(header.size for header in headers[:count])
        log.append_copy(data[:size], headers[:count])
        data, headers = data[size:], headers[count:]
    return log


def known(log: Log) -> object:
    """What a log says of itself beside its records."""
    times = [log.offset_for_time(t) for t in range(990, 1120, 7)]
    return (
        log.offsets,
        values(log),
        log.epochs.entries,
        sorted(log.active_producers()),
        times,
        log.max_timestamp(),
    )


def refused(call: Callable[[], object], code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as caught:
        call()
    assert caught.value.code is code


# --- following ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("portions", [(), (1,) * len(BATCHES), (5, 7), (11, 1)])
@pytest.mark.parametrize("segment_bytes", [SEGMENT, 1 << 20, 150])
def test_a_copy_has_the_leaders_bytes_however_they_come(
    tmp_path: Path, portions: Sequence[int], segment_bytes: int
) -> None:
    source = leader(tmp_path / "leader")
    log = follow(tmp_path / "copy", source, portions, segment_bytes)
    assert all_bytes(log) == all_bytes(source)
    assert known(log) == known(source)


def test_a_copy_is_the_same_after_a_crash(tmp_path: Path) -> None:
    source = leader(tmp_path / "leader")
    follow(tmp_path / "copy", source)
    again = Shelf(tmp_path / "copy", segment_bytes=SEGMENT).open(recovery_point=0)
    assert known(again) == known(source)


def test_an_offset_that_decreases_is_refused_and_one_that_jumps_is_taken(tmp_path: Path) -> None:
    source = leader(tmp_path / "leader")
    log = follow(tmp_path / "copy", source)
    data, headers = copy_of(all_bytes(source))
    before = known(log)
    refused(lambda: log.append_copy(data[: headers[0].size], headers[:1]), ErrorCode.CORRUPT_MESSAGE)
    assert known(log) == before
    jump = build_batch(records("far"), now_ms=1, base_offset=1000)
    jump[12:16] = (66).to_bytes(4, "big")
    log.append_copy(*copy_of(bytes(jump)))
    assert log.offsets.log_end_offset == 1001


def test_a_retry_at_the_new_leader_is_known(tmp_path: Path) -> None:
    log = follow(tmp_path / "copy", leader(tmp_path / "leader"))
    again = append(log, records("x", "y"), epoch=67, producer_id=9, producer_epoch=0, base_sequence=0)
    assert (again.duplicate, again.base_offset) == (True, log.offsets.log_end_offset - 2)


# --- what is shown -----------------------------------------------------------------------------------------


def test_nothing_is_shown_from_the_high_watermark_on(tmp_path: Path) -> None:
    log = leader(tmp_path / "leader", segment_bytes=1 << 20)
    log.visible = 6
    assert log.offsets == LogOffsets(0, 6, 29, 6)
    assert [r.offset for r in read_all(log)] == list(range(6))
    assert log.read(6, 1000, min_one=True).slice is None
    assert log.read(20, 1000, min_one=True).slice is None, "not out of range: it may come"
    refused(lambda: log.read(30, 1000, min_one=True), ErrorCode.OFFSET_OUT_OF_RANGE)
    assert log.latest() == TimestampOffset(-1, 6, 33)
    assert log.offset_for_time(1033).offset == -1, "the record of that time is not committed"
    assert log.max_timestamp().offset == -1
    everything = log.read(6, 1 << 20, min_one=True, end_offset=29).slice
    assert everything is not None
    assert next(h.base_offset for _, h in batches(everything.read())) == 6


# --- cuts --------------------------------------------------------------------------------------------------


def expected(path: Path, offset: int) -> Log:
    """A log that never had a batch which reaches beyond `offset`."""
    end = count = 0
    for size, _, _ in BATCHES:
        if end + size > offset:
            break
        end, count = end + size, count + 1
    return leader(path, count)


@pytest.mark.parametrize("offset", [*range(0, 30, 2), 1, 9, 27, 30])
def test_a_log_that_was_cut_is_one_that_never_had_the_rest(tmp_path: Path, offset: int) -> None:
    log, wanted = leader(tmp_path / "cut"), expected(tmp_path / "wanted", offset)
    if offset % 2:
        flush(log)
        log.checkpoint()
    log.begin_cut(offset)
    assert log.flushed_offset <= offset
    end = log.truncate_to(offset)
    assert end == wanted.offsets.log_end_offset
    assert known(log) == known(wanted)
    for one in (log, wanted):
        append(one, records("new", time=2000), epoch=97)
    assert known(log) == known(wanted)
    for segment in log.segments.all:
        index_entries(segment)
    flush(log)
    again = Shelf(tmp_path / "cut", segment_bytes=SEGMENT).open(recovery_point=log.flushed_offset)
    assert known(again) == known(wanted)
    log.close()
    clean = Shelf(tmp_path / "cut", segment_bytes=SEGMENT).open(
        recovery_point=wanted.offsets.log_end_offset, clean=True
    )
    assert known(clean) == known(wanted)


@pytest.mark.parametrize("offset", [0, 1, 9, 20, 28])
@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_cut_that_dies_at_any_effect_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, how: str
) -> None:
    """After each effect recovery finds a prefix of the old log that has all below the cut, and cuts the same."""
    wanted = known(expected(tmp_path / "wanted", offset))
    disk = Disk(monkeypatch)
    for at in range(40):
        path = tmp_path / f"{at}"
        log = leader(path)
        flush(log)
        log.checkpoint()
        old = values(log)
        log.begin_cut(offset)
        point = log.flushed_offset
        disk.fail("kill", at=at)
        try:
            log.truncate_to(offset)
            flush(log)
            died = False
        except Died:
            died = True
        disk.heal()
        if how == "power":
            for name in os.listdir(log.directory):
                if name.endswith(("index", ".snapshot")) and at % 2:
                    os.truncate(f"{log.directory}/{name}", 0)
        # The recovery point went back before, by the checkpoint.
        again = Shelf(path, segment_bytes=SEGMENT).open(recovery_point=point)
        found = values(again)
        assert found == old[: len(found)]
        assert len(found) >= wanted[0].log_end_offset  # type: ignore[index]
        again.begin_cut(offset)
        again.truncate_to(offset)
        assert known(again) == wanted
        if not died:
            return
    raise AssertionError("a cut has more effects than that")


def test_an_fsync_that_was_begun_before_a_cut_promises_nothing(tmp_path: Path) -> None:
    log = leader(tmp_path / "log")
    task = log.begin_flush()
    assert task is not None
    log.begin_cut(3)
    log.truncate_to(3)
    for _ in range(10):
        append(log, records("x" * 10, "y", "z"), epoch=97)
    task.run()
    log.finish_flush(task, None)
    assert log.flushed_offset <= 3
    flush(log)
    assert log.flushed_offset == log.offsets.log_end_offset


def test_a_disk_that_does_not_cut_makes_the_log_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = leader(tmp_path / "log")
    disk = Disk(monkeypatch)
    log.begin_cut(3)
    with disk.failing(5, "truncate", "rename"):
        refused(lambda: log.truncate_to(3), ErrorCode.KAFKA_STORAGE_ERROR)
    refused(lambda: append(log, records("x"), epoch=97), ErrorCode.KAFKA_STORAGE_ERROR)


def test_a_log_in_compaction_is_not_cut(tmp_path: Path) -> None:
    log = leader(tmp_path / "log")
    log.cleaning = True
    log.begin_cut(3)
    refused(lambda: log.truncate_to(3), ErrorCode.KAFKA_STORAGE_ERROR)
    log.cleaning = False
    assert log.truncate_to(3) == 1


def test_a_copy_begin_again_where_the_leader_has_nothing_older(tmp_path: Path) -> None:
    log = leader(tmp_path / "log")
    log.start_at(500)
    assert (log.offsets, log.epochs.entries, list(log.active_producers())) == (
        LogOffsets(500, 500, 500, 500),
        [],
        [],
    )
    batch = build_batch(records("a"), now_ms=1, base_offset=500)
    batch[12:16] = (97).to_bytes(4, "big")
    log.append_copy(*copy_of(bytes(batch)))
    flush(log)
    again = Shelf(tmp_path / "log", segment_bytes=SEGMENT).open(recovery_point=501, log_start=500)
    assert (again.offsets, values(again), again.epochs.entries) == (
        LogOffsets(500, 501, 501, 501),
        [b"a"],
        [(97, 500)],
    )
