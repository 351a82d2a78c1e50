"""Query parameters and paths of the lean routes."""

from __future__ import annotations

import pytest

from app.errors import Problem
from app.http.request import InFlight, decode_path, parse_query, whole_number


@pytest.mark.parametrize(
    ("text", "query"),
    [
        (b"a=1", {"a": "1"}),
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"a=%C3%A9+x", {"a": "é x"}),
        (b"a=", {"a": ""}),
        (b"a", {"a": ""}),
        (b"&a=1&&", {"a": "1"}),
        (b"a=1=2", {"a": "1=2"}),
        (b"a=2025-01-31T12:00:00.5Z", {"a": "2025-01-31T12:00:00.5Z"}),
    ],
)
def test_a_query_is_read(text: bytes, query: dict[str, str]) -> None:
    assert parse_query(text, ("a", "b")) == query


@pytest.mark.parametrize(
    ("text", "status"),
    [(b"c=1", 422), (b"A=1", 422), (b"a=1&a=1", 422), (b"a=1&a=2", 422), (b"=1", 422), (b"a=%FF", 400),
     (b"\xff=1", 400), (b"&".join([b"a=1"] * 65), 400)],
)  # fmt: skip
def test_a_bad_query_is_refused(text: bytes, status: int) -> None:
    with pytest.raises(Problem) as caught:
        parse_query(text, ("a", "b"))
    assert caught.value.status == status


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("-5", -5), ("007", 7), ("10", 10)])
def test_a_whole_number_is_read(text: str, number: int) -> None:
    assert whole_number("n", text, -5, 10) == number


@pytest.mark.parametrize(
    "text", ["", "-", "+1", " 1", "1 ", "1_0", "1.0", "1e1", "0x1", "１", "11", "-6", "9" * 30]
)
def test_what_is_no_whole_number_in_bounds_is_refused_with_the_bounds(text: str) -> None:
    with pytest.raises(Problem, match="n must be a whole number from -5 to 10") as caught:
        whole_number("n", text, -5, 10)
    assert caught.value.errors[0]["parameter"] == "n"


@pytest.mark.parametrize(
    ("raw", "path"),
    [(b"/a/b", "/a/b"), (b"/a/b/", "/a/b"), (b"/a//", "/a"), (b"/", "/"), (b"//", "/"), (b"/%C3%A9", "/é"),
     (b"/a%2Fb", "/a/b"), (b"/a%20b", "/a b")],
)  # fmt: skip
def test_a_path_is_decoded_once_and_loses_its_trailing_slash(raw: bytes, path: str) -> None:
    assert decode_path({"raw_path": raw, "path": raw.decode()}) == path


def test_bytes_in_flight_are_counted_back() -> None:
    flight = InFlight(10)
    flight.take(10)
    with pytest.raises(Problem):
        flight.take(1)
    flight.give_back(10)
    flight.take(10)
