"""core.kafka07.messages: messages of 0.6 and 0.7 in and out, wrappers, lies, fillers."""

from __future__ import annotations

import gzip
import struct
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BrokerError, ErrorCode
from core.kafka07.messages import (
    FILLER_BYTES,
    OVERHEAD,
    encode_message,
    filler_start,
    parse_messages,
    shown_payloads,
)
from core.records.batch import build_batch, read_header
from core.records.compression import GZIP, SNAPPY, compress
from core.records.message_set import MAX_MESSAGES
from core.records.record import NewRecord

LIMIT = 1 << 20


def payloads(data: bytes, max_bytes: int = LIMIT) -> list[list[bytes | None]]:
    return [[m[3] for m in group.messages] for group in parse_messages(data, max_bytes=max_bytes)]


def test_the_layout_is_that_of_the_seed() -> None:
    crc = struct.pack(">I", zlib.crc32(b"one"))
    assert encode_message(0, b"one") == b"\0\0\0\x08\0" + crc + b"one"
    assert encode_message(1, b"one") == b"\0\0\0\x09\1\0" + crc + b"one"


@given(st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=50)), max_size=10))
def test_messages_of_both_magics_are_read_from_one_set(messages: list[tuple[int, bytes]]) -> None:
    data = b"".join(encode_message(magic, payload) for magic, payload in messages)
    assert len(data) == sum(OVERHEAD[magic] + len(payload) for magic, payload in messages)
    found = payloads(data)
    assert found == ([[payload for _, payload in messages]] if messages else [])


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
@pytest.mark.parametrize("inner_magic", [0, 1])
def test_a_wrapper_is_a_group_of_its_own_with_its_codec(codec: int, inner_magic: int) -> None:
    inner = b"".join(encode_message(inner_magic, p) for p in (b"in-1", b"in-2"))
    data = (
        encode_message(1, b"before")
        + encode_message(1, compress(codec, inner), codec)
        + encode_message(0, b"after")
    )
    groups = parse_messages(data, max_bytes=LIMIT)
    assert [group.codec for group in groups] == [0, codec, 0]
    assert payloads(data) == [[b"before"], [b"in-1", b"in-2"], [b"after"]]


def test_snappy_without_java_s_framing_is_read_as_well() -> None:
    inner = encode_message(1, b"raw")
    raw = bytes(cramjam.snappy.compress_raw(inner))
    assert payloads(encode_message(1, raw, SNAPPY)) == [[b"raw"]]


def test_wrappers_in_wrappers_are_read_three_deep_and_no_deeper() -> None:
    data = encode_message(1, b"deep")
    for depth in range(1, 5):
        data = encode_message(1, gzip.compress(data), GZIP)
        if depth <= 3:
            assert payloads(data) == [[b"deep"]]
    with pytest.raises(BrokerError) as refusal:
        payloads(data)
    assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_a_bomb_is_refused_at_the_limit_also_in_a_bomb() -> None:
    bomb = encode_message(1, gzip.compress(encode_message(1, bytes(10 * LIMIT))), GZIP)
    for data in (bomb, encode_message(1, gzip.compress(bomb), GZIP), bomb[:0] + bomb):
        with pytest.raises(BrokerError) as refusal:
            payloads(data)
        assert refusal.value.code is ErrorCode.INVALID_RECORD


def test_too_many_messages_are_refused() -> None:
    many = encode_message(0, b"") * (MAX_MESSAGES + 1)
    for data in (many, encode_message(1, gzip.compress(many), GZIP)):
        with pytest.raises(BrokerError) as refusal:
            payloads(data, 1 << 24)
        assert refusal.value.code is ErrorCode.INVALID_RECORD


GOOD = encode_message(1, b"one")


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1],
        GOOD[:3],
        GOOD + b"\0",
        struct.pack(">i", -1) + GOOD[4:],
        struct.pack(">i", 0) + GOOD[4:],
        struct.pack(">i", 4) + GOOD[4:],
        struct.pack(">i", 5) + b"\1" + GOOD[5:9],
        struct.pack(">i", 2**31 - 1) + GOOD[4:],
        GOOD[:4] + b"\5" + GOOD[5:],
        GOOD[:4] + b"\2" + GOOD[5:],
        GOOD[:5] + b"\3" + GOOD[6:],
        GOOD[:-1] + b"E",
    ],
)
def test_a_lie_about_length_magic_codec_or_checksum_is_corrupt(data: bytes) -> None:
    with pytest.raises(BrokerError) as refusal:
        payloads(data)
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@given(st.binary(max_size=60), st.integers(0, 59), st.integers(0, 255))
def test_any_bytes_are_messages_or_refused(data: bytes, at: int, byte: int) -> None:
    for candidate in (data, GOOD * 3 + data, (GOOD * 4)[:at] + bytes([byte]) + (GOOD * 4)[at + 1 :]):
        try:
            payloads(candidate)
        except BrokerError as refusal:
            assert refusal.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)


def filler(magic: int, size: int) -> bytes:
    return filler_start(magic, size, size)


@pytest.mark.parametrize("magic", [0, 1])
@given(size=st.integers(0, 5000), length=st.integers(0, 5000))
def test_a_filler_is_whole_messages_of_exactly_its_size(magic: int, size: int, length: int) -> None:
    data = filler(magic, size)
    assert len(data) == size
    if size < OVERHEAD[magic]:
        assert data == bytes(size)
        return
    position = 0
    while position < size:
        (message,) = struct.unpack_from(">i", data, position)
        assert data[position + 4] == magic
        assert 4 + message <= FILLER_BYTES
        position += 4 + message
    assert filler_start(magic, size, length) == data[:length]


def test_a_filler_with_space_shows_nothing_to_clients_that_know_compression() -> None:
    assert payloads(filler(1, 31) + filler(1, 3000)) == []
    assert payloads(filler(1, 12)) == [[b"\0\0"]]
    assert payloads(filler(0, 31)) == [[bytes(22)]]


def test_a_batch_shows_values_alone_and_a_control_batch_nothing() -> None:
    new = [NewRecord(key=b"k", value=v, headers=(("h", b"v"),)) for v in (b"a", None, b"")]
    batch = build_batch(new, now_ms=1, base_offset=7)
    header = read_header(batch)
    offsets, values = shown_payloads(batch, 0, header, LIMIT)
    assert (list(offsets), values) == ([7, 8, 9], [b"a", b"", b""])
    control = header._replace(attributes=header.attributes | 0x20)
    assert shown_payloads(batch, 0, control, LIMIT) == ((), [])
    batch[-1] ^= 1
    with pytest.raises(BrokerError):
        shown_payloads(batch, 0, header, LIMIT)
