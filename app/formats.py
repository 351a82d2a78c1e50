"""Embedded formats: how the bytes of keys, values and headers look inside JSON, in both directions.

Theory. Kafka knows bytes and null; JSON knows text, numbers, objects and null. Four encodings connect them, and each
record names the one that was used:

    encoding   in JSON                      the bytes                       read with encoding=auto
    json       any JSON but null            the JSON text, as it was sent   if it is clean JSON, but not `null`
    utf8       a string                     the string in UTF-8             else, if it is UTF-8
    base64     a string                     what it decodes to              else
    (none)     null                         no bytes: null                  null stays null

Only null is null: "" is an empty value, and `"encoding": "json"` cannot write the four letters `null`. When
no encoding is named on a write, a JSON string means its text, everything else means its JSON.

Rule: a client can write what it has read, unchanged, and the record has the same bytes. Therefore "clean JSON" is the
same on both sides (`is_clean_json`), and a client's JSON is kept byte by byte: it is never parsed into objects and
dumped again.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import msgspec

Encoding = Literal["json", "utf8", "base64"]
Embedded = msgspec.Raw | str | None

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIMESTAMP = 2**63 - 1
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode
_decode_text = msgspec.json.Decoder(str).decode
_QUOTE, _BACKSLASH = 0x22, 0x5C
_BLANKS = b" \t\r\n"
# The bytes that JSON may begin with. For most keys and texts the first byte shows that they are no JSON.
_JSON_FIRST = frozenset(b'{["-0123456789tfn')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
# Other names for the same encodings, as the existing proxies call them.
_ALIASES: dict[str, Encoding] = {
    "json": "json", "utf8": "utf8", "text": "utf8", "base64": "base64", "binary": "base64",
}  # fmt: skip
ENCODING_NAMES = ", ".join(sorted(_ALIASES))


class FormatError(ValueError):
    """An embedded value that has no bytes; the message has the reason and the valid form.

    `path` leads to it within its record, where that is not the field itself.
    """

    path: tuple[str | int, ...] = ()


# --- writing: JSON → bytes ----------------------------------------------------------------------------------


def to_bytes(raw: bytes, encoding: str | None, max_depth: int) -> bytes | None:
    """Return the bytes of one embedded JSON text.

    `raw` is syntactically right JSON in valid UTF-8, without blanks around it. Raises FormatError.
    """
    is_string = raw[0] == _QUOTE
    if encoding is None:
        if is_string:
            # Without an escape the text is the bytes between the quotes.
            return _text_of(raw).encode() if _BACKSLASH in raw else raw[1:-1]
        if raw == b"null":
            return None
        # A deeper one needs a bracket pair a level: shorter texts are not looked at.
        if len(raw) > 2 * max_depth:
            check_depth(raw, max_depth)
        return raw
    if raw == b"null" and encoding in _ALIASES:
        return None
    known = _ALIASES.get(encoding)
    if known is None:
        raise _unknown_encoding(encoding)
    if known == "json":
        check_depth(raw, max_depth)
        return raw
    if not is_string:
        raise FormatError(f"with the encoding {encoding!r} it must be a string")
    text = _text_of(raw)
    if known == "utf8":
        return text.encode()
    try:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise FormatError(
            f"it is not base64 ({_reason(error)}); use the alphabet A-Z a-z 0-9 + / with padding"
        ) from None


def _reason(error: Exception) -> str:
    return "a character that is not ASCII" if isinstance(error, UnicodeEncodeError) else str(error).lower()


def _unknown_encoding(encoding: str) -> FormatError:
    shown = encoding if len(encoding) <= 40 else encoding[:40] + "…"
    return FormatError(f"the encoding {shown!r} is not known; known are {ENCODING_NAMES}")


def _text_of(raw: bytes) -> str:
    try:
        return _decode_text(raw)
    except msgspec.DecodeError:
        raise FormatError("it holds half a surrogate pair, which is no character") from None


def check_depth(raw: bytes, max_depth: int) -> None:
    """Raise FormatError when JSON is nested deeper than `max_depth`."""
    if depth_exceeds(raw, max_depth):
        raise FormatError(f"it is nested deeper than {max_depth} levels")


def depth_exceeds(raw: bytes, max_depth: int) -> bool:
    """Whether JSON (syntactically right) is nested deeper than `max_depth`.

    Almost always decided by counting brackets. Where there are many, one level after the other is taken off
    from the inside, so that the work is a few passes at the speed of `bytes.replace`, whatever the input.
    """
    if len(raw) <= 2 * max_depth or raw.count(b"{") + raw.count(b"[") <= max_depth:
        return False
    brackets = (_STRING.sub(b"", raw) if b'"' in raw else raw).translate(_TO_ONE_KIND, _NOT_BRACKETS)
    for _ in range(max_depth):
        if not brackets:
            return False
        brackets = brackets.replace(b"()", b"")
    return bool(brackets)


_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TO_ONE_KIND = bytes.maketrans(b"[]{}", b"()()")


# --- reading: bytes → JSON ----------------------------------------------------------------------------------


def is_clean_json(data: bytes, max_depth: int) -> bool:
    """Whether bytes can be embedded as JSON and written again as the same bytes.

    So: valid JSON in valid UTF-8, no blanks around it, no half surrogate, not nested too deep, and not `null`,
    which would read like no value at all.
    """
    if not data or data[0] not in _JSON_FIRST or data[-1] in _BLANKS or data == b"null":
        return False
    try:
        _decode_raw(data)
        if not data.isascii():
            str(data, "utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return len(data) <= 2 * max_depth or not depth_exceeds(data, max_depth)


Embed = Callable[[bytes], tuple[Embedded, Encoding]]


def _base64(data: bytes) -> tuple[Embedded, Encoding]:
    return binascii.b2a_base64(data, newline=False).decode("ascii"), "base64"


def _text(data: bytes) -> tuple[Embedded, Encoding]:
    try:
        return str(data, "utf-8"), "utf8"
    except UnicodeDecodeError:
        return _base64(data)


class Reader:
    """The form of records in one answer: `embed(bytes)` returns the JSON and the encoding's name.

    `embed_header` does the same for header values, which are text by custom: `auto` does not try JSON there.
    """

    NAMES = ("auto", "json", "text", "utf8", "base64")

    def __init__(self, name: str, max_depth: int) -> None:
        ways = {
            "auto": _json_or(_text, max_depth),
            "json": _json_or(_base64, max_depth),
            "text": _text,
            "utf8": _text,
            "base64": _base64,
        }
        self.embed = ways[name]
        self.embed_header = _base64 if name == "base64" else _text


def _json_or(other: Embed, max_depth: int) -> Embed:
    def embed(data: bytes) -> tuple[Embedded, Encoding]:
        # Check the first byte here already: for most keys it shows that they are no JSON, without another call.
        if data and data[0] in _JSON_FIRST and is_clean_json(data, max_depth):
            return msgspec.Raw(data), "json"
        return other(data)

    return embed


# --- times ---------------------------------------------------------------------------------------------------


def check_ms(ms: int) -> int:
    """Return a time in milliseconds since 1970 if it fits a record. Raise FormatError if not."""
    if not 0 <= ms <= _MAX_TIMESTAMP:
        raise FormatError(f"milliseconds since 1970 lie between 0 and {_MAX_TIMESTAMP}; this is {ms}")
    return ms


def parse_time(text: str) -> int:
    """Return ISO 8601 as milliseconds since 1970; without an offset it is UTC. Raise FormatError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise FormatError(
            f"{text[:40]!r} is no ISO 8601 time; write it like 2025-01-31T12:00:00.000Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        since = moment - _EPOCH
    except OverflowError:
        raise FormatError(f"{text[:40]!r} is out of range") from None
    return check_ms((since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)
