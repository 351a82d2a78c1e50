"""Media types of v2: what is taken, what is answered."""

from __future__ import annotations

import pytest

from app.errors import Problem
from app.rest_v2.errors import ProxyError
from app.rest_v2.media import accept_of, embedded_format
from tests.app.rest_v2.conftest import BINARY, JSON, TEXT, V2

PLAIN = "application/json"


@pytest.mark.parametrize(
    ("header", "answered"),
    [
        ("", PLAIN),
        ("  ", PLAIN),
        ("*/*", PLAIN),
        ("application/*", PLAIN),
        ("*/json", PLAIN),
        (PLAIN, PLAIN),
        (V2, V2),
        (JSON, JSON),
        ("Application/VND.kafka.V2+JSON", V2),
        ("application/vnd.kafka+json", "application/vnd.kafka+json"),
        ("application/vnd.kafka.v1+json", "application/vnd.kafka.v1+json"),
        ("application/vnd.kafka.avro.v2+json", "application/vnd.kafka.avro.v2+json"),
        (f"text/html,application/xhtml+xml,{V2};q=0.5,*/*;q=0.1", V2),
        (f"{PLAIN};q=0.5, {V2}", V2),
        (f"{PLAIN}, {V2}", PLAIN),
        (f"{V2};q=0, {PLAIN};q=0.2", PLAIN),
        (f"{V2}; q = 0.3 ; x=y", V2),
    ],
)
def test_a_client_gets_the_best_type_that_it_accepts(header: str, answered: str) -> None:
    assert accept_of(header.encode()).any().decode() == answered


@pytest.mark.parametrize(
    "header",
    [
        "text/html", "application/octet-stream", "application/vnd.kafka+foo", "foo/*", "*/baz", "bar/json",
        "application/vnd.kafka.v3+json", f"{V2};q=0", f"{V2};q=x", "application/jsonx", "application/vnd.kafka.json",
    ],
)  # fmt: skip
def test_what_is_not_ours_is_not_acceptable(header: str) -> None:
    for ask in (accept_of(header.encode()).any, lambda: accept_of(header.encode()).records("json")):
        with pytest.raises(Problem) as refusal:
            ask()
        assert refusal.value.status == 406


@pytest.mark.parametrize(
    ("header", "format_name", "answered"),
    [
        (JSON, "json", JSON),
        (f"{BINARY}, {JSON}", "json", JSON),
        (f"{BINARY}, {V2}", "json", V2),
        (V2, "binary", V2),
        ("*/*", "text", PLAIN),
        (TEXT, "text", TEXT),
    ],
)
def test_records_come_in_the_format_of_their_instance(header: str, format_name: str, answered: str) -> None:
    assert accept_of(header.encode()).records(format_name).decode() == answered


@pytest.mark.parametrize("header", [BINARY, f"{BINARY}, {TEXT}", "application/vnd.kafka.avro.v2+json"])
def test_another_format_than_the_instance_has_is_40601(header: str) -> None:
    with pytest.raises(ProxyError) as refusal:
        accept_of(header.encode()).records("json")
    assert (refusal.value.status, refusal.value.error_code) == (406, 40601)


@pytest.mark.parametrize(
    ("header", "format_name"),
    [
        (JSON, "json"),
        (BINARY, "binary"),
        (V2, "binary"),
        ("", "text"),
        ("*/*", "text"),
        (f"application/vnd.kafka.avro+json,{PLAIN}", "text"),
    ],
)
def test_a_stateless_read_takes_the_format_from_the_header(header: str, format_name: str) -> None:
    assert accept_of(header.encode()).format("text") == format_name


@pytest.mark.parametrize(
    ("content_type", "named"),
    [
        ("", None), (PLAIN, None), (V2, "binary"), ("application/vnd.kafka+json", "binary"), (JSON, "json"),
        (BINARY, "binary"), (f"{TEXT}; charset=utf-8", "text"), ("application/vnd.kafka.json.v1+json", "json"),
        ("application/vnd.kafka.binary+json", "binary"), (" Application/VND.kafka.AVRO.v2+json ", "avro"),
    ],
)  # fmt: skip
def test_a_request_names_its_format(content_type: str, named: str | None) -> None:
    for _ in range(2):  # the second time it is known
        assert embedded_format(content_type.encode()) == named


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/vnd.kafka", "application/jsonp", "x" * 5000]
)
def test_a_request_of_another_kind_is_415(content_type: str) -> None:
    for _ in range(2):
        with pytest.raises(Problem) as refusal:
            embedded_format(content_type.encode())
        assert refusal.value.status == 415
        assert len(refusal.value.detail) < 400


def test_strange_headers_are_not_remembered() -> None:
    for number in range(3_000):
        accept_of(b"application/json;x=%d" % number)
        embedded_format(b"application/json;x=%d" % number)
    assert accept_of(b"application/json;x=2999").any() == b"application/json"
