"""Several batches in one append."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.log.numbering import assign_all, note_all
from core.records.batch import batches, build_batch
from tests.core.log.shelf import Shelf, records


def test_batches_are_numbered_one_behind_the_other() -> None:
    buffer = bytearray().join(build_batch(records(*text), now_ms=len(text)) for text in ("abc", "d", "ef"))
    last, max_timestamp = assign_all(buffer, [h for _, h in batches(buffer)], 100, 7)
    assert (last, max_timestamp) == (105, 3)
    assert [(h.base_offset, h.leader_epoch) for _, h in batches(buffer)] == [(100, 7), (103, 7), (104, 7)]


def test_each_batch_is_indexed_for_itself(tmp_path: Path) -> None:
    buffer = bytearray().join(build_batch(records("x" * 150), now_ms=i) for i in range(10))
    segment = Shelf(tmp_path).open().segments.active
    headers = [h for _, h in batches(buffer)]
    segment.write(buffer, len(buffer))
    note_all(segment, headers, 0, 0)
    positions = {position for position, _ in batches(buffer)}
    entries = [segment.offsets.entry(i) for i in range(segment.offsets.count)]
    assert entries
    assert {position for _, position in entries} <= positions
    assert segment.max_timestamp == 9


def test_an_idempotent_producer_sends_one_batch() -> None:
    one = build_batch(records("a"), now_ms=5, producer_id=1, producer_epoch=0, base_sequence=0)
    with pytest.raises(BrokerError) as caught:
        assign_all(one + one, [h for _, h in batches(one + one)], 0, 0)
    assert caught.value.code is ErrorCode.INVALID_RECORD
