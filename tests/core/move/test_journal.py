"""core.move.journal: exact translation, and what a second process finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.move.batches import Run
from core.move.journal import FILE, Journal, JournalError, MovedTopic, Planned, Progress, runs_of_batches
from core.types import TopicPartition

TP = TopicPartition("t", 0)
TOPIC = MovedTopic("t", UUID(int=1), UUID(int=2), {"retention.ms": "1"}, False)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path, create=True) as opened:
        yield opened


def test_runs_that_follow_each_other_become_one(journal: Journal) -> None:
    journal.store({TP: (Progress(0, 10, 10), [Run(0, 0, 4), Run(4, 4, 6)])})
    journal.store({TP: (Progress(0, 13, 12), [Run(11, 10, 2)])})
    assert list(journal.runs(TP)) == [Run(0, 0, 10), Run(11, 10, 2)]
    assert not journal.equal_offsets(TP)


def test_a_position_in_a_gap_becomes_that_of_the_next_record(journal: Journal) -> None:
    journal.store({TP: (Progress(5, 20, 8), [Run(5, 0, 3), Run(10, 3, 5)])})
    positions = {0: 0, 5: 0, 7: 2, 8: 3, 9: 3, 10: 3, 14: 7, 15: 8, 20: 8}
    assert {offset: journal.translate(TP, offset) for offset in positions} == positions


def test_what_is_not_copied_is_not_translated(journal: Journal) -> None:
    journal.store({TP: (Progress(0, 10, 10), [Run(0, 0, 10)])})
    with pytest.raises(JournalError, match="Offset 11 of t-0 is not copied yet"):
        journal.translate(TP, 11)
    with pytest.raises(JournalError, match="other-0 is not part of this move"):
        journal.translate(TopicPartition("other", 0), 0)


def test_an_empty_partition_has_its_end(journal: Journal) -> None:
    journal.store({TP: (Progress(7, 7, 0), [])})
    assert (journal.translate(TP, 0), journal.translate(TP, 7)) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=12))
def test_translation_is_that_of_the_records(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int]]
) -> None:
    """`parts` are gaps, and the records after each."""
    sources: list[int] = []
    offset = 0
    for gap, length in parts:
        offset += gap
        sources += range(offset, offset + length)
        offset += length
    planned, start = [], 0
    for gap, length in parts:
        start += gap
        planned.append(Planned(0, length, ((start, length),), start + length))
        start += length
    with Journal(tmp_path_factory.mktemp("j"), create=True) as journal:
        journal.store({TP: (Progress(0, offset, len(sources)), list(runs_of_batches(planned, 0)))})
        for position in range(offset + 1):
            assert journal.translate(TP, position) == sum(source < position for source in sources)


def test_another_process_finds_everything(tmp_path: Path) -> None:
    progress = Progress(1, 5, 4, 77, 0, 9, (Planned(9, 2, ((5, 2),), 7),))
    with Journal(tmp_path, create=True) as first:
        first.belongs_to("a", "b")
        first.put_topic(TOPIC)
        first.store({TP: (progress, [Run(1, 0, 4)])})
    with Journal(tmp_path, create=False) as second:
        second.belongs_to("a", "b")
        assert (second.topics(), second.progress()) == ({"t": TOPIC}, {TP: progress})
        with pytest.raises(JournalError, match="whose target is the cluster b, not c"):
            second.belongs_to("a", "c")


def test_one_copy_at_a_time(tmp_path: Path, journal: Journal) -> None:
    with pytest.raises(JournalError, match="in use by another"):
        Journal(tmp_path, create=True)


def test_without_a_journal_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="sluice move copy"):
        Journal(tmp_path / "none", create=False)
    (tmp_path / FILE).write_bytes(b"this is no database, but it is long enough to be taken for one" * 10)
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(tmp_path, create=True)


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path, create=True).close()
    with sqlite3.connect(tmp_path / FILE) as db:
        db.execute("UPDATE facts SET value = '99' WHERE name = 'version'")
    db.close()
    with pytest.raises(JournalError, match="version 99"):
        Journal(tmp_path, create=False)
