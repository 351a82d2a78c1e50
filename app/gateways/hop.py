"""The header line by which one gateway tells another that it forwards a request.

A line is a JSON object and its HMAC-SHA256 under the secret that all gateways share. The HMAC covers the method and
the target as well. A line that is copied into another request is therefore of no use, and a repeated one says only
what the first one said. The receiver takes the address of the client, the scheme and the principal of the client's
certificate from it, so a client must not be able to write one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from app.http.principal import CERTIFICATE
from app.http.request import Scope
from core.security.principal import Principal

HEADER = b"sluice-hop"


class Hop(Struct, frozen=True, omit_defaults=True):
    """What the sender says: its level, its name, the owner that it looked up, and the client's connection.

    `passed` are the levels at which the request needs no further hop on the host of the owner.
    `client` and `server` are host and port, `principal` kind and name of the principal of the client's certificate.
    """

    level: str
    sender: str
    owner: str
    scheme: str
    passed: list[str] = []
    client: tuple[str, int] | None = None
    server: tuple[str, int] | None = None
    principal: tuple[str, str] | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Hop).decode


def hop_of(scope: Scope, level: str, sender: str, owner: str, passed: Iterable[str] = ()) -> Hop:
    """Return the hop of a request that is forwarded."""
    shown: Principal | None = scope.get(CERTIFICATE)
    principal = None if shown is None else (shown.kind, shown.name)
    return Hop(
        level,
        sender,
        owner,
        scope.get("scheme", "http"),
        sorted({level, *passed}),
        scope.get("client"),
        scope.get("server"),
        principal,
    )


def seal(secret: bytes, hop: Hop, scope: Scope) -> bytes:
    """Return the value of the header line."""
    text = base64.urlsafe_b64encode(_encode(hop))
    return text + b"." + _mac(secret, text, scope)


def unseal(secret: bytes, line: bytes, scope: Scope) -> Hop | None:
    """Return the hop of a header line; None if no holder of the secret has written it for this request."""
    text, _, mac = line.partition(b".")
    if not hmac.compare_digest(mac, _mac(secret, text, scope)):
        return None
    try:
        return _decode(base64.urlsafe_b64decode(text))
    except (binascii.Error, msgspec.DecodeError):
        return None


def _mac(secret: bytes, text: bytes, scope: Scope) -> bytes:
    covered = b"\n".join((text, scope["method"].encode(), target_of(scope)))
    return hmac.new(secret, covered, hashlib.sha256).hexdigest().encode()


def target_of(scope: Scope) -> bytes:
    """Return the path and the query of a request, percent-encoded."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.partition(b"?")[0]
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path
