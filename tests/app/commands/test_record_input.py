"""The input becomes NDJSON that means the same bytes."""

from __future__ import annotations

import io
import json
import os
import threading

import pytest

from app.commands.errors import InputError
from app.commands.record_input import (
    Header,
    Shape,
    from_arguments,
    from_lines,
    from_ndjson,
    from_whole,
    header,
    numbered_lines,
)

LIMIT = 1000


def _json(shape: Shape, data: bytes | None) -> dict[str, object]:
    document: dict[str, object] = json.loads(shape.record(data, "here").json)
    return document


def test_text_travels_as_text_and_other_bytes_as_base64() -> None:
    assert _json(Shape(), "ü".encode()) == {"value": "ü"}
    assert _json(Shape(), b"\xff") == {"value": "/w==", "value_encoding": "base64"}
    assert _json(Shape(key=b"\x00"), b"null") == {"key": "\x00", "value": "null"}


def test_json_is_passed_on_as_it_was_written() -> None:
    record = Shape(encoding="json", key_encoding="json", key=b"[1.0]").record(b' {"a": 1e2} ', "here")
    assert record.json == b'{"key":[1.0],"key_encoding":"json","value":{"a": 1e2},"value_encoding":"json"}'


@pytest.mark.parametrize("data", [b"", b"{", b'{"a":1},"key":"x"', b"nan", b"\xff", b'"\\ud800'])
def test_json_that_is_none_cannot_slip_through(data: bytes) -> None:
    with pytest.raises(InputError, match="Here is not json"):
        Shape(encoding="json").record(data, "here")


def test_a_tombstone_has_no_value() -> None:
    assert _json(Shape(key=b"k"), None) == {"key": "k"}
    # The separator is looked for in values alone.
    assert _json(Shape(key=b"k", key_separator=b":"), None) == {"key": "k"}


def test_the_first_separator_ends_the_key() -> None:
    assert _json(Shape(key_separator=b"=>"), b"a=>b=>c") == {"key": "a", "value": "b=>c"}
    with pytest.raises(InputError, match="Here has no key: '=>' is not in it"):
        Shape(key_separator=b"=>").record(b"abc", "here")


def test_what_is_common_stands_in_every_record() -> None:
    shape = Shape(headers=(Header("a", "1"), Header("b")), partition=0, timestamp_ms=0)
    assert _json(shape, b"") == {
        "value": "", "headers": [{"name": "a", "value": "1"}, {"name": "b"}], "partition": 0, "timestamp_ms": 0,
    }  # fmt: skip


def test_headers_are_pairs_and_values_may_be_any_bytes() -> None:
    assert header("a=b=c") == Header("a", "b=c")
    assert header("a") == Header("a")
    assert header("a=") == Header("a", "")
    assert header("a=\udcff") == Header("a", "/w==", "base64")


def test_arguments_keep_bytes_that_are_no_text() -> None:
    first, second = from_arguments(["a", "\udcff"], Shape())
    assert (first.where, second.where) == ("argument 1", "argument 2")
    assert json.loads(second.json) == {"value": "/w==", "value_encoding": "base64"}


def test_lines_are_numbered_and_the_last_needs_no_end() -> None:
    records = [r for r in from_lines(io.BytesIO(b"a\n\nb"), "x.txt", Shape(), LIMIT) if r is not None]
    assert [r.where for r in records] == ["line 1 of x.txt", "line 2 of x.txt", "line 3 of x.txt"]
    assert [json.loads(r.json)["value"] for r in records] == ["a", "", "b"]


def test_a_line_across_chunks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.commands.record_input.CHUNK_BYTES", 3)
    lines = [line for _, line in numbered_lines(io.BytesIO(b"abcdefgh\nij\nk"), "x", LIMIT)]
    assert lines == [b"abcdefgh", b"ij", b"k"]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    with pytest.raises(InputError, match="Line 2 of x is longer than the 1000 bytes"):
        list(numbered_lines(io.BytesIO(b"a\n" + b"x" * 200_000), "x", LIMIT))


def test_a_pause_of_the_input_is_told() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        lines = numbered_lines(stream, "x", LIMIT)
        os.write(writing, b"one\ntw")
        assert next(lines) == (1, b"one")
        assert next(lines) == (1, None)
        thread = threading.Timer(0.05, lambda: (os.write(writing, b"o\n"), os.close(writing)))
        thread.start()
        assert [line for _, line in lines if line is not None] == [b"two"]
        thread.join()


def test_ndjson_is_untouched_and_blank_lines_count_for_nothing() -> None:
    given = b'{"value": 1.0}\r\n\n  \n{"key":"k" }\n'
    records = [r for r in from_ndjson(io.BytesIO(given), "x", LIMIT) if r is not None]
    assert [(r.json, r.where) for r in records] == [
        (b'{"value": 1.0}', "line 1 of x"),
        (b'{"key":"k" }', "line 4 of x"),
    ]


def test_without_its_partition_the_rest_of_a_line_is_untouched() -> None:
    given = b'{"partition":7,"value":{"a": 1.0}}\n'
    (record,) = from_ndjson(io.BytesIO(given), "x", LIMIT, drop_partition=True)
    assert record is not None and record.json == b'{"value":{"a": 1.0}}'


def test_a_whole_input_is_one_record_and_has_a_limit() -> None:
    (record,) = from_whole(io.BytesIO(b"a\nb\n"), "x", Shape(), LIMIT)
    assert json.loads(record.json) == {"value": "a\nb\n"}
    with pytest.raises(InputError, match="X is longer than the 1000 bytes"):
        list(from_whole(io.BytesIO(b"x" * 1001), "x", Shape(), LIMIT))
