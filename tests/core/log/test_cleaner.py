"""Compaction: what stays, what is removed, and that a crash at any instruction is harmless (R5)."""

from __future__ import annotations

import errno
import itertools
import os
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.log.cleaner import (
    CleanerPass,
    dirty_ratio,
    dirty_segments,
    fingerprint,
    needs_compaction,
    roll_overdue,
)
from core.log.log import Log
from core.records.batch import batches, check_crc, read_records
from core.records.control import EndMarker
from core.records.header import BatchHeader
from core.records.record import NewRecord, Record
from core.types import AbortedTransaction
from tests.core.log.disk import Died, Disk
from tests.core.log.shelf import Shelf, append, flush, index_entries, read_all

NOW = 1_700_000_000_000
DAY = 86_400_000

S = TypeVar("S", bound=Shelf)


def compacted(tmp_path: Path, shelf: type[S] = Shelf, **config: object) -> S:
    options: dict[str, object] = {
        "segment_bytes": 600, "cleanup_policy": frozenset({"compact"}), "delete_retention_ms": DAY,
    }  # fmt: skip
    return shelf(tmp_path, **(options | config))


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def put(log: Log, *pairs: tuple[str | None, str | None], **options: int) -> None:
    """One batch of (key, value) records."""
    new = [NewRecord(key=encoded(key), value=encoded(value)) for key, value in pairs]
    append(log, new, **options)


def clean(shelf: Shelf, log: Log, cleaned_offset: int = 0, *, now_ms: int = NOW) -> int:
    """One whole pass; the first offset that it has not seen."""
    run = CleanerPass(shelf.shared, log, cleaned_offset, now_ms)
    error: OSError | None = None
    while not run.finished:
        task = run.step(shelf.clock.monotonic() + 1, error)
        error = None
        if task is not None:
            try:
                task.run()
            except OSError as failure:
                error = failure
    assert not log.cleaning
    return run.cleaned_offset


def latest(found: list[Record]) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in found}


def ready(shelf: Shelf) -> Log:
    """A log of some sealed segments, flushed: keys k0 to k4 again and again."""
    log = shelf.open()
    for i in range(40):
        put(log, (f"k{i % 5}", f"value {i}"), (f"once{i}", "x" * (i % 9)))
    flush(log)
    return log


# --- what stays --------------------------------------------------------------------------------------------


def test_the_newest_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = ready(shelf)
    before = read_all(log)
    size = log.size
    active = log.segments.active
    end = clean(shelf, log)
    after = read_all(log)
    assert end == active.base_offset
    assert latest(after) == latest(before)
    assert {(r.offset, r.key, r.value) for r in after} <= {(r.offset, r.key, r.value) for r in before}
    newest = {r.key: r.offset for r in before if r.offset < end}
    assert [r.offset for r in after if r.offset < end] == sorted(newest.values())
    assert log.segments.active is active
    assert [r.offset for r in after if r.offset >= end] == list(range(end, 80))
    assert log.size < size
    assert log.offsets.log_start_offset == 0


def test_small_segments_are_put_together(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = shelf.open()
    for i in range(60):
        put(log, ("same", f"value {i}"))
    flush(log)
    clean(shelf, log)
    end = log.segments.active.base_offset
    clean(shelf, log)
    assert len(log.segments.all) <= 3
    assert [r.offset for r in read_all(log)] == [end - 1, *range(end, 60)]


def test_every_offset_can_be_asked_for_after_compaction(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = ready(shelf)
    clean(shelf, log)
    staying = [r.offset for r in read_all(log)]
    for log_again in (log, shelf.open(compacted=40), shelf.reopen_cleanly(log)):
        for offset in range(80):
            got = log_again.read(offset, 1, min_one=True).slice
            assert got is not None
            assert next(batches(got.read()))[1].last_offset >= offset
            assert read_all(log_again, offset)[0].offset == next(o for o in staying if o >= offset)
        assert log_again.offset_for_time(0).offset == staying[0]


def test_a_compacted_log_equals_its_replay(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = ready(shelf)
    clean(shelf, log)
    again = shelf.open()
    assert read_all(again) == read_all(log)
    assert [index_entries(s) for s in again.segments.all] == [index_entries(s) for s in log.segments.all]
    for segment in log.segments.all:
        data = Path(segment.log.path).read_bytes()
        assert all(check_crc(data, at, header) for at, header in batches(data))


def test_the_active_segment_and_what_is_not_flushed_is_not_touched(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = shelf.open()
    for i in range(20):
        put(log, ("same", f"value {i}"))
    assert dirty_segments(log, 0, NOW) == []
    before = read_all(log)
    assert clean(shelf, log) == 0
    assert read_all(log) == before
    flush(log)
    assert [s.base_offset for s in dirty_segments(log, 0, NOW)] == [
        s.base_offset for s in log.segments.all[:-1]
    ]


def test_records_without_a_key_go(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = shelf.open()
    put(log, (None, "a"), ("k", "b"))
    put(log, (None, "c"))
    log.roll()
    put(log, ("last", "x"))
    flush(log)
    clean(shelf, log)
    assert [r.value for r in read_all(log)] == [b"b", b"x"]


def test_young_records_are_left_alone_for_the_minimum_lag(tmp_path: Path) -> None:
    shelf = compacted(tmp_path, min_compaction_lag_ms=10_000)
    log = shelf.open()
    for i in range(20):
        put(log, ("same", f"value {i}"), now_ms=NOW - 20_000 + i * 1000)
    flush(log)
    found = dirty_segments(log, 0, NOW)
    assert found
    assert all(s.max_timestamp <= NOW - 10_000 for s in found)
    assert len(found) < len(log.segments.all) - 1
    assert dirty_segments(log, 0, NOW + 10_000) == log.segments.all[:-1]


def test_the_share_that_is_dirty_is_told(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = ready(shelf)
    assert dirty_ratio(log, 0, NOW) == 1.0
    end = clean(shelf, log)
    assert dirty_ratio(log, end, NOW) == 0.0
    for i in range(10):
        put(log, ("new", f"{i}" * 40))
    flush(log)
    assert 0 < dirty_ratio(log, end, NOW) < 1


# --- tombstones (KIP-534) ----------------------------------------------------------------------------------


def test_a_tombstone_is_removed_its_time_after_it_was_first_compacted(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = shelf.open()
    put(log, ("k", "old"), ("other", "stays"))
    put(log, ("k", None))
    log.roll()
    put(log, ("x", "y"))
    flush(log)
    clean(shelf, log)
    assert [(r.offset, r.key, r.value) for r in read_all(log)] == [
        (1, b"other", b"stays"), (2, b"k", None), (3, b"x", b"y"),
    ]  # fmt: skip
    headers = [h for _, h in batches(Path(log.segments.all[0].log.path).read_bytes())]
    assert [h.delete_horizon for h in headers] == [None, NOW + DAY]
    assert [r.timestamp for r in read_all(log)] == [NOW] * 3
    clean(shelf, log, now_ms=NOW + DAY - 1)
    assert len(read_all(log)) == 3
    clean(shelf, log, now_ms=NOW + DAY)
    assert [r.key for r in read_all(log)] == [b"other", b"x"]


# --- producers ---------------------------------------------------------------------------------------------


def test_the_last_batch_of_each_producer_stays_if_only_as_a_shell(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = shelf.open()
    for i in range(3):
        put(log, ("k", f"{i}"), producer_id=1, producer_epoch=4, base_sequence=i)
    for i in range(2):
        put(log, ("k", f"{i + 3}"), producer_id=2, producer_epoch=0, base_sequence=i)
    put(log, ("k", "newest"))
    log.roll()
    put(log, ("x", "y"))
    flush(log)
    clean(shelf, log)
    headers = [h for _, h in batches(Path(log.segments.all[0].log.path).read_bytes())]
    assert [(h.producer_id, h.base_offset, h.base_sequence, h.record_count) for h in headers] == [
        (1, 2, 2, 0), (2, 4, 1, 0), (-1, 5, -1, 1),
    ]  # fmt: skip
    for path in shelf.directory.glob("*.snapshot"):
        path.unlink()
    again = shelf.open(compacted=6)
    states = {s.producer_id: (s.producer_epoch, s.last_sequence) for s in again.active_producers()}
    assert states == {1: (4, 2), 2: (0, 1)}
    assert [r.value for r in read_all(again)] == [b"newest", b"y"]
    # Once the producer has continued, the empty batch is removed too.
    put(again, ("z", "z"), producer_id=1, producer_epoch=4, base_sequence=3)
    flush(again)
    clean(shelf, again)
    headers = [h for _, h in batches(Path(again.segments.all[0].log.path).read_bytes())]
    assert [h.producer_id for h in headers] == [2, -1]


# --- bounds ------------------------------------------------------------------------------------------------


def test_a_pass_stops_at_the_limit_of_keys_and_the_next_continues(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    object.__setattr__(shelf.settings, "compaction_max_keys", 10)
    log = ready(shelf)
    before = latest(read_all(log))
    end = log.segments.active.base_offset
    offsets = [0]
    while offsets[-1] < end:
        offsets.append(clean(shelf, log, offsets[-1]))
        assert offsets[-1] > offsets[-2]
        assert latest(read_all(log)) == before
    assert len(offsets) > 3
    newest = {r.key: r.offset for r in read_all(log) if r.offset < end}
    assert [r.offset for r in read_all(log) if r.offset < end] == sorted(newest.values())


def test_a_step_handles_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    object.__setattr__(shelf.settings, "compaction_step_bytes", 300)
    log = ready(shelf)
    run = CleanerPass(shelf.shared, log, 0, NOW)
    steps = 0
    while not run.finished:
        task = run.step(1e18)
        if task is not None:
            task.run()
        steps += 1
        append(log, [NewRecord(key=b"meanwhile", value=b"x")])
    assert steps > 20
    assert [r.offset for r in read_all(log)][-1] == 79 + steps


def test_short_keys_are_themselves_and_long_ones_hashed() -> None:
    keys = [b"", b"a", b"a" * 15, b"a" * 16, b"a" * 17, fingerprint(b"a" * 16)]
    prints = [fingerprint(key) for key in keys]
    assert len(set(prints)) == len(keys)
    assert all(len(p) <= 16 for p in prints)
    assert prints[1] == b"a"


# --- failures ----------------------------------------------------------------------------------------------


def test_a_full_disk_stops_compaction_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = compacted(tmp_path)
    log = ready(shelf)
    before = read_all(log)
    disk = Disk(monkeypatch)
    for at in range(2):
        with disk.failing(errno.ENOSPC, "write", "open_file", at=at):
            assert clean(shelf, log) == 0
        assert read_all(log) == before
        assert not [n for n in os.listdir(shelf.directory) if n.endswith((".cleaned", ".swap"))]
    assert clean(shelf, log) > 0
    assert latest(read_all(log)) == latest(before)


@pytest.mark.parametrize("kind", ["sync", "sync_path"])
def test_an_fsync_that_fails_leaves_the_old_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    shelf = compacted(tmp_path)
    log = ready(shelf)
    before = read_all(log)
    with Disk(monkeypatch).failing(errno.EIO, kind):
        assert clean(shelf, log) == 0
    assert read_all(log) == before
    assert not [n for n in os.listdir(shelf.directory) if n.endswith((".cleaned", ".swap"))]
    assert log.failure is None


def test_a_damaged_batch_stops_compaction_and_says_so(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = ready(shelf)
    path = Path(log.segments.all[1].log.path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    run = CleanerPass(shelf.shared, log, 0, NOW)
    while not run.finished:
        run.step(1e18)
    assert run.failure is not None
    assert "checksum" in run.failure
    assert path.read_bytes() == data


def test_a_reader_keeps_what_it_holds(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = ready(shelf)
    held = log.read(0, 10**6, min_one=True).slice
    assert held is not None
    data = held.read()
    clean(shelf, log)
    log.release()
    assert held.read() == data


def test_an_aborted_pass_leaves_nothing(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    object.__setattr__(shelf.settings, "compaction_step_bytes", 100)
    log = ready(shelf)
    before = read_all(log)
    for steps in range(1, 25):
        run = CleanerPass(shelf.shared, log, 0, NOW)
        for _ in range(steps):
            task = run.step(1e18)
            if task is not None:
                task.run()
        run.abort()
        assert latest(read_all(log)) == latest(before)
        assert not [n for n in os.listdir(shelf.directory) if n.endswith((".cleaned", ".swap"))]
    assert latest(read_all(shelf.open(compacted=100))) == latest(before)


@pytest.mark.parametrize("how", ["kill", "tear"])
def test_the_process_may_die_at_each_effect_of_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with monkeypatch.context() as patch:
        origin = compacted(tmp_path / "origin")
        before = read_all(ready(origin))
        disk = Disk(patch)
        for at in itertools.count():
            shelf = origin.copy(tmp_path / f"{how}{at}")
            log = shelf.open(recovery_point=80)
            disk.fail(how, at=at)
            try:
                clean(shelf, log)
                died = False
            except Died:
                died = True
            disk.heal()
            log.release()
            again = shelf.open(recovery_point=80, compacted=0)
            assert again.damage is None
            assert latest(read_all(again)) == latest(before), at
            offsets = [r.offset for r in read_all(again)]
            assert offsets == sorted(set(offsets))
            names = os.listdir(shelf.directory)
            assert not [n for n in names if n.endswith((".cleaned", ".swap", ".deleted", ".tmp"))]
            assert clean(shelf, again) > 0
            newest = {
                r.key: r.offset for r in read_all(again) if r.offset < again.segments.active.base_offset
            }
            assert len(newest) == sum(r.offset < again.segments.active.base_offset for r in read_all(again))
            if not died:
                break
        assert at > 20


# --- a property --------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "c", "d", "e" * 20, None])
RECORDS = st.tuples(KEYS, st.one_of(st.none(), st.text("xyz", max_size=30)))
BATCHES = st.lists(st.lists(RECORDS, min_size=1, max_size=5), min_size=1, max_size=25)


@settings(
    max_examples=400 if os.environ.get("SLUICE_LONG_TESTS") == "1" else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(groups=st.lists(BATCHES, min_size=1, max_size=3), codec=st.sampled_from([0, 1]))
def test_compaction_keeps_the_latest_value_of_each_key(
    tmp_path_factory: pytest.TempPathFactory,
    groups: list[list[list[tuple[str | None, str | None]]]],
    codec: int,
) -> None:
    shelf = compacted(tmp_path_factory.mktemp("property"), segment_bytes=400)
    log = shelf.open()
    written: list[tuple[int, bytes | None, bytes | None]] = []
    cleaned, now_ms = 0, NOW
    for group in groups:
        for batch in group:
            base = log.offsets.log_end_offset
            new = [NewRecord(key=encoded(key), value=encoded(value)) for key, value in batch]
            append(log, new, codec=codec)
            written += [(base + i, r.key, r.value) for i, r in enumerate(new)]
        flush(log)
        cleaned = clean(shelf, log, cleaned, now_ms=now_ms)
        found = [(r.offset, r.key, r.value) for r in read_all(log)]
        assert set(found) <= set(written)
        newest = {key: (offset, value) for offset, key, value in written if key is not None}
        for key, (offset, value) in newest.items():
            if value is not None or offset >= cleaned:
                assert (offset, key, value) in found
        for offset, key, _ in found:
            if offset < cleaned:
                assert key is not None
                later = [o for o, k, _ in written if k == key and offset < o < cleaned]
                assert later == []
        now_ms += 2 * DAY
    assert [(r.offset, r.key, r.value) for r in read_all(shelf.open(compacted=cleaned))] == found


# --- when a log is compacted (KIP-58, KIP-354) ------------------------------------------------------------------


def test_the_share_at_which_a_log_is_compacted_is_the_topics(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = ready(shelf)
    end = clean(shelf, log)
    for i in range(10):
        put(log, ("new", f"{i}" * 40))
    flush(log)
    share = dirty_ratio(log, end, NOW)
    log.config = replace(log.config, min_cleanable_dirty_ratio=share + 0.01)
    assert not needs_compaction(log, end, NOW)
    log.config = replace(log.config, min_cleanable_dirty_ratio=share)
    assert needs_compaction(log, end, NOW)
    log.config = replace(log.config, min_cleanable_dirty_ratio=0.0)
    assert needs_compaction(log, end, NOW)
    assert not needs_compaction(log, clean(shelf, log, end), NOW)


def test_a_record_that_is_older_than_the_maximum_lag_is_compacted_whatever_the_share(tmp_path: Path) -> None:
    shelf = compacted(tmp_path, min_cleanable_dirty_ratio=1.0)
    log = ready(shelf)
    end = clean(shelf, log)
    for i in range(10):
        put(log, ("new", f"{i}" * 40), now_ms=NOW)
    flush(log)
    log.config = replace(log.config, max_compaction_lag_ms=5000)
    assert not needs_compaction(log, end, NOW + 5000)
    assert needs_compaction(log, end, NOW + 5001)


def test_the_active_segment_is_sealed_once_its_first_record_is_overdue(tmp_path: Path) -> None:
    shelf = compacted(tmp_path, segment_bytes=100_000, max_compaction_lag_ms=5000)
    log = shelf.open()
    roll_overdue(log, NOW)
    put(log, ("same", "a"), now_ms=NOW)
    put(log, ("same", "b"), now_ms=NOW + 4000)
    roll_overdue(log, NOW + 5000)
    assert len(log.segments.all) == 1
    roll_overdue(log, NOW + 5001)
    assert [s.base_offset for s in log.segments.all] == [0, 2]
    flush(log)
    clean(shelf, log, now_ms=NOW + 5001)
    assert [r.value for r in read_all(log)] == [b"b"]


def test_an_append_seals_a_segment_whose_first_record_is_overdue(tmp_path: Path) -> None:
    log = compacted(tmp_path, segment_bytes=100_000, max_compaction_lag_ms=5000).open()
    for ms in (0, 5000, 5001):
        put(log, ("same", "a"), now_ms=NOW + ms)
    assert [s.base_offset for s in log.segments.all] == [0, 2]


# --- transactions ------------------------------------------------------------------------------------------


def put_in(log: Log, producer_id: int, sequence: int, *pairs: tuple[str, str | None]) -> None:
    """One transactional batch of (key, value) records."""
    put(log, *pairs, transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def end(log: Log, producer_id: int, *, commit: bool) -> None:
    log.append_marker(producer_id, 0, EndMarker(commit, 0), leader_epoch=0)


def committed(log: Log) -> dict[bytes | None, bytes | None]:
    """What a read_committed reader of the whole log has at the end: the newest value of each key."""
    aborted = log.aborted_between(0, log.last_stable_offset)
    found: dict[bytes | None, bytes | None] = {}
    for batch, header in stored(log):
        if header.is_control or header.base_offset >= log.last_stable_offset:
            continue
        of_aborted = any(
            header.is_transactional
            and entry.producer_id == header.producer_id
            and entry.first_offset <= header.base_offset < entry.last_offset
            for entry in aborted
        )
        if not of_aborted and header.record_count:
            found.update({r.key: r.value for r in read_records(batch, 0, header, max_bytes=1 << 20)})
    return {key: value for key, value in found.items() if value is not None}


def stored(log: Log) -> list[tuple[bytes, BatchHeader]]:
    """Every batch of the log."""
    found = []
    for segment in log.segments.all:
        for position, header in segment.walk():
            found.append((segment.read_batch(position, header), header))
    return found


def markers(log: Log) -> list[int]:
    """The offsets of the markers."""
    return [header.base_offset for _, header in stored(log) if header.is_control]


def test_an_aborted_record_does_not_take_the_place_of_the_committed_one(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = shelf.open()
    put_in(log, 1, 0, ("a", "committed"))
    end(log, 1, commit=True)
    put_in(log, 1, 1, ("a", "aborted"), ("b", "aborted"))
    end(log, 1, commit=False)
    put_in(log, 2, 0, ("c", None))
    end(log, 2, commit=False)
    log.roll()
    flush(log)
    assert clean(shelf, log) == 7
    assert {r.key: r.value for r in read_all(log) if r.key in (b"a", b"b", b"c")} == {b"a": b"committed"}
    assert committed(log) == {b"a": b"committed"}
    assert committed(shelf.reopen_cleanly(log)) == {b"a": b"committed"}


def test_an_open_transaction_is_not_compacted(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = shelf.open()
    put(log, ("a", "old"))
    log.roll()
    put_in(log, 1, 0, ("a", "new"))
    log.roll()
    flush(log)
    assert clean(shelf, log) == 1
    assert [r.value for r in read_all(log)] == [b"old", b"new"]


def test_a_marker_is_removed_after_its_records_and_after_delete_retention(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = shelf.open()
    put_in(log, 1, 0, ("a", "1"))
    end(log, 1, commit=True)
    put_in(log, 2, 0, ("b", "1"))
    end(log, 2, commit=False)
    put(log, ("a", "2"), ("b", "2"))
    put_in(log, 1, 1, ("c", "1"))
    put_in(log, 2, 1, ("d", "1"))
    end(log, 1, commit=True)
    end(log, 2, commit=True)
    log.roll()
    flush(log)
    clean(shelf, log)
    # The pass has met the records that it removed.
    assert markers(log) == [1, 3, 8, 9]
    assert log.aborted_between(0, 4) == [AbortedTransaction(2, 2, 3, 4)]
    log = shelf.reopen_cleanly(log)
    clean(shelf, log)
    assert markers(log) == [1, 3, 8, 9]
    assert log.aborted_between(0, 4) == []
    clean(shelf, log, now_ms=NOW + DAY)
    assert markers(log) == [8, 9]
    assert committed(log) == {b"a": b"2", b"b": b"2", b"c": b"1", b"d": b"1"}


def test_the_last_marker_of_a_producer_keeps_its_epoch(tmp_path: Path) -> None:
    shelf = compacted(tmp_path)
    log = shelf.open()
    put_in(log, 1, 0, ("a", "1"))
    log.append_marker(1, 1, EndMarker(commit=True, coordinator_epoch=0), leader_epoch=0, bumped=True)
    put(log, ("a", "2"))
    log.roll()
    flush(log)
    for now_ms in (NOW, NOW, NOW + DAY, NOW + 2 * DAY):
        clean(shelf, log, now_ms=now_ms)
    assert markers(log) == [1]
    for snapshot in shelf.directory.glob("*.snapshot"):
        snapshot.unlink()
    (state,) = shelf.reopen_cleanly(log).active_producers()
    assert state.producer_epoch == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    moves=st.lists(
        st.tuples(st.sampled_from("wwwwcarkp"), st.integers(1, 3), st.sampled_from("abc")), max_size=40
    ),
    deletes_soon=st.booleans(),
)
def test_compaction_changes_nothing_for_a_reader_of_committed_records(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, int, str]], deletes_soon: bool
) -> None:
    shelf = compacted(tmp_path_factory.mktemp("log"), delete_retention_ms=0 if deletes_soon else DAY)
    log = shelf.open()
    sequences = dict.fromkeys(range(4), 0)
    cleaned = 0
    for number, (move, producer_id, key) in enumerate(moves):
        if move == "w":
            put_in(log, producer_id, sequences[producer_id], (key, str(number)))
            sequences[producer_id] += 1
        elif move in "ca":
            end(log, producer_id, commit=move == "c")
        elif move == "r":
            put(log, (key, str(number)))
        elif move == "k":
            log.roll()
            flush(log)
            before, stable = committed(log), log.last_stable_offset
            cleaned = clean(shelf, log, cleaned)
            assert committed(log) == before
            assert log.last_stable_offset == stable
        else:
            before = committed(log)
            log = shelf.reopen_cleanly(log)
            assert committed(log) == before
    log.release()
