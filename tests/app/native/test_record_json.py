"""Records as JSON."""

from __future__ import annotations

import json

import pytest

from app.formats import Reader
from app.native.record_json import iso_time, one_record, record_page
from core.records.record import Record
from core.types import LogOffsets, TopicPartition
from core.vocabulary.records import ReadResult

TP = TopicPartition("t", 3)
AUTO = Reader("auto", 20)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1738324800123, "2025-01-31T12:00:00.123Z"),
        (-1, None),
        (-2, "1969-12-31T23:59:59.998Z"),
        (253402300799999, "9999-12-31T23:59:59.999Z"),
        (253402300800000, None),
        (-62135596800000, "0001-01-01T00:00:00.000Z"),
        (-62135596800001, None),
        (2**63 - 1, None),
        (-(2**63), None),
    ],
)
def test_a_time_is_told_where_a_calendar_has_it(ms: int, text: str | None) -> None:
    assert iso_time(ms) == text


def test_a_record_without_a_timestamp_has_none() -> None:
    body = json.loads(one_record(TP, Record(5, -1, 0, None, b"v"), AUTO))
    assert (body["timestamp"], body["timestamp_ms"], body["timestamp_type"]) == (None, None, "CreateTime")


def test_headers_keep_their_order_and_null() -> None:
    headers = (("b", b"1"), ("a", None), ("b", b"\xff"))
    body = json.loads(one_record(TP, Record(5, 0, 1, b"k", None, headers), AUTO))
    assert body["headers"] == [
        {"name": "b", "value": "1", "encoding": "utf8"},
        {"name": "a", "value": None, "encoding": None},
        {"name": "b", "value": "/w==", "encoding": "base64"},
    ]
    assert (body["partition"], body["offset"], body["timestamp_type"]) == (3, 5, "LogAppendTime")


@pytest.mark.parametrize(("next_offset", "caught_up"), [(9, False), (10, True), (11, True)])
def test_a_page_says_whether_it_has_caught_up(next_offset: int, caught_up: bool) -> None:
    page = json.loads(record_page(TP, ReadResult([], LogOffsets(2, 10, 12, 10), next_offset), AUTO))
    assert page == {
        "records": [], "next_offset": next_offset, "log_start_offset": 2, "high_watermark": 10,
        "last_stable_offset": 10, "caught_up": caught_up,
    }  # fmt: skip


def test_records_share_their_time_only_when_it_is_the_same() -> None:
    records = [Record(i, ms, 0, None, b"1") for i, ms in enumerate((0, 0, 1, -1, 0))]
    page = json.loads(record_page(TP, ReadResult(records, LogOffsets(0, 5, 5, 5), 5), AUTO))
    assert [r["timestamp_ms"] for r in page["records"]] == [0, 0, 1, None, 0]
    assert [r["timestamp"] and r["timestamp"][-5:] for r in page["records"]] == [
        ".000Z", ".000Z", ".001Z", None, ".000Z",
    ]  # fmt: skip
