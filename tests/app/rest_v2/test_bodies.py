"""Reading bodies and queries of v2."""

from __future__ import annotations

from typing import Any

import pytest

from app.errors import Problem
from app.http.request import InFlight, Request
from app.rest_v2.bodies import decode, decoder_of, number_in, query_of
from app.rest_v2.errors import ProxyError
from app.rest_v2.schemas import CreateInstance, Partitions
from core.config import Config


def request(query: bytes) -> Request:
    async def receive() -> Any:
        raise AssertionError

    return Request({"query_string": query}, receive, {}, Config(), InFlight(1))


def test_numbers_and_switches_may_be_strings() -> None:
    body = b'{"auto.commit.enable":"true","fetch.min.bytes":"5","name":"5"}'
    made = decode(decoder_of(CreateInstance), body)
    assert (made.auto_commit_enable, made.fetch_min_bytes, made.name) == (True, 5, "5")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "ends too early"),
        (b'{"partitions":[{"topic":"a","partition":"\xff"}]}', 400, "not UTF-8"),
        (b'{"partitions":[{"topic":"a"}]}', 422, "partitions[0].partition"),
        (b'{"partitions":[{"topic":"a","partition":-1}]}', 422, "partition"),
        (b'{"partition":[]}', 422, "'partition'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(body: bytes, status: int, words: str) -> None:
    with pytest.raises(Problem) as refusal:
        decode(decoder_of(Partitions), body)
    assert refusal.value.status == status
    assert words in refusal.value.detail


def test_a_query_is_read_leniently() -> None:
    assert query_of(request(b"")) == {}
    assert query_of(request(b"timeout=1&_=7&timeout=2&max_bytes=&x%20y=%C3%A9")) == {
        "timeout": "2", "_": "7", "max_bytes": "", "x y": "é",
    }  # fmt: skip


@pytest.mark.parametrize("query", [b"a=%FF", b"\xff=1", b"&".join([b"a=1"] * 65)])
def test_a_query_that_cannot_be_read_is_400(query: bytes) -> None:
    with pytest.raises(Problem) as refusal:
        query_of(request(query))
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 7),
        ("5", 5),
        ("0", 7),
        ("-1", 7),
        ("-99999", 7),
        ("10", 10),
        ("11", 10),
        ("9" * 19, 10),
        ("007", 7),
    ],
)
def test_a_number_is_a_hint(text: str, number: int) -> None:
    assert number_in({"n": text}, "n", 7, 10) == number
    assert number_in({}, "n", 7, 10) == 7


@pytest.mark.parametrize("text", ["x", "1.0", "1e3", "+1", "--1", "٣", " 1", "9" * 20])
def test_what_is_no_number_is_422(text: str) -> None:
    with pytest.raises(ProxyError) as refusal:
        number_in({"n": text}, "n", 7, 10)
    assert (refusal.value.status, refusal.value.error_code) == (422, 422)
