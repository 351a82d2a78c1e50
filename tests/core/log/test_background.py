"""The turns of background work: chores one at a time, and steps that end."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from core.clock import ManualClock
from core.config import Config
from core.log.background import REMOVALS_PER_CHORE, Background
from core.log.log import Log
from core.log.shared import LogShared
from core.log.trash import Removal
from core.records.record import NewRecord
from core.types import TopicPartition
from tests.core.log.disk import Disk
from tests.core.log.home import CONFIG, OTHER, TP, Home, open_files
from tests.core.log.shelf import append, flush, read_all, records, values


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def background(clock: ManualClock) -> tuple[LogShared, Background]:
    shared = LogShared(Config(), clock)

    def never(*_: object) -> Log:
        raise AssertionError("no log should be opened")

    return shared, Background(shared, {}, never)


def test_removals_are_chores_of_a_limited_size_one_at_a_time(clock: ManualClock, tmp_path: Path) -> None:
    shared, work = background(clock)
    for i in range(REMOVALS_PER_CHORE + 5):
        (tmp_path / f"{i}.deleted").write_bytes(b"x")
        shared.trash.add(str(tmp_path / f"{i}.deleted"), clock.monotonic())
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


def test_what_cannot_be_removed_is_told_and_left(
    clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared, work = background(clock)
    (tmp_path / "file").write_bytes(b"x")
    shared.trash.add(str(tmp_path / "file"), clock.monotonic())
    clock.advance(2)
    chore = work.step()
    assert chore is not None
    with Disk(monkeypatch).failing(errno.EIO, "unlink"), pytest.raises(OSError, match="error") as caught:
        chore.run()
    work.finish(chore, caught.value)
    assert "could not be removed" in caplog.text
    assert work.step() is None


def test_the_outcome_of_a_chore_without_a_waiter_is_ignored(clock: ManualClock) -> None:
    _, work = background(clock)
    work.finish(Removal([]), None)
    work.close()
    assert work.step() is None


# --- over all logs --------------------------------------------------------------------------------------------


def test_retention_comes_round_for_open_and_closed_logs(home: Home) -> None:
    config = replace(CONFIG, retention_ms=60_000)
    manager = home.start()
    for tp in (TP, OTHER):
        home.create(manager, tp, config)
        for i in range(20):
            append(manager.get(tp), records(f"{i}" * 60, time=home.clock.wall_ms()))
    manager.close()
    manager = home.start()
    manager.get(TP)
    home.work(manager, 40)
    assert manager.get(TP).offsets.log_start_offset == 0
    home.work(manager, 60)
    for tp in (TP, OTHER):
        assert manager.get(tp).offsets == (20, 20, 20, 20)
    home.work(manager, 5)
    assert len(list((home.root / "other-topic-3").glob("*.log"))) == 1
    assert not list(home.root.glob("*/*.deleted"))


def test_logs_opened_for_a_check_are_closed_again(home: Home) -> None:
    manager = home.start()
    for i in range(20):
        home.create(manager, TopicPartition("t", i), replace(CONFIG, retention_ms=60_000))
        append(manager.get(TopicPartition("t", i)), records("x", time=home.clock.wall_ms()))
    manager.close()
    manager = home.start()
    home.work(manager, 40)
    assert open_files(home.root) == []
    assert all(entry.log is None for entry in manager._entries.values())


def test_a_compacted_topic_is_compacted_in_the_background(home: Home) -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    manager = home.start()
    home.create(manager, config=config)
    log = manager.get(TP)
    for i in range(200):
        append(log, [NewRecord(key=b"%d" % (i % 3), value=b"%d" % i)])
    size = log.size
    home.work(manager, 40)
    assert log.size == size  # nothing is fsynced yet
    flush(log)
    home.work(manager, 40)
    assert log.size < size / 4
    assert {r.key: r.value for r in read_all(log)} == {b"0": b"198", b"1": b"199", b"2": b"197"}
    manager.close()
    log = home.start().get(TP)
    assert {r.key: r.value for r in read_all(log)} == {b"0": b"198", b"1": b"199", b"2": b"197"}


def test_a_topic_at_rest_is_compacted_when_its_records_are_overdue(home: Home) -> None:
    """max.compaction.lag.ms holds for records in the active segment, of a log that is not open (KIP-354)."""
    config = replace(
        CONFIG,
        segment_bytes=100_000,
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=1.0,
        max_compaction_lag_ms=600_000,
    )
    manager = home.start()
    home.create(manager, config=config)
    for i in range(30):
        now = home.clock.wall_ms()
        append(manager.get(TP), [NewRecord(key=b"%d" % (i % 3), value=b"%d" % i)], now_ms=now)
    manager.close()
    manager = home.start()
    home.work(manager, 560)
    assert manager.open_count == 0
    segments = home.root / str(TP)
    assert [path.name for path in segments.glob("*.log")] == ["00000000000000000000.log"]
    home.work(manager, 120)
    for log in manager.unflushed():
        flush(log)
    home.work(manager, 60)
    assert [r.value for r in read_all(manager.get(TP))] == [b"27", b"28", b"29"]
    manager.close()


def test_a_topic_may_be_deleted_while_it_is_compacted(tmp_path: Path) -> None:
    home = Home(tmp_path, compaction_step_bytes=100)
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    manager = home.start()
    home.create(manager, config=config)
    for i in range(100):
        append(manager.get(TP), [NewRecord(key=b"%d" % (i % 3), value=b"%d" % i)])
    flush(manager.get(TP))
    home.clock.advance(31)
    chore = None
    for _ in range(100):
        chore = manager.background_step()
        if chore is not None:
            break
    assert chore is not None
    manager.delete("orders")
    home.create(manager, config=config)
    append(manager.get(TP), records("new"))
    chore.run()
    manager.finish_chore(chore, None)
    home.work(manager, 60)
    assert values(manager.get(TP)) == [b"new"]
    assert set(os.listdir(home.root / "orders-0")) == {
        "00000000000000000000.log", "leader-epoch-checkpoint", "partition.metadata",
    }  # fmt: skip


def test_a_background_step_over_many_partitions_is_short(home: Home) -> None:
    manager = home.start()
    for i in range(3000):
        home.create(manager, TopicPartition("t", i))
    home.clock.advance(40)
    seen = 0
    while True:
        manager.background_step()
        seen += 1
        if not manager.background_pending:
            break
    assert seen >= 3000 / 500


def test_producers_that_are_silent_for_long_are_forgotten(tmp_path: Path) -> None:
    home = Home(tmp_path, producer_id_expiration_ms=60_000)
    manager = home.start()
    home.create(manager)
    log = manager.get(TP)
    append(log, records("a"), producer_id=1, producer_epoch=0, base_sequence=0)
    home.work(manager, 40)
    append(log, records("a"), producer_id=2, producer_epoch=0, base_sequence=0)
    home.work(manager, 40)
    assert [state.producer_id for state in log.active_producers()] == [2]
