"""Records as CloudEvents, read by the SDK."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.bindings.kafka import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from core.queues.webhooks.cloudevents import binary, percent, structured
from core.records.record import CREATE_TIME, NO_TIMESTAMP, Headers, Record
from core.types import TopicPartition

TP = TopicPartition("orders", 3)
MS = 1_700_000_000_123


def record(
    value: bytes | None = b'{"a":1}', key: bytes | None = b"k", headers: Headers = (), ms: int = MS
) -> Record:
    return Record(41, ms, CREATE_TIME, key, value, headers)


def both(one: Record) -> list[Any]:
    """Return the event as the SDK reads it in binary and in structured mode."""
    found = []
    for mode in (binary, structured):
        headers, body = mode(TP, one, "msg_1")
        for name, value in headers.items():
            assert value.isascii() and value.isprintable(), (name, value)
        found.append(from_http_event(HTTPMessage(headers, body)))
    return found


def test_the_sdk_reads_both_modes() -> None:
    for event in both(record()):
        assert event.get_id() == "msg_1"
        assert event.get_source() == "/topics/orders"
        assert event.get_type() == "sluice.record"
        assert event.get_time() == datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)
        assert event.get_extension("partitionkey") == "k"
        assert event.get_data() == {"a": 1}


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1))
def test_any_key_arrives_in_both_modes(key: str) -> None:
    for event in both(record(key=key.encode())):
        assert event.get_extension("partitionkey") == key


def test_what_cannot_be_an_attribute_is_left_out() -> None:
    one = record(
        key=b"a\r\nb",
        headers=(("ce_a-b", b"x"), ("ce_bad", b"x\r\nInjected: 1"), ("ce_bytes", b"\xff"), ("ce_data", b"x"),
                 ("ce_specversion", b"0.3"), ("ce_", b"x"), ("ce_null", None), ("ce_ok", b"1")),
    )  # fmt: skip
    headers, _ = binary(TP, one, "msg_1")
    assert sorted(headers) == [
        "ce-id",
        "ce-ok",
        "ce-source",
        "ce-specversion",
        "ce-time",
        "ce-type",
        "content-type",
    ]
    assert headers["ce-specversion"] == "1.0"


def test_an_event_of_the_kafka_binding_in_binary_mode_keeps_its_attributes() -> None:
    event = CloudEvent(
        {"id": "e-1", "source": "/shop", "type": "order.created", "specversion": "1.0", "subject": 'größe "x" 10%',
         "datacontenttype": "application/json"},
        {"n": 1},
    )  # fmt: skip
    message = to_binary_event(event)
    headers = tuple((name, value) for name, value in message.headers.items())
    for found in both(record(message.value, None, headers)):
        assert (found.get_id(), found.get_source(), found.get_type()) == ("e-1", "/shop", "order.created")
        assert found.get_subject() == 'größe "x" 10%'
        assert found.get_data() == {"n": 1}


def test_an_event_of_the_kafka_binding_in_structured_mode_is_sent_as_it_is() -> None:
    event = CloudEvent(
        {"id": "e-1", "source": "/shop", "type": "order.created", "specversion": "1.0"}, {"n": 1}
    )
    message = to_structured_event(event)
    one = record(message.value, None, tuple(message.headers.items()))
    for mode in (binary, structured):
        headers, body = mode(TP, one, "msg_1")
        assert body == message.value
        assert list(headers) == ["content-type"]
        assert from_http_event(HTTPMessage(headers, body)).get_id() == "e-1"


@pytest.mark.parametrize(
    ("value", "media", "data"),
    [
        (b"plain", "text/plain; charset=utf-8", "plain"), (b"", "text/plain; charset=utf-8", ""),
        (b'"a"', "application/json", "a"), (b"null", "application/json", None),
        (b"\xff\x00", "application/octet-stream", b"\xff\x00"),
    ],
)  # fmt: skip
def test_data_of_other_types(value: bytes, media: str, data: Any) -> None:
    headers, body = binary(TP, record(value), "msg_1")
    assert (headers["content-type"], body) == (media, value)
    _, body = structured(TP, record(value), "msg_1")
    event = json.loads(body)
    assert event["datacontenttype"] == media
    assert event["data_base64" if isinstance(data, bytes) else "data"] == (
        "/wA=" if isinstance(data, bytes) else data
    )


def test_a_tombstone_has_no_data() -> None:
    headers, body = binary(TP, record(None), "msg_1")
    assert body == b"" and "content-type" not in headers
    event = json.loads(structured(TP, record(None), "msg_1")[1])
    assert not {"data", "data_base64", "datacontenttype"} & event.keys()


def test_a_record_without_a_time_has_none() -> None:
    assert "ce-time" not in binary(TP, record(ms=NO_TIMESTAMP), "msg_1")[0]
    assert "ce-time" not in binary(TP, record(ms=2**62), "msg_1")[0]


def test_a_content_type_that_would_break_the_head_is_not_used() -> None:
    for wrong in (b"a/b\r\nx: y", b"", b"\xff", "text/plän".encode()):
        headers, _ = binary(TP, record(headers=(("content-type", wrong),)), "msg_1")
        assert headers["content-type"] == "application/json"


def test_a_media_type_that_claims_json_and_is_none() -> None:
    event = json.loads(
        structured(TP, record(b"{", headers=(("Content-Type", b"application/x+json"),)), "m")[1]
    )
    assert event["data_base64"] == "ew=="


def test_percent_encoding_is_that_of_the_binding() -> None:
    assert percent("Euro € 😀") == "Euro%20%E2%82%AC%20%F0%9F%98%80"
    assert percent('a"b%c~!') == "a%22b%25c~!"
