"""Kafka 0.7: requests and answers of its listener, from bytes and to bytes. Record bytes pass through as they are.

    request        type int16 | body                              after the size of the frame
    PRODUCE      0 topic, partition | length int32 | messages     no answer
    FETCH        1 topic, partition | offset int64 | max size int32
    MULTIFETCH   2 count int16 | FETCH bodies
    MULTIPRODUCE 3 count int16 | PRODUCE bodies                    no answer
    OFFSETS      4 topic, partition | time int64 | max number int32

    topic, partition   length int16 | name | partition int32

    answer         size int32 | error int16 | body
    FETCH          messages, cut anywhere
    MULTIFETCH     per part: size int32 | error int16 | messages
    OFFSETS        count int32 | offsets int64

The size of an answer counts its error code. A part that is refused inside a MULTIFETCH has its code there; the
answer as a whole has 0. Source: "Kafka 0.7 wire format", and the answers of Kafka 0.7.2 where it left questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from core.protocol.primitives import ProtocolError

_TYPE = Struct(">h")
_COUNT = Struct(">h")
_INT32 = Struct(">i")
_FETCH = Struct(">qi")
_OFFSETS = Struct(">qi")
_ANSWER = Struct(">ih")
_OFFSETS_ANSWER = Struct(">ihi")
_OFFSET = Struct(">q")
# The smallest bodies: an empty topic name and no messages.
_LEAST_PRODUCE, _LEAST_FETCH = 10, 18


class RequestType(IntEnum):
    """The request types of 0.7."""

    PRODUCE = 0
    FETCH = 1
    MULTIFETCH = 2
    MULTIPRODUCE = 3
    OFFSETS = 4


class Kafka07Error(IntEnum):
    """The error codes of 0.7."""

    UNKNOWN = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    INVALID_MESSAGE = 2
    WRONG_PARTITION = 3
    INVALID_FETCH_SIZE = 4


class ProducePart(NamedTuple):
    """Messages for one partition; partition −1 leaves it to the broker."""

    topic: str
    partition: int
    messages: memoryview


class FetchPart(NamedTuple):
    """A chunk that is asked for: the byte address where it begins, and its size at most."""

    topic: str
    partition: int
    offset: int
    max_size: int


class OffsetsQuestion(NamedTuple):
    """Addresses of segments last written before `time` (ms; −1 latest, −2 earliest), newest first."""

    topic: str
    partition: int
    time: int
    max_number: int


class Kafka07Request(NamedTuple):
    """One request: its type, and one part for each topic and partition that it names."""

    type: RequestType
    produces: Sequence[ProducePart] = ()
    fetches: Sequence[FetchPart] = ()
    offsets: OffsetsQuestion | None = None


class FetchAnswer(NamedTuple):
    """What one part of a fetch is answered with."""

    error: Kafka07Error
    messages: bytes = b""


def decode_request(frame: memoryview) -> Kafka07Request:
    """Return the request in a frame, without its size. Raises ProtocolError for anything that is not one, whole."""
    reader = _Reader(frame)
    number = reader.unpack(_TYPE, "request type")[0]
    try:
        kind = RequestType(number)
    except ValueError:
        raise ProtocolError(f"there is no request type {number} in Kafka 0.7") from None
    request = _BODIES[kind](reader, kind)
    if reader.position != len(frame):
        raise ProtocolError(f"{len(frame) - reader.position} bytes follow the request")
    return request


def encode_fetch_answer(answer: FetchAnswer) -> list[bytes]:
    """Return the answer to a FETCH."""
    return [_ANSWER.pack(len(answer.messages) + 2, answer.error), answer.messages]


def encode_multifetch_answer(answers: Sequence[FetchAnswer]) -> list[bytes]:
    """Return the answer to a MULTIFETCH, its parts in the order of the request."""
    pieces: list[bytes] = []
    for answer in answers:
        pieces += encode_fetch_answer(answer)
    size = sum(len(piece) for piece in pieces)
    return [_ANSWER.pack(size + 2, Kafka07Error.NONE), *pieces]


def encode_offsets_answer(error: Kafka07Error, offsets: Sequence[int]) -> list[bytes]:
    """Return the answer to an OFFSETS."""
    head = _OFFSETS_ANSWER.pack(6 + 8 * len(offsets), error, len(offsets))
    return [head + b"".join([_OFFSET.pack(offset) for offset in offsets])]


class _Reader:
    """A position in a frame; every length is checked against what is left before it is believed."""

    def __init__(self, frame: memoryview) -> None:
        self.frame = frame
        self.position = 0

    def unpack(self, layout: Struct, what: str) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self.frame, self.position)
        except struct_error:
            raise ProtocolError(f"the request ends within its {what}") from None
        self.position += layout.size
        return values

    def take(self, length: int, what: str) -> memoryview:
        left = len(self.frame) - self.position
        if not 0 <= length <= left:
            raise ProtocolError(f"{what} of {length} bytes, {left} are left")
        self.position += length
        return self.frame[self.position - length : self.position]

    def target(self) -> tuple[str, int]:
        (length,) = self.unpack(_COUNT, "topic length")
        # Bytes that are not UTF-8 become a name that no topic can have, and the broker refuses it.
        name = bytes(self.take(length, "a topic name")).decode(errors="replace")
        return name, self.unpack(_INT32, "partition")[0]

    def count(self, least: int) -> int:
        (count,) = self.unpack(_COUNT, "count")
        left = len(self.frame) - self.position
        if not 0 <= count <= left // least:
            raise ProtocolError(f"{count} parts in {left} bytes")
        return count


def _produce(reader: _Reader) -> ProducePart:
    topic, partition = reader.target()
    (length,) = reader.unpack(_INT32, "length of messages")
    return ProducePart(topic, partition, reader.take(length, "messages"))


def _fetch(reader: _Reader) -> FetchPart:
    topic, partition = reader.target()
    offset, max_size = reader.unpack(_FETCH, "offset and size")
    return FetchPart(topic, partition, offset, max_size)


def _one_produce(reader: _Reader, kind: RequestType) -> Kafka07Request:
    return Kafka07Request(kind, produces=(_produce(reader),))


def _many_produces(reader: _Reader, kind: RequestType) -> Kafka07Request:
    return Kafka07Request(kind, produces=[_produce(reader) for _ in range(reader.count(_LEAST_PRODUCE))])


def _one_fetch(reader: _Reader, kind: RequestType) -> Kafka07Request:
    return Kafka07Request(kind, fetches=(_fetch(reader),))


def _many_fetches(reader: _Reader, kind: RequestType) -> Kafka07Request:
    return Kafka07Request(kind, fetches=[_fetch(reader) for _ in range(reader.count(_LEAST_FETCH))])


def _offsets(reader: _Reader, kind: RequestType) -> Kafka07Request:
    topic, partition = reader.target()
    time, max_number = reader.unpack(_OFFSETS, "time and number")
    return Kafka07Request(kind, offsets=OffsetsQuestion(topic, partition, time, max_number))


_BODIES = {
    RequestType.PRODUCE: _one_produce,
    RequestType.FETCH: _one_fetch,
    RequestType.MULTIFETCH: _many_fetches,
    RequestType.MULTIPRODUCE: _many_produces,
    RequestType.OFFSETS: _offsets,
}
