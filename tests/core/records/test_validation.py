"""What a client may write, rule by rule."""

from __future__ import annotations

import dataclasses

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import BrokerError, ErrorCode
from core.records.batch import build_batch, check_crc, decode_all, read_header, read_records
from core.records.header import HEADER
from core.records.record import NewRecord
from core.records.validation import MAX_RECORD_ERRORS, ProduceBatches, validate_produce
from core.topic_config import TopicConfig
from tests.core.records.samples import CODECS, LIMIT, NOW, refusal, simple_batch, simple_records

PLAIN = TopicConfig()
COMPACTED = TopicConfig(cleanup_policy=frozenset({"compact"}))


def validate(batch: bytes | bytearray | memoryview, config: TopicConfig = PLAIN) -> ProduceBatches:
    return validate_produce(batch, config, now_ms=NOW, max_decompressed_bytes=LIMIT)


def refused(batch: bytes | bytearray, config: TopicConfig = PLAIN) -> BrokerError:
    error = refusal(lambda: validate(batch, config))
    assert error is not None
    return error


def altered(batch: bytearray, **changes: int) -> bytearray:
    """The batch with other header fields and a checksum that fits them."""
    header = read_header(batch)._replace(**changes)
    out = bytearray(batch)
    HEADER.pack_into(out, 0, *header)
    HEADER.pack_into(out, 0, *header._replace(crc=crc32c(memoryview(out)[21:])))
    return out


@pytest.mark.parametrize("codec", CODECS)
def test_a_good_batch_passes_in_its_own_memory(codec: int) -> None:
    batch, header = simple_batch(10, codec)
    view = memoryview(batch)
    passed = validate(view)
    assert passed.buffer is view
    assert passed.headers == (header,)
    assert passed.log_append_time == -1


def test_what_cannot_be_written_into_is_copied() -> None:
    batch, _ = simple_batch()
    for buffer in (bytes(batch), memoryview(bytes(batch))):
        passed = validate(buffer)
        assert bytes(passed.buffer) == batch
        memoryview(passed.buffer)[0] = 1


def test_nothing_and_two_batches_are_invalid() -> None:
    batch, _ = simple_batch()
    assert refused(b"").code is ErrorCode.INVALID_RECORD
    assert refused(batch + batch).code is ErrorCode.INVALID_RECORD


def test_every_cut_and_every_tail_is_refused() -> None:
    batch, _ = simple_batch(2)
    for size in range(1, len(batch)):
        assert refused(batch[:size]).code is ErrorCode.CORRUPT_MESSAGE
    assert refused(batch + b"\x01").code is ErrorCode.CORRUPT_MESSAGE


def test_every_flipped_bit_after_the_magic_is_refused() -> None:
    batch, _ = simple_batch(2)
    for at in range(17, len(batch)):
        for bit in (1, 128):
            batch[at] ^= bit
            refused(batch)
            batch[at] ^= bit
    validate(batch)


def test_a_wrong_checksum_is_corrupt() -> None:
    batch, _ = simple_batch()
    batch[-1] ^= 1
    assert refused(batch).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (-1, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_other_magics_are_refused(magic: int, code: ErrorCode) -> None:
    assert refused(altered(simple_batch()[0], magic=magic)).code is code


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1, -(2**31)])
def test_a_length_that_lies_is_corrupt(length: int) -> None:
    assert refused(altered(simple_batch()[0], batch_length=length)).code is ErrorCode.CORRUPT_MESSAGE


def test_the_limit_of_the_topic_holds_to_the_byte() -> None:
    batch, header = simple_batch()
    validate(batch, TopicConfig(max_message_bytes=header.size))
    error = refused(batch, TopicConfig(max_message_bytes=header.size - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert error.details == {"size": header.size, "limit": header.size - 1}


@pytest.mark.parametrize(
    "changes",
    [
        {"record_count": 9},
        {"record_count": 11},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": -1, "last_offset_delta": -2},
        {"last_offset_delta": 10},
        {"last_offset_delta": 2**31 - 1, "record_count": -(2**31)},
        {"attributes": 0x20},  # control
        {"attributes": 0x40},  # delete horizon
        {"producer_id": 5},
        {"producer_id": 5, "producer_epoch": 0},
        {"producer_id": 5, "base_sequence": 0},
    ],
)
def test_a_header_that_contradicts_itself_is_invalid(changes: dict[str, int]) -> None:
    assert refused(altered(simple_batch(10)[0], **changes)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("more", [0, 0x01, 0x08, 0x20, 0x40])
def test_a_transactional_batch_is_refused_as_long_as_there_are_no_transactions(more: int) -> None:
    """Control or not, idempotent or not: it would be a transaction without an end."""
    for producer in ({}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}):
        batch = altered(simple_batch(10)[0], attributes=0x10 | more, **producer)
        assert refused(batch).code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_client_may_not_write_the_brokers_time() -> None:
    assert refused(altered(simple_batch()[0], attributes=0x08)).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_named(codec: int) -> None:
    error = refused(altered(simple_batch()[0], attributes=codec))
    assert error.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_an_idempotent_producer_passes() -> None:
    batch = build_batch(simple_records(3), now_ms=NOW, producer_id=1, producer_epoch=0, base_sequence=0)
    assert validate(batch).headers[0].last_sequence == 2


def test_a_base_offset_from_the_client_is_nothing_to_us() -> None:
    validate(build_batch(simple_records(3), now_ms=NOW, base_offset=77))


def timed(*timestamps: int, codec: int = 0) -> bytearray:
    return build_batch([NewRecord(key=b"k", timestamp=t) for t in timestamps], now_ms=NOW, codec=codec)


@pytest.mark.parametrize("codec", CODECS)
def test_records_too_far_ahead_are_named_one_by_one(codec: int) -> None:
    config = TopicConfig(message_timestamp_after_max_ms=1000)
    validate(timed(NOW, NOW + 1000, codec=codec), config)
    error = refused(timed(NOW, NOW + 1001, NOW + 5, NOW + 2000, codec=codec), config)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    named = error.details["record_errors"]
    assert isinstance(named, list)
    assert [index for index, _ in named] == [1, 3]
    assert str(NOW + 1001) in named[0][1]


def test_records_that_are_too_old_are_named_one_by_one() -> None:
    config = TopicConfig(message_timestamp_before_max_ms=1000)
    validate(timed(NOW, NOW - 1000, -1), config)
    validate(timed(1, 2), PLAIN)
    error = refused(timed(NOW, NOW - 1001), config)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.details["record_errors"]] == [1]


def test_a_max_timestamp_that_no_record_has_is_refused() -> None:
    batch = altered(timed(NOW, NOW), max_timestamp=NOW + 10**10)
    assert refused(batch).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_topic_wants_keys(codec: int) -> None:
    validate(simple_batch(10, codec)[0], COMPACTED)
    records = [NewRecord(key=b"k"), NewRecord(value=b"v"), NewRecord(key=b""), NewRecord()]
    error = refused(build_batch(records, now_ms=NOW, codec=codec), COMPACTED)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.details["record_errors"]] == [1, 3]


def test_the_list_of_record_errors_has_an_end() -> None:
    error = refused(build_batch([NewRecord()] * 5000, now_ms=NOW), COMPACTED)
    assert len(error.details["record_errors"]) == MAX_RECORD_ERRORS
    assert "5000 of 5000" in error.message


@pytest.mark.parametrize("codec", CODECS)
def test_with_log_append_time_the_broker_s_time_is_written(codec: int) -> None:
    config = TopicConfig(message_timestamp_type="LogAppendTime")
    batch = timed(5, NOW + 10**12, codec=codec)
    passed = validate(batch, config)
    assert passed.log_append_time == NOW
    header = passed.headers[0]
    assert check_crc(passed.buffer, 0, header)
    records = read_records(passed.buffer, 0, header, max_bytes=LIMIT)
    assert [(r.timestamp, r.timestamp_type) for r in records] == [(NOW, 1)] * 2


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("name", "number"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
def test_a_topic_with_a_codec_of_its_own_gets_it(codec: int, name: str, number: int) -> None:
    batch, header = simple_batch(20, codec)
    config = TopicConfig(compression_type=name)
    passed = validate(batch, config)
    assert passed.headers[0].codec == number
    assert passed.headers == (read_header(passed.buffer),)
    assert check_crc(passed.buffer, 0, passed.headers[0])
    assert read_records(passed.buffer, 0, passed.headers[0], max_bytes=LIMIT) == read_records(
        batch, 0, header, max_bytes=LIMIT
    )
    if codec == number:
        assert passed.buffer is batch


def test_a_batch_that_recompression_makes_too_large_is_refused() -> None:
    batch, header = simple_batch(100, codec=4)
    config = TopicConfig(compression_type="uncompressed", max_message_bytes=header.size)
    assert refused(batch, config).code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_bomb_is_refused_where_it_would_have_to_be_opened() -> None:
    batch = build_batch([NewRecord(value=bytes(LIMIT * 2))], now_ms=NOW, codec=4)
    validate(batch)
    assert refused(batch, COMPACTED).code is ErrorCode.INVALID_RECORD
    assert refused(batch, TopicConfig(compression_type="gzip")).code is ErrorCode.INVALID_RECORD


def test_garbage_with_a_right_checksum_passes_and_breaks_no_reader() -> None:
    batch = simple_batch(10)[0]
    batch[61:] = b"\xff" * (len(batch) - 61)
    batch = altered(batch)
    passed = validate(batch)
    error = refusal(lambda: list(decode_all(passed.buffer, max_bytes=LIMIT)))
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE
    assert refused(batch, COMPACTED).code is ErrorCode.CORRUPT_MESSAGE


CONFIGS = (
    PLAIN,
    COMPACTED,
    dataclasses.replace(PLAIN, compression_type="gzip"),
    dataclasses.replace(PLAIN, message_timestamp_type="LogAppendTime", compression_type="uncompressed"),
    dataclasses.replace(COMPACTED, message_timestamp_before_max_ms=5),
)


@given(data=st.data(), codec=st.sampled_from(CODECS), config=st.sampled_from(CONFIGS))
@settings(max_examples=300)
def test_mutated_batches_pass_or_are_refused_and_nothing_else(
    data: st.DataObject, codec: int, config: TopicConfig
) -> None:
    batch, _ = simple_batch(5, codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        batch = altered(batch)
    refusal(lambda: validate(batch, config))
    refusal(lambda: validate(batch[: data.draw(st.integers(0, len(batch)))], config))
