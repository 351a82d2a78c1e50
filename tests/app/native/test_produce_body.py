"""Produce bodies → records, and the refusals that name the record and the field."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import Problem
from app.native.produce_body import ProduceBody
from core.records.record import NewRecord

BODY = ProduceBody(max_depth=64, max_records=1000)


def test_one_bare_record_is_taken() -> None:
    assert BODY.from_json(b'{"key":"k","value":{"a":1}}') == [NewRecord(b"k", b'{"a":1}')]


def test_an_empty_object_is_a_record_of_nulls() -> None:
    assert BODY.from_json(b"{}") == [NewRecord(None, None)]


def test_a_list_of_records_is_taken_in_order() -> None:
    body = b'{"records": [{"value":1}, {"value":"2"}, {"key":"k","value":null}]}'
    assert BODY.from_json(body) == [NewRecord(None, b"1"), NewRecord(None, b"2"), NewRecord(b"k", None)]


def test_every_member_of_a_record_is_taken() -> None:
    body = json.dumps(
        {
            "key": "a2V5",
            "key_encoding": "base64",
            "value": "text",
            "value_encoding": "json",
            "partition": 7,
            "timestamp": "2025-01-31T12:00:00.123+01:00",
            "headers": [
                {"name": "a", "value": "1"},
                {"name": "a", "value": "/w==", "encoding": "base64"},
                {"name": "", "value": None},
                {"name": "b"},
            ],
        }
    ).encode()
    headers = (("a", b"1"), ("a", b"\xff"), ("", None), ("b", None))
    assert BODY.from_json(body) == [NewRecord(b"key", b'"text"', headers, 1738321200123, 7)]


def test_a_record_as_it_was_read_is_taken() -> None:
    body = json.dumps(
        {
            "topic": "t",
            "partition": 1,
            "offset": 9,
            "timestamp": "2025-01-31T12:00:00.000Z",
            "timestamp_ms": 1738324800000,
            "timestamp_type": "LogAppendTime",
            "key": None,
            "key_encoding": None,
            "value": "v",
            "value_encoding": "utf8",
            "headers": [],
        }
    ).encode()
    assert BODY.from_json(body) == [NewRecord(None, b"v", (), 1738324800000, 1)]


def test_the_bytes_of_a_json_value_are_kept() -> None:
    value = b'{ "b":1e0,  "a":[ 1.00 ,"\\u00e9"] }'
    assert BODY.from_json(b'{"value": ' + value + b" }")[0].value == value


def test_ndjson_holds_one_record_a_line() -> None:
    body = b'{"key":"a","value":1}\r\n\n  \n{"value":"two"}\n{}'
    assert BODY.from_ndjson(body) == [NewRecord(b"a", b"1"), NewRecord(None, b"two"), NewRecord()]


DEEP = b"[" * 65 + b"]" * 65

REFUSED = [
    ("not JSON", b"hello", 400, None, None),
    ("empty", b"", 400, None, None),
    ("cut short", b'{"records":[{"value":1},{"va', 400, 1, None),
    ("NaN", b'{"records":[{"value":1},{"value":NaN}]}', 400, 1, "value"),
    ("Infinity", b'{"value":-Infinity}', 400, None, "value"),
    ("not UTF-8", b'{"records":[{"value":"\xff"}]}', 400, 0, "value"),
    ("half a surrogate", b'{"records":[{"value":1},{"key":"\\ud800"}]}', 400, 1, "key"),
    ("half a surrogate in JSON", b'{"value":{"a":"\\udc00"}}', 400, None, "value.a"),
    ("control character", b'{"value":"a\nb"}', 400, None, "value"),
    ("a hundred thousand levels", b'{"value":' + b"[" * 100_000, 400, None, None),
    ("65 levels", b'{"records":[{"value":' + DEEP + b"}]}", 422, 0, "value"),
    ("65 levels as json", b'{"value":' + DEEP + b',"value_encoding":"json"}', 422, None, "value"),
    ("a deep key", b'{"key":' + DEEP + b"}", 422, None, "key"),
    ("an array", b"[]", 422, None, None),
    ("a number", b"1", 422, None, None),
    ("no records", b'{"records":[]}', 422, None, "records"),
    ("records null", b'{"records":null}', 422, None, "records"),
    ("a record that is no object", b'{"records":[{}, 3]}', 422, 1, None),
    ("an unknown member", b'{"records":[{},{"vaule":1}]}', 422, 1, "vaule"),
    ("an unknown member beside", b'{"records":[{}],"vaule":1}', 422, None, "vaule"),
    ("a record's member beside", b'{"records":[{}],"value":1}', 422, None, "value"),
    ("partition of text", b'{"records":[{"partition":"1"}]}', 422, 0, "partition"),
    ("partition below 0", b'{"partition":-1}', 422, None, "partition"),
    ("partition too large", b'{"partition":2147483648}', 422, None, "partition"),
    ("partition of 1.5", b'{"partition":1.5}', 422, None, "partition"),
    ("timestamp below 0", b'{"timestamp":-1}', 422, None, "timestamp"),
    ("timestamp too large", b'{"timestamp_ms":9223372036854775808}', 422, None, "timestamp"),
    ("timestamp no time", b'{"timestamp":"yesterday"}', 422, None, "timestamp"),
    ("timestamp before 1970", b'{"timestamp":"1969-12-31"}', 422, None, "timestamp"),
    ("two timestamps", b'{"timestamp":1,"timestamp_ms":2}', 422, None, "timestamp"),
    ("encoding unknown", b'{"value":"x","value_encoding":"hex"}', 422, None, "value_encoding"),
    ("wrong base64", b'{"records":[{"key":"abc","key_encoding":"base64"}]}', 422, 0, "key"),
    ("base64 of a number", b'{"value":1,"value_encoding":"base64"}', 422, None, "value"),
    ("text of an object", b'{"value":{},"value_encoding":"utf8"}', 422, None, "value"),
    ("headers no list", b'{"headers":{"a":"b"}}', 422, None, "headers"),
    ("header without a name", b'{"records":[{"headers":[{"value":1}]}]}', 422, 0, "headers[0].name"),
    (
        "header of wrong base64",
        b'{"headers":[{"name":"a"},{"name":"b","value":"!","encoding":"base64"}]}',
        422, None, "headers[1].value",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "records"),
    [
        (b'{"records":[{"value":1},{"value":1,"value":2}]}', [NewRecord(None, b"1"), NewRecord(None, b"2")]),
        (b'{"records":[{"value":"a"},{"value":"b","value":"c"}]}', [NewRecord(None, b"a"), NewRecord(None, b"c")]),
        (b'{"value":"a","value":null}', [NewRecord(None, None)]),
        (b'{"key":1,"k\\u0065y":2}', [NewRecord(b"2", None)]),
        (b'{"key":"1","k\\u0065y":"2"}', [NewRecord(b"2", None)]),
        (b'{"key":1,"value":{"key":1,"key":1},"key":2}', [NewRecord(b"2", b'{"key":1,"key":1}')]),
        (b'{"key":"YQ==","key_encoding":"json","key_encoding":"base64"}', [NewRecord(b"a", None)]),
        (b'{"records":[{}],"records":[{"value":"a"}]}', [NewRecord(None, b"a")]),
        (b'{"records":[{"value":1},{"value":2}],"records":[{"value":3}]}', [NewRecord(None, b"3")]),
        (b'{"records":[{"partition":1,"partition":2}]}', [NewRecord(partition=2)]),
        (b'{"headers":[{"name":"a","name":"b"}]}', [NewRecord(headers=(("b", None),))]),
    ],
)  # fmt: skip
def test_of_a_member_that_occurs_more_than_once_the_last_one_counts(
    body: bytes, records: list[NewRecord]
) -> None:
    assert BODY.from_json(body) == records
    if b"records" not in body:
        assert BODY.from_ndjson(body) == records


@pytest.mark.parametrize(
    ("body", "status", "record", "field"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_a_bad_body_is_refused_by_record_and_field(
    body: bytes, status: int, record: int | None, field: str | None
) -> None:
    with pytest.raises(Problem) as caught:
        BODY.from_json(body)
    assert caught.value.status == status
    (error,) = caught.value.errors
    assert error.get("record") == record
    assert error.get("field") == field
    assert "Traceback" not in caught.value.detail


@pytest.mark.parametrize(
    ("body", "status", "record", "field"),
    [
        (b"", 422, None, "records"),
        (b"\n \n", 422, None, "records"),
        (b'{"value":1}\n{"value":', 400, 1, "value"),
        (b'{"value":1}\n{"value":NaN}', 400, 1, "value"),
        (b'{"value":1}\n{"records":[]}', 422, 1, "records"),
        (b'{"value":1}\n"\xff"', 400, 1, None),
        (b'{"value":1}\n{"value":"!","value_encoding":"base64"}', 422, 1, "value"),
        (b'{"value":1}\n[1]', 422, 1, None),
    ],
)
def test_a_bad_line_is_refused_by_record_and_field(
    body: bytes, status: int, record: int | None, field: str | None
) -> None:
    with pytest.raises(Problem) as caught:
        BODY.from_ndjson(body)
    assert caught.value.status == status
    assert caught.value.errors[0].get("record") == record
    assert caught.value.errors[0].get("field") == field


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[' + b"{}," * 1000 + b"{}]}",
        b'{"records":[' + b'{"value":{}},' * 1000 + b'{"value":1}]}',
    ],
)
def test_too_many_records_are_refused_with_the_limit(body: bytes) -> None:
    for refused in (lambda: BODY.from_json(body), lambda: BODY.from_ndjson(b"{}\n" * 1001)):
        with pytest.raises(Problem) as caught:
            refused()
        assert caught.value.status == 413
        assert caught.value.extra == {"limit": 1000, "unit": "records"}


def test_as_many_records_as_the_limit_allows_are_taken() -> None:
    body = b'{"records":[' + b'{"value":{"a":[{},{}]}},' * 999 + b"{}]}"
    assert len(BODY.from_json(body)) == 1000
    assert len(BODY.from_ndjson(b"{}\n" * 1000)) == 1000


@pytest.mark.parametrize(
    "value",
    ['{"value":1,"value":2}', '"\\"value\\""', '[{"key":"key"},"key","value"]', '"value"', '{"records":1}'],
)
def test_names_of_members_inside_a_value_are_the_clients_own(value: str) -> None:
    body = f'{{"records": [{{"key": "value", "value": {value}}}, {{"key": "key"}}]}}'.encode()
    assert [r.key for r in BODY.from_json(body)] == [b"value", b"key"]


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "key": st.none() | st.text() | st.integers(),
                "value": st.none() | st.text() | st.dictionaries(st.text(), st.integers()),
                "partition": st.none() | st.integers(0, 9),
            },
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")]),
    st.booleans(),
)
def test_a_good_body_is_never_taken_for_one_with_doubles(
    records: list[dict[str, object]], separators: tuple[str, str], ascii_only: bool
) -> None:
    body = json.dumps({"records": records}, separators=separators, ensure_ascii=ascii_only)
    assert len(BODY.from_json(body.encode(errors="replace"))) == len(records)


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\u recordskvalue1', max_size=60).map(str.encode))
def test_any_bytes_are_taken_or_refused_as_a_problem(body: bytes) -> None:
    for read in (BODY.from_json, BODY.from_ndjson):
        try:
            read(body)
        except Problem as problem:
            assert problem.status in (400, 413, 422)
