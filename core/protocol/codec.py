"""Bytes ↔ messages, for every API and version that `apis` names. Sans-IO: no socket, no clock, no disk.

Each (API, version, direction) is compiled on first use. Malformed input raises ProtocolError with the path of
the field, and nothing else; a message that cannot be written in a version raises ProtocolError too.
"""

from __future__ import annotations

import struct
from functools import cache

from msgspec import Struct

from core.protocol.apis import APIS, Api
from core.protocol.decoding import compile_decoder
from core.protocol.encoding import compile_encoder
from core.protocol.frame import MAX_ELEMENTS
from core.protocol.primitives import ProtocolError
from core.protocol.schema import Piece
from core.protocol.source import Compiled

_MALFORMED = (ProtocolError, struct.error, IndexError, UnicodeDecodeError)
_UNWRITABLE = (ProtocolError, struct.error, AttributeError, TypeError, UnicodeEncodeError)


def decode_request(
    key: int, version: int, buffer: bytes | bytearray | memoryview, position: int = 0
) -> Struct:
    """The request whose body begins at `position`. Bytes after it are ignored, as Kafka's brokers do.

    librdkafka 2.16 sends three bytes after a Metadata v9+ request for all topics, so a stricter reader would refuse
    it. Record bytes are views into the buffer. At most MAX_ELEMENTS array elements and tagged
    fields.
    """
    return _decode(_request_decoder(key, version), buffer, position, MAX_ELEMENTS, whole=False)


def decode_response(
    key: int, version: int, buffer: bytes | bytearray | memoryview, position: int = 0, *, whole: bool = True
) -> Struct:
    """The response whose body begins at `position` and ends with the buffer; for clients and tests.

    With `whole` false, bytes after the end are left alone: other brokers may leave some, as clients do.
    """
    return _decode(_response_decoder(key, version), buffer, position, len(buffer), whole=whole)


def encode_response(key: int, version: int, message: Struct) -> list[Piece]:
    """The body of a response, as pieces in the order in which they are sent.

    Records larger than a few hundred bytes are pieces of their own, by reference; a FileSlice always is.
    """
    return _encode(_response_encoder(key, version), message)


def encode_request(key: int, version: int, message: Struct) -> bytes:
    """The body of a request; for clients and tests. Records must be bytes, not a FileSlice."""
    return b"".join(_encode(_request_encoder(key, version), message))  # type: ignore[arg-type]


def decode_struct(
    message: type[Struct], version: int, buffer: bytes | memoryview, position: int = 0, *, whole: bool = True
) -> Struct:
    """A message that is no API of its own, never flexible: what the consumer protocol puts into blobs.

    With `whole` false, bytes after the end are left alone.
    """
    return _decode(_struct_decoder(message, version), buffer, position, MAX_ELEMENTS, whole=whole)


def encode_struct(version: int, message: Struct) -> bytes:
    """The bytes of a message that is no API of its own."""
    return b"".join(_encode(_struct_encoder(type(message), version), message))  # type: ignore[arg-type]


def _decode(
    compiled: Compiled,
    buffer: bytes | bytearray | memoryview,
    position: int,
    left: int,
    *,
    whole: bool = True,
) -> Struct:
    view = memoryview(buffer)
    size = len(view)
    message: Struct
    try:
        message, position = compiled.run(view, position, size, left)
    except _MALFORMED as error:
        raise ProtocolError(
            f"{compiled.name} {compiled.where(error.__traceback__)}: {_reason(error)}"
        ) from None
    if whole and position != size:
        raise ProtocolError(f"{compiled.name}: {size - position} bytes after the end")
    return message


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(error, struct.error | IndexError):
        return "the frame ends inside"
    return str(error)


def _encode(compiled: Compiled, message: Struct) -> list[Piece]:
    try:
        parts: list[Piece] = compiled.run(message)
    except _UNWRITABLE as error:
        where = compiled.where(error.__traceback__)
        raise ProtocolError(f"{compiled.name} {where}: {error}") from error
    return parts


def _api(key: int, version: int) -> Api:
    api = APIS.get(key)
    if api is None:
        raise ProtocolError(f"no API has the key {key}")
    if not api.has(version):
        raise ProtocolError(f"{api.name} has no version {version}")
    return api


@cache
def _request_decoder(key: int, version: int) -> Compiled:
    api = _api(key, version)
    return compile_decoder(api.request_type, version, api.is_flexible(version))


@cache
def _response_decoder(key: int, version: int) -> Compiled:
    api = _api(key, version)
    return compile_decoder(api.response_type, version, api.is_flexible(version))


@cache
def _request_encoder(key: int, version: int) -> Compiled:
    api = _api(key, version)
    return compile_encoder(api.request_type, version, api.is_flexible(version))


@cache
def _response_encoder(key: int, version: int) -> Compiled:
    api = _api(key, version)
    return compile_encoder(api.response_type, version, api.is_flexible(version))


@cache
def _struct_decoder(message: type[Struct], version: int) -> Compiled:
    return compile_decoder(message, version, False)


@cache
def _struct_encoder(message: type[Struct], version: int) -> Compiled:
    return compile_encoder(message, version, False)
