"""Request and response headers.

    request    int16 key, int16 version, int32 correlation id
               v1: + nullable string client id (int16 length, also in v2)      v2: + tag section
    response   int32 correlation id                                            v1: + tag section

Flexible versions of an API use request header 2 and response header 1. ApiVersions alone answers with
response header 0 always, so that a client that guessed too high can still read the answer (KIP-511).
"""

from __future__ import annotations

from struct import Struct

from core.protocol.apis import API_VERSIONS, APIS
from core.protocol.primitives import ProtocolError, read_uvarint, skip_tags
from core.protocol.schema import Value

_FIXED = Struct(">hhih")  # key, version, correlation id, length of the client id
_SHORT = Struct(">hhi")
_LENGTH = Struct(">h")
_CORRELATION = Struct(">i")

# (key << 16 | version) of each version that is known → whether it is flexible. One look-up per request.
_FLEXIBLE = {
    api.key << 16 | version: api.is_flexible(version)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
}


class RequestHeader(Value, frozen=True):
    """What every request begins with."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: bytes | bytearray | memoryview) -> tuple[RequestHeader, int]:
    """The header of a request frame (without its size), and where the body begins.

    An API or version that is not known is read leniently: key, version and correlation id, and the client
    id where it can be read; the body position then means nothing. Raises ProtocolError when there are not
    even eight bytes, or when the header of a known version is malformed.
    """
    size = len(frame)
    if size < _SHORT.size:
        raise ProtocolError(f"header: {size} bytes, needs 8")
    key, version, correlation_id = _SHORT.unpack_from(frame)
    flexible = _FLEXIBLE.get(key << 16 | version)
    if flexible is None:
        return _lenient(frame, key, version, correlation_id)
    client_id, position = _client_id(frame, size)
    if flexible:
        if position < size and frame[position] == 0:
            position += 1
        else:
            position = _skip_tags(memoryview(frame), position, size)
    return RequestHeader(key, version, correlation_id, client_id), position


def _client_id(frame: bytes | bytearray | memoryview, size: int) -> tuple[str | None, int]:
    if size < _FIXED.size:
        raise ProtocolError("header.client_id: the frame ends before it")
    (length,) = _LENGTH.unpack_from(frame, _SHORT.size)
    if length < 0:
        if length != -1:
            raise ProtocolError(f"header.client_id: length {length}")
        return None, _FIXED.size
    end = _FIXED.size + length
    if end > size:
        raise ProtocolError(f"header.client_id: length {length}, {size - _FIXED.size} bytes left")
    try:
        return str(frame[_FIXED.size : end], "utf-8"), end
    except UnicodeDecodeError:
        raise ProtocolError("header.client_id: not UTF-8") from None


def _skip_tags(frame: memoryview, position: int, size: int) -> int:
    try:
        count, position = read_uvarint(frame, position)
        return skip_tags(frame, position, size, count)
    except IndexError:
        raise ProtocolError("header.tags: the frame ends inside") from None
    except ProtocolError as error:
        raise ProtocolError(f"header.tags: {error}") from None


def _lenient(
    frame: bytes | bytearray | memoryview, key: int, version: int, correlation_id: int
) -> tuple[RequestHeader, int]:
    try:
        client_id, position = _client_id(frame, len(frame))
    except ProtocolError:
        client_id, position = None, _SHORT.size
    return RequestHeader(key, version, correlation_id, client_id), position


def encode_response_header(key: int, version: int, correlation_id: int) -> bytes:
    """Return the header of an answer: version 0 for ApiVersions and for an unknown API or version."""
    if _FLEXIBLE.get(key << 16 | version) and key != API_VERSIONS:
        return _CORRELATION.pack(correlation_id) + b"\0"
    return _CORRELATION.pack(correlation_id)


def decode_response_header(key: int, version: int, buffer: bytes | memoryview) -> tuple[int, int]:
    """The correlation id of an answer, and where its body begins; for clients."""
    if len(buffer) < _CORRELATION.size:
        raise ProtocolError(f"header: {len(buffer)} bytes, needs 4")
    (correlation_id,) = _CORRELATION.unpack_from(buffer)
    if key == API_VERSIONS or not APIS[key].is_flexible(version):
        return correlation_id, _CORRELATION.size
    return correlation_id, _skip_tags(memoryview(buffer), _CORRELATION.size, len(buffer))


def encode_request_header(key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request; for clients."""
    tags = b"\0" if APIS[key].is_flexible(version) else b""
    if client_id is None:
        return _FIXED.pack(key, version, correlation_id, -1) + tags
    name = client_id.encode()
    return _FIXED.pack(key, version, correlation_id, len(name)) + name + tags
