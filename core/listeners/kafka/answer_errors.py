"""Find the error codes in an answer by the schema of its message, so that no handler has to count them.

Where `error_code` fields can be is looked up once for each type of message; a walk visits only those places.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from msgspec import Struct

from core.protocol.apis import APIS
from core.protocol.schema import Kind, fields_of


class _Places(NamedTuple):
    """Where error codes can be in a message: in itself, and in the elements of these arrays."""

    own: bool
    arrays: tuple[tuple[str, _Places], ...]


def error_codes(api_key: int, answer: Any) -> list[int]:
    """Return the error codes of an answer that are not 0, one for each place that has one."""
    found: list[int] = []
    _walk(_places(APIS[api_key].response_type), answer, found)
    return found


def _walk(places: _Places, message: Any, found: list[int]) -> None:
    if places.own and message.error_code:
        found.append(message.error_code)
    for name, inner in places.arrays:
        elements = getattr(message, name) or ()
        if inner.arrays:
            for element in elements:
                _walk(inner, element, found)
        else:
            found += [element.error_code for element in elements if element.error_code]


@cache
def _places(message: type[Struct]) -> _Places:
    fields = fields_of(message)
    arrays = [(f.name, _places(f.struct)) for f in fields if f.kind is Kind.ARRAY and f.struct is not None]
    return _Places(
        own=any(field.name == "error_code" for field in fields),
        arrays=tuple((name, inner) for name, inner in arrays if inner.own or inner.arrays),
    )
