"""Marks by which a row that was written twice can be told."""

from __future__ import annotations

import pytest

from pipeline.sink.marks import NO_BATCH, Mark, Writer, parse


def test_a_mark_is_read_back_and_differs_by_query_batch_task_and_row() -> None:
    writers = [
        Writer("q", "7", 3),
        Writer("r", "7", 3),
        Writer("q", "8", 3),
        Writer("q", "7", 4),
        Writer("q", NO_BATCH, 3),
    ]
    marks = {writer.mark(sequence) for writer in writers for sequence in (0, 1)}
    assert len(marks) == 10
    assert parse(writers[0].mark(12)) == Mark("q", "7", 3, 12)


@pytest.mark.parametrize("text", [b"", b"q/1/2", b"q/1/x/2", b"q/1/2/3/4", "q/1/2/ü".encode()])
def test_what_is_no_mark_is_no_mark(text: bytes) -> None:
    with pytest.raises(ValueError):
        parse(text)
