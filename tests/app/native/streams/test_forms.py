"""The bytes of streams: events as the HTML standard reads them, lines as any JSON reader does."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.formats import Reader
from app.native.record_json import record_texts
from app.native.streams.cursor import Cursor, Position, read_cursor
from app.native.streams.fanout import Feed, Part, Range, Taken
from app.native.streams.forms import NDJSON, SSE
from core.records.record import Record
from core.topic_config import parse_topic_config
from core.types import TopicPartition
from core.vocabulary.topic import TopicInfo
from tests.app.native.streams.asgi_stream import EventParser

INFO = TopicInfo("t", UUID(int=7 << 90), 2, {}, parse_topic_config({}, {}), 0, 1)
FEED = Feed(INFO, None, Reader("auto", 128), "auto", None)
HERE = Position((3, 4), 1)
BYTES = st.one_of(
    st.none(), st.binary(max_size=40), st.sampled_from([b'{"a":\n1}', b"[1,\r\n2]", b"\n\n", b"\r"])
)


def cursor(text: str) -> Cursor:
    return read_cursor(text, INFO.topic_id, 10)


def taken(*values: bytes | None) -> Taken:
    """Records with these values in partition 1, from offset 4 on."""
    records = [Record(4 + i, 0, 0, None, value) for i, value in enumerate(values)]
    texts = record_texts(TopicPartition("t", 1), records, FEED.reader)
    end = 4 + len(records)
    found = Range(texts, [r.offset + 1 for r in records], [1] * len(records), end, len(records))
    return Taken([Part(1, found, len(records))], HERE, Position((3, end)))


@given(st.lists(BYTES, min_size=1, max_size=5))
def test_events_are_read_as_they_were_written(values: list[bytes | None]) -> None:
    some = taken(*values)
    events = EventParser().feed(SSE.records(FEED, some))
    assert [event.type for event in events] == ["record"] * len(values)
    for event, text, end in zip(events, some.parts[0].found.texts, some.parts[0].found.ends, strict=True):
        assert event.json() == json.loads(text)
        assert cursor(event.id) == Cursor(None, Position((3, end), 1))


@given(st.lists(BYTES, min_size=1, max_size=5))
def test_lines_are_read_as_they_were_written(values: list[bytes | None]) -> None:
    some = taken(*values)
    lines = NDJSON.records(FEED, some).split(b"\n")
    assert lines.pop() == b""
    for line, text, end in zip(lines, some.parts[0].found.texts, some.parts[0].found.ends, strict=True):
        record = json.loads(line)
        assert cursor(record.pop("cursor")) == Cursor(None, Position((3, end), 1))
        assert record == json.loads(text)


def test_a_part_of_a_range_is_sent_in_part() -> None:
    some = taken(b"1", b"2", b"3")
    part = some.parts[0]._replace(used=2)
    assert SSE.records(FEED, some._replace(parts=[part])).count(b"event: record") == 2
    assert NDJSON.records(FEED, some._replace(parts=[part])).count(b"\n") == 2


def test_cursors_follow_the_parts_of_a_piece() -> None:
    one = taken(b"1").parts[0]
    zero = Part(0, Range([b"{}"], [9], [2], 9, 1), 1)
    ids = [e.id for e in EventParser().feed(SSE.records(FEED, Taken([zero, one], HERE, Position((9, 5)))))]
    assert [cursor(text).position.offsets for text in ids] == [(9, 4), (9, 5)]


@pytest.mark.parametrize(
    ("sent", "type_"),
    [
        (SSE.caught_up(FEED, HERE), "caught_up"),
        (SSE.problem(FEED, HERE, {"status": 410, "detail": "a\nb"}), "problem"),
        (SSE.bye(FEED, HERE, "stop", 1500), "bye"),
    ],
)
def test_other_events_carry_their_cursor(sent: bytes, type_: str) -> None:
    parser = EventParser()
    (event,) = parser.feed(sent)
    assert (event.type, cursor(event.id).position) == (type_, HERE)
    assert parser.retry == (1500 if type_ == "bye" else None)


def test_a_comment_is_no_event_and_may_move_the_last_id() -> None:
    parser = EventParser(last_id="x")
    assert parser.feed(SSE.comment(FEED, None)) == []
    assert (parser.comments, parser.last_id) == (1, "x")
    assert parser.feed(SSE.comment(FEED, HERE)) == []
    assert cursor(parser.last_id).position == HERE


def test_lines_about_the_stream_have_no_offset() -> None:
    for line in (NDJSON.problem(FEED, HERE, {"status": 410}), NDJSON.bye(FEED, HERE, "stop", 5)):
        about = json.loads(line)
        assert "offset" not in about
        assert cursor(about["cursor"]).position == HERE
    assert NDJSON.comment(FEED, HERE) == b"\n"
    assert NDJSON.hello(5) == NDJSON.caught_up(FEED, HERE) == b""
    assert EventParser().feed(SSE.hello(5)) == []
