"""Kafka 0.7 beside transactions: open records are not there yet, aborted ones are holes that keep their length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.kafka07.messages import parse_messages
from tests.core.kafka07.reader import Kafka07Shelf, measure, old_log, read_as_a_client, read_from, view_of
from tests.core.log.histories import STEPS, end, follow, write
from tests.core.log.shelf import append, records


@pytest.fixture
def shelf(tmp_path: Path) -> Kafka07Shelf:
    return Kafka07Shelf(tmp_path)


def payloads(data: bytes) -> list[bytes]:
    """What a 0.7 client shows, without the fillers of small holes, which are zeros; those of others show nothing."""
    shown = [value for group in parse_messages(data, max_bytes=100_000) for *_, value in group.messages]
    return [value for value in shown if value.strip(b"\0")]


def test_open_records_are_not_there_and_aborted_ones_are_a_hole(shelf: Kafka07Shelf) -> None:
    log = shelf.open()
    append(log, records("plain"))
    write(log, 1, 0, "aborted", "x" * 600)
    write(log, 2, 0, "open")
    append(log, records("after"))
    view = view_of(shelf, log)
    assert payloads(read_from(view, 0)) == [b"plain"]
    assert view.complete() and view.end_address == len(old_log(1, [b"plain"]))
    end(log, 1, commit=False)
    assert payloads(read_from(view, 0)) == [b"plain"]
    end(log, 2, commit=True)
    every = [b"plain", b"aborted", b"x" * 600, b"open", b"after"]
    assert len(read_from(view, 0)) == len(old_log(1, every)) == view.end_address
    assert payloads(read_from(view, 0)) == [b"plain", b"open", b"after"]
    assert payloads(read_as_a_client(view, 0, 700)) == [b"plain", b"open", b"after"]


def test_a_log_that_ends_with_aborted_records_is_read_to_its_end(shelf: Kafka07Shelf) -> None:
    log = shelf.open()
    write(log, 1, 0, "a", "b")
    end(log, 1, commit=False)
    view = view_of(shelf, log)
    assert payloads(read_from(view, 0)) == []
    assert len(read_from(view, 0)) == view.end_address == len(old_log(1, [b"a", b"b"]))


def test_segments_above_the_last_stable_offset_have_no_address_yet(tmp_path: Path) -> None:
    shelf = Kafka07Shelf(tmp_path, segment_bytes=200)
    log = shelf.open()
    append(log, records("plain"))
    write(log, 1, 0, "open")
    for i in range(5):
        append(log, records(f"after {i}"))
    assert len(log.segments.all) > 2
    view = view_of(shelf, log)
    measure(view)
    assert view.segment_addresses(-1, 10) == [len(old_log(1, [b"plain"])), 0]
    end(log, 1, commit=True)
    measure(view)
    every = [b"plain", b"open", *(b"after %d" % i for i in range(5))]
    assert view.segment_addresses(-1, 10)[0] == len(old_log(1, every))


@given(steps=STEPS, size=st.sampled_from([600, 1000, 1 << 20]))
@settings(deadline=None, max_examples=40)
def test_any_history_shows_what_was_committed_before_the_last_stable_offset(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[tuple[str, int]], size: int
) -> None:
    shelf = Kafka07Shelf(tmp_path_factory.mktemp("log"), segment_bytes=700)
    log = shelf.open()
    written, aborted = follow(log, steps)
    view = view_of(shelf, log)
    measure(view)
    shown = [
        value
        for offset, value, transaction in written
        if offset < log.last_stable_offset and transaction not in aborted
    ]
    assert payloads(read_as_a_client(view, 0, size)) == shown
    below = [value for offset, value, _ in written if offset < log.last_stable_offset]
    assert view.end_address == len(old_log(1, below))
