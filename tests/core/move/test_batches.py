"""core.move.batches: what passes as it is, what is written again, what is left out."""

from __future__ import annotations

import pytest

from core.move.batches import Aborted, Piece, after, pieces, stamp
from core.records.batch import (
    assign,
    build_batch,
    check_crc,
    read_header,
    read_records,
    rebuild_batch,
    set_log_append_time,
)
from core.records.control import EndMarker, build_marker
from core.records.record import NewRecord, Record

RECORDS = [NewRecord(b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),), 1_000 + n) for n in range(4)]


def batch(first: int = 0, records: list[NewRecord] = RECORDS, **changes: object) -> bytearray:
    made = build_batch(records, now_ms=5, **changes)  # type: ignore[arg-type]
    assign(made, 0, base_offset=first, leader_epoch=3)
    return made


def read(piece: Piece) -> list[Record]:
    header = read_header(piece.batch)
    assert check_crc(piece.batch, 0, header)
    return read_records(piece.batch, 0, header, max_bytes=1_000_000)


def contents(records: list[Record]) -> list[tuple[object, ...]]:
    return [(r.timestamp, r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_passes_with_its_bytes_and_another_producer(codec: int) -> None:
    source = batch(7, codec=codec, producer_id=5, producer_epoch=1, base_sequence=9)
    ((piece,), next_offset) = pieces(bytes(source), (), 7)
    assert (piece.records, piece.sources, piece.next_source, next_offset) == (4, ((7, 4),), 11, 11)
    stamp(piece.batch, 77, 2, 30)
    header = read_header(piece.batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 2, 30)
    assert (header.base_offset, header.leader_epoch, header.codec) == (0, -1, codec)
    assert piece.batch[61:] == source[61:]
    assert contents(read(piece)) == [(r.timestamp, r.key, r.value, r.headers) for r in RECORDS]


def test_records_of_transactions_lose_their_mark_and_markers_are_left_out() -> None:
    producer = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    kept = batch(0, base_sequence=0, **producer)
    commit = build_marker(5, 0, EndMarker(True, 0), now_ms=5)
    assign(commit, 0, base_offset=4, leader_epoch=0)
    aborted = batch(5, base_sequence=4, **producer)
    abort = build_marker(5, 0, EndMarker(False, 0), now_ms=5)
    assign(abort, 0, base_offset=9, leader_epoch=0)
    last = batch(10, base_sequence=8, **producer)
    found = pieces(b"".join([kept, commit, aborted, abort, last]), [Aborted(5, 5)], 0)
    assert [piece.sources for piece in found.pieces] == [((0, 4),), ((10, 4),)]
    assert found.next_offset == 14
    stamp(found.pieces[0].batch, 1, 0, 0)
    assert not read_header(found.pieces[0].batch).is_transactional


def test_a_fetch_with_nothing_to_copy_says_how_far_it_went() -> None:
    marker = build_marker(5, 0, EndMarker(True, 0), now_ms=5)
    assign(marker, 0, base_offset=4, leader_epoch=0)
    assert pieces(bytes(marker), (), 4) == ([], 5)
    assert pieces(b"", (), 4) == ([], 4)


def test_a_compacted_batch_is_written_again_without_gaps() -> None:
    whole = batch(10, codec=1)
    header = read_header(whole)
    records = read_records(whole, 0, header, max_bytes=1_000_000)
    left = rebuild_batch(header, [records[0], records[2], records[3]], delete_horizon=9)
    ((piece,), next_offset) = pieces(bytes(left), (), 0)
    assert (piece.records, piece.sources, next_offset) == (3, ((10, 1), (12, 2)), 14)
    header = read_header(piece.batch)
    assert (header.last_offset_delta, header.record_count, header.codec) == (2, 3, 1)
    assert header.delete_horizon is None
    assert contents(read(piece)) == contents([records[0], records[2], records[3]])


def test_an_emptied_batch_is_left_out() -> None:
    whole = batch(10)
    empty = rebuild_batch(read_header(whole), [])
    assert pieces(bytes(empty), (), 0) == ([], 14)


def test_records_keep_the_time_that_the_broker_gave_them() -> None:
    stamped = batch(0)
    set_log_append_time(stamped, 0, 123_456)
    ((piece,), _) = pieces(bytes(stamped), (), 0)
    assert read_header(piece.batch).timestamp_type == 0
    assert [record.timestamp for record in read(piece)] == [123_456] * 4


def test_records_before_the_first_offset_are_left_out_of_a_batch() -> None:
    ((piece,), next_offset) = pieces(bytes(batch(10)), (), 12)
    assert (piece.sources, next_offset) == (((12, 2),), 14)
    assert [record.key for record in read(piece)] == [b"k2", b"k3"]


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    data = bytes(batch(0)) + bytes(batch(4))[:-1]
    found = pieces(data, (), 0)
    assert ([piece.sources for piece in found.pieces], found.next_offset) == ([((0, 4),)], 4)


def test_another_format_is_refused_with_its_offset() -> None:
    old = batch(3)
    old[16] = 1
    with pytest.raises(ValueError, match="offset 3 has the format 1"):
        pieces(bytes(old), (), 0)


def test_sequences_wrap_as_kafka_does() -> None:
    assert after(2**31 - 2, 3) == 1
