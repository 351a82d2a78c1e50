"""core.kafka07.carry: compaction leaves the addresses of Kafka 0.7 as they were, wherever it dies."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.kafka07 import view as one_view
from core.kafka07.messages import OVERHEAD, encode_message, parse_messages
from core.log.cleaner import CleanerPass
from core.log.log import Log
from core.records.record import NewRecord
from tests.core.kafka07.reader import (
    Kafka07Shelf,
    measure,
    old_log,
    read_as_a_client,
    read_at,
    read_from,
    start_of,
    view_of,
)
from tests.core.log.disk import Died, Disk
from tests.core.log.shelf import append, flush, read_all
from tests.core.log.test_cleaner import DAY, NOW, clean, compacted

MAGICS = pytest.mark.parametrize("magic", [0, 1])
Written = list[tuple[bytes, bytes | None]]


def compacted_with_views(tmp_path: Path, **config: object) -> Kafka07Shelf:
    return compacted(tmp_path, Kafka07Shelf, **config)


def fill(log: Log, written: Written, *, step: int = 3, codec: int = 0) -> None:
    for i in range(0, len(written), step):
        append(log, [NewRecord(key, value) for key, value in written[i : i + step]], codec=codec)
    flush(log)


def some(count: int = 300, keys: int = 7) -> Written:
    return [
        (b"k%d" % (i * i % keys), None if i % 11 == 5 else b"value %d " % i * (i % 6)) for i in range(count)
    ]


def addresses_of(written: Written, magic: int) -> list[int]:
    sizes = [OVERHEAD[magic] + len(value or b"") for _, value in written]
    return [0, *itertools.accumulate(sizes)]


def assert_addresses_hold(shelf: Kafka07Shelf, log: Log, written: Written, magic: int) -> None:
    """Every record that is there is found at its old address, alone and by reading on from the start."""
    view = view_of(shelf, log, magic)
    addresses = addresses_of(written, magic)
    start = start_of(view)
    stream = read_as_a_client(view, start, 700)
    assert start + len(stream) == addresses[-1]
    for record in read_all(log):
        address = addresses[record.offset]
        message = encode_message(magic, record.value or b"")
        assert stream[address - start :].startswith(message)
        assert (
            read_at(view, address, 50)
            == stream[address - start : address - start + 50][: len(read_at(view, address, 50))]
        )
    boundaries, position = set(), 0
    while position < len(stream):
        boundaries.add(start + position)
        (length,) = struct.unpack_from(">i", stream, position)
        position += 4 + length
    assert position == len(stream), "a client that adds up lengths ends at the end"
    assert {addresses[record.offset] for record in read_all(log)} <= boundaries
    parse_messages(stream, max_bytes=1 << 20)


@MAGICS
@pytest.mark.parametrize("codec", [0, 1])
def test_what_stays_keeps_its_address(tmp_path: Path, magic: int, codec: int) -> None:
    shelf = compacted_with_views(tmp_path)
    log = shelf.open()
    written = some()
    fill(log, written, codec=codec)
    view = view_of(shelf, log, magic)
    assert read_from(view, 0) == old_log(magic, [value for _, value in written])
    clean(shelf, log)
    assert len(read_all(log)) < len(written) / 2
    assert_addresses_hold(shelf, log, written, magic)
    log = shelf.reopen_cleanly(log)
    assert_addresses_hold(shelf, log, written, magic)


@MAGICS
def test_they_hold_over_many_compactions_tombstones_and_retention(tmp_path: Path, magic: int) -> None:
    shelf = compacted_with_views(tmp_path)
    log = shelf.open()
    written: Written = []
    cleaned = 0
    for turn in range(5):
        more = some(80, keys=3 + turn)
        fill(log, more)
        written += more
        if turn == 0:
            measure(view_of(shelf, log, magic), until=700, limit=1)
        cleaned = clean(shelf, log, cleaned, now_ms=NOW + turn * 2 * DAY)
        assert_addresses_hold(shelf, log, written, magic)
        log = shelf.reopen_cleanly(log)
    assert len(log.segments.all) < 15, "segments were put together"
    log.remove_segments(1)
    assert_addresses_hold(shelf, log, written, magic)


def test_both_formats_are_carried_and_an_untouched_one_is_not(tmp_path: Path) -> None:
    shelf = compacted_with_views(tmp_path)
    log = shelf.open()
    written = some()
    fill(log, written)
    for magic in (0, 1):
        view_of(shelf, log, magic)
    clean(shelf, log)
    for magic in (0, 1):
        assert_addresses_hold(shelf, log, written, magic)
    other = compacted_with_views(tmp_path / "other")
    log = other.open()
    fill(log, written)
    clean(other, log)
    assert not [path for path in other.directory.iterdir() if "legacy" in path.name]


@MAGICS
def test_a_reader_that_stands_where_messages_were_finds_its_way(tmp_path: Path, magic: int) -> None:
    shelf = compacted_with_views(tmp_path)
    log = shelf.open()
    written = some(100)
    fill(log, written)
    view = view_of(shelf, log, magic)
    measure(view)
    cleaned = clean(shelf, log)
    fill(log, some(100, keys=3))
    measure(view)
    clean(shelf, log, cleaned)
    view = view_of(shelf, log, magic)
    measure(view)
    addresses = addresses_of(written, magic)
    staying = {addresses[r.offset]: r.value or b"" for r in read_all(log) if r.offset < 100}
    for address in addresses:
        stream = read_as_a_client(view, address, 600)
        assert address + len(stream) == view.end_address
        for at, value in staying.items():
            if at >= address:
                assert stream[at - address :].startswith(encode_message(magic, value))


@MAGICS
def test_holes_beyond_what_one_read_takes_along_are_met_by_the_next(
    tmp_path: Path, magic: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_view, "_AHEAD", 2)
    shelf = compacted_with_views(tmp_path, segment_bytes=20_000)
    log = shelf.open()
    written = [(b"k%d" % (i % 50 if i % 3 else i), b"value %d" % i) for i in range(900)]
    fill(log, written)
    measure(view_of(shelf, log, magic))
    clean(shelf, log)
    first = view_of(shelf, log, magic).index_of(log.segments.all[0])
    assert first.count > 50
    assert_addresses_hold(shelf, log, written, magic)


def test_a_client_that_comes_during_compaction_stops_it_until_the_next_pass(tmp_path: Path) -> None:
    shelf = compacted_with_views(tmp_path)
    log = shelf.open()
    written = some()
    fill(log, written)
    run = CleanerPass(shelf.shared, log, 0, NOW)
    deadline = shelf.clock.monotonic() + 1
    while (task := run.step(deadline)) is None:
        assert not run.finished
    assert read_from(view_of(shelf, log), 0) == old_log(1, [value for _, value in written])
    while not run.finished:
        if task is not None:
            task.run()
        task = run.step(deadline)
    assert run.cleaned_offset == 0
    assert len(read_all(log)) == len(written)
    assert not list(shelf.directory.glob("*.cleaned")) + list(shelf.directory.glob("*.swap"))
    clean(shelf, log)
    assert_addresses_hold(shelf, log, written, 1)


def test_no_view_comes_up_between_the_commit_of_a_compaction_and_its_end(tmp_path: Path) -> None:
    shelf = compacted_with_views(tmp_path)
    log = shelf.open()
    written = some()
    fill(log, written)
    measure(view_of(shelf, log, 1))
    run, held = CleanerPass(shelf.shared, log, 0, NOW), 0
    while not run.finished:
        task = run.step(shelf.clock.monotonic() + 1)
        if list(shelf.directory.glob("*.log.swap")):
            with pytest.raises(BlockingIOError):
                view_of(shelf, log, 0)
            held += 1
        if task is not None:
            task.run()
    assert held
    view_of(shelf, log, 0)
    assert_addresses_hold(shelf, log, written, 1)


@pytest.mark.parametrize("how", ["kill", "tear"])
def test_the_process_may_die_at_each_effect_of_compaction(tmp_path: Path, how: str) -> None:
    written = some(60)
    source = compacted_with_views(tmp_path / "source")
    log = source.open()
    fill(log, written)
    measure(view_of(source, log))
    flush(log)
    log.close()
    for at in itertools.count():
        shelf = source.copy(tmp_path / f"{how}{at}")
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch)
            log = shelf.open(recovery_point=60, clean=True)
            disk.fail(how, at=at)
            try:
                clean(shelf, log)
                finished = not disk.dead
            except Died:
                finished = False
            disk.heal()
        log = shelf.open(recovery_point=60, compacted=60)
        assert_addresses_hold(shelf, log, written, 1)
        if finished:
            assert at > 20
            return


RECORD = st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.one_of(st.none(), st.binary(max_size=40)))


@given(st.lists(RECORD, min_size=1, max_size=60), st.integers(1, 5), st.integers(0, 1), st.integers(0, 60))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_addresses_hold_whatever_was_written(
    tmp_path_factory: pytest.TempPathFactory, written: Written, step: int, magic: int, measured: int
) -> None:
    shelf = compacted_with_views(tmp_path_factory.mktemp("log"), segment_bytes=500)
    log = shelf.open()
    fill(log, written, step=step)
    view = view_of(shelf, log, magic)
    measure(view, until=measured * 10, limit=1)
    clean(shelf, log)
    assert_addresses_hold(shelf, log, written, magic)
    log = shelf.reopen_cleanly(log)
    assert_addresses_hold(shelf, log, written, magic)
