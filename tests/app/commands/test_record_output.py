"""Records as they are printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, json

from app.commands.record_input import embed
from app.commands.record_output import Template, as_json, decode_record, embedded

LINE = (
    b'{"topic":"t","partition":1,"offset":42,"timestamp":"2025-01-31T12:00:00.000Z","timestamp_ms":1738324800000,'
    b'"timestamp_type":"CreateTime","key":"k\\u00fc","key_encoding":"utf8","value":{"n": 1.00},'
    b'"value_encoding":"json","headers":[{"name":"a","value":"1","encoding":"utf8"},{"name":"b","value":"/w==","encoding":"base64"},'
    b'{"name":"c","value":null,"encoding":null},{"name":"a","value":"2","encoding":"utf8"}]}'
)
TOMBSTONE = (
    b'{"topic":"t","partition":0,"offset":0,"key":"/w==","key_encoding":"base64","value":null,"headers":[]}'
)


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("value", b'{"n": 1.00}\n'),
        ("key-value", b'k\xc3\xbc\t{"n": 1.00}\n'),
        ("full", b'1\t42\t2025-01-31T12:00:00.000Z\tk\xc3\xbc\t{"n": 1.00}\n'),
        ("{topic}[{partition}]@{offset}={timestamp_ms}", b"t[1]@42=1738324800000\n"),
        ("{headers}", b"a=1,b=\xff,c,a=2\n"),
        ("{header.a}|{header.b}|{header.c}|{header.d}", b"1|\xff||\n"),
        (r"\t\n\0\\t{offset}", b"\t\n\0\\t42\n"),
    ],
)
def test_a_template_prints_fields_as_their_bytes(template: str, printed: bytes) -> None:
    assert Template(template).render(decode_record(LINE)) == printed


def test_what_is_null_is_what_one_wants_it_to_be() -> None:
    record = decode_record(TOMBSTONE)
    assert Template("{key}:{value}:{timestamp}", null="-").render(record) == b"\xff:-:-\n"
    assert Template("{value}", end="").render(record) == b""


def test_on_a_terminal_nothing_moves_the_cursor() -> None:
    record = decode_record(
        b'{"key":"\\u001b[2J","key_encoding":"utf8","value":"/wA=","value_encoding":"base64"}'
    )
    assert Template("{key} {value}", terminal=True).render(record) == b"\\x1b[2J \\xff\\x00\n"


@pytest.mark.parametrize("template", ["{}", "{Value}", "{value.x}", "{key}{unknown}"])
def test_an_unknown_field_is_refused_with_those_that_exist(template: str) -> None:
    with pytest.raises(ValueError, match="there are headers, key, offset"):
        Template(template)


def test_json_is_what_the_api_gave_without_the_cursor() -> None:
    record = decode_record(LINE[:-1] + b',"cursor":"1.abc"}')
    assert record.cursor == "1.abc"
    assert as_json(record) == LINE.replace(b"k\\u00fc", b"k\\u00fc") + b"\n"


def test_members_that_are_new_to_us_do_no_harm() -> None:
    assert decode_record(b'{"offset":1,"brand_new":true}').offset == 1


@given(st.binary(max_size=40))
def test_bytes_that_go_out_as_json_come_back_as_they_were(data: bytes) -> None:
    text, encoding = embed(data, "text", "here")
    assert embedded(Raw(json.encode(text)), "utf8" if encoding is UNSET else str(encoding)) == data
