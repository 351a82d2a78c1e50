"""Which errors an answer carries: found by the schema of its message, so that no handler has to count.

For each API a function is written once, as the codec's are; it goes only where `error_code` fields can be and
costs a loop over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from core.protocol.apis import APIS
from core.protocol.schema import Kind, fields_of
from core.protocol.source import Source

Codes = Callable[[Any], Sequence[int]]


def error_codes_of(api_key: int) -> Codes:
    """A function that gives the error codes of an answer that are not 0, one for each place where one stands."""
    response = APIS[api_key].response_type
    if not _has_codes(response):
        return _none
    source = Source("def codes(m):", {})
    source.line("found = []")
    _write(source, response, "m")
    source.line("return found")
    codes: Codes = source.finish(f"error codes of {response.__name__}").run
    return codes


def _none(_answer: Any) -> Sequence[int]:
    return ()


def _write(source: Source, message: type[Struct], variable: str) -> None:
    for field in fields_of(message):
        if field.name == "error_code":
            with source.block(f"if {variable}.error_code:"):
                source.line(f"found.append({variable}.error_code)")
        elif field.kind is Kind.ARRAY and field.struct is not None and _has_codes(field.struct):
            element = source.new("e")
            with source.block(f"for {element} in {variable}.{field.name} or ():"):
                _write(source, field.struct, element)


def _has_codes(message: type[Struct]) -> bool:
    return any(
        field.name == "error_code"
        or (field.kind is Kind.ARRAY and field.struct is not None and _has_codes(field.struct))
        for field in fields_of(message)
    )
