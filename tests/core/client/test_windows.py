"""Chunks of batches: cut at batches, joined, bounded, with the transactions that were aborted in them."""

from __future__ import annotations

from uuid import UUID

import pytest

from core.client.windows import Chunk, Window, Windows, chunk_of
from core.errors import BrokerError, ErrorCode
from core.records.batch import assign, batches, build_batch
from core.records.control import EndMarker, build_marker
from core.records.header import HEADER_SIZE
from core.records.record import NewRecord
from core.types import LogOffsets, TopicPartition

OFFSETS = LogOffsets(0, 100, 100, 100)
NO_END = 2**63 - 1


def data(*counts: int, start: int = 0, epoch: int = 3) -> bytes:
    """Batches with these numbers of records."""
    made = b""
    for count in counts:
        batch = build_batch([NewRecord(value=b"x" * 20)] * count, now_ms=1)
        assign(batch, 0, base_offset=start, leader_epoch=epoch)
        made += bytes(batch)
        start += count
    return made


def chunk(*counts: int, start: int = 0) -> Chunk:
    made = chunk_of(start, data(*counts, start=start), ())
    assert made is not None
    return made


def bases(view: memoryview) -> list[int]:
    return [header.base_offset for _, header in batches(view)]


def window(number: int = 0) -> Window:
    return Window(TopicPartition("t", number), True, UUID(int=1), 0)


def test_a_read_gets_whole_batches_from_the_one_with_its_offset() -> None:
    one = chunk(2, 3, 1)
    size = len(data(2))
    assert (one.start, one.next_offset, one.epoch) == (0, 6, 3)
    for offset, most, found, following in (
        (0, 10**6, [0, 2, 5], 6),
        (1, 10**6, [0, 2, 5], 6),
        (2, 10**6, [2, 5], 6),
        (5, 1, [5], 6),
        (0, 1, [0], 2),
        (0, size, [0], 2),
        (0, size + len(data(3)), [0, 2], 5),
        (3, 1, [2], 5),
    ):
        got = one.cut(offset, most, OFFSETS)
        assert (bases(got.data), got.next_offset) == (found, following), (offset, most)


def test_what_lies_before_the_offset_and_a_batch_that_was_cut_off_are_left_out() -> None:
    whole = data(2, 3, 1)
    for missing in range(1, len(data(1))):
        found = chunk_of(3, whole[:-missing], ())
        assert found is not None
        assert (found.start, found.next_offset, bases(found.data)) == (2, 5, [2])
    assert chunk_of(0, whole[: HEADER_SIZE - 1], ()) is None
    assert chunk_of(0, b"", ()) is None


def test_offsets_that_compaction_removed_belong_to_the_next_batch() -> None:
    one = chunk_of(3, data(1, start=8), ())
    assert one is not None and (one.start, one.next_offset) == (3, 9)
    windows, w = Windows(10**6), window()
    windows.store(w, one)
    assert w.find(3) is one and w.find(7) is one and w.find(9) is None and w.find(2) is None


def test_message_sets_and_garbage_are_refused() -> None:
    old = bytearray(data(1))
    old[16] = 1
    with pytest.raises(BrokerError) as caught:
        chunk_of(0, bytes(old), ())
    assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    broken = bytearray(data(1))
    broken[8:12] = (-5).to_bytes(4, "big", signed=True)
    with pytest.raises(BrokerError) as caught:
        chunk_of(0, bytes(broken), ())
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_end_of_an_aborted_transaction_is_its_marker_or_not_known() -> None:
    def marked(producer_id: int, offset: int, *, commit: bool) -> bytes:
        made = build_marker(producer_id, 0, EndMarker(commit, 0), now_ms=1)
        assign(made, 0, base_offset=offset, leader_epoch=0)
        return bytes(made)

    log = (
        data(2) + marked(7, 2, commit=False) + data(1, start=3) + marked(8, 4, commit=True) + data(1, start=5)
    )
    one = chunk_of(0, log, [(7, 5), (8, 3), (7, 0)])
    assert one is not None
    assert [entry[:3] for entry in one.aborted] == [(7, 0, 2), (8, 3, NO_END), (7, 5, NO_END)]
    later = marked(7, 6, commit=False)
    two = chunk_of(6, later, [(7, 5)])
    assert two is not None
    joined = one.joined(two)
    assert joined is not None and bytes(joined.data) == log + later and joined.next_offset == 7
    assert [entry[:3] for entry in joined.aborted] == [(7, 0, 2), (8, 3, NO_END), (7, 5, 6)]


def test_small_chunks_in_a_row_are_joined() -> None:
    windows, w = Windows(10**7), window()
    for offset in range(200):
        windows.store(w, chunk(1, start=offset))
    assert len(w.chunks) == 1 and w.starts == [0] and w.chunks[0].next_offset == 200
    assert windows.size == w.chunks[0].size
    for offset in (0, 77, 199):
        found = w.find(offset)
        assert found is not None and bases(found.cut(offset, 1, OFFSETS).data) == [offset]
    for offset in range(300, 3_000):
        windows.store(w, chunk(1, start=offset))
    assert 1 < len(w.chunks) < 10
    assert windows.size == sum(one.size for one in w.chunks.values())


def test_the_chunks_that_were_read_least_recently_are_dropped() -> None:
    one = chunk(1_000)
    windows = Windows(4 * one.size)
    many = [window(number) for number in range(4)]
    for w in many:
        windows.add(w)
        windows.store(w, chunk(1_000))
    windows.used(many[0], many[0].chunks[0])
    fifth = window(5)
    windows.add(fifth)
    windows.store(fifth, chunk(1_000))
    assert [bool(w.chunks) for w in (*many, fifth)] == [True, False, True, True, True]
    for w in (*many, fifth):
        windows.drop(w)
    assert windows.size == 0 and windows.all() == []


def test_the_epoch_before_the_end_is_that_of_the_last_batch() -> None:
    windows, w = Windows(10**6), window()
    assert w.last_epoch == -1
    windows.store(w, chunk(2, 3))
    w.end = 5
    assert w.last_epoch == 3
    w.end = 4
    assert w.last_epoch == -1
