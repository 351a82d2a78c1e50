"""Message sets of magic 0 and 1: parsed and written, against two Kafka clients."""

from __future__ import annotations

import struct
import zlib

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords as KafkaPythonRecords

from core.errors import ErrorCode
from core.records.compression import compress
from core.records.message_set import (
    MAX_MESSAGES,
    MessageFields,
    WrapperError,
    encode_message,
    encode_plain,
    parse_message_set,
    wrap,
)
from tests.core.records.samples import LIMIT, NOW, payloads, refusal

OLD_CODECS = (1, 2, 3)
messages = st.lists(
    st.tuples(st.integers(0, 2**62), st.integers(-1, 2**62), payloads, payloads), min_size=1, max_size=10
)


def parse(data: bytes) -> list[tuple[int, int, list[MessageFields]]]:
    return [tuple(group) for group in parse_message_set(data, max_bytes=LIMIT)]


def sample(count: int, magic: int, first: int = 0) -> list[MessageFields]:
    return [(first + i, NOW + i if magic else -1, b"k%d" % i, b"v" * i) for i in range(count)]


def wrapped(magic: int, codec: int, fields: list[MessageFields], last: int | None = None) -> bytes:
    inner = encode_plain(magic, 0, fields)
    return wrap(magic, codec, 0, fields[-1][0] if last is None else last, NOW, inner)


@given(fields=messages, magic=st.sampled_from((0, 1)))
def test_what_was_written_is_parsed_again(fields: list[MessageFields], magic: int) -> None:
    expected = fields if magic else [(offset, -1, key, value) for offset, _, key, value in fields]
    assert parse(encode_plain(magic, 0, fields)) == [(0, 0, expected)]


@given(fields=messages, magic=st.sampled_from((0, 1)))
@settings(max_examples=50)
def test_aiokafka_and_kafka_python_write_and_read_the_same_sets(
    fields: list[MessageFields], magic: int
) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 2**40)
    for offset, timestamp, key, value in fields:
        builder.append(offset, timestamp, key, value)
    ours = encode_plain(magic, 0, fields)
    assert bytes(builder.build()) == ours
    theirs = KafkaPythonRecords(ours)
    read = []
    while theirs.has_next():
        read += [(r.offset, r.key, r.value) for r in theirs.next_batch()]
    assert read == [(offset, key, value) for offset, _, key, value in fields]


# aiokafka writes no LZ4 of magic 0; ours is held against kafka-python's reader in test_message_set_lz4.
@pytest.mark.parametrize(("magic", "codec"), [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)])
def test_what_aiokafka_compressed_is_parsed(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 2**40)
    fields = [(i, NOW + i if magic else -1, b"k", b"v" * 100) for i in range(20)]
    for offset, timestamp, key, value in fields:
        builder.append(offset, timestamp, key, value)
    assert parse(bytes(builder.build()))[0][::2] == (
        codec,
        [
            (offset if magic == 0 else offset - 19, timestamp, key, value)
            for offset, timestamp, key, value in fields
        ],
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_wrapper_gives_its_messages_their_offsets(magic: int, codec: int) -> None:
    fields = sample(5, magic, first=0 if magic else 100)
    data = wrapped(magic, codec, fields, last=104)
    expected = [(100 + i, t, k, v) for i, (_, t, k, v) in enumerate(fields)]
    assert parse(data) == [(codec, 0, expected)]
    if (magic, codec) != (0, 3):
        theirs = MemoryRecords(data).next_batch()
        assert theirs is not None and theirs.validate_crc()
        assert [(r.offset, r.key, r.value) for r in theirs] == [(o, k, v) for o, _, k, v in expected]


def test_relative_offsets_may_have_holes() -> None:
    fields = [(0, NOW, b"a", b""), (3, NOW, b"b", b""), (9, NOW, b"c", b"")]
    assert [m[0] for m in parse(wrapped(1, 1, fields, last=59))[0][2]] == [50, 53, 59]


def test_absolute_offsets_of_magic_1_wrappers_come_out_right_as_well() -> None:
    fields = sample(3, 1, first=7)
    assert [m[0] for m in parse(wrapped(1, 1, fields, last=9))[0][2]] == [7, 8, 9]


def test_a_wrapper_of_log_append_time_gives_its_time_to_all() -> None:
    inner = encode_plain(1, 0, sample(3, 1))
    data = wrap(1, 1, 1, 2, NOW + 99, inner)
    ((codec, timestamp_type, found),) = parse(data)
    assert (codec, timestamp_type) == (1, 1)
    assert {m[1] for m in found} == {NOW + 99}


def test_neighbours_without_a_wrapper_belong_together() -> None:
    plain = encode_plain(1, 0, sample(2, 1))
    set_of_all = plain + wrapped(1, 1, sample(2, 1)) + wrapped(0, 2, sample(3, 0)) + plain + plain
    assert [(codec, len(found)) for codec, _, found in parse(set_of_all)] == [(0, 2), (1, 2), (2, 3), (0, 4)]


def test_wrappers_inside_wrappers_are_flat_to_the_reader() -> None:
    inner = wrapped(0, 1, sample(2, 0)) + encode_plain(0, 0, sample(1, 0, first=2))
    outer = wrap(0, 2, 0, 2, -1, inner)
    assert parse(outer) == [(2, 0, [*sample(2, 0), *sample(1, 0, first=2)])]


def test_wrappers_too_deep_in_one_another_are_refused() -> None:
    data = encode_plain(1, 0, sample(1, 1))
    for depth in range(5):
        error = refusal(lambda data=data: parse(data))
        assert (error is None) == (depth <= 3), depth
        data = wrap(1, 1, 0, 0, NOW, data)
    assert error is not None and error.code is ErrorCode.INVALID_RECORD


def test_wrappers_are_not_opened_unless_they_may_be() -> None:
    one = encode_message(0, 0, 0, -1, None, b"v")
    assert len(parse_message_set(one, max_bytes=100, open_wrappers=False)) == 1
    with pytest.raises(WrapperError):
        parse_message_set(one + wrap(0, 1, 0, 0, -1, one), max_bytes=100, open_wrappers=False)


def test_an_empty_set_has_no_messages() -> None:
    assert parse(b"") == []


def test_every_cut_and_every_flipped_bit_is_corrupt() -> None:
    for magic in (0, 1):
        data = bytearray(encode_plain(magic, 0, sample(1, magic)))
        for size in range(1, len(data)):
            error = refusal(lambda data=data, size=size: parse(bytes(data[:size])))
            assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE
        for at in range(8, len(data)):
            data[at] ^= 0x40
            assert refusal(lambda data=data: parse(bytes(data))) is not None, at
            data[at] ^= 0x40


@pytest.mark.parametrize("size", [-1, 0, 13, 2**31 - 1, -(2**31)])
def test_a_size_that_lies_is_corrupt(size: int) -> None:
    data = bytearray(encode_plain(0, 0, sample(2, 0)))
    struct.pack_into(">i", data, 8, size)
    error = refusal(lambda: parse(bytes(data)))
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("at", [18, 22])
@pytest.mark.parametrize("length", [-2, 3, 2**31 - 1, -(2**31)])
def test_a_key_or_value_length_that_lies_is_corrupt(at: int, length: int) -> None:
    data = bytearray(encode_message(0, 0, 0, -1, b"", b"xx"))
    struct.pack_into(">i", data, at, length)
    struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    error = refusal(lambda: parse(bytes(data)))
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE


def test_magic_2_among_old_messages_is_refused() -> None:
    data = bytearray(encode_plain(1, 0, sample(2, 1)))
    data[16] = 2
    assert refusal(lambda: parse(bytes(data))).code is ErrorCode.INVALID_RECORD
    for magic in (3, 127, 255):
        data[16] = magic
        assert refusal(lambda: parse(bytes(data))).code is ErrorCode.CORRUPT_MESSAGE


def test_another_magic_inside_a_wrapper_is_refused() -> None:
    for outer, inner in ((0, 1), (1, 0)):
        data = wrap(outer, 1, 0, 0, NOW, encode_plain(inner, 0, sample(1, inner)))
        assert refusal(lambda data=data: parse(data)).code is ErrorCode.INVALID_RECORD


def test_wrappers_without_value_or_without_messages_are_refused() -> None:
    assert refusal(lambda: parse(encode_message(1, 0, 1, NOW, None, None))).code is ErrorCode.INVALID_RECORD
    empty = encode_message(1, 0, 1, NOW, None, compress(1, b""))
    assert refusal(lambda: parse(empty)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [4, 5, 7])
def test_codecs_that_came_later_are_refused(codec: int) -> None:
    data = encode_message(1, 0, codec, NOW, None, compress(4, encode_plain(1, 0, sample(1, 1))))
    assert refusal(lambda: parse(data)).code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_one_limit_holds_over_all_wrappers(codec: int) -> None:
    one = wrap(1, codec, 0, 0, NOW, encode_plain(1, 0, [(0, NOW, None, bytes(LIMIT // 2))]))
    parse(one)
    error = refusal(lambda: parse(one * 3))
    assert error is not None and error.code is ErrorCode.INVALID_RECORD
    nested = wrap(
        1, codec, 0, 0, NOW, wrap(1, codec, 0, 0, NOW, encode_plain(1, 0, [(0, NOW, None, bytes(LIMIT))]))
    )
    error = refusal(lambda: parse(nested))
    assert error is not None and error.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("wrapped", [True, False])
def test_more_messages_than_the_limit_are_refused(wrapped: bool) -> None:
    tiny = encode_message(0, 0, 0, -1, None, None) * (MAX_MESSAGES + 1)
    data = wrap(0, 1, 0, 0, -1, tiny) if wrapped else tiny
    error = refusal(lambda: parse_message_set(data, max_bytes=2**30))
    assert error is not None and error.code is ErrorCode.INVALID_RECORD
    assert str(MAX_MESSAGES) in error.message


@given(data=st.data(), magic=st.sampled_from((0, 1)), codec=st.sampled_from((0, 1, 2, 3)))
@settings(max_examples=300)
def test_mutated_sets_are_parsed_or_refused_and_nothing_else(
    data: st.DataObject, magic: int, codec: int
) -> None:
    fields = sample(4, magic)
    mutated = bytearray(wrapped(magic, codec, fields) if codec else encode_plain(magic, 0, fields))
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()) and len(mutated) > 16:
        size = struct.unpack_from(">i", mutated, 8)[0]
        struct.pack_into(">I", mutated, 12, zlib.crc32(mutated[16 : 12 + max(size, 4)]))
    refusal(lambda: parse(bytes(mutated)))
