"""Which of some media types an `Accept` header prefers (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import Problem

# Ranges in one header that are looked at; browsers send fewer than ten.
_MAX_RANGES = 32


def choose(accept: bytes, offered: Sequence[bytes]) -> bytes:
    """Return the offered type with the highest weight, the first of several. Without a header it is the first one.

    The most specific range that fits a type decides about it, as the standard has it. Raises Problem (406).
    """
    if not accept:
        return offered[0]
    ranges = [_parse(part) for part in accept.lower().split(b",")[:_MAX_RANGES]]
    best, best_quality = offered[0], 0.0
    for media_type in offered:
        quality = _quality(media_type, ranges)
        if quality > best_quality:
            best, best_quality = media_type, quality
    if best_quality <= 0:
        names = ", ".join(one.decode() for one in offered)
        raise Problem(
            "not-acceptable", f"This resource is available as {names}. The Accept header lists none of them."
        )
    return best


def _parse(part: bytes) -> tuple[bytes, float]:
    essence, *parameters = part.split(b";")
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                quality = min(max(float(value), 0.0), 1.0)
            except ValueError:
                quality = 0.0
    return essence.strip(), quality if quality == quality else 0.0


def _quality(media_type: bytes, ranges: Sequence[tuple[bytes, float]]) -> float:
    kind = media_type.partition(b"/")[0] + b"/*"
    for wanted in (media_type, kind, b"*/*"):
        found = [quality for essence, quality in ranges if essence == wanted]
        if found:
            return max(found)
    return 0.0
