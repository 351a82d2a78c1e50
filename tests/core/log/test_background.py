"""The turns of background work: chores one at a time, and steps that end."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from core.clock import ManualClock
from core.config import Config
from core.log.background import REMOVALS_PER_CHORE, Background, Removal
from core.log.context import LogContext
from core.log.log import Log
from tests.core.log.disk import Disk


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def background(clock: ManualClock) -> tuple[LogContext, Background]:
    context = LogContext(Config(), clock)

    def never(*_: object) -> Log:
        raise AssertionError("no log should be opened")

    return context, Background(context, {}, never)


def test_removals_are_chores_of_a_limited_size_one_at_a_time(clock: ManualClock, tmp_path: Path) -> None:
    context, work = background(clock)
    for i in range(REMOVALS_PER_CHORE + 5):
        (tmp_path / f"{i}.deleted").write_bytes(b"x")
        context.trash.add(str(tmp_path / f"{i}.deleted"), clock.monotonic())
    assert work.step() is None
    clock.advance(2)
    chore = work.step()
    assert isinstance(chore, Removal)
    assert work.step() is None
    assert not work.pending
    chore.run()
    assert len(list(tmp_path.iterdir())) == 5
    work.finish(chore, None)
    chore = work.step()
    assert chore is not None
    chore.run()
    work.finish(chore, None)
    assert list(tmp_path.iterdir()) == []
    assert work.step() is None


def test_a_directory_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0.0123-delete"
    directory.mkdir()
    for name in "abc":
        (directory / name).write_bytes(b"x")
    Removal([str(directory), str(tmp_path / "gone already"), str(tmp_path / "gone-delete")]).run()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_told_and_left(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    context, work = background(clock)
    (tmp_path / "file").write_bytes(b"x")
    context.trash.add(str(tmp_path / "file"), clock.monotonic())
    clock.advance(2)
    chore = work.step()
    assert chore is not None
    with Disk(monkeypatch).failing(errno.EIO, "unlink"), pytest.raises(OSError, match="error") as caught:
        chore.run()
    work.finish(chore, caught.value)
    assert "could not be removed" in caplog.text
    assert work.step() is None


def test_the_outcome_of_a_chore_that_nobody_waits_for_is_ignored(clock: ManualClock) -> None:
    _, work = background(clock)
    work.finish(Removal([]), None)
    work.close()
    assert work.step() is None
