"""Transactions in one log: markers, the last stable offset, what is aborted, and all of it after a start."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BrokerError, ErrorCode
from core.log.log import Log
from core.records.batch import batches, build_batch, read_header
from core.records.control import ABORT, COMMIT, EndMarker, build_marker, read_marker
from core.records.record import NewRecord
from core.types import AbortedTransaction
from tests.core.log.disk import Disk
from tests.core.log.histories import end, write
from tests.core.log.shelf import Shelf, append, flush, records

ENTRY = Struct(">hqqqq")


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def aborted(log: Log) -> list[tuple[int, int]]:
    """Producer and first offset of everything that was aborted."""
    return [
        (entry.producer_id, entry.first_offset)
        for entry in log.aborted_between(0, log.offsets.log_end_offset)
    ]


def test_a_marker_is_the_batch_that_kafka_writes() -> None:
    batch = build_marker(7, 3, EndMarker(commit=True, coordinator_epoch=5), now_ms=1_700_000_000_000)
    header = read_header(batch)
    assert (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence) == (
        0x30,
        7,
        3,
        -1,
    )
    assert (header.record_count, header.last_offset_delta) == (1, 0)
    # Record: length, attributes, two deltas, key of 4 bytes, value of 6 bytes, no headers.
    assert batch[61:] == bytes([32, 0, 0, 0, 8, 0, 0, 0, COMMIT, 12, 0, 0, 0, 0, 0, 5, 0])
    assert read_marker(batch) == EndMarker(True, 5)


def test_a_marker_in_another_form_is_read_as_well() -> None:
    def control(kind: int, value: bytes, headers: Sequence[tuple[str, bytes]] = ()) -> bytearray:
        record = NewRecord(b"\0\0\0" + bytes([kind]), value, headers=headers)
        return build_batch([record], now_ms=1, producer_id=7, transactional=True, control=True)

    value = b"\0\0\0\0\1\2"
    assert read_marker(control(ABORT, value)) == EndMarker(False, 258)
    # What a later version of Kafka may add.
    assert read_marker(control(COMMIT, value + b"more")) == EndMarker(True, 258)
    assert read_marker(control(COMMIT, value, [("h", b"")])) == EndMarker(True, 258)
    assert read_marker(control(COMMIT, value[:5])) is None
    assert read_marker(control(2, value)) is None


def test_nothing_from_the_oldest_open_transaction_on_is_stable(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("plain"))
    assert log.last_stable_offset == 1
    write(log, 1, 0, "a")
    write(log, 2, 0, "b")
    append(log, records("plain"))
    assert log.last_stable_offset == 1
    assert end(log, 2, commit=True) == 4
    assert log.last_stable_offset == 1
    assert end(log, 1, commit=True) == 5
    assert log.last_stable_offset == log.offsets.log_end_offset == 6


def test_records_that_are_deleted_do_not_hold_back_what_is_stable_below_the_log_start(shelf: Shelf) -> None:
    log = shelf.open()
    write(log, 1, 0, "a", "b", "c")
    append(log, records("plain"))
    log.truncate_prefix(2)
    assert log.last_stable_offset == 2


def test_followers_hold_back_what_is_not_committed(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("a", "b"))
    log.visible = 1
    assert log.last_stable_offset == 1
    write(log, 1, 0, "c")
    log.visible = 3
    assert log.last_stable_offset == 2


def test_aborted_transactions_are_found_in_the_order_of_their_first_records(shelf: Shelf) -> None:
    log = shelf.open()
    write(log, 1, 0, "a")
    write(log, 2, 0, "b")
    end(log, 2, commit=False)
    end(log, 1, commit=False)
    write(log, 3, 0, "c")
    end(log, 3, commit=True)
    assert log.aborted_between(0, 6) == [AbortedTransaction(1, 0, 3, 4), AbortedTransaction(2, 1, 2, 0)]
    # Only what has records in the range.
    assert log.aborted_between(3, 6) == [AbortedTransaction(1, 0, 3, 4)]
    assert log.aborted_between(4, 6) == []
    assert log.aborted_between(0, 1) == [AbortedTransaction(1, 0, 3, 4)]


def test_the_index_has_the_format_of_kafka(shelf: Shelf) -> None:
    log = shelf.open()
    write(log, 9, 0, "a", "b")
    end(log, 9, commit=False)
    (file,) = shelf.directory.glob("*.txnindex")
    assert file.name == "00000000000000000000.txnindex"
    assert list(ENTRY.iter_unpack(file.read_bytes())) == [(0, 9, 0, 2, 3)]


def test_a_log_without_aborted_transactions_has_no_index(shelf: Shelf) -> None:
    log = shelf.open()
    write(log, 1, 0, "a")
    end(log, 1, commit=True)
    end(log, 2, commit=False)  # nothing of 2 is here
    assert not list(shelf.directory.glob("*.txnindex"))
    assert aborted(log) == []


def test_a_batch_outside_of_the_open_transaction_is_refused(shelf: Shelf) -> None:
    log = shelf.open()
    write(log, 1, 0, "a")
    with pytest.raises(BrokerError) as caught:
        append(log, records("b"), producer_id=1, producer_epoch=0, base_sequence=1)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_the_same_epoch_lets_sequences_continue(shelf: Shelf) -> None:
    log = shelf.open()
    write(log, 1, 0, "a")
    end(log, 1, commit=True)
    assert write(log, 1, 1, "b") == 2


def test_a_marker_of_the_next_epoch_lets_sequences_begin_again_and_ends_the_old_epoch(shelf: Shelf) -> None:
    log = shelf.open()
    write(log, 1, 0, "a")
    end(log, 1, commit=True, epoch=1, bumped=True)
    with pytest.raises(BrokerError) as caught:
        write(log, 1, 1, "late")
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(log, 1, 0, "b", epoch=1) == 2


@pytest.mark.parametrize(
    ("epoch", "coordinator", "bumped", "code"),
    [
        (0, 4, False, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (1, 4, True, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (-1, 5, False, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 5, True, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_markers_that_come_late_are_refused(
    shelf: Shelf, epoch: int, coordinator: int, bumped: bool, code: ErrorCode
) -> None:
    log = shelf.open()
    write(log, 1, 0, "a")
    end(log, 1, commit=True, coordinator=5)
    write(log, 1, 1, "b")
    with pytest.raises(BrokerError) as caught:
        end(log, 1, commit=True, epoch=epoch, coordinator=coordinator, bumped=bumped)
    assert caught.value.code is code
    assert log.last_stable_offset == 2


def test_a_marker_that_is_there_is_not_written_again(shelf: Shelf) -> None:
    log = shelf.open()
    write(log, 1, 0, "a")
    assert end(log, 1, commit=True, epoch=1, bumped=True) == 1
    assert end(log, 1, commit=True, epoch=1, bumped=True) == -1
    assert log.offsets.log_end_offset == 2


def history(log: Log) -> None:
    """Two segments with aborted, committed and open transactions."""
    write(log, 1, 0, "a")
    write(log, 2, 0, "b")
    end(log, 1, commit=False)
    log.roll()
    end(log, 2, commit=False)
    write(log, 3, 0, "c")
    end(log, 3, commit=True, coordinator=2)
    write(log, 4, 0, "d")


def check_history(log: Log) -> None:
    """All of `history` is known."""
    assert log.aborted_between(0, 8) == [AbortedTransaction(1, 0, 2, 1), AbortedTransaction(2, 1, 3, 4)]
    assert log.last_stable_offset == 6
    states = {state.producer_id: state for state in log.active_producers()}
    assert states[4].current_txn_start_offset == 6
    assert states[3].coordinator_epoch == 2
    assert end(log, 4, commit=False) == 7
    assert log.last_stable_offset == 8
    assert aborted(log) == [(1, 0), (2, 1), (4, 6)]


def test_transactions_are_known_after_a_clean_stop(shelf: Shelf) -> None:
    log = shelf.open()
    history(log)
    check_history(shelf.reopen_cleanly(log))


@pytest.mark.parametrize("recovery_point", range(8))
@pytest.mark.parametrize("left", ["whole", "none", "torn", "too long"])
def test_transactions_are_known_after_a_crash(shelf: Shelf, recovery_point: int, left: str) -> None:
    log = shelf.open()
    history(log)
    if recovery_point:
        log.checkpoint()
    log.release()
    for file in shelf.directory.glob("*.txnindex"):
        data = file.read_bytes()
        durable = b"".join(
            ENTRY.pack(*entry) for entry in ENTRY.iter_unpack(data) if entry[3] < recovery_point
        )
        wrong = ENTRY.pack(0, 5, 4, 90, 91) if file.name.endswith("3.txnindex") else b""
        rest = {"whole": data, "none": durable, "torn": data[:-1], "too long": data + wrong}
        file.write_bytes(max(durable, rest[left], key=len))
        if left == "none" and not durable:
            file.unlink()
    check_history(shelf.open(recovery_point=recovery_point))


@pytest.mark.parametrize("offset", range(8))
def test_what_is_cut_off_is_neither_open_nor_aborted(shelf: Shelf, tmp_path: Path, offset: int) -> None:
    log = shelf.open()
    history(log)
    flush(log)
    log.begin_cut(offset)
    log.truncate_to(offset)
    other = Shelf(tmp_path / "other")
    expected = other.open()
    for header, batch in whole_batches(log):
        expected.append_copy(memoryview(bytearray(batch)), [header])
    assert expected.offsets == log.offsets
    assert expected.aborted_between(0, 8) == log.aborted_between(0, 8)
    assert expected.last_stable_offset == log.last_stable_offset
    assert [s._replace(last_timestamp=0) for s in expected.active_producers()] == [
        s._replace(last_timestamp=0) for s in log.active_producers()
    ]


def whole_batches(log: Log) -> list[tuple[object, bytes]]:
    """Every batch of a log with its header."""
    found, offset = [], log.offsets.log_start_offset
    while offset < log.offsets.log_end_offset:
        piece = log.read(offset, 1 << 20, min_one=True).slice
        assert piece is not None
        data = piece.read()
        for position, header in batches(data):
            found.append((header, data[position : position + header.size]))
            offset = header.next_offset
    return found


def test_a_removed_segment_takes_its_index_with_it(shelf: Shelf) -> None:
    log = shelf.open()
    history(log)
    log.truncate_prefix(4)
    assert [file.name for file in shelf.directory.glob("*.txnindex")] == ["00000000000000000003.txnindex"]
    assert aborted(log) == [(2, 1)]
    assert log.last_stable_offset == 6


def test_an_index_that_the_disk_refuses_is_written_by_the_next_flush(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = shelf.open()
    write(log, 1, 0, "a")
    with Disk(monkeypatch).failing(errno.ENOSPC, "open_file"):
        end(log, 1, commit=False)
        assert aborted(log) == [(1, 0)]
        with pytest.raises(BrokerError) as caught:
            flush(log)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    flush(log)
    assert aborted(shelf.reopen_cleanly(log)) == [(1, 0)]


def test_an_open_transaction_is_not_forgotten(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    shelf.settings = shelf.settings.__class__(max_producers_per_partition=2)
    log = shelf.open()
    write(log, 1, 0, "a")
    for producer_id in range(10, 15):
        append(log, records("x"), producer_id=producer_id, producer_epoch=0, base_sequence=0)
    log.producers.expire(2**62)
    assert [state.producer_id for state in log.active_producers()] == [1]
    assert log.last_stable_offset == 0


def test_a_thousand_aborted_transactions_are_found_from_anywhere(shelf: Shelf) -> None:
    log = shelf.open()
    for i in range(1000):
        write(log, 1, i, "x")
        end(log, 1, commit=False)
    for offset in (0, 1, 2, 999, 1000, 1998, 1999):
        assert [entry.first_offset for entry in log.aborted_between(offset, 2000)] == list(
            range(offset // 2 * 2, 2000, 2)
        )


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 4)),
        st.tuples(st.just("commit"), st.integers(1, 4)),
        st.tuples(st.just("abort"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["roll", "crash", "stop"]), st.just(0)),
    ),
    max_size=40,
)


@given(moves=MOVES)
def test_any_history_is_told_like_a_list(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[str, int]]
) -> None:
    root = tmp_path_factory.mktemp("log")
    shelf = Shelf(root)
    log = shelf.open()
    open_from: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    sequences = dict.fromkeys(range(5), 0)
    for move, producer_id in moves:
        offset = log.offsets.log_end_offset
        if move == "write":
            write(log, producer_id, sequences[producer_id], "x")
            sequences[producer_id] += 1
            open_from.setdefault(producer_id, offset)
        elif move in ("commit", "abort"):
            end(log, producer_id, commit=move == "commit")
            first = open_from.pop(producer_id, None)
            if move == "abort" and first is not None:
                ended.append((producer_id, first))
        elif move == "roll":
            log.roll()
        elif move == "crash":
            log.release()
            log = shelf.open(recovery_point=0)
        else:
            log = shelf.reopen_cleanly(log)
        assert log.last_stable_offset == min(open_from.values(), default=log.offsets.log_end_offset)
        assert aborted(log) == sorted(ended, key=lambda pair: pair[1])
    log.release()
    shutil.rmtree(root)


def test_a_read_of_committed_records_ends_before_the_open_transaction(shelf: Shelf) -> None:
    log = shelf.open()
    append(log, records("plain"))
    write(log, 1, 0, "a")
    append(log, records("behind"))
    read = log.read(0, 1 << 20, min_one=True, committed=True)
    assert read.slice is not None
    assert [header.base_offset for _, header in batches(read.slice.read())] == [0]
    assert (read.last_stable_offset, read.offsets.high_watermark) == (1, 3)
    assert log.read(1, 1 << 20, min_one=True, committed=True).slice is None
    assert log.read(1, 1 << 20, min_one=True).slice is not None
    assert log.latest(committed=True).offset == 1
    assert log.latest().offset == 3


def test_a_read_tells_the_aborted_transactions_of_its_own_batches_alone(shelf: Shelf) -> None:
    log = shelf.open()
    for i in range(20):
        write(log, 1, i, "x")
        end(log, 1, commit=i % 2 == 0)
    read = log.read(10, 200, min_one=True, committed=True)
    assert read.slice is not None
    last = [header.last_offset for _, header in batches(read.slice.read())][-1]
    assert last < 20
    assert [entry.first_offset for entry in read.aborted] == list(range(10, last + 1, 4))
    assert log.read(10, 200, min_one=True).aborted == ()
