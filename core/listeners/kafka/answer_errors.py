"""Find the error codes in an answer by the schema of its message, so that no handler has to count them.

Where `error_code` fields can be is looked up once for each type of message; a walk visits only those places.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from msgspec import Struct

from core.protocol.apis import APIS
from core.protocol.schema import Kind, fields_of

_USUAL = "error_code"
# The second one is that of AddPartitionsToTxn.
_NAMES = (_USUAL, "partition_error_code")


class _Places(NamedTuple):
    """Where error codes can be in a message: in a field of its own, and in the elements of these arrays."""

    own: str | None
    arrays: tuple[tuple[str, _Places], ...]


def error_codes(api_key: int, answer: Any) -> list[int]:
    """Return the error codes of an answer that are not 0, one for each place that has one."""
    found: list[int] = []
    _walk(_places(APIS[api_key].response_type), answer, found)
    return found


def _walk(places: _Places, message: Any, found: list[int]) -> None:
    if places.own is not None and (code := getattr(message, places.own)):
        found.append(code)
    for name, inner in places.arrays:
        elements = getattr(message, name) or ()
        if inner.arrays or inner.own != _USUAL:
            for element in elements:
                _walk(inner, element, found)
        else:
            found += [element.error_code for element in elements if element.error_code]


@cache
def _places(message: type[Struct]) -> _Places:
    fields = fields_of(message)
    arrays = [(f.name, _places(f.struct)) for f in fields if f.kind is Kind.ARRAY and f.struct is not None]
    return _Places(
        own=next((field.name for field in fields if field.name in _NAMES), None),
        arrays=tuple((name, inner) for name, inner in arrays if inner.own is not None or inner.arrays),
    )
