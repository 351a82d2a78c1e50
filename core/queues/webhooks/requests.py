"""The request for one record: its id, headers, body and signature. Pure: times are arguments."""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from core.errors import BrokerError, ErrorCode
from core.queues.webhooks.cloudevents import TYPE, binary, content_type, iso_time, record_json, structured
from core.queues.webhooks.signatures import Secret, live, sign
from core.records.record import Record
from core.types import TopicPartition
from core.vocabulary.queues import Leased, Receipt
from core.vocabulary.webhooks import MAX_HEADER_BYTES, MAX_HEADERS, Format

_encode = msgspec.json.Encoder().encode
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}\Z")
_VALUE = re.compile(r"[!-~](?:[ -~\t]*[!-~])?\Z")
# Of the connection, of the message, or of this module.
_RESERVED = frozenset(
    {
        "connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive", "te",
        "proxy-authenticate", "proxy-authorization", "proxy-connection", "trailer", "transfer-encoding", "upgrade",
        "accept-encoding",
    }
)  # fmt: skip
_RESERVED_PREFIXES = ("webhook-", "ce-", "sluice-")
# A longer key is in the body of most formats; as a header it would meet the limits of servers.
_MAX_KEY = 1_024


class Request(NamedTuple):
    """Headers and body of a request."""

    headers: list[tuple[str, str]]
    body: bytes


def webhook_id(queue: str, receipt: Receipt) -> str:
    """Return the id of a record for receivers: the same in all attempts, also after a crash, and of no other record.

    `msg_` and base32 of topic id, partition, offset and queue.
    """
    place = receipt.topic_id.bytes + receipt.partition.to_bytes(4) + receipt.offset.to_bytes(8)
    return "msg_" + b32encode(place + queue.encode()).decode().rstrip("=").lower()


def request_of(
    leased: Leased,
    message_id: str,
    form: Format,
    extra: Sequence[tuple[str, str]],
    secrets: Sequence[Secret],
    now_ms: int,
) -> Request:
    """Return the request for a record, signed now by all secrets that are valid."""
    headers, body = _content(form, leased.tp, leased.record, message_id)
    seconds = now_ms // 1000
    return Request(
        [
            ("user-agent", "sluice-webhooks/1"),
            ("accept-encoding", "identity"),
            *extra,
            *headers.items(),
            ("webhook-id", message_id),
            ("webhook-timestamp", str(seconds)),
            ("webhook-signature", sign(live(secrets, now_ms), message_id, seconds, body)),
            ("sluice-topic", leased.tp.topic),
            ("sluice-partition", str(leased.tp.partition)),
            ("sluice-offset", str(leased.record.offset)),
            ("sluice-attempt", str(leased.delivery_count)),
        ],
        body,
    )


def _content(
    form: Format, tp: TopicPartition, record: Record, message_id: str
) -> tuple[dict[str, str], bytes]:
    if form is Format.CLOUDEVENTS_BINARY:
        return binary(tp, record, message_id)
    if form is Format.CLOUDEVENTS_STRUCTURED:
        return structured(tp, record, message_id)
    if form is Format.RAW:
        headers = {"content-type": content_type(record)} if record.value is not None else {}
        if record.key is not None and len(record.key) <= _MAX_KEY:
            headers["sluice-key"] = quote(record.key, safe="")
        return headers, record.value or b""
    body = {"type": TYPE, "timestamp": iso_time(record.timestamp), "data": record_json(tp, record)}
    return {"content-type": "application/json"}, _encode(body)


def check_headers(headers: Sequence[tuple[str, str]]) -> None:
    """Refuse headers that may not be sent along. Raises INVALID_REQUEST; no message repeats a value."""
    if len(headers) > MAX_HEADERS:
        raise _invalid(f"A webhook has {MAX_HEADERS} headers at most, not {len(headers)}.")
    seen = set()
    for name, value in headers:
        lower = name.lower()
        if not _TOKEN.match(name):
            raise _invalid("The name of a header has letters, digits and - only.")
        if lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES):
            raise _invalid(f"The header {lower!r} is set by the broker; choose another name.")
        if lower in seen:
            raise _invalid(f"The header {lower!r} is a duplicate.")
        if value and not _VALUE.match(value):
            raise _invalid(
                f"The value of the header {lower!r} may have visible ASCII characters and blanks only."
            )
        if len(value) > MAX_HEADER_BYTES:
            raise _invalid(
                f"The value of the header {lower!r} has more than {MAX_HEADER_BYTES:,} characters."
            )
        seen.add(lower)


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
