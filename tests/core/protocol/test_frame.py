"""Hostile frames: refused in under 5 ms and 1 MiB, whatever they announce (N5)."""

from __future__ import annotations

import tracemalloc
from struct import pack
from time import perf_counter

import pytest

from core.protocol.codec import decode_request
from core.protocol.frame import MAX_ELEMENTS
from core.protocol.header import decode_request_header, encode_request_header
from core.protocol.primitives import ProtocolError, uvarint

MANY = 2**31 - 1


def metadata(version: int, body: bytes) -> bytes:
    return encode_request_header(3, version, 1, "c") + body


FRAMES = {
    "2³¹−1 topics": metadata(1, pack(">i", MANY) + bytes(100)),
    "2³¹−1 topics, compact": metadata(12, uvarint(MANY + 1) + bytes(100)),
    "minus two topics": metadata(1, pack(">i", -2)),
    "a name of 32 KiB": metadata(1, pack(">ih", 1, 32_767) + b"x"),
    "a name of −5": metadata(1, pack(">ih", 1, -5) + b"x"),
    "a compact name of 2 GiB": metadata(9, uvarint(2) + uvarint(MANY) + b"x"),
    "a compact name of 40 KB": metadata(9, uvarint(2) + uvarint(40_001) + b"x" * 40_000 + bytes(4)),
    "a million topics": metadata(1, pack(">i", 1_000_000) + b"\0\1a" * 1_000_000),
    "50 million empty topics": metadata(1, pack(">i", 50_000_000) + bytes(100_000_000)),
    "20 million tagged fields in the header": metadata(12, b"")[:-1]
    + uvarint(20_000_000)
    + b"\x7f\0" * 20_000_000,
    "20 million tagged fields in the body": encode_request_header(18, 3, 1, "c")
    + b"\1\1"
    + uvarint(20_000_000)
    + b"\x7f\0" * 20_000_000,
    "nested counts of 2³¹−1": encode_request_header(8, 8, 1, "c")
    + b"\1\0\0\0\0\1\0"
    + (uvarint(2) + b"\2a" + uvarint(MANY)) * 50,
    "10 MB of member metadata": encode_request_header(11, 1, 1, "c")
    + pack(">hiih", 0, 6_000, 6_000, 0)
    + b"\0\1c"
    + pack(">ihi", 1, 0, 10_000_000)
    + bytes(10_000_000),
    "records longer than the frame": encode_request_header(0, 3, 1, "c")
    + pack(">hhiihiii", -1, 1, 1, 1, 0, 1, 0, MANY)
    + b"x",
}


def refuse(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        header, position = decode_request_header(frame)
        decode_request(header.api_key, header.api_version, frame, position)


@pytest.mark.parametrize("name", FRAMES)
def test_a_hostile_frame_is_refused_quickly_and_in_little_memory(name: str) -> None:
    frame = FRAMES[name]
    refuse(frame)  # the decoder is compiled
    times = []
    for _ in range(5):
        start = perf_counter()
        refuse(frame)
        times.append(perf_counter() - start)
    assert min(times) < 0.005
    tracemalloc.start()
    try:
        refuse(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1024 * 1024


def test_elements_are_counted_over_all_arrays_of_a_request() -> None:
    topic = b"\0\1a" + pack(">i", 499) + pack(">iq", 0, 0) * 499
    head = encode_request_header(21, 0, 1, "c")  # DeleteRecords: topics with partitions
    fits, rest = divmod(MAX_ELEMENTS, 500)
    assert rest == 0
    decode_request(21, 0, head + pack(">i", fits) + topic * fits + bytes(4), len(head))
    with pytest.raises(ProtocolError, match="too many"):
        decode_request(21, 0, head + pack(">i", fits + 1) + topic * (fits + 1) + bytes(4), len(head))
