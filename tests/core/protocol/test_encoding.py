"""Compiled encoders: nulls, tags only where they differ, pieces by reference."""

from __future__ import annotations

from struct import pack
from typing import Annotated

import pytest

from core.protocol.encoding import SMALL, compile_encoder, put_records, records_size
from core.protocol.schema import F, Int16, Int32, Int64, Message, Piece, SentRecords, Value
from core.types import FileSlice


class NoFile:
    def fileno(self) -> int:
        raise AssertionError("never read")


class Point(Value, frozen=True):
    x: Annotated[Int16, F("0+")] = -1


class Sample(Message):
    """Fields of every shape."""

    name: Annotated[str | None, F("0+", nullable="0+")] = None
    numbers: Annotated[list[Int64], F("0+")] = []  # noqa: RUF012
    maybe: Annotated[Point | None, F("0+", nullable="0+")] = None
    records: Annotated[SentRecords | None, F("0+", nullable="0+")] = None
    point: Annotated[Point, F("1+", tag=2)] = Point()
    tagged: Annotated[Int32, F("1+", tag=1)] = 7


def written(version: int, message: Sample) -> list[Piece]:
    parts: list[Piece] = compile_encoder(Sample, version, version > 0).run(message)
    return parts


def joined(version: int, message: Sample) -> bytes:
    return b"".join(written(version, message))  # type: ignore[arg-type]


def test_old_and_compact_lengths_are_written() -> None:
    message = Sample("ab", [5], Point(9), b"r")
    old = pack(">h", 2) + b"ab" + pack(">iq", 1, 5) + b"\1" + pack(">h", 9) + pack(">i", 1) + b"r"
    new = b"\3ab" + b"\2" + pack(">q", 5) + b"\1" + pack(">h", 9) + b"\0" + b"\2r" + b"\0"
    assert joined(0, message) == old
    assert joined(1, message) == new


def test_null_is_written_as_null() -> None:
    assert joined(0, Sample()) == pack(">hibi", -1, 0, -1, -1)
    assert joined(1, Sample()) == b"\0\1\xff\0\0"


def test_only_tags_that_differ_are_written_and_in_the_order_of_the_tags() -> None:
    head = b"\0\1\xff\0"
    assert joined(1, Sample(tagged=8)) == head + b"\1\1\4" + pack(">i", 8)
    assert joined(1, Sample(point=Point(5))) == head + b"\1\2\3" + pack(">h", 5) + b"\0"
    both = head + b"\2" + b"\1\4" + pack(">i", 8) + b"\2\3" + pack(">h", 5) + b"\0"
    assert joined(1, Sample(tagged=8, point=Point(5))) == both
    assert joined(1, Sample(point=Point(-1))) == head + b"\0"  # equal to the default, not the same object


@pytest.mark.parametrize("count", [0, 1, 7, 8, 126, 127, 300])
def test_many_numbers_are_written_like_few(count: int) -> None:
    numbers = list(range(count))
    length = bytes((count + 1,)) if count < 127 else bytes((count + 1 & 127 | 128, count + 1 >> 7))
    assert joined(0, Sample(numbers=numbers))[2:-5] == pack(f">i{count}q", count, *numbers)
    assert joined(1, Sample(numbers=numbers))[1:-3] == length + pack(f">{count}q", *numbers)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 16_382, 16_383, 2**21 - 2, 2**21 - 1])
def test_the_length_of_records_is_as_long_as_it_needs_to_be(size: int) -> None:
    head = b"\0\1\xff"
    length = bytearray()
    rest = size + 1
    while rest > 127:
        length.append(rest & 127 | 128)
        rest >>= 7
    length.append(rest)
    assert joined(1, Sample(records=bytes(size))) == head + length + bytes(size) + b"\0"


def test_small_records_are_copied_and_large_ones_referred_to() -> None:
    small, large = memoryview(bytes(SMALL)), memoryview(bytes(SMALL + 1))
    assert len(written(0, Sample(records=small))) == 1
    assert written(0, Sample(records=large))[1] is large


def test_records_in_several_pieces_follow_each_other() -> None:
    slice_, large = FileSlice(NoFile(), 0, 3), bytes(SMALL + 1)
    pieces: list[Piece] = [b"a", slice_, b"b", large]
    assert records_size(pieces) == 1 + 3 + 1 + SMALL + 1
    parts: list[Piece] = []
    rest = put_records(parts, bytearray(b"head"), pieces)
    assert parts == [b"heada", slice_, b"b", large] and rest == b""
    assert written(0, Sample(records=pieces))[0] == pack(">hibi", -1, 0, -1, 1 + 3 + 1 + SMALL + 1) + b"a"
