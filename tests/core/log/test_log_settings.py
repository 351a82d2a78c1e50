"""Settings of a topic that shape its segments: index interval and size, jitter, and the delay of file deletion."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from core.log.log import Log
from core.log.shared import LogShared
from core.log.trash import Trash
from core.topic_config import TopicConfig
from tests.core.log.home import CONFIG, Home
from tests.core.log.shelf import Shelf, append, flush, read_all, records

NOW = 1_700_000_000_000


def fill(log: Log, count: int, *, size: int = 60, step_ms: int = 1) -> None:
    """One batch of one record, `count` times."""
    for i in range(count):
        append(log, records(f"{i % 10}" * size, time=NOW + i * step_ms), now_ms=NOW + i * step_ms)


def test_an_index_has_an_entry_for_each_interval(tmp_path: Path) -> None:
    counts = []
    for interval in (0, 300, 5000):
        log = Shelf(tmp_path / str(interval), interval=interval, retention_ms=-1).open()
        fill(log, 30)
        counts.append(log.segments.active.offsets.count)
        assert len(read_all(log, 17)) == 13
    assert counts[0] == 29, "every batch but the first"
    assert 0 < counts[1] < counts[0]
    assert counts[2] == 0


def test_a_segment_is_rolled_when_its_index_is_full(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, interval=0, retention_ms=-1, segment_index_bytes=48)
    log = shelf.open()
    fill(log, 30)
    # Four entries of the time index, 12 bytes each, and the batch before the first.
    assert [s.base_offset for s in log.segments.all] == [0, 5, 10, 15, 20, 25]
    # A segment that was full before a restart is full after it.
    log = shelf.reopen_cleanly(log)
    append(log, records("x", time=NOW + 100))
    assert log.segments.active.base_offset == 30
    assert len(read_all(log)) == 31


def test_the_size_of_an_index_is_that_of_the_segments_beginning(tmp_path: Path) -> None:
    log = Shelf(tmp_path, interval=0, retention_ms=-1).open()
    fill(log, 10)
    log.config = replace(log.config, segment_index_bytes=24)
    fill(log, 10)
    assert len(log.segments.all) == 1
    log.roll()
    fill(log, 10)
    assert len(log.segments.all) > 3


def test_jitter_rolls_a_segment_earlier_by_a_random_time(tmp_path: Path) -> None:
    rolled = set()
    for seed in range(8):
        shelf = Shelf(tmp_path / str(seed), retention_ms=-1, segment_ms=1000, segment_jitter_ms=600)
        shelf.clock.__init__(seed=seed)  # type: ignore[misc]
        log = shelf.open()
        fill(log, 120, step_ms=10)
        rolled.add(log.segments.all[1].base_offset)
    # 1,000 ms less 0 to 599: between the 42nd and the 102nd record.
    assert len(rolled) > 3
    assert all(41 <= offset <= 101 for offset in rolled)


def test_without_jitter_no_random_number_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(tmp_path)
    monkeypatch.setattr(shelf.clock, "randrange", None)
    assert LogShared(shelf.settings, shelf.clock).jitter_ms(TopicConfig()) == 0


def test_a_jitter_is_never_longer_than_the_age(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    context = LogShared(shelf.settings, shelf.clock)
    config = TopicConfig(segment_ms=10, segment_jitter_ms=10_000)
    assert all(context.jitter_ms(config) < 10 for _ in range(100))


@pytest.mark.parametrize("delay_ms", [0, 90_000])
def test_deleted_segments_stay_for_the_topics_delay(tmp_path: Path, delay_ms: int) -> None:
    home = Home(tmp_path)
    config = replace(CONFIG, file_delete_delay_ms=delay_ms)
    manager = home.start()
    home.create(manager, config=config)
    log = manager.get(next(iter(home.topics)))
    fill(log, 30)
    flush(log)
    log.truncate_prefix(30)
    deleted = list(Path(log.directory).glob("*.deleted"))
    assert deleted
    home.work(manager, 2)
    assert all(path.exists() for path in deleted) is (delay_ms > 0)
    home.clock.advance(delay_ms / 1000)
    home.work(manager, 2)
    assert not any(path.exists() for path in deleted)
    manager.close()


def test_the_trash_is_taken_by_the_time_that_it_is_due() -> None:
    trash = Trash(5.0)
    trash.add("late", 0.0, 60.0)
    trash.add("usual", 1.0)
    trash.add("soon", 2.0, 0.0)
    assert trash.take(2.0, 10) == ["soon"]
    assert trash.take(6.0, 10) == ["usual"]
    assert trash.take(59.0, 10) == []
    assert trash.take(60.0, 10) == ["late"]
