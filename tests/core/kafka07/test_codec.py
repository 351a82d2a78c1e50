"""core.kafka07.codec: requests and answers of 0.7 as bytes; every lie about a length is told."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.kafka07.codec import (
    FetchAnswer,
    FetchPart,
    Kafka07Error,
    OffsetsQuestion,
    RequestType,
    decode_request,
    encode_fetch_answer,
    encode_multifetch_answer,
    encode_offsets_answer,
)
from core.protocol.primitives import ProtocolError


def target(topic: bytes, partition: int) -> bytes:
    return struct.pack(">h", len(topic)) + topic + struct.pack(">i", partition)


def produce(topic: bytes, partition: int, messages: bytes) -> bytes:
    return target(topic, partition) + struct.pack(">i", len(messages)) + messages


def fetch(topic: bytes, partition: int, offset: int, size: int) -> bytes:
    return target(topic, partition) + struct.pack(">qi", offset, size)


SAMPLES = {
    RequestType.PRODUCE: b"\0\0" + produce(b"edge", -1, b"messages"),
    RequestType.FETCH: b"\0\1" + fetch(b"edge", 3, -5, 65536),
    RequestType.MULTIFETCH: b"\0\2\0\2" + fetch(b"a", 0, 1, 2) + fetch(b"b", 1, 2, 3),
    RequestType.MULTIPRODUCE: b"\0\3\0\2" + produce(b"a", 0, b"x") + produce(b"b", 1, b""),
    RequestType.OFFSETS: b"\0\4" + target(b"edge", 0) + struct.pack(">qi", -2, 10),
}


def test_each_request_is_read() -> None:
    read = {kind: decode_request(memoryview(data)) for kind, data in SAMPLES.items()}
    assert all(request.type is kind for kind, request in read.items())
    (part,) = read[RequestType.PRODUCE].produces
    assert (part.topic, part.partition, bytes(part.messages)) == ("edge", -1, b"messages")
    assert read[RequestType.FETCH].fetches == (FetchPart("edge", 3, -5, 65536),)
    assert read[RequestType.MULTIFETCH].fetches == [FetchPart("a", 0, 1, 2), FetchPart("b", 1, 2, 3)]
    assert [bytes(p.messages) for p in read[RequestType.MULTIPRODUCE].produces] == [b"x", b""]
    assert read[RequestType.OFFSETS].offsets == OffsetsQuestion("edge", 0, -2, 10)


@pytest.mark.parametrize("data", SAMPLES.values(), ids=[kind.name for kind in SAMPLES])
def test_a_request_that_is_cut_or_too_long_is_refused(data: bytes) -> None:
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_request(memoryview(data[:end]))
    with pytest.raises(ProtocolError):
        decode_request(memoryview(data + b"\0"))


@pytest.mark.parametrize(
    "data",
    [
        b"\0\x09" + target(b"edge", 0),
        b"\xff\xff",
        b"\0\1" + struct.pack(">h", -1) + bytes(16),
        b"\0\1" + struct.pack(">h", 32767) + bytes(16),
        b"\0\0" + target(b"t", 0) + struct.pack(">i", -1),
        b"\0\0" + target(b"t", 0) + struct.pack(">i", 2**31 - 1),
        b"\0\2" + struct.pack(">h", -1),
        b"\0\2" + struct.pack(">h", 32767) + bytes(100),
        b"\0\3" + struct.pack(">h", 32767),
    ],
)
def test_lies_about_lengths_and_counts_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request(memoryview(data))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    try:
        decode_request(memoryview(data))
    except ProtocolError:
        return


def test_a_name_that_is_no_text_cannot_be_a_topic_but_is_no_crash() -> None:
    request = decode_request(memoryview(b"\0\1" + fetch(b"\xff\xfe", 0, 0, 1)))
    assert request.fetches[0].topic == "��"


def test_answers_are_as_0_7_wrote_them() -> None:
    assert b"".join(encode_fetch_answer(FetchAnswer(Kafka07Error.NONE, b"abc"))).hex() == "000000050000616263"
    assert b"".join(encode_fetch_answer(FetchAnswer(Kafka07Error.UNKNOWN))).hex() == "00000002ffff"
    parts = [FetchAnswer(Kafka07Error.NONE, b"abc"), FetchAnswer(Kafka07Error.WRONG_PARTITION)]
    assert b"".join(encode_multifetch_answer(parts)).hex() == "000000110000000000050000616263000000020003"
    assert b"".join(encode_multifetch_answer(())).hex() == "000000020000"
    assert b"".join(encode_offsets_answer(Kafka07Error.NONE, [109, 0])).hex() == (
        "00000016000000000002000000000000006d0000000000000000"
    )
    assert b"".join(encode_offsets_answer(Kafka07Error.WRONG_PARTITION, ())).hex() == "00000006000300000000"
