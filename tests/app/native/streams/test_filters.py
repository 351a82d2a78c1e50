"""Filters: what the parameters mean, and what they refuse."""

from __future__ import annotations

import pytest

from app.errors import Problem
from app.native.streams.filters import Filter, read_filter
from core.records.record import Record


def record(key: bytes | None = b"key", *headers: tuple[str, bytes | None]) -> Record:
    return Record(0, 0, 0, key, b"value", headers)


@pytest.mark.parametrize(
    ("query", "taken", "left"),
    [
        ({"key": "key"}, [record()], [record(b"key2"), record(b""), record(None), record(b"KEY")]),
        ({"key": ""}, [record(b"")], [record(None), record()]),
        ({"key": "é"}, [record("é".encode())], [record(b"e")]),
        ({"key": "/w==", "key_encoding": "base64"}, [record(b"\xff")], [record(b"/w==")]),
        ({"key_prefix": "ke"}, [record(), record(b"ke")], [record(b"k"), record(None)]),
        ({"key_prefix": ""}, [record(), record(b"")], [record(None)]),
        ({"key_prefix": "/w==", "key_encoding": "base64"}, [record(b"\xff\x00")], [record(b"")]),
        # A plus sign in a query is a blank.
        ({"key": " w==", "key_encoding": "base64"}, [record(b"\xfb")], [record(b" w==")]),
        (
            {"header.a": "1"},
            [record(None, ("a", b"1")), record(b"", ("b", b"0"), ("a", b"0"), ("a", b"1"))],
            [record(), record(b"", ("A", b"1")), record(b"", ("a", None)), record(b"", ("a", b"12"))],
        ),
        (
            {"header.a": "1", "header.b.c": "é", "key_prefix": "k"},
            [record(b"k", ("b.c", "é".encode()), ("a", b"1"))],
            [record(b"k", ("a", b"1")), record(b"x", ("b.c", "é".encode()), ("a", b"1"))],
        ),
    ],
)  # fmt: skip
def test_a_filter_takes_what_satisfies_all_of_it(
    query: dict[str, str], taken: list[Record], left: list[Record]
) -> None:
    wanted = read_filter(query)
    assert wanted is not None
    assert all(map(wanted.takes, taken))
    assert not any(map(wanted.takes, left))


def test_without_a_parameter_there_is_no_filter() -> None:
    assert read_filter({"limit": "5"}) is None


def test_the_order_of_headers_makes_no_other_filter() -> None:
    one = read_filter({"header.a": "1", "header.b": "2"})
    assert (
        one
        == read_filter({"header.b": "2", "header.a": "1"})
        == Filter(None, None, (("a", b"1"), ("b", b"2")))
    )


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ({"header.": "x"}, "header."),
        ({"key": "a", "key_prefix": "b"}, "key_prefix"),
        ({"key_encoding": "base64"}, "key_encoding"),
        ({"key": "a", "key_encoding": "hex"}, "key_encoding"),
        ({"key": "a", "key_encoding": "base64"}, "key"),
        ({"key_prefix": "é", "key_encoding": "binary"}, "key_prefix"),
    ],
)
def test_what_is_no_filter_is_refused_by_name(query: dict[str, str], parameter: str) -> None:
    with pytest.raises(Problem) as refused:
        read_filter(query)
    assert refused.value.status == 422
    assert refused.value.errors[0]["parameter"] == parameter
