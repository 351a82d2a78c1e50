"""Messages made of random values, from a seed: what round trips and comparisons with other codecs feed on."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from core.protocol.apis import Api
from core.protocol.codec import decode_request, decode_response, encode_request, encode_response
from core.protocol.schema import Field, Kind, fields_of
from core.types import FileSlice

# More messages for a long run by hand: SLUICE_PROTOCOL_SAMPLES=50 pytest tests/core/protocol
SAMPLES = int(os.environ.get("SLUICE_PROTOCOL_SAMPLES", "3"))

_RANGES = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.UINT16: (0, 2**16 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
}
_TEXTS = ("", "a", "topic-1", "größer", "日本", "x" * 126, "y" * 127, "z" * 200)

Number = Callable[[Random, Field], int | None]


class Maker:
    """Makes messages. `number` may choose an integer by itself, for oracles that do not take all."""

    def __init__(self, seed: int, *, number: Number | None = None, longest: int = 17_000) -> None:
        self.random = Random(seed)
        self.number = number
        self.sizes = [size for size in (0, 1, 127, 128, 600, 17_000) if size <= longest]

    def message(self, kind: type[Struct], version: int) -> Struct:
        """A message with random values for what the version has, and defaults for the rest."""
        values = {}
        for field in fields_of(kind):
            if version not in field.versions or (field.tag is not None and self.random.random() < 0.5):
                continue
            values[field.name] = self.value(field, field.kind, version)
        return kind(**values)

    def value(self, field: Field, kind: Kind, version: int, *, element: bool = False) -> object:
        random = self.random
        if not element and version in field.nullable and random.random() < 0.3:
            return None
        if kind is Kind.ARRAY:
            assert field.element is not None
            count = random.choice((0, 1, 1, 2, 3, 9)) if field.struct is None else random.choice((0, 1, 2, 2))
            return [self.value(field, field.element, version, element=True) for _ in range(count)]
        if kind is Kind.STRUCT:
            assert field.struct is not None
            return self.message(field.struct, version)
        if kind in _RANGES:
            return self.integer(field, kind)
        if kind is Kind.BOOL:
            return random.random() < 0.5
        if kind is Kind.FLOAT64:
            return random.choice((0.0, -1.5, 1e300))
        if kind is Kind.UUID:
            return UUID(int=random.choice((0, 1, random.getrandbits(128))))
        if kind is Kind.STRING:
            return random.choice(_TEXTS)
        raw = random.randbytes(random.choice(self.sizes))
        return memoryview(raw) if kind is Kind.RECORDS else raw

    def integer(self, field: Field, kind: Kind) -> int:
        chosen = self.number(self.random, field) if self.number is not None else None
        if chosen is not None:
            return chosen
        low, high = _RANGES[kind]
        return self.random.choice((low, high, 0, 1, max(low, -1), self.random.randint(low, high)))


class Side(NamedTuple):
    """Request or response of an API: its class, and how it is written and read."""

    name: str
    type: type[Struct]
    encode: Callable[[int, int, Struct], bytes]
    decode: Callable[..., Struct]


def sides(api: Api) -> tuple[Side, Side]:
    """Both sides of an API."""
    return (
        Side("request", api.request_type, encode_request, decode_request),
        Side("response", api.response_type, joined_response, decode_response),
    )


def joined_response(key: int, version: int, message: Struct) -> bytes:
    """A response in one piece; its records are in memory."""
    parts = encode_response(key, version, message)
    assert not any(isinstance(part, FileSlice) for part in parts)
    return b"".join(parts)  # type: ignore[arg-type]
