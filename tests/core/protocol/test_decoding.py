"""Compiled decoders: nulls, tags, nested counts, kinds that few messages have."""

from __future__ import annotations

from struct import error as StructError  # noqa: N812
from struct import pack
from typing import Annotated

import pytest
from msgspec import Struct

from core.protocol.decoding import compile_decoder
from core.protocol.primitives import ProtocolError, uvarint
from core.protocol.schema import F, Int16, Int32, Int64, Message, Value


class Point(Value, frozen=True):
    x: Annotated[Int16, F("0+")] = -1


class Sample(Message):
    """Fields of every shape."""

    name: Annotated[str | None, F("0+", nullable="0+")] = None
    raw: Annotated[bytes, F("0+")] = b""
    numbers: Annotated[list[Int64], F("0+")] = []  # noqa: RUF012
    maybe: Annotated[Point | None, F("0+", nullable="0+")] = None
    points: Annotated[list[Point], F("0+")] = []  # noqa: RUF012
    tagged: Annotated[Int32, F("1+", tag=0)] = 7
    label: Annotated[str | None, F("1+", nullable="1+", tag=3)] = None


OLD = pack(">h", -1) + pack(">i", 2) + b"ab" + pack(">iq", 1, 5) + b"\x01" + pack(">h", 9) + pack(">ih", 1, 3)
NEW = b"\0\3ab\2" + pack(">q", 5) + b"\x01" + pack(">h", 9) + b"\0" + b"\2" + pack(">h", 3) + b"\0"
FULL = Sample(None, b"ab", [5], Point(9), [Point(3)])


def read(version: int, raw: bytes, left: int = 100) -> Struct:
    function = compile_decoder(Sample, version, version > 0).run
    message, position = function(memoryview(raw), 0, len(raw), left)
    assert position == len(raw)
    assert isinstance(message, Struct)
    return message


def test_old_and_compact_lengths_are_read() -> None:
    assert read(0, OLD) == FULL
    assert read(1, NEW + b"\0") == FULL


def test_known_tags_are_read_and_unknown_ones_passed_over_in_any_order() -> None:
    tags = b"\4" + b"\3\2\2x" + b"\x09\3abc" + b"\0\4" + pack(">i", 1) + b"\x80\x01\0"
    message = read(1, NEW + tags)
    assert isinstance(message, Sample)
    assert (message.tagged, message.label) == (1, "x")


@pytest.mark.parametrize(
    "tags",
    [
        b"\1\0\3\0\0\0",  # an int32 in three bytes
        b"\1\0\5\0\0\0\0\0",  # in five
        b"\1\3\1\2x",  # a text longer than its field
        b"\1\x09\5abc",  # longer than the frame
        b"\2\x09\1a",  # one is missing
        b"\xff\xff\xff\xff\x7f",  # a count above every limit
        uvarint(1_001) + b"\x09\0" * 1_001,  # more than the cap
    ],
)
def test_a_tag_section_that_lies_is_refused(tags: bytes) -> None:
    with pytest.raises((ProtocolError, IndexError, StructError)):
        read(1, NEW + tags)


def test_every_array_and_tag_is_counted() -> None:
    tags = b"\2\x08\0\x09\0"
    assert read(1, NEW + tags, left=4) == FULL  # one number, one point, two tags
    with pytest.raises(ProtocolError):
        read(1, NEW + tags, left=3)


def test_many_numbers_are_read_like_few() -> None:
    for count in (0, 1, 7, 8, 50):
        numbers = list(range(-count, 0))
        raw = pack(">hi", -1, 0) + pack(f">i{count}q", count, *numbers) + b"\xff" + pack(">i", 0)
        assert read(0, raw) == Sample(None, b"", numbers)


@pytest.mark.parametrize("length", [-2, -32_768])
def test_a_length_below_minus_one_is_no_null(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"length {length}"):
        read(0, pack(">h", length) + OLD[2:])


def test_null_is_refused_where_it_may_not_stand() -> None:
    with pytest.raises(ProtocolError, match="may not be null"):
        read(0, pack(">hi", -1, -1) + OLD[8:])
    with pytest.raises(ProtocolError, match="may not be null"):
        read(1, b"\0\0" + NEW[4:] + b"\0")


def test_the_compiled_text_can_be_looked_at() -> None:
    compiled = compile_decoder(Sample, 1, True)
    assert compiled.text.startswith("def decode(buffer, position, size, left):")
    assert compiled.name == "decode Sample v1"
