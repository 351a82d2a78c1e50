r"""Records as they are printed: by value, by a template, or as JSON.

A template is text with fields in braces; `\t`, `\n` and `\0` are what they are in a shell's printf:

    {value} {key} {topic} {partition} {offset} {timestamp} {timestamp_ms} {headers} {header.NAME}

Keys and values are printed byte by byte as they were written. Only on a terminal, control characters are shown
as escapes, so that no record can drive it.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from app.commands.text import printable

PRESETS = {
    "value": "{value}",
    "key-value": "{key}\\t{value}",
    "full": "{partition}\\t{offset}\\t{timestamp}\\t{key}\\t{value}",
}
_FIELD = re.compile(r"\{([^{}]*)\}")
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\0": "\0", "\\\\": "\\"}
_ESCAPE = re.compile(r"\\[tn0\\]")
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class ReadHeader(msgspec.Struct, gc=False):
    """A header as the API gives it."""

    name: str
    value: str | None = None
    encoding: str | None = None


class ReadRecord(msgspec.Struct, gc=False):
    """A record as the API gives it: key and value as they stand in its JSON, never parsed.

    In a stream it has its cursor; a line with `problem` or `bye` is about the stream itself.
    """

    topic: str = ""
    partition: int = -1
    offset: int = -1
    timestamp: str | None = None
    timestamp_ms: int | None = None
    timestamp_type: str | None = None
    key: Raw = Raw(b"null")
    key_encoding: str | None = None
    value: Raw = Raw(b"null")
    value_encoding: str | None = None
    headers: list[ReadHeader] = []
    cursor: str | UnsetType = UNSET
    problem: dict[str, Any] | UnsetType = UNSET
    bye: dict[str, Any] | UnsetType = UNSET


decode_record = msgspec.json.Decoder(ReadRecord).decode


def as_json(record: ReadRecord) -> bytes:
    """A record as one line of NDJSON, as the API gives it, without its cursor."""
    record.cursor = UNSET
    return _encode(record) + b"\n"


def embedded(raw: Raw, encoding: str | None) -> bytes | None:
    """The bytes that were written, from how they stand in JSON; None for null."""
    if encoding is None:
        return None
    if encoding == "json":
        return bytes(raw)
    text = _decode_text(raw)
    return binascii.a2b_base64(text) if encoding == "base64" else text.encode()


def header_bytes(header: ReadHeader) -> bytes | None:
    """The bytes of a header's value; None for null."""
    if header.value is None:
        return None
    return binascii.a2b_base64(header.value) if header.encoding == "base64" else header.value.encode()


class Template:
    """Renders records by a template. `terminal` removes control characters; `null` is the text for no value."""

    def __init__(self, text: str, *, terminal: bool = False, null: str = "", end: str = "\n") -> None:
        self._null = null.encode()
        self._terminal = terminal
        self._parts: list[bytes | Callable[[ReadRecord], bytes | None]] = []
        for index, piece in enumerate(_FIELD.split(PRESETS.get(text, text))):
            if index % 2:
                self._parts.append(_getter(piece))
            elif piece:
                self._parts.append(_ESCAPE.sub(lambda m: _ESCAPES[m[0]], piece).encode())
        self._end = end.encode()

    def render(self, record: ReadRecord) -> bytes:
        """The bytes of one record."""
        parts = []
        for part in self._parts:
            if isinstance(part, bytes):
                parts.append(part)
                continue
            data = part(record)
            if data is None:
                data = self._null
            elif self._terminal:
                data = printable(data.decode("utf-8", "backslashreplace")).encode()
            parts.append(data)
        parts.append(self._end)
        return b"".join(parts)


def _getter(name: str) -> Callable[[ReadRecord], bytes | None]:
    if name.startswith("header."):
        wanted = name.removeprefix("header.")
        return lambda record: next((header_bytes(h) for h in record.headers if h.name == wanted), None)
    found = _GETTERS.get(name)
    if found is None:
        known = ", ".join(sorted(_GETTERS))
        raise ValueError(f"There is no field {{{name}}}; there are {known} and header.NAME.")
    return found


def _headers(record: ReadRecord) -> bytes:
    parts = []
    for header in record.headers:
        value = header_bytes(header)
        parts.append(header.name.encode() + (b"" if value is None else b"=" + value))
    return b",".join(parts)


_GETTERS: dict[str, Callable[[ReadRecord], bytes | None]] = {
    "topic": lambda r: r.topic.encode(),
    "partition": lambda r: b"%d" % r.partition,
    "offset": lambda r: b"%d" % r.offset,
    "timestamp": lambda r: None if r.timestamp is None else r.timestamp.encode(),
    "timestamp_ms": lambda r: None if r.timestamp_ms is None else b"%d" % r.timestamp_ms,
    "key": lambda r: embedded(r.key, r.key_encoding),
    "value": lambda r: embedded(r.value, r.value_encoding),
    "headers": _headers,
}
