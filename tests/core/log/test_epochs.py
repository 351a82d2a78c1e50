"""Leader epochs and where each of them ended (KIP-101)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from core.log.epochs import LeaderEpochs
from tests.core.log.disk import Disk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leader-epoch-checkpoint"


def filled(path: Path, *entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(str(path))
    for epoch, offset in entries:
        epochs.assign(epoch, offset)
    return epochs


def test_nothing_is_known_at_first(path: Path) -> None:
    epochs = filled(path)
    assert (epochs.latest, epochs.epoch_for(5), epochs.end_offset_for(0, 9)) == (-1, -1, (-1, -1))
    assert not path.exists()
    assert not epochs.load()


def test_an_epoch_is_written_at_once_and_read_back(path: Path) -> None:
    filled(path, (2, 0), (5, 10))
    again = LeaderEpochs(str(path))
    assert again.load()
    assert (again.entries, again.latest) == ([(2, 0), (5, 10)], 5)


def test_an_epoch_that_wrote_nothing_leaves_no_line(path: Path) -> None:
    assert filled(path, (2, 0), (5, 10), (6, 10), (7, 12)).entries == [(2, 0), (6, 10), (7, 12)]


def test_an_older_epoch_changes_nothing(path: Path) -> None:
    epochs = filled(path, (5, 10))
    epochs.assign(4, 20)
    epochs.assign(5, 20)
    assert epochs.entries == [(5, 10)]


def test_an_epoch_that_the_disk_refuses_has_not_begun(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = filled(path, (1, 0))
    with Disk(monkeypatch).failing(errno.ENOSPC), pytest.raises(OSError, match="space"):
        epochs.assign(2, 5)
    assert epochs.entries == [(1, 0)]
    epochs.assign(2, 5)
    assert LeaderEpochs(str(path)).load()


def test_the_epoch_of_a_leader_begins_at_the_end_before_anything_is_written_in_it(path: Path) -> None:
    epochs = filled(path, (2, 0), (5, 10))
    asked = (1, 2, 4, 5, 6, 7, 8)
    found = [epochs.end_offset_for(epoch, 14, 7) for epoch in asked]
    assert found == [(1, 0), (2, 10), (2, 10), (5, 14), (5, 14), (7, 14), (-1, -1)]
    # A leader of an earlier epoch than the log's adds nothing.
    assert epochs.end_offset_for(5, 14, 3) == (5, 14) and epochs.end_offset_for(6, 14, 3) == (-1, -1)
    assert filled(path).end_offset_for(3, 0, 7) == (3, 0)


def test_each_offset_has_its_epoch(path: Path) -> None:
    epochs = filled(path, (2, 3), (5, 10))
    assert [epochs.epoch_for(o) for o in (0, 2, 3, 9, 10, 99)] == [-1, -1, 2, 2, 5, 5]


def test_an_epoch_ends_where_the_next_begins(path: Path) -> None:
    epochs = filled(path, (2, 3), (5, 10), (9, 30))
    ends = {epoch: epochs.end_offset_for(epoch, 44) for epoch in (-1, 0, 1, 2, 3, 4, 5, 8, 9, 10)}
    assert ends == {
        -1: (-1, -1), 0: (0, 3), 1: (1, 3), 2: (2, 10), 3: (2, 10), 4: (2, 10),
        5: (5, 30), 8: (5, 30), 9: (9, 44), 10: (-1, -1),
    }  # fmt: skip


def test_the_end_of_the_log_takes_epochs_away(path: Path) -> None:
    epochs = filled(path, (2, 3), (5, 10), (9, 30))
    epochs.truncate_to(30)
    assert epochs.entries == [(2, 3), (5, 10)]
    epochs.truncate_to(11)
    assert epochs.latest == 5
    epochs.truncate_to(3)
    assert (epochs.entries, epochs.latest) == ([], -1)
    assert path.read_text() == "0\n0\n"


def test_the_start_of_the_log_moves_the_epoch_it_is_in(path: Path) -> None:
    epochs = filled(path, (2, 3), (5, 10), (9, 30))
    epochs.truncate_prefix(2)
    assert epochs.entries == [(2, 3), (5, 10), (9, 30)]
    epochs.truncate_prefix(12)
    assert epochs.entries == [(5, 12), (9, 30)]
    epochs.truncate_prefix(30)
    assert epochs.entries == [(9, 30)]
    epochs.truncate_prefix(99)
    assert epochs.entries == [(9, 99)]


def test_what_was_found_in_the_log_replaces_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = filled(path, (2, 3))
    with Disk(monkeypatch).failing(errno.EIO):
        epochs.replace([(1, 0), (4, 9)])
    assert (epochs.entries, epochs.unwritten) == ([(1, 0), (4, 9)], True)
    epochs.replace([(1, 0)])
    assert (path.read_text(), epochs.unwritten) == ("0\n1\n1 0\n", False)


def test_an_offset_is_in_an_epoch_that_ends_where_the_next_one_begins(path: Path) -> None:
    epochs = filled(path, (2, 3), (5, 10))
    assert [epochs.span(offset) for offset in (2, 3, 9, 10)] == [(-1, 3), (2, 10), (2, 10), (5, 2**63 - 1)]
    assert filled(path.with_name("other")).span(0) == (-1, 2**63 - 1)
