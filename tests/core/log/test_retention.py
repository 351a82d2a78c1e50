"""Which segments go by age and size, and that a jumping clock deletes nothing (R9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.clock import ManualClock
from core.log.log import Log
from core.log.retention import NEVER, SettledTime, apply_retention, next_check_ms
from tests.core.log.shelf import Shelf, append, flush, read_all, records

NOW = 1_700_000_000_000


def filled(shelf: Shelf, count: int = 10, *, step_ms: int = 1000) -> Log:
    """A log whose records are `step_ms` apart, the youngest at NOW."""
    log = shelf.open()
    for i in range(count):
        append(log, records(f"{i}" * 60, time=NOW - (count - 1 - i) * step_ms))
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments.all]


def test_segments_go_once_their_youngest_record_is_too_old(tmp_path: Path) -> None:
    log = filled(Shelf(tmp_path, segment_bytes=300, retention_ms=4500))
    assert bases(log) == [0, 2, 4, 6, 8]
    apply_retention(log, NOW)
    assert bases(log) == [4, 6, 8]  # 2 and 3 are 7 and 6 s old, 5 is 4 s old
    assert log.offsets.log_start_offset == 4
    assert [r.offset for r in read_all(log)] == [4, 5, 6, 7, 8, 9]


def test_a_record_may_be_exactly_as_old_as_the_limit(tmp_path: Path) -> None:
    log = filled(Shelf(tmp_path, segment_bytes=300, retention_ms=4000))
    apply_retention(log, NOW)
    assert bases(log) == [4, 6, 8]
    apply_retention(log, NOW + 1)
    assert bases(log) == [6, 8]


def test_the_active_segment_is_removed_too_once_all_of_it_has_expired(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, segment_bytes=300, retention_ms=4500)
    log = filled(shelf)
    apply_retention(log, NOW + 10_000)
    assert bases(log) == [10]
    assert log.offsets.log_start_offset == 10
    assert read_all(log) == []
    apply_retention(log, NOW + 100_000)
    assert bases(log) == [10]
    assert append(log, records("next")).base_offset == 10
    again = shelf.reopen_cleanly(log)
    assert (again.offsets.log_start_offset, again.offsets.log_end_offset) == (10, 11)


def test_an_empty_log_has_nothing_to_expire(tmp_path: Path) -> None:
    log = Shelf(tmp_path, retention_ms=1).open()
    apply_retention(log, NOW)
    assert bases(log) == [0]
    assert next_check_ms(log, 0) == NEVER


@pytest.mark.parametrize("policy", [{"delete"}, {"compact", "delete"}, {"compact"}])
def test_only_a_policy_of_delete_deletes(tmp_path: Path, policy: set[str]) -> None:
    shelf = Shelf(tmp_path, segment_bytes=300, retention_ms=1, cleanup_policy=frozenset(policy))
    log = filled(shelf)
    apply_retention(log, NOW + 10_000)
    assert bases(log) == ([0, 2, 4, 6, 8] if policy == {"compact"} else [10])


def test_records_without_a_time_are_as_old_as_the_file(tmp_path: Path) -> None:
    log = Shelf(tmp_path, segment_bytes=300, retention_ms=60_000).open()
    for i in range(6):
        append(log, records(f"{i}" * 60, time=-1))
    written = Path(log.segments.all[0].log.path).stat().st_mtime * 1000
    apply_retention(log, int(written) + 50_000)
    assert bases(log) == [0, 2, 4]
    apply_retention(log, int(written) + 70_000)
    assert bases(log) == [6]


def test_that_number_of_bytes_is_kept(tmp_path: Path) -> None:
    log = filled(Shelf(tmp_path, segment_bytes=300, retention_ms=-1, retention_bytes=700))
    sizes = [segment.size for segment in log.segments.all]
    apply_retention(log, NOW)
    kept = [segment.size for segment in log.segments.all]
    assert kept == sizes[-len(kept) :]
    assert 700 <= sum(kept) < 700 + sizes[0]


def test_a_limit_of_no_bytes_keeps_nothing(tmp_path: Path) -> None:
    log = filled(Shelf(tmp_path, segment_bytes=300, retention_ms=-1, retention_bytes=0))
    apply_retention(log, NOW)
    assert bases(log) == [10]


def test_no_limits_keep_all(tmp_path: Path) -> None:
    log = filled(Shelf(tmp_path, segment_bytes=300, retention_ms=-1, retention_bytes=-1))
    apply_retention(log, NOW + 10**12)
    assert bases(log) == [0, 2, 4, 6, 8]


def test_what_delete_records_left_while_compaction_ran_is_removed_later(tmp_path: Path) -> None:
    log = filled(Shelf(tmp_path, segment_bytes=300, retention_ms=-1))
    log.cleaning = True
    log.truncate_prefix(5)
    assert bases(log) == [0, 2, 4, 6, 8]
    log.cleaning = False
    apply_retention(log, NOW)
    assert bases(log) == [4, 6, 8]
    assert log.offsets.log_start_offset == 5


def test_the_next_check_is_when_the_oldest_segment_expires(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, segment_bytes=300, retention_ms=4500)
    log = filled(shelf)
    assert next_check_ms(log, 0) == NOW - 8000 + 4500
    flush(log)


def test_the_next_check_of_a_compacted_log_is_when_its_records_are_overdue(tmp_path: Path) -> None:
    policy = frozenset({"compact"})
    log = filled(Shelf(tmp_path, segment_bytes=300, cleanup_policy=policy, max_compaction_lag_ms=7000))
    assert next_check_ms(log, 0) == NOW - 9000 + 7000
    assert next_check_ms(log, 4) == NOW - 5000 + 7000
    assert next_check_ms(log, 10) == NEVER


def test_the_next_check_of_records_without_a_time_counts_from_the_last_write(tmp_path: Path) -> None:
    policy = frozenset({"compact"})
    log = Shelf(tmp_path, cleanup_policy=policy, max_compaction_lag_ms=7000).open()
    append(log, records("a", time=-1))
    written = Path(log.segments.active.log.path).stat().st_mtime
    assert next_check_ms(log, 0) == int(written * 1000) + 7000


# --- the clock ---------------------------------------------------------------------------------------------


def test_time_continues_as_the_clock_does() -> None:
    clock = ManualClock()
    settled = SettledTime(clock)
    for seconds in (1, 30, 86_400):
        clock.advance(seconds)
        assert abs(settled.now_ms() - clock.wall_ms()) <= 1


@pytest.mark.parametrize("hours", [24, -24, 2])
def test_a_jump_of_the_clock_is_not_believed_until_it_has_lasted(hours: int) -> None:
    clock = ManualClock()
    settled = SettledTime(clock)
    before = settled.now_ms()
    clock.jump_wall(hours * 3600)
    for _ in range(59):
        clock.advance(60)
        settled.now_ms()
    assert abs(settled.now_ms() - before - 59 * 60_000) <= 1
    clock.jump_wall(-hours * 3600)
    clock.advance(1)
    assert abs(settled.now_ms() - clock.wall_ms()) <= 1
    clock.jump_wall(hours * 3600)
    settled.now_ms()
    clock.advance(3601)
    assert abs(settled.now_ms() - clock.wall_ms()) <= 1


def test_a_strobing_clock_is_followed() -> None:
    clock = ManualClock()
    settled = SettledTime(clock)
    for i in range(100):
        clock.jump_wall(0.5 if i % 2 else -0.5)
        clock.advance(0.1)
        assert abs(settled.now_ms() - clock.wall_ms()) <= 1
