"""The two shapes of a record."""

from __future__ import annotations

import gc

from core.records.record import NewRecord, Record


def test_records_with_the_same_fields_are_equal() -> None:
    assert Record(1, 2, 0, b"k", None) == Record(1, 2, 0, b"k", None, ())
    assert Record(1, 2, 0, b"k", None) != Record(1, 2, 0, b"k", b"")


def test_a_new_record_leaves_everything_to_the_broker() -> None:
    record = NewRecord()
    assert (record.key, record.value, record.headers) == (None, None, ())
    assert (record.timestamp, record.partition) == (None, None)


def test_records_cost_the_garbage_collector_nothing() -> None:
    assert not gc.is_tracked(Record(1, 2, 0, b"k", b"v"))
    assert not gc.is_tracked(NewRecord(b"k", b"v"))
