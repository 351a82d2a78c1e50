"""What is known of a partition whether its log is open or not."""

from __future__ import annotations

from pathlib import Path

from core.log.entry import LogEntry
from core.topic_config import TopicConfig
from tests.core.log.shelf import TOPIC_ID, Shelf, append, flush, records


def test_an_entry_keeps_the_offsets_of_a_log_that_is_closed(tmp_path: Path) -> None:
    entry = LogEntry(TOPIC_ID, TopicConfig(), None, 0, 0)
    entry.refresh()
    entry.unload()
    assert (entry.recovery_point, entry.log_start_offset) == (None, 0)
    log = entry.log = Shelf(tmp_path).open()
    for text in "abc":
        append(log, records(text))
    flush(log)
    append(log, records("d"))
    log.truncate_prefix(1)
    entry.unload()
    assert entry.log is None
    assert (entry.recovery_point, entry.log_start_offset) == (3, 1)


def test_a_new_config_is_read_again(tmp_path: Path) -> None:
    entry = LogEntry(TOPIC_ID, TopicConfig(), 0, 0, 0)
    entry.log = Shelf(tmp_path).open()
    entry.due_ms, entry.uncleanable = 2**62, True
    changed = TopicConfig(retention_ms=5)
    entry.set_config(changed)
    assert (entry.config, entry.log.config, entry.due_ms, entry.uncleanable) == (changed, changed, 0, False)
