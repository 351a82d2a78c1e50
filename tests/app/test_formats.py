"""Embedded formats: bytes ↔ JSON, and the rule that what was read can be written again."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.formats import FormatError, Reader, depth_exceeds, is_clean_json, parse_time, to_bytes

DEPTH = 20


@pytest.mark.parametrize(
    ("raw", "encoding", "wanted"),
    [
        (b'"hello"', None, b"hello"),
        (b'""', None, b""),
        (b'"a\\nb \\u00e9 \\ud83d\\ude00"', None, "a\nb é 😀".encode()),
        ('"é"'.encode(), None, "é".encode()),
        (b"null", None, None),
        (b"null", "json", None),
        (b"null", "base64", None),
        (b'"null"', None, b"null"),
        (b"0", None, b"0"),
        (b"1.50e3", None, b"1.50e3"),
        (b'{"a" :  1}', None, b'{"a" :  1}'),
        (b'"hello"', "json", b'"hello"'),
        (b'"hello"', "utf8", b"hello"),
        (b'"hello"', "text", b"hello"),
        (b'"3q2+7w=="', "base64", b"\xde\xad\xbe\xef"),
        (b'"3q2+7w=="', "binary", b"\xde\xad\xbe\xef"),
        (b'""', "base64", b""),
        (b'"3q2+\\/w=="', "base64", b"\xde\xad\xbe\xff"),
    ],
)
def test_json_means_bytes(raw: bytes, encoding: str | None, wanted: bytes | None) -> None:
    assert to_bytes(raw, encoding, DEPTH) == wanted


@pytest.mark.parametrize(
    ("raw", "encoding", "reason"),
    [
        (b"1", "utf8", "must be a string"),
        (b"{}", "base64", "must be a string"),
        (b'"abc"', "base64", "not base64"),
        (b'"3q2-7w=="', "base64", "not base64"),
        (b'"3q2+7w"', "base64", "not base64"),
        (b'"3q2+ 7w=="', "base64", "not base64"),
        ('"é"'.encode(), "base64", "not ASCII"),
        (b'"x"', "hex", "not known"),
        (b"null", "hex", "not known"),
        (b"[" * 21 + b"]" * 21, None, "nested deeper than 20"),
        (b'{"a":' * 21 + b"1" + b"}" * 21, "json", "nested deeper than 20"),
        (b'"\\ud800"', None, "surrogate"),
    ],
)
def test_what_has_no_bytes_is_refused_with_the_reason(raw: bytes, encoding: str | None, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        to_bytes(raw, encoding, DEPTH)


@pytest.mark.parametrize(
    ("data", "clean"),
    [
        (b"{}", True),
        (b'{"a": [1, 2.5, "x", null, true]}', True),
        (b"42", True),
        (b'"text"', True),
        (b"null", False),
        (b"", False),
        (b"user-1", False),
        (b" {}", False),
        (b"{}\n", False),
        (b"{} {}", False),
        (b"NaN", False),
        (b"-Infinity", False),
        (b"[1,]", False),
        (b'"\xff"', False),
        (b'"\\ud800"', False),
        (b'"\\ud83d\\ude00"', True),
        (b"[" * 21 + b"]" * 21, False),
        (b"[" * 100_000, False),
        (b"tru", False),
        (b"-", False),
        (b"\x00", False),
    ],
)
def test_clean_json_is_told_from_everything_else(data: bytes, clean: bool) -> None:
    assert is_clean_json(data, DEPTH) is clean


@pytest.mark.parametrize(
    ("mode", "data", "shown", "encoding"),
    [
        ("auto", b'{"a": 1}', {"a": 1}, "json"),
        ("auto", b"42", 42, "json"),
        ("auto", b"user-1", "user-1", "utf8"),
        ("auto", b"null", "null", "utf8"),
        ("auto", b"", "", "utf8"),
        ("auto", b"\xff", "/w==", "base64"),
        ("json", b"[1]", [1], "json"),
        ("json", b"user-1", "dXNlci0x", "base64"),
        ("text", b"42", "42", "utf8"),
        ("text", b"\xff", "/w==", "base64"),
        ("base64", b"42", "NDI=", "base64"),
    ],
)
def test_a_reader_shows_bytes_and_says_how(mode: str, data: bytes, shown: object, encoding: str) -> None:
    value, name = Reader(mode, DEPTH).embed(data)
    assert json.loads(msgspec.json.encode(value)) == shown
    assert name == encoding


def test_header_values_are_text_where_they_can_be() -> None:
    assert Reader("auto", DEPTH).embed_header(b"42") == ("42", "utf8")
    assert Reader("auto", DEPTH).embed_header(b"\xff") == ("/w==", "base64")
    assert Reader("base64", DEPTH).embed_header(b"42") == ("NDI=", "base64")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
json_bytes = st.builds(
    lambda value, ascii_only, spaced: json.dumps(
        value, ensure_ascii=ascii_only, indent=1 if spaced else None
    ).encode(errors="surrogatepass"),
    json_values,
    st.booleans(),
    st.booleans(),
)
any_bytes = (
    st.binary()
    | json_bytes
    | st.text().map(lambda t: t.encode())
    | st.sampled_from([b"null", b"NaN", b'"\\ud800"', b" 1", b"1 ", b"[" * 30 + b"]" * 30, b"-0", b"1E400"])
    | st.text(alphabet='{}[]",:0123456789.eE+-\\u d8ntrufalse', max_size=30).map(lambda t: t.encode())
)


@given(any_bytes, st.sampled_from(Reader.NAMES))
def test_what_was_read_is_written_again_as_the_same_bytes(data: bytes, mode: str) -> None:
    value, encoding = Reader(mode, DEPTH).embed(data)
    shown = msgspec.json.encode(value)
    raw = bytes(msgspec.json.decode(shown, type=msgspec.Raw))
    assert to_bytes(raw, encoding, DEPTH) == data


@given(any_bytes)
def test_what_was_read_as_base64_or_text_survives_any_json_library(data: bytes) -> None:
    for mode in ("base64", "text"):
        value, encoding = Reader(mode, DEPTH).embed(data)
        again = json.dumps(json.loads(msgspec.json.encode(value)), indent=3).encode()
        assert to_bytes(again, encoding, DEPTH) == data


@given(json_values, st.integers(min_value=0, max_value=6))
def test_depth_is_measured_exactly(value: object, limit: int) -> None:
    def depth(node: object) -> int:
        if isinstance(node, dict):
            return 1 + max(map(depth, node.values()), default=0)
        if isinstance(node, list):
            return 1 + max(map(depth, node), default=0)
        return 0

    assert depth_exceeds(json.dumps(value).encode(), limit) is (depth(value) > limit)


def test_brackets_inside_strings_count_for_nothing() -> None:
    assert not depth_exceeds(json.dumps(["[{" * 100, '"[' * 50, "\\" * 7 + "["]).encode(), 2)


def test_a_wide_value_is_measured_fast_enough() -> None:
    wide = b"[" + b"[[]]," * 200_000 + b"1]"
    assert not depth_exceeds(wide, 64)
    assert depth_exceeds(wide, 2)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2025-01-31T12:00:00.123456Z", 1738324800123),
        ("2025-01-31", 1738281600000),
        ("2025-01-31T12:00:00", 1738324800000),
        ("2025-01-31T12:00:00-05:00", 1738342800000),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
    ],
)
def test_a_time_is_milliseconds_since_1970(text: str, ms: int) -> None:
    assert parse_time(text) == ms


@pytest.mark.parametrize(
    "text", ["", "now", "2025-13-01", "1900-01-01", "0001-01-01T00:00:00+14:00", "12:00"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_time(text)
