"""Segment files beside transactions: what was aborted is left out, by the broker's index; also while it changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import limits
from pipeline.source import segments
from pipeline.source.options import read_options
from pipeline.source.planning import OffsetRange
from pipeline.source.segments import segment_range
from pipeline.wire.cluster import Cluster
from tests.core.log.histories import STEPS, end, follow, write
from tests.core.log.shelf import TP, Shelf, append, records

Asked = list[OffsetRange]


def scanned(shelf: Shelf, start: int, until: int, **options: Any) -> list[bytes]:
    """The values of a range of the log's files, which must tell all of it."""
    given_options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": TP.topic,
        "transport": "segments",
        "dataDir": str(shelf.root),
        "columns": "value",
        **options,
    }
    read = read_options(given_options, streaming=False)
    with Cluster(read.settings) as cluster:
        found = segment_range(cluster, OffsetRange(TP.topic, TP.partition, start, until), read)
        return [value for batch in found for value in batch.column("value").to_pylist()]


@given(steps=STEPS, part=st.floats(0, 1), window=st.sampled_from([100, 400, 1 << 20]))
@settings(deadline=None, max_examples=60)
def test_any_history_is_read_without_what_was_aborted(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[tuple[str, int]], part: float, window: int
) -> None:
    shelf = Shelf(tmp_path_factory.mktemp("log"), segment_bytes=600)
    log = shelf.open()
    written, aborted = follow(log, steps)
    until = log.last_stable_offset
    start = int(part * until)
    shown = [value for at, value, txn in written if start <= at < until and txn not in aborted]
    every = [value for at, value, _ in written if start <= at < until]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SEGMENT_READ_BYTES", window)
        assert scanned(shelf, start, until) == shown
        uncommitted = {"kafka.isolation.level": "read_uncommitted"}
        assert scanned(shelf, start, until, **uncommitted) == every


def test_a_segment_that_is_deleted_while_its_index_is_read_is_asked_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(tmp_path)
    log = shelf.open()
    write(log, 1, 0, "aborted")
    end(log, 1, commit=False)
    append(log, records("here"))
    asked: Asked = []

    def over_the_wire(cluster: Cluster, one: OffsetRange, options: Any) -> list[Any]:
        asked.append(one)
        return []

    monkeypatch.setattr(segments, "wire_range", over_the_wire)
    (index,) = shelf.directory.glob("*.txnindex")
    # The broker renames the index and then the log. Between the two, the log alone would tell too much.
    index.rename(f"{index}.deleted")
    assert scanned(shelf, 0, 3) == []
    assert asked == [OffsetRange(TP.topic, TP.partition, 0, 3)]
    asked.clear()
    Path(f"{index}.deleted").rename(index)
    assert (scanned(shelf, 0, 3), asked) == ([b"here"], [])
