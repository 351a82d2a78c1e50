"""Headers of requests and responses."""

from __future__ import annotations

from struct import pack

import pytest

from core.protocol.apis import APIS
from core.protocol.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from core.protocol.primitives import ProtocolError


@pytest.mark.parametrize("client_id", ["client", "", None, "größer"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_request_header_comes_back_in_every_version(client_id: str | None, kind: type) -> None:
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            raw = encode_request_header(api.key, version, -5, client_id)
            header, position = decode_request_header(kind(raw + b"body"))
            assert header == RequestHeader(api.key, version, -5, client_id)
            assert position == len(raw)


def test_the_header_of_a_flexible_version_ends_in_a_tag_section() -> None:
    assert encode_request_header(3, 8, 1, "c") == pack(">hhihs", 3, 8, 1, 1, b"c")
    assert encode_request_header(3, 9, 1, "c") == pack(">hhihsB", 3, 9, 1, 1, b"c", 0)


def test_tagged_fields_of_a_header_are_passed_over() -> None:
    raw = pack(">hhihs", 3, 9, 1, 1, b"c") + b"\x02\x00\x03abc\x07\x00"
    assert decode_request_header(raw + b"body")[1] == len(raw)


@pytest.mark.parametrize("version", [8, 9])
def test_a_header_cut_anywhere_is_refused(version: int) -> None:
    raw = encode_request_header(3, version, 1, "client")
    for end in range(len(raw)):
        with pytest.raises(ProtocolError, match=r"^header"):
            decode_request_header(raw[:end])


@pytest.mark.parametrize(
    "rest",
    [
        b"\xff\xfe",
        b"\x7f\xffabc",
        b"\x00\x02\xff\xfe\x00",
        b"\x00\x01c\x01",
        b"\x00\x01c\x80",
        b"\x00\x01c\x01\x00\x7f",
        b"\x00\x01c\xff\xff\xff\xff\xff\xff",
    ],
)
def test_a_malformed_header_is_refused_by_the_name_of_its_field(rest: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"^header\.(client_id|tags)"):
        decode_request_header(pack(">hhi", 3, 9, 1) + rest)


@pytest.mark.parametrize(("key", "version"), [(999, 0), (3, 99), (3, -1), (-7, 0), (18, 9), (32_767, 32_767)])
def test_an_unknown_api_or_version_still_shows_its_correlation_id(key: int, version: int) -> None:
    whole = pack(">hhihs", key, version, 77, 1, b"c")
    assert decode_request_header(whole)[0] == RequestHeader(key, version, 77, "c")
    odd = pack(">hhi", key, version, 77) + b"\x7f"
    assert decode_request_header(odd)[0] == RequestHeader(key, version, 77, None)


def test_a_response_header_is_the_correlation_id_and_in_flexible_versions_a_tag_section() -> None:
    assert encode_response_header(3, 8, 7) == pack(">i", 7)
    assert encode_response_header(3, 9, 7) == pack(">ib", 7, 0)
    assert encode_response_header(999, 3, 7) == pack(">i", 7)
    assert encode_response_header(3, 99, 7) == pack(">i", 7)


@pytest.mark.parametrize("version", range(5))
def test_an_api_versions_response_never_has_a_tag_section_in_its_header(version: int) -> None:
    assert encode_response_header(18, version, 7) == pack(">i", 7)
    assert decode_response_header(18, version, pack(">i", 7)) == (7, 4)


def test_a_response_header_comes_back() -> None:
    assert decode_response_header(3, 9, pack(">i", 7) + b"\x01\x00\x02ab" + b"body") == (7, 9)
    for raw in (b"\0\0\0", pack(">i", 7), pack(">i", 7) + b"\x01\x00\x02a"):
        with pytest.raises(ProtocolError):
            decode_response_header(3, 9, raw)
