"""Cursors: what is written is read, what is damaged is refused, and they are small."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.native.streams.cursor import Cursor, CursorError, CursorWriter, Position, read_cursor

TOPIC, OTHER = UUID(int=0x1234 << 100), UUID(int=0x4321 << 100)
LIMIT = 10_000
OFFSETS = st.lists(st.one_of(st.just(0), st.integers(0, 2**63 - 1)), min_size=1, max_size=40).map(tuple)


@st.composite
def cursors(draw: st.DrawFn) -> Cursor:
    offsets = draw(OFFSETS)
    partitions = None
    if draw(st.booleans()):
        chosen = st.integers(0, 2**31 - 1)
        partitions = tuple(sorted(draw(st.sets(chosen, min_size=len(offsets), max_size=len(offsets)))))
    return Cursor(partitions, Position(offsets, draw(st.integers(0, len(offsets) - 1))))


@given(cursors())
def test_a_cursor_is_read_as_it_was_written(cursor: Cursor) -> None:
    text = CursorWriter(TOPIC, cursor.partitions).text(cursor.position).decode()
    assert read_cursor(text, TOPIC, LIMIT) == cursor
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", text)


@given(cursors(), st.data())
def test_the_cursors_of_a_run_in_one_partition_are_those_of_each_position(
    cursor: Cursor, data: st.DataObject
) -> None:
    writer = CursorWriter(TOPIC, cursor.partitions)
    offsets = cursor.position.offsets
    index = data.draw(st.integers(0, len(offsets) - 1))
    ends = data.draw(st.lists(st.integers(0, 2**63 - 1), max_size=5))
    for end, text in zip(ends, writer.after_each(offsets, index, ends), strict=True):
        moved = (*offsets[:index], end, *offsets[index + 1 :])
        assert read_cursor(text.decode(), TOPIC, LIMIT) == Cursor(cursor.partitions, Position(moved, index))


@given(cursors(), st.data())
def test_a_cursor_with_another_character_is_refused(cursor: Cursor, data: st.DataObject) -> None:
    text = CursorWriter(TOPIC, cursor.partitions).text(cursor.position).decode()
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from("0123456789abcdef._-xé \x00").filter(lambda c: c != text[at]))
    for damaged in (text[:at] + other + text[at + 1 :], text[:at] + text[at + 1 :]):
        with pytest.raises(CursorError):
            read_cursor(damaged, TOPIC, LIMIT)


@given(st.text(max_size=60))
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    with pytest.raises(CursorError):
        read_cursor(text, TOPIC, LIMIT)


def test_a_cursor_of_another_topic_is_refused() -> None:
    text = CursorWriter(TOPIC, None).text(Position((1, 2))).decode()
    with pytest.raises(CursorError, match="another topic"):
        read_cursor(text, OTHER, LIMIT)


def test_a_cursor_of_a_later_version_is_refused() -> None:
    with pytest.raises(CursorError, match="version"):
        read_cursor("2.abc", TOPIC, LIMIT)


def test_a_cursor_with_too_many_partitions_is_refused_before_they_are_made() -> None:
    text = CursorWriter(TOPIC, None).text(Position((0,) * 100)).decode()
    assert len(read_cursor(text, TOPIC, 100).position.offsets) == 100
    with pytest.raises(CursorError, match="out of range"):
        read_cursor(text, TOPIC, 99)
    halves = CursorWriter(TOPIC, None).text(Position((0,) * 60 + (1,) * 60)).decode()
    with pytest.raises(CursorError, match="more partitions"):
        read_cursor(halves, TOPIC, 100)


def test_a_cursor_is_compact() -> None:
    assert len(CursorWriter(TOPIC, None).text(Position((123_456_789,)))) <= 36
    assert len(CursorWriter(TOPIC, None).text(Position((0,) * 10_000))) <= 36
    # Twelve partitions with a hundred million records each.
    assert len(CursorWriter(TOPIC, None).text(Position(tuple(range(100_000_000, 100_000_012))))) <= 125


def test_equal_positions_are_one_key() -> None:
    assert {Position((1, 2), 1): "a"}[Position((1, 2), 1)] == "a"
    assert Position((1, 2), 1) != Position((1, 2), 0)
    assert Position((1, 2)) != (1, 2)
    assert repr(Position((1, 2), 1)) == "Position((1, 2), 1)"
