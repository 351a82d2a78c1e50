"""Media types of v2, in both directions.

    application/vnd.kafka[.FORMAT][.VERSION]+json      FORMAT json, binary, text; VERSION v2 (v1 is as good here)
    application/json                                   any of them
    application/octet-stream                           on requests: JSON all the same, in the format binary

For records, a type of the family that names no format means binary, v1's and v2's default; the dialect says what
`application/json` means. Old clients send `application/octet-stream`: Confluent documents it, Karapace takes it.

A client gets the media type that it asked for, or `application/json` if it named none. Other media types are refused
with 415 or 406.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from app.errors import Problem
from app.rest_v2.errors import FORMAT_MISMATCH, ProxyError

FORMATS = ("json", "binary", "text")
# They need a schema registry, and there is none: instances can be created, their records cannot be decoded.
SCHEMA_FORMATS = ("avro", "jsonschema", "protobuf")
UNNAMED = "binary"
JSON = b"application/json"
_OCTETS = b"application/octet-stream"
_OURS = re.compile(
    rb"application/(?:vnd\.kafka(?:\.(json|binary|text|avro|jsonschema|protobuf))?(?:\.v[12])?\+)?json"
)
_ANYTHING = frozenset({b"*/*", b"application/*", b"*/json"})
# Header values that were looked at already; clients send the same few.
_MAX_KNOWN = 1_000
_accepts: dict[bytes, Accept] = {}
_types: dict[bytes, str | None] = {}


class Accept(NamedTuple):
    """What a client takes, best first: (media type to answer with, embedded format that it names, or None)."""

    choices: tuple[tuple[bytes, str | None], ...]

    def any(self) -> bytes:
        """The media type of an answer without embedded data. Raises Problem (406)."""
        if not self.choices:
            raise _not_acceptable()
        return self.choices[0][0]

    def records(self, format_name: str) -> bytes:
        """The media type of records that are embedded in one format.

        Raises Problem (406), and ProxyError 406/40601 when only other formats are taken.
        """
        for media_type, wanted in self.choices:
            if wanted is None or wanted == format_name:
                return media_type
        if not self.choices:
            raise _not_acceptable()
        raise ProxyError(
            406,
            FORMAT_MISMATCH,
            f"The requested embedded format {self.choices[0][1]!r} is not that of this consumer instance, which "
            f"is {format_name!r}.",
        )

    def format(self, of_json: str) -> str:
        """The embedded format that is asked for; `of_json` with application/json. Raises Problem (406)."""
        for media_type, wanted in self.choices:
            name = wanted or (of_json if media_type == JSON else UNNAMED)
            if name in FORMATS:
                return name
        raise _not_acceptable()


def accept_of(header: bytes) -> Accept:
    """What an Accept header takes; one that is missing or empty takes everything."""
    known = _accepts.get(header)
    if known is None:
        known = _parse_accept(header.lower())
        if len(_accepts) < _MAX_KNOWN and len(header) < 1_000:
            _accepts[header] = known
    return known


def _parse_accept(header: bytes) -> Accept:
    if not header.strip():
        return Accept(((JSON, None),))
    ranked: list[tuple[float, int, bytes, str | None]] = []
    for index, part in enumerate(header.split(b",")):
        essence, *parameters = (piece.strip() for piece in part.split(b";"))
        quality = _quality(parameters)
        if quality <= 0:
            continue
        if essence in _ANYTHING:
            ranked.append((-quality, index, JSON, None))
        elif match := _OURS.fullmatch(essence):
            ranked.append((-quality, index, essence, match[1].decode() if match[1] else None))
    ranked.sort(key=lambda one: one[:2])
    return Accept(tuple((media_type, named) for _, _, media_type, named in ranked))


def _quality(parameters: list[bytes]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def embedded_format(content_type: bytes) -> str | None:
    """Return the embedded format of a request's media type; None for application/json and for no type.

    Raises Problem (415).
    """
    if content_type in _types:
        return _types[content_type]
    essence = content_type.partition(b";")[0].strip().lower()
    match = _OURS.fullmatch(essence)
    if match is None and essence and essence != _OCTETS:
        shown = essence.decode("latin-1")[:60]
        raise Problem(
            "unsupported-media-type",
            f"The media type {shown!r} is not taken here; send application/vnd.kafka.json.v2+json, "
            "application/vnd.kafka.binary.v2+json, application/vnd.kafka.text.v2+json for records, "
            "application/vnd.kafka.v2+json for the rest, or application/json.",
        )
    named = None
    if essence and essence != JSON:
        named = match[1].decode() if match is not None and match[1] else UNNAMED
    if len(_types) < _MAX_KNOWN and len(content_type) < 200:
        _types[content_type] = named
    return named


def _not_acceptable() -> Problem:
    return Problem(
        "not-acceptable", "Answers are application/vnd.kafka.v2+json and its relatives, or application/json."
    )
