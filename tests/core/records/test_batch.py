"""Batches: built, walked over, stamped, read; against the record modules of two Kafka clients."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from core.errors import BrokerError, ErrorCode
from core.records.batch import (
    assign,
    batches,
    build_batch,
    check_crc,
    decode_all,
    read_header,
    read_records,
    rebuild_batch,
    recompress,
    set_log_append_time,
)
from core.records.record import NewRecord, Record
from tests.core.records.samples import (
    CODECS,
    LIMIT,
    NOW,
    record_lists,
    refusal,
    simple_batch,
    simple_records,
)


def expected_records(records: list[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(
            base_offset + index,
            NOW if record.timestamp is None else record.timestamp,
            0,
            record.key,
            record.value,
            record.headers,
        )
        for index, record in enumerate(records)
    ]


@given(records=record_lists, codec=st.sampled_from(CODECS), base=st.integers(0, 2**62))
def test_what_was_built_is_read_again(records: list[NewRecord], codec: int, base: int) -> None:
    batch = build_batch(records, now_ms=NOW, codec=codec, base_offset=base)
    header = read_header(batch)
    assert header.size == len(batch)
    assert header.codec == codec
    assert check_crc(batch, 0, header)
    assert read_records(batch, 0, header, max_bytes=LIMIT) == expected_records(records, base)


@given(records=record_lists, codec=st.sampled_from(CODECS))
@settings(max_examples=50)
def test_kafka_python_reads_the_same_as_we_do(records: list[NewRecord], codec: int) -> None:
    batch = build_batch(records, now_ms=NOW, codec=codec, base_offset=7)
    theirs = KafkaPythonBatch(bytes(batch))
    assert theirs.validate_crc()
    ours = read_records(batch, 0, read_header(batch), max_bytes=LIMIT)
    assert [(r.offset, r.key, r.value, tuple(r.headers)) for r in theirs] == [
        (r.offset, r.key, r.value, r.headers) for r in ours
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_what_we_compressed(codec: int) -> None:
    batch, _ = simple_batch(1000, codec)
    theirs = [(r.offset, r.timestamp, r.key, r.value) for r in DefaultRecordBatch(bytes(batch))]
    assert theirs == [(r.offset, r.timestamp, r.key, r.value) for r in expected_records(simple_records(1000))]


def test_producer_and_flags_are_written_into_the_header() -> None:
    batch = build_batch(
        simple_records(2),
        now_ms=NOW,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        transactional=True,
        control=True,
    )
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert header.is_transactional
    assert header.is_control
    assert header.leader_epoch == -1


def test_a_batch_of_nothing_and_names_without_utf8_are_refused() -> None:
    assert refusal(lambda: build_batch([], now_ms=NOW)).code is ErrorCode.INVALID_RECORD
    lone_surrogate = NewRecord(headers=(("\ud800", b""),))
    assert refusal(lambda: build_batch([lone_surrogate], now_ms=NOW)).code is ErrorCode.INVALID_RECORD
    beyond = NewRecord(timestamp=2**63)
    assert refusal(lambda: build_batch([beyond], now_ms=NOW)).code is ErrorCode.INVALID_RECORD


def test_batches_are_walked_one_after_the_other() -> None:
    one, two = simple_batch(3)[0], simple_batch(4, codec=4)[0]
    found = list(batches(b"?" + one + two + b"rest", 1, 1 + len(one) + len(two)))
    assert [(at, header.record_count) for at, header in found] == [(1, 3), (1 + len(one), 4)]


@pytest.mark.parametrize(
    ("at", "change"),
    [
        (16, b"\x01"),  # magic 1
        (16, b"\xff"),  # magic −1
        (8, b"\x00\x00\x00\x30"),  # a length below the header's
        (8, b"\xff\xff\xff\xff"),
        (8, b"\x7f\xff\xff\xff"),
    ],
)
def test_the_walk_stops_at_a_bad_batch_and_says_where(at: int, change: bytes) -> None:
    good, bad = simple_batch()[0], simple_batch()[0]
    bad[at : at + len(change)] = change
    walk = batches(good + bad)
    assert next(walk)[0] == 0
    with pytest.raises(BrokerError) as caught:
        next(walk)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert caught.value.details["position"] == len(good)


def test_the_walk_refuses_a_torn_tail_of_any_length() -> None:
    batch, _ = simple_batch(2)
    for size in range(1, len(batch)):
        error = refusal(lambda size=size: list(batches(batch[:size])))
        assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE


def test_assigned_offsets_leave_the_checksum_right() -> None:
    batch, _ = simple_batch(3)
    buffer = bytearray(b"12345" + batch)
    assign(memoryview(buffer), 5, base_offset=2**40, leader_epoch=9)
    header = read_header(buffer, 5)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    assert check_crc(buffer, 5, header)
    assert [r.offset for r in read_records(buffer, 5, header, max_bytes=LIMIT)] == [
        2**40,
        2**40 + 1,
        2**40 + 2,
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_is_the_time_of_every_record(codec: int) -> None:
    batch, _ = simple_batch(5, codec)
    set_log_append_time(batch, 0, NOW + 1234)
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    records = read_records(batch, 0, header, max_bytes=LIMIT)
    assert {(r.timestamp, r.timestamp_type) for r in records} == {(NOW + 1234, 1)}
    assert {(r.timestamp, r.timestamp_type) for r in KafkaPythonBatch(bytes(batch))} == {(NOW + 1234, 1)}


def test_one_flipped_bit_anywhere_after_the_checksum_is_seen() -> None:
    batch, header = simple_batch(2)
    for at in range(21, len(batch)):
        batch[at] ^= 0x10
        assert not check_crc(batch, 0, header)
        batch[at] ^= 0x10
    assert check_crc(batch, 0, header)


def test_reading_starts_and_ends_where_asked() -> None:
    batch, header = simple_batch(10)
    read = read_records(batch, 0, header, max_bytes=LIMIT, first_offset=4, limit=3)
    assert [r.offset for r in read] == [4, 5, 6]
    assert read_records(batch, 0, header, max_bytes=LIMIT, limit=0) == []


def test_all_records_of_all_batches_come_without_control_batches() -> None:
    marker = build_batch(
        [NewRecord(key=b"\0\0\0\1", value=b"")], now_ms=NOW, control=True, base_offset=2, transactional=True
    )
    log = (
        build_batch(simple_records(2), now_ms=NOW)
        + marker
        + build_batch(simple_records(3), now_ms=NOW, codec=1, base_offset=3)
    )
    assert [r.offset for r in decode_all(log, max_bytes=LIMIT)] == [0, 1, 3, 4, 5]
    assert [r.offset for r in decode_all(log, max_bytes=LIMIT, control=True)] == [0, 1, 2, 3, 4, 5]
    assert [r.offset for r in decode_all(log, max_bytes=LIMIT, first_offset=4)] == [4, 5]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kept", [[0, 3, 9], [9], [4, 5], []])
def test_a_compacted_batch_keeps_its_place_and_its_producer(codec: int, kept: list[int]) -> None:
    batch = build_batch(
        simple_records(10),
        now_ms=NOW,
        codec=codec,
        producer_id=3,
        producer_epoch=1,
        base_sequence=40,
        base_offset=50,
    )
    assign(batch, 0, base_offset=50, leader_epoch=6)
    header = read_header(batch)
    records = read_records(batch, 0, header, max_bytes=LIMIT)
    smaller = rebuild_batch(header, [records[index] for index in kept])
    after = read_header(smaller)
    assert check_crc(smaller, 0, after)
    assert after.record_count == len(kept)
    for name in (
        "base_offset",
        "last_offset",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "last_sequence",
    ):
        assert getattr(after, name) == getattr(header, name), name
    assert after.codec == (codec if kept else 0)
    assert read_records(smaller, 0, after, max_bytes=LIMIT) == [records[index] for index in kept]
    assert [r.offset for r in KafkaPythonBatch(bytes(smaller))] == [50 + index for index in kept]


def test_a_delete_horizon_moves_the_base_time_but_no_record() -> None:
    records = [NewRecord(key=b"%d" % i, value=None, timestamp=NOW + i) for i in range(5)]
    batch = build_batch(records, now_ms=NOW)
    header = read_header(batch)
    before = read_records(batch, 0, header, max_bytes=LIMIT)
    once = rebuild_batch(header, before[1:4], delete_horizon=NOW + 10**6)
    assert read_header(once).delete_horizon == NOW + 10**6
    assert read_header(once).max_timestamp == NOW + 3
    assert read_records(once, 0, read_header(once), max_bytes=LIMIT) == before[1:4]
    twice = rebuild_batch(read_header(once), before[1:2], delete_horizon=NOW + 10**9)
    assert read_header(twice).delete_horizon == NOW + 10**6
    assert read_records(twice, 0, read_header(twice), max_bytes=LIMIT) == before[1:2]


def test_compaction_keeps_the_brokers_time() -> None:
    batch, _ = simple_batch(3)
    set_log_append_time(batch, 0, NOW + 99)
    records = read_records(batch, 0, read_header(batch), max_bytes=LIMIT)
    smaller = rebuild_batch(read_header(batch), records[:1], delete_horizon=NOW + 5)
    assert read_records(smaller, 0, read_header(smaller), max_bytes=LIMIT) == records[:1]
    assert read_header(smaller).timestamp_type == 1


@pytest.mark.parametrize("old", CODECS)
@pytest.mark.parametrize("new", CODECS)
def test_recompression_changes_the_codec_alone(old: int, new: int) -> None:
    batch, header = simple_batch(50, old)
    again = recompress(batch, 0, header, new, max_bytes=LIMIT)
    after = read_header(again)
    assert (after.codec, after.size, check_crc(again, 0, after)) == (new, len(again), True)
    assert after._replace(batch_length=0, crc=0, attributes=0) == header._replace(
        batch_length=0, crc=0, attributes=0
    )
    assert read_records(again, 0, after, max_bytes=LIMIT) == read_records(batch, 0, header, max_bytes=LIMIT)


@pytest.mark.parametrize("count", [-1, 0, 9, 11, 200, 2**31 - 1, -(2**31)])
def test_a_record_count_that_lies_is_refused(count: int) -> None:
    batch, header = simple_batch(10)
    error = refusal(lambda: read_records(batch, 0, header._replace(record_count=count), max_bytes=LIMIT))
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE


@given(data=st.data(), codec=st.sampled_from(CODECS))
@settings(max_examples=300)
def test_a_mutated_batch_is_read_or_refused_and_nothing_else(data: st.DataObject, codec: int) -> None:
    batch, _ = simple_batch(5, codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(8, len(batch) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(batch)))
    refusal(lambda: list(decode_all(batch, max_bytes=LIMIT)))
    refusal(lambda: list(decode_all(bytes(batch[:cut]), max_bytes=LIMIT)))
    refusal(lambda: read_records(batch, 0, read_header(batch), max_bytes=LIMIT))
