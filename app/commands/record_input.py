"""Records to be written, from arguments, lines, NDJSON and whole files: each as one line of the API's NDJSON.

Bytes arrive as they were: text that is not UTF-8 travels as base64, and NDJSON lines are passed on untouched.
"""

from __future__ import annotations

import binascii
import os
import select
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from app.commands.errors import InputError

CHUNK_BYTES = 65_536
# So long a quiet input is waited for before what has come is sent: too short to feel, long enough for a batch.
LINGER_SECONDS = 0.005
_encode = msgspec.json.Encoder().encode
_check_json = msgspec.json.Decoder(Raw).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


class Outgoing(NamedTuple):
    """One record as a line of NDJSON, and where it came from (`line 7 of orders.txt`)."""

    json: bytes
    where: str


class Header(msgspec.Struct, omit_defaults=True):
    """A header as the API takes it."""

    name: str
    value: str | None = None
    encoding: str | UnsetType = UNSET


class _Record(msgspec.Struct, omit_defaults=True):
    key: Raw | str | None = None
    key_encoding: str | UnsetType = UNSET
    value: Raw | str | None = None
    value_encoding: str | UnsetType = UNSET
    headers: list[Header] | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    timestamp_ms: int | UnsetType = UNSET


@dataclass(frozen=True)
class Shape:
    """What all records of one call have in common, and how their bytes are to be taken."""

    encoding: str = "text"
    key_encoding: str = "text"
    key: bytes | None = None
    key_separator: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    def record(self, data: bytes | None, where: str) -> Outgoing:
        """The record of one value (None: no value, a tombstone). Raises InputError."""
        key = self.key
        if data is not None and self.key_separator is not None:
            key, separator, data = data.partition(self.key_separator)
            if not separator:
                raise InputError(
                    f"{_first_upper(where)} has no key: {_shown(self.key_separator)} is not in it."
                )
        record = _Record()
        if key is not None:
            record.key, record.key_encoding = embed(key, self.key_encoding, f"the key of {where}")
        if data is not None:
            record.value, record.value_encoding = embed(data, self.encoding, where)
        if self.headers:
            record.headers = list(self.headers)
        if self.partition is not None:
            record.partition = self.partition
        if self.timestamp_ms is not None:
            record.timestamp_ms = self.timestamp_ms
        return Outgoing(_encode(record), where)


def embed(data: bytes, encoding: str, where: str) -> tuple[Raw | str, str | UnsetType]:
    """How bytes stand in JSON, and the encoding to name beside. Raises InputError.

    `text` is taken as it is; `json` must be JSON and is stored as its text; `base64` is decoded.
    """
    try:
        if encoding == "json":
            text = data.strip()
            text.decode()
            _check_json(text)
            return Raw(text), "json"
        if encoding == "base64":
            text = data.strip()
            binascii.a2b_base64(text, strict_mode=True)
            return text.decode("ascii"), "base64"
    except (msgspec.DecodeError, binascii.Error, UnicodeDecodeError) as error:
        raise InputError(f"{_first_upper(where)} is not {encoding}: {error}.") from None
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return binascii.b2a_base64(data, newline=False).decode("ascii"), "base64"


def header(text: str) -> Header:
    """A header from `name=value`; without `=` its value is null."""
    name, separator, value = text.partition("=")
    if not separator:
        return Header(name)
    embedded, encoding = embed(os.fsencode(value), "text", "a header")
    return Header(name, str(embedded), encoding)


def from_arguments(values: Iterable[str], shape: Shape) -> Iterator[Outgoing]:
    """One record for each argument."""
    for number, value in enumerate(values, 1):
        yield shape.record(os.fsencode(value), f"argument {number}")


def from_lines(stream: BinaryIO, name: str, shape: Shape, max_bytes: int) -> Iterator[Outgoing | None]:
    """One record for each line; None where the input pauses."""
    for number, line in numbered_lines(stream, name, max_bytes):
        yield None if line is None else shape.record(line, _place(number, name))


def from_ndjson(
    stream: BinaryIO, name: str, max_bytes: int, *, drop_partition: bool = False
) -> Iterator[Outgoing | None]:
    """One record for each line of NDJSON, untouched but for `drop_partition`; None where the input pauses."""
    for number, line in numbered_lines(stream, name, max_bytes):
        if line is None:
            yield None
        elif line and not line.isspace():
            where = _place(number, name)
            yield Outgoing(_without_partition(line, where) if drop_partition else line.strip(), where)


def from_whole(stream: BinaryIO, name: str, shape: Shape, max_bytes: int) -> Iterator[Outgoing]:
    """One record that holds the whole input."""
    data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise InputError(f"{_first_upper(name)} is longer than the {max_bytes} bytes that the gateway takes.")
    yield shape.record(data, name)


def numbered_lines(stream: BinaryIO, name: str, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """The lines of a stream with their numbers, without their line feeds; None where nothing more is there yet.

    A last line without an end counts, unless it is empty. Raises InputError for a line above `max_bytes`.
    """
    number, rest = 0, b""
    for chunk in _chunks(stream):
        if chunk is None:
            yield number, None
            continue
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            yield number, line
        if len(rest) > max_bytes:
            place = _place(number + 1, name)
            raise InputError(
                f"{_first_upper(place)} is longer than the {max_bytes} bytes that the gateway takes."
            )
    if rest:
        yield number + 1, rest


def _chunks(stream: BinaryIO) -> Iterator[bytes | None]:
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
        return
    while True:
        # A file is always ready; a pipe or a terminal is not.
        if not select.select([descriptor], [], [], LINGER_SECONDS)[0]:
            yield None
        chunk = os.read(descriptor, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


def _without_partition(line: bytes, where: str) -> bytes:
    try:
        members = _decode_members(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{_first_upper(where)} is not a JSON object: {error}.") from None
    members.pop("partition", None)
    return _encode(members)


def _place(number: int, name: str) -> str:
    return f"line {number} of {name}"


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _shown(data: bytes) -> str:
    return repr(data)[1:]
