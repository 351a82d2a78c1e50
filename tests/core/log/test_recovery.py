"""Opening a log after a crash: torn tails, flipped bits, missing and foreign files (R3, R4)."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.log import files
from core.log.log import Log
from core.records.batch import batches, check_crc
from core.records.header import HEADER_SIZE, BatchHeader
from tests.core.log.shelf import Shelf, append, flush, index_entries, read_all, records, values

BIG = os.environ.get("SLUICE_LONG_TESTS") == "1"


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """Three segments with idempotent batches of one to three records, not closed: the process died."""
    shelf = Shelf(tmp_path / "origin", segment_bytes=700)
    log = shelf.open()
    for i in range(14):
        batch = records(*(f"{i}.{j}" + "x" * (i * 11 % 40) for j in range(i % 3 + 1)))
        sequence = sum(k % 3 + 1 for k in range(i))
        append(log, batch, producer_id=9, producer_epoch=0, base_sequence=sequence, now_ms=1000 + i * 7 % 20)
    assert len(log.segments.all) == 3
    log.release()
    return shelf


def layout(shelf: Shelf) -> list[tuple[Path, int, BatchHeader]]:
    """Every batch of the log: its file, its position, its header."""
    return [
        (path, position, header)
        for path in sorted(shelf.directory.glob("*.log"))
        for position, header in batches(path.read_bytes())
    ]


def state(log: Log) -> object:
    """All that a log is: records, ends, indexes, producers, epochs."""
    return (
        log.offsets, read_all(log), [(s.base_offset, s.size, index_entries(s)) for s in log.segments.all],
        list(log.active_producers()), log.producers.encode(), log.epochs.entries, log.max_timestamp(),
    )  # fmt: skip


def replayed(shelf: Shelf, root: Path) -> object:
    """The state of the log when everything but the .log files is rebuilt."""
    other = shelf.copy(root)
    for path in other.directory.iterdir():
        if path.suffix != ".log":
            path.unlink()
    return state(other.open())


def files_of(shelf: Shelf) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in shelf.directory.iterdir()}


def check(shelf: Shelf, root: Path, expected_end: int, turn: int = 0) -> None:
    """The log opens, ends where it should, takes appends, and a second recovery changes nothing.

    In turns it is opened with no recovery point, with its end as that, and with something in between.
    """
    log = shelf.open(recovery_point=(None, expected_end, expected_end * 2 // 3)[turn % 3])
    assert log.damage is None
    assert log.offsets.log_end_offset == expected_end
    found = read_all(log)
    assert [r.offset for r in found] == list(range(expected_end))
    assert state(log) == replayed(shelf, root / "replayed")
    log.release()
    before = files_of(shelf)
    again = shelf.open()
    assert read_all(again) == found
    assert files_of(shelf) == before
    assert append(again, records("next")).base_offset == expected_end
    assert values(shelf.open())[-1] == b"next"


# --- torn tails --------------------------------------------------------------------------------------------


def cuts(shelf: Shelf) -> Iterator[tuple[Path, int, int]]:
    """(file, length, expected end offset): the log cut at each byte of its last three batches."""
    last = layout(shelf)[-3:]
    for path, position, header in last:
        for length in range(position, position + header.size):
            yield path, length, header.base_offset


def cut(shelf: Shelf, path: Path, length: int) -> None:
    """Cut one file and remove the segments after it, as a torn write would have never made them."""
    os.truncate(shelf.directory / path.name, length)
    for later in shelf.directory.glob("*.log"):
        if later.name > path.name:
            later.unlink()


def test_the_log_is_the_longest_valid_prefix_wherever_it_is_cut(shelf: Shelf, tmp_path: Path) -> None:
    places = list(cuts(shelf))
    assert len(places) > 200
    for i, (path, length, end) in enumerate(places if BIG else places[::5] + places[-3:]):
        torn = shelf.copy(tmp_path / f"torn{i}")
        cut(torn, path, length)
        check(torn, tmp_path / f"torn{i}", end, i)
        shutil.rmtree(tmp_path / f"torn{i}")


def test_each_flipped_bit_of_the_last_header_ends_the_log_there(shelf: Shelf, tmp_path: Path) -> None:
    path, position, header = layout(shelf)[-1]
    for bit in range(HEADER_SIZE * 8) if BIG else range(0, HEADER_SIZE * 8, 3):
        bad = shelf.copy(tmp_path / f"bit{bit}")
        flip(bad.directory / path.name, position * 8 + bit)
        check(bad, tmp_path / f"bit{bit}", header.base_offset, bit // 3)
        shutil.rmtree(tmp_path / f"bit{bit}")


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 0x80 >> bit % 8
    path.write_bytes(data)


@pytest.mark.timeout(7200 if BIG else 120)
def test_a_flipped_bit_anywhere_ends_the_log_at_that_batch(shelf: Shelf, tmp_path: Path) -> None:
    places = layout(shelf)
    chance = random.Random(4)
    for i in range(50_000 if BIG else 60):
        path, position, header = chance.choice(places)
        bad = shelf.copy(tmp_path / f"r{i}")
        flip(bad.directory / path.name, position * 8 + chance.randrange(header.size * 8))
        check(bad, tmp_path / f"r{i}", header.base_offset, i)
        shutil.rmtree(tmp_path / f"r{i}")


def test_garbage_after_the_last_batch_is_cut_off(shelf: Shelf, tmp_path: Path) -> None:
    path, position, header = layout(shelf)[-1]
    whole = (shelf.directory / path.name).read_bytes()
    last = whole[position:]
    for i, garbage in enumerate((b"\0" * 300, b"\xff" * 70, b"x", last, last[:61], os.urandom(5000))):
        bad = shelf.copy(tmp_path / f"g{i}")
        (bad.directory / path.name).write_bytes(whole + garbage)
        check(bad, tmp_path / f"g{i}", header.next_offset, i)


def test_the_lost_bytes_are_counted(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    path, position, header = layout(shelf)[-2]
    flip(shelf.directory / path.name, position * 8 + 200)
    lost = (shelf.directory / path.name).stat().st_size - position
    shelf.open()
    assert f"ends at offset {header.base_offset}; the {lost} bytes after it" in caplog.text


@pytest.mark.parametrize("segment", [0, 1])
def test_segments_after_a_bad_batch_are_removed(shelf: Shelf, tmp_path: Path, segment: int) -> None:
    places = layout(shelf)
    paths = sorted({path for path, _, _ in places})
    path, position, header = [place for place in places if place[0] == paths[segment]][-1]
    flip(shelf.directory / path.name, position * 8 + 300)
    opened = shelf.copy(tmp_path / "copy").open()
    # Those up to the bad one, which was sealed, and a new active one.
    assert len(opened.segments.all) == segment + 2
    assert (opened.segments.active.base_offset, opened.segments.active.size) == (header.base_offset, 0)
    check(shelf, tmp_path, header.base_offset)


# --- from the recovery point on ----------------------------------------------------------------------------


def test_only_what_lies_after_the_recovery_point_is_read_whole(shelf: Shelf) -> None:
    """Every recovery point gives the same log; damage to record bytes below it is not looked at."""
    expected = state(shelf.open())
    for _, _, header in layout(shelf):
        log = shelf.open(recovery_point=header.base_offset)
        assert state(log) == expected
        assert log.damage is None
        assert log.flushed_offset == header.base_offset


@pytest.mark.parametrize("which", [1, 5, 9, -3])
def test_a_broken_header_below_the_recovery_point_is_reported_and_not_cut(shelf: Shelf, which: int) -> None:
    end = layout(shelf)[-1][2].next_offset
    path, position, header = layout(shelf)[which]
    flip(shelf.directory / path.name, position * 8 + 70)  # the length
    sizes = {p.name: p.stat().st_size for p in shelf.directory.glob("*.log")}
    log = shelf.open(recovery_point=end)
    assert log.offsets.log_end_offset == end
    assert {n: (shelf.directory / n).stat().st_size for n in sizes} == sizes
    for offset in range(header.base_offset, header.next_offset):
        with pytest.raises(BrokerError) as caught:
            log.read(offset, 10, min_one=True)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    readable = [o for o in range(end) if not header.base_offset <= o < header.next_offset]
    for offset in readable:
        got = log.read(offset, 10, min_one=True).slice
        assert got is not None
        first = next(batches(got.read()))[1]
        assert first.base_offset <= offset <= first.last_offset
    assert append(log, records("next")).base_offset == end
    assert read_all(shelf.open(recovery_point=end), end)[0].value == b"next"


def test_damage_between_the_last_index_entry_and_the_recovery_point_is_told(shelf: Shelf) -> None:
    path, position, _ = layout(shelf)[-2]
    end = layout(shelf)[-1][2].next_offset
    flip(shelf.directory / path.name, position * 8 + 16 * 8 + 7)  # the magic
    log = shelf.open(recovery_point=end)
    assert log.damage is not None
    assert "cannot be read" in log.damage
    assert log.offsets.log_end_offset == end
    log = shelf.reopen_cleanly(log)
    assert log.offsets.log_end_offset == end


@pytest.mark.parametrize("on_boundary", [True, False])
def test_a_log_that_lost_its_flushed_end_is_reported_and_gives_no_offset_twice(
    shelf: Shelf, on_boundary: bool
) -> None:
    path, position, header = layout(shelf)[-2]
    end = layout(shelf)[-1][2].next_offset
    os.truncate(shelf.directory / path.name, position + (0 if on_boundary else 30))
    log = shelf.open(recovery_point=end)
    assert log.damage is not None
    assert append(log, records("next")).base_offset == end
    for offset in range(header.base_offset):
        assert log.read(offset, 10, min_one=True).slice is not None
    for again in (shelf.open(recovery_point=end), shelf.reopen_cleanly(log)):
        assert again.offsets.log_end_offset == end + 1
        assert read_all(again, end)[0].value == b"next"


def test_a_missing_directory_of_a_flushed_log_gives_no_offset_twice(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.directory.rmdir()
    log = shelf.open(recovery_point=50)
    assert log.damage is not None
    assert log.offsets.log_end_offset == 50


def test_what_was_checked_is_written_again_so_that_an_fsync_means_something(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an fsync that failed the kernel may hold pages as clean that it has never written."""
    written: list[tuple[int, bytes]] = []
    real = os.pwrite
    monkeypatch.setattr(
        files, "pwrite", lambda fd, data, at: written.append((at, bytes(data))) or real(fd, data, at)
    )
    before = {p.name: p.read_bytes() for p in shelf.directory.glob("*.log")}
    point = layout(shelf)[-3][2].base_offset
    shelf.open(recovery_point=point)
    path, position, _ = layout(shelf)[-3]
    tail = before[path.name][position:]
    assert (position, tail) in written
    assert {p.name: p.read_bytes() for p in shelf.directory.glob("*.log")} == before


# --- missing, torn and foreign files -----------------------------------------------------------------------


def test_each_file_but_the_logs_may_be_missing_or_zero_or_foreign(shelf: Shelf, tmp_path: Path) -> None:
    log = shelf.open()
    expected = state(log)
    log.close()
    end = log.offsets.log_end_offset
    others = sorted(p.name for p in shelf.directory.iterdir() if p.suffix != ".log")
    assert {name.split(".")[-1] for name in others} == {
        "index", "timeindex", "snapshot", "leader-epoch-checkpoint",
    }  # fmt: skip
    foreign = tmp_path / "foreign"
    other = Shelf(foreign, segment_bytes=700)
    theirs = other.open()
    for i in range(14):
        append(theirs, records("other" * (i % 4)), now_ms=5000 - i)
    theirs.close()
    sets = [(name,) for name in others] + list(itertools.combinations(others, 2))
    for i, names in enumerate(sets):
        for how in ("missing", "empty", "zeroed", "torn", "foreign"):
            for clean in (False, True):
                bad = shelf.copy(tmp_path / "bad")
                for name in names:
                    spoil(bad.directory / name, how, other.directory)
                opened = bad.open(recovery_point=end if clean else None, clean=clean)
                if how == "foreign":  # a snapshot of another log tells of other producers
                    assert read_all(opened) == expected[1]  # type: ignore[index]
                else:
                    assert state(opened) == expected, (i, names, how, clean)
                shutil.rmtree(tmp_path / "bad")


def spoil(path: Path, how: str, foreign: Path) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "zeroed":
        path.write_bytes(b"\0" * len(data))
    elif how == "torn":
        path.write_bytes(data[:-1])
    elif path.name != "leader-epoch-checkpoint" and path.suffix != ".snapshot":
        candidates = sorted(foreign.glob("*" + path.suffix))
        shutil.copy(candidates[len(path.name) % len(candidates)], path)


def test_leftovers_of_a_crash_are_removed(shelf: Shelf) -> None:
    expected = state(shelf.open())
    leftovers = (
        "00000000000000000000.log.deleted", "00000000000000000003.index", "00000000000000000000.log.cleaned",
        "leader-epoch-checkpoint.tmp", "00000000000000009999.snapshot",
    )  # fmt: skip
    for name in leftovers:
        (shelf.directory / name).write_bytes(b"anything")
    assert state(shelf.open()) == expected
    assert not {path.name for path in shelf.directory.iterdir()} & set(leftovers)


def test_a_compacted_segment_without_records_replaces_its_own_segment_alone(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, segment_bytes=100)
    log = shelf.open()
    for value in ("a", "b", "c"):
        append(log, records(value))
    flush(log)
    assert [segment.base_offset for segment in log.segments.all] == [0, 1, 2]
    log.release()
    (shelf.directory / f"{0:020}.log.swap").touch()
    assert values(shelf.open(recovery_point=3)) == [b"b", b"c"]


def test_a_clean_start_reads_the_end_of_the_last_segment_only(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = shelf.open()
    expected = state(log)
    log.close()
    end = log.offsets.log_end_offset
    calls = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda *args: calls.append(args) or real(*args))
    log = shelf.open(recovery_point=end, clean=True)
    assert len(calls) < 12
    assert state(log) == expected


def test_compaction_holes_in_sealed_segments_are_no_damage(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, segment_bytes=400)
    log = shelf.open()
    for i in range(12):
        append(log, records(f"{i}" * 50))
    first = log.segments.all[0]
    log.close()
    path = Path(first.log.path)
    data = path.read_bytes()
    found = list(batches(data))
    path.write_bytes(data[: found[0][1].size] + data[found[2][0] :])  # the second batch is lost
    log = shelf.open(compacted=log.segments.all[1].base_offset)
    assert [r.offset for r in read_all(log)] == [0, *range(2, 12)]
    assert all(check_crc(data, at, header) for at, header in found)
