"""Reading unchecked batches: where the whole ones end, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.log import scan as module
from core.log.epochs import LeaderEpochs
from core.log.files import FilePool
from core.log.scan import EpochCheck, Scan, scan
from core.log.segment import Segment
from core.records.batch import assign, build_batch
from core.records.record import NewRecord


def batch(offset: int, count: int = 1, *, epoch: int = 0, size: int = 10) -> bytearray:
    made = build_batch([NewRecord(value=b"x" * size)] * count, now_ms=1000 + offset)
    assign(made, 0, base_offset=offset, leader_epoch=epoch)
    return made


def scanned(tmp_path: Path, data: bytes, **options: object) -> Scan:
    (tmp_path / "00000000000000000000.log").write_bytes(data)
    segment = Segment(FilePool(5), str(tmp_path), 0, interval=100, created_ms=0, size=len(data))
    settings: dict[str, object] = {"limit": None, "dense": True, "epochs": EpochCheck(None)} | options
    return scan(segment, 0, 0, **settings)  # type: ignore[arg-type]


def test_whole_batches_go_to_the_end_of_the_file(tmp_path: Path) -> None:
    data = batch(0, 2) + batch(2) + batch(3, 5)
    assert scanned(tmp_path, data) == Scan(len(data), 8, None)
    assert scanned(tmp_path, b"") == Scan(0, 0, None)


@pytest.mark.parametrize("window", [61, 80, 200, 1000])
def test_batches_may_be_larger_than_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(module, "SCAN_WINDOW", window)
    data = b"".join(batch(i, size=i * 37 % 400) for i in range(30))
    assert scanned(tmp_path, data) == Scan(len(data), 30, None)
    assert scanned(tmp_path, data[:-1]).next_offset == 29


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (batch(1)[:30], "torn header"),
        (batch(1)[:-1], "are left"),
        (batch(0), "offset 0 where 1"),
        (batch(2), "offset 2 where 1"),
        (bytearray(100), "magic 0"),
    ],
)
def test_the_reason_is_told(tmp_path: Path, second: bytearray, reason: str) -> None:
    first = batch(0)
    found = scanned(tmp_path, first + second)
    assert found[:2] == (len(first), 1)
    assert found.reason is not None
    assert reason in found.reason


def test_a_wrong_checksum_and_a_wrong_length_are_told(tmp_path: Path) -> None:
    for at, reason in ((70, "checksum"), (18, "checksum"), (11, "length"), (10, "are left"), (8, "length")):
        bad = batch(1, size=100)
        bad[at] ^= 0x80
        found = scanned(tmp_path, batch(0) + bad + batch(2, size=300))
        assert found.next_offset == 1
        assert found.reason is not None
        assert reason in found.reason


def test_holes_are_allowed_where_compaction_may_have_been(tmp_path: Path) -> None:
    data = batch(0) + batch(5) + batch(9)
    assert scanned(tmp_path, data, dense=False) == Scan(len(data), 10, None)
    assert scanned(tmp_path, data).next_offset == 1


def test_an_offset_that_jumped_too_far_ahead_is_found_by_the_next(tmp_path: Path) -> None:
    """Its checksum is right, for it does not cover the offset."""
    first = batch(0)
    found = scanned(tmp_path, first + batch(1 + 64) + batch(2) + batch(3), dense=False)
    assert found[:2] == (len(first), 1)


def test_offsets_beyond_the_segment_are_not_taken(tmp_path: Path) -> None:
    data = batch(0) + batch(1, 3)
    assert scanned(tmp_path, data, limit=3).next_offset == 1
    assert scanned(tmp_path, data, limit=4).reason is None


def test_a_segment_that_ends_before_the_next_begins_has_lost_its_end(tmp_path: Path) -> None:
    data = batch(0) + batch(1)
    assert scanned(tmp_path, data, limit=5).reason is not None
    assert scanned(tmp_path, data, limit=5, dense=False).reason is None


def test_the_leader_epoch_must_be_the_one_of_that_offset(tmp_path: Path) -> None:
    epochs = LeaderEpochs(str(tmp_path / "epochs"))
    epochs.assign(2, 1)
    epochs.assign(4, 3)
    good = [batch(0, epoch=1), batch(1, epoch=2), batch(2, epoch=2), batch(3, epoch=4)]
    assert scanned(tmp_path, b"".join(good), epochs=EpochCheck(epochs)).next_offset == 4
    assert (
        scanned(tmp_path, b"".join([*good[:2], batch(2, epoch=3)]), epochs=EpochCheck(epochs)).next_offset
        == 2
    )
    assert (
        scanned(tmp_path, b"".join([*good[:3], batch(3, epoch=7)]), epochs=EpochCheck(epochs)).next_offset
        == 3
    )


def test_batches_of_one_epoch_are_believed_against_a_list_without_a_checksum(tmp_path: Path) -> None:
    epochs = LeaderEpochs(str(tmp_path / "epochs"))
    epochs.assign(8, 1)
    check = EpochCheck(epochs)
    found = scanned(tmp_path, b"".join([batch(i, epoch=1) for i in range(3)]), epochs=check)
    assert (found.next_offset, found.reason, check.doubtful) == (3, None, True)


def test_good_batches_are_indexed(tmp_path: Path) -> None:
    data = b"".join(batch(i) for i in range(20))
    (tmp_path / "00000000000000000000.log").write_bytes(data)
    segment = Segment(FilePool(5), str(tmp_path), 0, interval=100, created_ms=0, size=len(data))
    scan(segment, 0, 0, limit=None, dense=True, epochs=EpochCheck(None))
    segment.mark_loaded()
    assert segment.max_timestamp == 1019
    assert segment.offsets.count > 5
    assert segment.locate(15) == len(data) // 20 * 15
