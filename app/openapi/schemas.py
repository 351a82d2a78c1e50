"""Types in the OpenAPI document: their JSON schemas, and their examples.

A type is what a row of a route table names: a msgspec struct, a pydantic model, a list or union of them, `Lines`, or
`bytes` for a body of any bytes. Structs may hold `EXAMPLES`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from pydantic import BaseModel

from app.http.route import Lines

_REF = "#/components/schemas/{}"
_UNIONS = (UnionType, Union)


class Member(NamedTuple):
    """A member of a struct: its name, whether it must be there, its schema."""

    name: str
    required: bool
    schema: dict[str, Any]


class Schemas:
    """Makes schemas of types, and collects the named ones in `components`. All their names begin with `prefix`."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self.components: dict[str, Any] = {}

    def of(self, shape: Any) -> dict[str, Any]:
        """Return the schema of a type."""
        if isinstance(shape, Lines):
            line = self.of(shape.shape)
            return {"type": "string", "contentMediaType": "application/x-ndjson", "contentSchema": line}
        if get_origin(shape) in _UNIONS:
            return {"oneOf": [self.of(one) for one in get_args(shape)]}
        if shape is bytes:
            return {"type": "string", "format": "binary"}
        if isinstance(shape, type) and issubclass(shape, BaseModel):
            return _reference(shape)
        (schema,), components = msgspec.json.schema_components(
            [shape], schema_hook=_reference, ref_template=_REF.format(f"{self._prefix}{{name}}")
        )
        for name, component in components.items():
            # The title as well: generators name their types by it.
            self.components[self._prefix + name] = {**component, "title": self._prefix + name}
        schema.pop("examples", None)
        return schema

    def content(self, shape: Any) -> dict[str, Any]:
        """Return the schema of a body with its examples."""
        examples = list(_examples(shape))
        if len(examples) > 1:
            named = {f"example {number}": {"value": one} for number, one in enumerate(examples, 1)}
            return {"schema": self.of(shape), "examples": named}
        return {"schema": self.of(shape)} | ({"example": examples[0]} if examples else {})

    def members(self, struct: type) -> list[Member]:
        """Return the members of a struct that describes parameters or header lines. The struct is no component.

        A member that is an object with a title becomes a component of that name.
        """
        _, components = msgspec.json.schema_components([struct], ref_template=_REF.format("{name}"))
        schema = components[struct.__name__]
        return [
            Member(name, name in schema["required"], self._named(member))
            for name, member in schema["properties"].items()
        ]

    def _named(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema.get("title")
        if name is None or schema.get("type") != "object":
            return schema
        kept: dict[str, Any] = {key: schema.pop(key) for key in ("description", "examples") if key in schema}
        self.components[name] = {**schema, "description": kept.get("description", "")}
        return {"$ref": _REF.format(name), **kept}


def _reference(shape: type) -> dict[str, Any]:
    """Return a reference to a pydantic model, whose schema is among the components."""
    return {"$ref": _REF.format(shape.__name__)}


def _examples(shape: Any) -> Iterator[Any]:
    if isinstance(shape, Lines):
        yield from (json.dumps(one) + "\n" for one in _examples(shape.shape))
    elif get_origin(shape) in _UNIONS:
        for one in get_args(shape):
            yield from _examples(one)
    elif get_origin(shape) is list:
        yield from ([one] for one in _examples(get_args(shape)[0]))
    else:
        metas = [meta for meta in getattr(shape, "__metadata__", ()) if isinstance(meta, Meta)]
        told = [one for meta in metas for one in meta.examples or ()]
        yield from told or getattr(shape, "EXAMPLES", [])
