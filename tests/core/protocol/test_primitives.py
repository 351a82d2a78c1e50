"""Varints, tag sections, UUIDs."""

from __future__ import annotations

from uuid import UUID

import pytest

from core.protocol.primitives import (
    NIL,
    ProtocolError,
    read_uvarint,
    skip_tags,
    uuid_of,
    uvarint,
)

EDGES = (0, 1, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31 - 1, 2**31)


@pytest.mark.parametrize("value", EDGES)
def test_a_varint_comes_back_and_takes_seven_bits_per_byte(value: int) -> None:
    raw = uvarint(value)
    assert len(raw) == max(1, (value.bit_length() + 6) // 7)
    assert all(byte & 0x80 for byte in raw[:-1]) and not raw[-1] & 0x80
    assert read_uvarint(memoryview(b"?" + raw + b"?"), 1) == (value, 1 + len(raw))


def test_a_varint_known_from_the_guide_is_written_so() -> None:
    assert uvarint(300) == b"\xac\x02"


@pytest.mark.parametrize(
    "raw", [b"\xff\xff\xff\xff\x0f", b"\x81\x80\x80\x80\x08", b"\x80\x80\x80\x80\x80\x01"]
)
def test_a_varint_above_the_longest_length_is_refused(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(memoryview(raw), 0)


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\x80\x80\x80\x80"])
def test_a_varint_that_stops_halfway_raises_index_error(raw: bytes) -> None:
    with pytest.raises(IndexError):
        read_uvarint(memoryview(raw), 0)


def test_unknown_tagged_fields_are_passed_over() -> None:
    raw = b"\x00\x03abc" + b"\x05\x00" + b"\x80\x01\x01z"
    assert skip_tags(memoryview(raw + b"rest"), 0, len(raw) + 4, 3) == len(raw)


@pytest.mark.parametrize("count", [2, 1_001, 20_000_000])
def test_more_tagged_fields_than_bytes_or_than_sense_are_refused_unread(count: int) -> None:
    raw = memoryview(b"\x00\x00" if count < 1_000 else bytes(4_000))
    with pytest.raises(ProtocolError, match=f"{count} tagged fields"):
        skip_tags(raw, 0, len(raw), count)


def test_a_tagged_field_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(ProtocolError):
        skip_tags(memoryview(b"\x00\x03ab"), 0, 4, 1)


def test_a_uuid_is_made_of_its_bytes() -> None:
    one = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
    assert uuid_of(bytes(range(16))) == one
    assert uuid_of(bytes(16)) == NIL
