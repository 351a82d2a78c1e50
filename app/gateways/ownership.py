"""Which gateway owns a request: a rendezvous hash of the consumer group or of the Idempotency-Key.

A managed consumer and a v2 instance have their state in one gateway, and so has the answer to a keyed write. All
requests for them have to reach that gateway. Every gateway computes the same owner from the configured names. A
gateway that is down keeps what it owns: its state is on its disk. A name that is added or removed moves only the keys
that belong to it (highest random weight: Thaler and Ravishankar, 1998).

Requests without such state are served where they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b

from app.http.request import Request, decode_path
from app.http.router import READING

Policy = Callable[[Request], str | None]
"""Returns the name of the owner of a request; None if every gateway may serve it."""

KEY_HEADER = b"idempotency-key"
_NATIVE, _V2 = "/api/v1/groups/", "/consumers/"
# Segments of "/api/v1/groups/{group}/consumers" and of "/consumers/{group}", with the empty one before the first "/".
_NATIVE_GROUP, _NATIVE_NOUN, _V2_GROUP = 4, 5, 2


def owner_of(names: Sequence[str], key: bytes) -> str:
    """Return the name with the highest weight for a key. The order of the names does not matter."""
    return max(names, key=lambda name: (_weight(name, key), name))


def _weight(name: str, key: bytes) -> bytes:
    return blake2b(key, digest_size=8, person=b"sluice-owner", key=name.encode()[:64]).digest()


def stateful_key(request: Request) -> bytes | None:
    """Return what names the state that a request needs: its group or its key; None if it needs none.

    Raise Problem for a path that cannot be decoded.
    """
    scope = request.scope
    path: str = scope["path"]
    if path.startswith((_NATIVE, _V2)):
        segments = decode_path(scope).split("/")
        if path.startswith(_V2) and len(segments) > _V2_GROUP:
            return b"group " + segments[_V2_GROUP].encode()
        if len(segments) > _NATIVE_NOUN and segments[_NATIVE_NOUN] == "consumers":
            return b"group " + segments[_NATIVE_GROUP].encode()
    if KEY_HEADER in request.headers and scope["method"] not in READING:
        return b"key " + request.headers[KEY_HEADER]
    return None


def hashed(names: Sequence[str]) -> Policy:
    """Return the policy that spreads groups and keys over the names."""
    return partial(_owner, tuple(names))


def _owner(names: Sequence[str], request: Request) -> str | None:
    key = stateful_key(request)
    return None if key is None else owner_of(names, key)
