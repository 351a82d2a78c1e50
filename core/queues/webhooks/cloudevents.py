"""Records as CloudEvents 1.0 over HTTP: in binary mode (`ce-*` headers) or structured (one JSON document). Pure.

A record that is a CloudEvent of the Kafka binding keeps its attributes: headers `ce_*` are mapped 1:1, and a value of
the type `application/cloudevents+json` is sent as it is. Others get id, source, type, time and partitionkey here.
Sources: CloudEvents HTTP Protocol Binding 1.0.2 (3.1.3.2 has the percent-encoding), Kafka Protocol Binding 1.0.2.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from core.clock import datetime_of
from core.records.record import NO_TIMESTAMP, Record
from core.types import TopicPartition

TYPE = "sluice.record"
STRUCTURED_TYPE = "application/cloudevents+json"
_NAME = re.compile(r"[a-z0-9]{1,64}\Z")
# Attributes that have a place of their own, or may not be one.
_NOT_MAPPED = frozenset({"data", "datacontenttype", "specversion"})
_JSON = re.compile(r"application/(?:[a-z0-9.+_-]+\+)?json\s*(?:;|\Z)", re.IGNORECASE)
_VISIBLE = re.compile(r"[!-~](?:[ -~]{0,254}[!-~])?\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_encode = msgspec.json.Encoder().encode
_MAX_MS = 253_402_300_799_999


def header(record: Record, name: str) -> str | None:
    """Return the text of the last record header of a name, ignoring case; None if it is missing or no UTF-8."""
    for found, value in reversed(record.headers):
        if found.lower() == name and value is not None:
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
    return None


def content_type(record: Record) -> str:
    """Return the media type of the value: that of the record's header, or by its bytes."""
    given = header(record, "content-type")
    if given is not None and _VISIBLE.match(given):
        return given
    value = record.value or b""
    if as_json(value) is not None:
        return "application/json"
    return "text/plain; charset=utf-8" if as_text(value) is not None else "application/octet-stream"


def as_json(value: bytes) -> msgspec.Raw | None:
    """Return bytes as a JSON text if they are one in UTF-8."""
    try:
        found = _decode_raw(value)
        value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found


def as_text(value: bytes) -> str | None:
    """Return bytes as text if they are UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def iso_time(ms: int) -> str | None:
    """Return a time in RFC 3339; None for no timestamp and for what no calendar has."""
    if ms == NO_TIMESTAMP or not 0 <= ms <= _MAX_MS:
        return None
    return datetime_of(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def attributes(tp: TopicPartition, record: Record, webhook_id: str) -> dict[str, str]:
    """Return the attributes of a record's event, without `datacontenttype`."""
    found = {"specversion": "1.0", "id": webhook_id, "source": f"/topics/{tp.topic}", "type": TYPE}
    time = iso_time(record.timestamp)
    if time is not None:
        found["time"] = time
    key = as_text(record.key) if record.key else None
    if key and not _CONTROL.search(key):
        found["partitionkey"] = key
    for name, value in record.headers:
        lower = name.lower()
        if not lower.startswith("ce_") or value is None:
            continue
        attribute, text = lower[3:], as_text(value)
        # Control characters may be in no attribute (CloudEvents 1.0.2, type system).
        if text and _NAME.match(attribute) and attribute not in _NOT_MAPPED and not _CONTROL.search(text):
            found[attribute] = text
    return found


def binary(tp: TopicPartition, record: Record, webhook_id: str) -> tuple[dict[str, str], bytes]:
    """Return headers and body in binary mode. A tombstone has no data and no content type."""
    if _is_structured(record):
        return {"content-type": content_type(record)}, record.value or b""
    headers = {f"ce-{name}": percent(value) for name, value in attributes(tp, record, webhook_id).items()}
    if record.value is None:
        return headers, b""
    return {**headers, "content-type": content_type(record)}, record.value


def structured(tp: TopicPartition, record: Record, webhook_id: str) -> tuple[dict[str, str], bytes]:
    """Return headers and body in structured mode."""
    if _is_structured(record):
        return {"content-type": content_type(record)}, record.value or b""
    event: dict[str, Any] = dict(attributes(tp, record, webhook_id))
    if record.value is not None:
        media = content_type(record)
        event["datacontenttype"] = media
        raw = as_json(record.value) if _JSON.match(media) else None
        text = None if _JSON.match(media) else as_text(record.value)
        if raw is not None:
            event["data"] = raw
        elif text is not None:
            event["data"] = text
        else:
            event["data_base64"] = b64encode(record.value).decode()
    return {"content-type": f"{STRUCTURED_TYPE}; charset=utf-8"}, _encode(event)


def percent(value: str) -> str:
    """Encode the value of an attribute for a header: blanks, quotes, percent signs and what is not visible ASCII."""
    return "".join(
        one if "!" <= one <= "~" and one not in '"%' else "".join(f"%{byte:02X}" for byte in one.encode())
        for one in value
    )


def _is_structured(record: Record) -> bool:
    given: str | None = header(record, "content-type")
    return (
        record.value is not None and given is not None and given.lower().startswith("application/cloudevents")
    )


def record_json(tp: TopicPartition, record: Record) -> Mapping[str, Any]:
    """Return a record for JSON, with the member names of the HTTP API."""
    key, key_encoding = _embedded(record.key, json=True)
    value, value_encoding = _embedded(record.value, json=True)
    headers = []
    for name, data in record.headers:
        text, encoding = _embedded(data, json=False)
        headers.append({"name": name, "value": text, "encoding": encoding})
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": record.offset,
        "timestamp": iso_time(record.timestamp),
        "timestamp_ms": None if record.timestamp == NO_TIMESTAMP else record.timestamp,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": headers,
    }


def _embedded(data: bytes | None, *, json: bool) -> tuple[Any, str | None]:
    if data is None:
        return None, None
    # The four letters `null` would read like no value at all.
    raw = as_json(data) if json and data.strip() != b"null" else None
    if raw is not None:
        return raw, "json"
    text = as_text(data)
    return (text, "utf8") if text is not None else (b64encode(data).decode(), "base64")
