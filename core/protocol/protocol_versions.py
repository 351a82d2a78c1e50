"""ProtocolVersionRequest: the API by which the draft of KIP-35 lets a client ask what a broker speaks.

    ProtocolVersionRequest  = (empty)
    ProtocolVersionResponse = [ApiKey int16, ApiName string, [ApiVersion int16], [ApiDeprecatedVersion int16]]

The draft's grammar forgets the deprecated versions, which its fields and its example have; they are sent. Its
example has the best version first, its text last, "thus typically ascending": the text holds. KIP-35 as it was
adopted became another API (ApiVersions, key 18), and the draft never got a key: a setting names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, error

from core.protocol.apis import APIS
from core.protocol.primitives import ProtocolError
from core.types import ApiSupport

NAME = "ProtocolVersion"
VERSIONS = (0,)

_COUNT = Struct(">i")
_KEY_AND_LENGTH = Struct(">hh")
_SHORT = Struct(">h")


def support(key: int, first: int, last: int) -> ApiSupport:
    """What the answer says of an API of Kafka that is served from version `first` to `last`."""
    api = APIS[key]
    current = max(first, min(api.current_from, last))
    return ApiSupport(
        key, api.name + "Request", tuple(range(current, last + 1)), tuple(range(first, current))
    )


def own_support(key: int) -> ApiSupport:
    """What the answer says of this API itself."""
    return ApiSupport(key, NAME + "Request", VERSIONS, ())


def encode_response(apis: Iterable[ApiSupport]) -> bytes:
    """The body of the answer."""
    out = [
        b"".join(
            (
                _KEY_AND_LENGTH.pack(api.api_key, len(api.api_name)),
                api.api_name.encode("ascii"),
                _versions(api.versions),
                _versions(api.deprecated_versions),
            )
        )
        for api in apis
    ]
    return b"".join((_COUNT.pack(len(out)), *out))


def decode_response(body: bytes) -> list[ApiSupport]:
    """The answer's body read again; for clients. Raises ProtocolError for a body that is cut or too long."""
    try:
        (count,) = _COUNT.unpack_from(body)
        position, apis = _COUNT.size, []
        for _ in range(count):
            key, length = _KEY_AND_LENGTH.unpack_from(body, position)
            position += _KEY_AND_LENGTH.size
            name = body[position : position + length].decode("ascii")
            versions, position = _read_versions(body, position + length)
            deprecated, position = _read_versions(body, position)
            apis.append(ApiSupport(key, name, versions, deprecated))
    except (error, ValueError) as problem:
        raise ProtocolError(f"ProtocolVersionResponse: {problem}") from None
    if position != len(body):
        raise ProtocolError(f"ProtocolVersionResponse: {len(body) - position} bytes too many")
    return apis


def _versions(versions: tuple[int, ...]) -> bytes:
    return _COUNT.pack(len(versions)) + b"".join(map(_SHORT.pack, versions))


def _read_versions(body: bytes, position: int) -> tuple[tuple[int, ...], int]:
    (count,) = _COUNT.unpack_from(body, position)
    position += _COUNT.size
    end = position + count * _SHORT.size
    if count < 0 or end > len(body):
        raise ValueError(f"{count} versions at byte {position}")
    return tuple(version for (version,) in _SHORT.iter_unpack(body[position:end])), end
