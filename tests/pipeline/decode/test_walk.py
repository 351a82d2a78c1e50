"""From batch to batch: what is whole, what is corrupt, what is left out."""

from __future__ import annotations

import pytest

from core.records.batch import build_batch
from core.records.message_set import encode_plain, wrap
from core.records.record import NewRecord
from pipeline.decode.walk import Place, walk
from pipeline.wire.errors import CorruptDataError

PLACE = Place("orders", 3, "fetched")


def batch(base: int, count: int = 10, **options: int) -> bytes:
    """A batch of records without keys."""
    records = [NewRecord(value=b"%d" % (base + n)) for n in range(count)]
    return bytes(build_batch(records, now_ms=1000, base_offset=base, **options))


def test_whole_batches_are_found_and_a_part_of_one_is_left_for_the_next_time() -> None:
    data = batch(0) + batch(10) + batch(20)
    cut = len(data) - 1
    walked = walk(data[:cut], 0, 100, PLACE)
    assert [one.base_offset for one in walked.found] == [0, 10]
    assert (walked.next_offset, walked.consumed) == (20, len(batch(0) + batch(10)))
    assert walk(data[:16], 0, 100, PLACE) == ([], -1, 0)


def test_batches_outside_the_range_are_walked_over_and_not_checked() -> None:
    broken = bytearray(batch(0))
    broken[-1] ^= 1
    data = bytes(broken) + batch(10) + batch(20)
    walked = walk(data, 12, 15, PLACE)
    assert [one.base_offset for one in walked.found] == [10]
    assert walked.next_offset == 20


def test_a_wrong_checksum_names_topic_partition_and_offset() -> None:
    data = bytearray(batch(0) + batch(10))
    data[-1] ^= 1
    with pytest.raises(
        CorruptDataError,
        match=r"corrupt batch in topic orders, partition 3, offset 10 \(fetched\): its checksum is wrong",
    ):
        walk(data, 0, 100, PLACE)


@pytest.mark.parametrize(
    ("position", "value", "says"),
    [(11, 1, "its length is 1"), (16, 9, "its magic is 9"), (8, 0x80, "its length is -")],
)
def test_a_header_that_makes_no_sense_is_corrupt(position: int, value: int, says: str) -> None:
    data = bytearray(batch(0))
    if position == 11:
        data[8:12] = bytes(4)
    data[position] = value
    with pytest.raises(CorruptDataError, match=says):
        walk(data, 0, 100, PLACE)


def test_transaction_markers_are_left_out() -> None:
    control = bytes(build_batch([NewRecord(key=b"\0\0\0\1")], now_ms=1, base_offset=10, control=True))
    walked = walk(batch(0) + control + batch(11), 0, 100, PLACE)
    assert [one.base_offset for one in walked.found] == [0, 11]


def test_what_an_aborted_transaction_wrote_is_left_out_when_the_broker_names_it() -> None:
    def transactional(base: int, producer: int) -> bytes:
        return batch(base, 5, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)

    def marker(base: int, producer: int, kind: int) -> bytes:
        key = bytes((0, 0, 0, kind))
        return bytes(
            build_batch(
                [NewRecord(key=key)], now_ms=1, base_offset=base, producer_id=producer, producer_epoch=0,
                control=True, transactional=True,
            )
        )  # fmt: skip

    data = (
        transactional(0, 1) + transactional(5, 2) + marker(10, 1, 0) + marker(11, 2, 1)
        + transactional(12, 1) + marker(17, 1, 1)
    )  # fmt: skip
    walked = walk(data, 0, 100, PLACE, aborted=((1, 0),))
    assert [one.base_offset for one in walked.found] == [5, 12]
    assert len(walk(data, 0, 100, PLACE).found) == 3


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_found_between_batches(magic: int) -> None:
    old = encode_plain(magic, 0, [(5, 1000, None, b"a"), (6, 1001, b"k", None)])
    wrapper = wrap(
        magic, 1, 0, 8, 1003, encode_plain(magic, 0, [(7, 1002, None, b"b"), (8, 1003, None, b"c")])
    )
    walked = walk(old + wrapper + batch(9), 6, 100, PLACE)
    assert [(one.base_offset, one.magic) for one in walked.found] == [(6, magic), (8, magic), (9, 2)]
