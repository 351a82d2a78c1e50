"""core.kafka07.view: addresses are those of a 0.7 log, and stay, whatever happens to the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.kafka07.index import SIDECAR_SUFFIXES
from core.records.record import NewRecord
from core.vocabulary.partition import EARLIEST, LATEST
from tests.core.kafka07.reader import Kafka07Shelf, measure, old_log, read_at, read_from, start_of, view_of
from tests.core.log.shelf import append, flush, records

MAGICS = pytest.mark.parametrize("magic", [0, 1])
PAYLOADS = [b"one", b"", b"three" * 10, None, b"x" * 500, *(b"payload %d" % i for i in range(200))]


def fill(shelf: Kafka07Shelf, payloads: list[bytes | None], *, step: int = 3, codec: int = 0):
    log = shelf.open()
    for i in range(0, len(payloads), step):
        append(
            log,
            [NewRecord(key=b"k", value=v, headers=(("h", b"v"),)) for v in payloads[i : i + step]],
            codec=codec,
        )
    return log


@MAGICS
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_view_is_the_log_that_0_7_would_have_written(tmp_path: Path, magic: int, codec: int) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=2000)
    view = view_of(shelf, fill(shelf, PAYLOADS, codec=codec), magic)
    expected = old_log(magic, PAYLOADS)
    assert read_from(view, 0) == expected
    for address in range(0, len(expected), 7):
        for size in (1, 10, 300):
            chunk = read_at(view, address, size)
            assert chunk and expected[address : address + size].startswith(chunk)
    assert view.complete() and view.end_address == len(expected)


BATCH = st.tuples(
    st.lists(st.one_of(st.none(), st.binary(max_size=60)), min_size=1, max_size=5), st.sampled_from([0, 1, 2])
)


@given(st.lists(BATCH, max_size=12), st.integers(0, 1), st.integers(600, 900), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_fetch_of_any_log_is_a_slice_of_the_old_log(
    tmp_path_factory, batches, magic, segment_bytes, data
) -> None:
    shelf = Kafka07Shelf(tmp_path_factory.mktemp("log"), segment_bytes=segment_bytes)
    log = shelf.open()
    view, payloads = view_of(shelf, log, magic), []
    for batch, codec in batches:
        append(log, records(*batch), codec=codec)
        payloads += batch
        expected = old_log(magic, payloads)
        address, size = data.draw(st.integers(0, len(expected))), data.draw(st.integers(1, 200))
        chunk = read_at(view, address, size)
        assert expected[address : address + size].startswith(chunk)
        assert chunk or address == len(expected)


def test_only_what_is_asked_for_is_measured(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path)
    view = view_of(shelf, fill(shelf, PAYLOADS), 1)
    assert view.frontier.address == 0
    measure(view, until=100, limit=1)
    assert 100 <= view.frontier.address < 700
    assert not view.complete()


@MAGICS
def test_a_restart_continues_where_the_sidecars_end(tmp_path: Path, magic: int) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=3000)
    payloads = [b"p" * 900] * 100
    log = fill(shelf, payloads)
    expected = old_log(magic, payloads)
    flush(log)
    measure(view_of(shelf, log, magic))
    log = shelf.reopen_cleanly(log)
    view = view_of(shelf, log, magic)
    assert view.frontier.address > len(expected) - 40_000
    assert read_from(view, 0) == expected


def test_measuring_is_taken_up_in_the_middle_after_a_restart(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path)
    payloads = [b"p" * 900] * 200
    log = fill(shelf, payloads)
    flush(log)
    measure(view_of(shelf, log), until=100_000, limit=10_000)
    log = shelf.reopen_cleanly(log)
    view = view_of(shelf, log)
    assert 60_000 < view.frontier.address <= 110_000
    assert read_from(view, 0) == old_log(1, payloads)


def test_entries_for_records_that_are_not_on_the_disk_stay_in_memory(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path)
    log = fill(shelf, [b"p" * 900] * 200)
    view = view_of(shelf, log)
    measure(view)
    path = Path(view.index_of(view.segment).path)
    assert not path.exists()
    flush(log)
    view.flush()
    assert path.stat().st_size > 28


def test_a_torn_tail_of_the_log_takes_its_addresses_with_it(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path)
    payloads: list[bytes | None] = [b"p" * 900] * 100
    log = fill(shelf, payloads, step=1)
    flush(log)
    measure(view_of(shelf, log))
    append(log, records(*[b"lost" * 300] * 100))
    measure(view_of(shelf, log))
    segment = log.segments.active.log.path
    size = os.path.getsize(segment)
    log.release()
    os.truncate(segment, size - 1)
    log = shelf.open(recovery_point=100)
    view = view_of(shelf, log)
    append(log, records(b"new"))
    assert read_from(view, 0) == old_log(1, [*payloads, b"new"])


@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "foreign", "flipped", "zeros"])
@pytest.mark.parametrize("which", ["first", "last", "all"])
def test_a_lost_or_damaged_sidecar_is_made_again(tmp_path: Path, damage: str, which: str) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=60_000)
    payloads: list[bytes | None] = [b"%d " % i * 150 for i in range(400)]
    log = fill(shelf, payloads)
    expected = old_log(1, payloads)
    flush(log)
    measure(view_of(shelf, log))
    flush(log)
    log.close()
    sidecars = sorted(shelf.directory.glob("*.legacy1"))
    assert len(sidecars) > 2
    for path in {"first": sidecars[:1], "last": sidecars[-1:], "all": sidecars}[which]:
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            foreign = sidecars[0] if path != sidecars[0] else sidecars[1]
            path.write_bytes({
                "empty": b"", "torn": data[:-7], "foreign": foreign.read_bytes(),
                "flipped": data[:30] + bytes([data[30] ^ 1]) + data[31:] if len(data) > 30 else b"",
                "zeros": bytes(len(data)),
            }[damage])  # fmt: skip
    log = shelf.open(recovery_point=400, clean=True)
    view = view_of(shelf, log)
    for address in (0, len(expected) // 2, len(expected) - 10):
        assert (
            read_at(view, address, 1000)
            == expected[address : address + 1000][: len(read_at(view, address, 1000))]
        )
    assert read_from(view, 0) == expected
    measure(view)
    assert view.end_address == len(expected)


@MAGICS
@pytest.mark.parametrize("measured", ["all", "some", "none"])
@pytest.mark.parametrize("lost", ["nothing", "the file", "the sidecars"])
def test_retention_leaves_addresses_as_they_were(
    tmp_path: Path, magic: int, measured: str, lost: str
) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=2000)
    log = fill(shelf, PAYLOADS)
    expected = old_log(magic, PAYLOADS)
    view = view_of(shelf, log, magic)
    flush(log)
    measure(view, until={"all": None, "some": 1500, "none": 0}[measured])
    given_out = view.frontier.address
    log.remove_segments(3)
    start = start_of(view)
    log.close()
    if lost == "the file":
        (shelf.directory / "legacy-addresses").unlink()
    if lost == "the sidecars":
        for path in shelf.directory.glob("*.legacy*"):
            path.unlink()
    log = shelf.open(recovery_point=len(PAYLOADS), clean=True)
    view = view_of(shelf, log, magic)
    if lost == "the file" and measured != "all":
        return  # no sidecar was begun for the first segment that stays: both copies are lost
    assert start_of(view) == start
    if measured == "all":
        assert read_from(view, start) == expected[start:]
    else:
        assert start > given_out
        assert expected.endswith(read_from(view, start))


def test_removed_segments_take_their_sidecars_with_them(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=2000)
    log = fill(shelf, PAYLOADS)
    flush(log)
    measure(view_of(shelf, log))
    before = len(list(shelf.directory.glob("*.legacy1")))
    log.remove_segments(2)
    assert len(list(shelf.directory.glob("*.legacy1"))) == before - 2
    assert len(list(shelf.directory.glob("*.legacy1.deleted"))) == 2


def test_a_start_within_a_segment_has_the_address_of_its_record(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=2000)
    log = fill(shelf, PAYLOADS)
    view = view_of(shelf, log)
    measure(view)
    log.truncate_prefix(100)
    assert start_of(view) == len(old_log(1, PAYLOADS[:100]))
    log.truncate_prefix(101)
    assert start_of(view) == len(old_log(1, PAYLOADS[:101]))


def test_bases_lost_in_both_places_begin_again_above_all_that_are_known(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=2000)
    log = fill(shelf, PAYLOADS)
    flush(log)
    measure(view_of(shelf, log))
    end = view_of(shelf, log).end_address
    log.close()
    (shelf.directory / "legacy-addresses").unlink()
    sorted(shelf.directory.glob("*.legacy1"))[0].unlink()
    log = shelf.open(recovery_point=len(PAYLOADS), clean=True)
    view = view_of(shelf, log)
    assert start_of(view) > end - 2000
    assert read_from(view, start_of(view)) == old_log(1, PAYLOADS)


def test_offsets_lists_segments_by_their_modified_time(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=2000)
    log = fill(shelf, PAYLOADS)
    view = view_of(shelf, log)
    measure(view)
    segments = log.segments.all
    bases = []
    for i, segment in enumerate(segments):
        os.utime(segment.log.path, (1000 + i, 1000 + i))
        bases.append(len(old_log(1, PAYLOADS[: segment.base_offset])))
    end = len(old_log(1, PAYLOADS))
    newest_first = [end, *bases[::-1]]
    assert view.segment_addresses(LATEST, 1000) == newest_first
    assert view.segment_addresses(LATEST, 2) == newest_first[:2]
    assert view.segment_addresses(LATEST, 0) == view.segment_addresses(LATEST, -5) == []
    assert view.segment_addresses(EARLIEST, 10) == [0]
    assert view.segment_addresses(999_999, 10) == []
    assert view.segment_addresses(1_001_500, 10) == bases[1::-1]
    assert view.segment_addresses(2**62, 1) == [end]


def test_a_log_that_0_7_has_not_touched_has_no_files_of_it(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=2000)
    log = fill(shelf, PAYLOADS)
    log.remove_segments(2)
    log.close()
    assert not [p for p in shelf.directory.iterdir() if "legacy" in p.name]


def test_damaged_batches_are_passed_by_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Kafka07Shelf(tmp_path)
    payloads: list[bytes | None] = [b"number %d" % i for i in range(30)]
    log = fill(shelf, payloads, step=1)
    segment = log.segments.active
    position = segment.locate(10)
    with open(segment.log.path, "r+b") as file:
        file.seek(position + 61)
        file.write(b"\xff\xff\xff")
    view = view_of(shelf, log)
    for _ in range(3):
        assert read_from(view, 0) == old_log(1, payloads[:10] + payloads[11:])
    assert [record.message for record in caplog.records if "0.7" in record.message] == [
        "orders-0: 0.7 does not see the batch at offset 10: "
        "The checksum of a batch is wrong: the disk has changed it."
    ]


@pytest.mark.parametrize("measured", [None, 0, 60_000])
@pytest.mark.parametrize("end", [100, 61, 60, 1, 0])
def test_a_log_that_is_cut_and_continues_has_the_addresses_of_one_that_was_never_longer(
    tmp_path: Path, measured: int | None, end: int
) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=60_000)
    payloads: list[bytes | None] = [b"%d" % i * 400 for i in range(200)]
    log = fill(shelf, payloads, step=1)
    flush(log)
    measure(view_of(shelf, log), until=measured)
    log.begin_cut(end)
    assert log.truncate_to(end) == end
    others: list[bytes | None] = [b"another %d" % i * 50 for i in range(60)]
    for other in others:
        append(log, records(other), epoch=1)
    expected = old_log(1, [*payloads[:end], *others])
    assert read_from(view_of(shelf, log), 0) == expected
    log = shelf.reopen_cleanly(log)
    assert read_from(view_of(shelf, log), 0) == expected


def test_a_log_that_begin_again_continues_above_the_addresses_that_were_given_out(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=2000)
    log = fill(shelf, PAYLOADS)
    view = view_of(shelf, log)
    measure(view)
    end = view.end_address
    log.start_at(5000)
    assert start_of(view) == end
    append(log, records(b"new"))
    assert read_from(view, end) == old_log(1, [b"new"])


def test_nothing_is_seen_from_the_high_watermark_on(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=2000)
    log = fill(shelf, PAYLOADS, step=1)
    view = view_of(shelf, log)
    for visible in (0, 1, 7, 100, 205):
        log.visible = visible
        assert read_from(view, 0) == old_log(1, PAYLOADS[:visible])
        measure(view)
        assert view.complete() and view.end_address == len(old_log(1, PAYLOADS[:visible]))


def test_the_names_of_sidecars_are_those_of_todays_data_directories() -> None:
    assert SIDECAR_SUFFIXES == (".legacy0", ".legacy1")
