"""What all logs share: files that go a little later, and complaints that are few."""

from __future__ import annotations

import pytest

from core.clock import ManualClock
from core.config import Config
from core.log.shared import LogContext, Trash


def test_files_go_after_the_delay_and_in_portions() -> None:
    trash = Trash(5.0)
    for i in range(10):
        trash.add(f"file{i}", now=float(i))
    assert trash.take(4.9, 100) == []
    assert trash.take(5.0, 100) == ["file0"]
    assert trash.take(9.0, 3) == ["file1", "file2", "file3"]
    assert trash.take(9.0, 3) == ["file4"]
    assert len(trash) == 5
    assert len(trash.take(100.0, 100)) == 5


def test_a_full_disk_is_complained_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    context = LogContext(Config(), clock)
    for _ in range(1000):
        context.complain("orders-0", OSError(28, "No space left on device"))
        clock.advance(0.01)
    assert len(caplog.records) == 2
    assert "orders-0" in caplog.text
    assert "more since" in caplog.text
