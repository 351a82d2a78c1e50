"""Choosing among media types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import Problem
from app.native.accept import choose

JSON, SSE, LINES = b"application/json", b"text/event-stream", b"application/x-ndjson"
OFFERED = (JSON, SSE, LINES)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (b"", JSON),
        (b"*/*", JSON),
        (b"application/*", JSON),
        (b"text/*", SSE),
        (b"text/event-stream", SSE),
        (b"TEXT/Event-Stream; charset=utf-8", SSE),
        (b"application/x-ndjson, application/json;q=0.5", LINES),
        (b"application/json;q=0, */*", SSE),
        (b"*/*;q=0.1, application/x-ndjson", LINES),
        (b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", JSON),
        (b"text/event-stream;q=oops, application/json;q=0.1", JSON),
        (b"text/event-stream;q=nan, application/json;q=0.1", JSON),
    ],
)
def test_the_type_that_is_wanted_most_is_chosen(accept: bytes, chosen: bytes) -> None:
    assert choose(accept, OFFERED) == chosen


@pytest.mark.parametrize(
    "accept", [b"text/html", b"application/json;q=0", b"image/*", b"nonsense", b";,;q=1"]
)
def test_what_is_not_available_is_406_and_names_what_is(accept: bytes) -> None:
    with pytest.raises(Problem) as refused:
        choose(accept, OFFERED)
    assert refused.value.status == 406
    assert "text/event-stream" in refused.value.detail


@given(st.binary(max_size=200))
def test_any_bytes_choose_or_are_refused(accept: bytes) -> None:
    try:
        assert choose(accept, OFFERED) in OFFERED
    except Problem as refused:
        assert refused.status == 406
