"""What would stand inline has a name: generated clients have types, not places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.openapi.document import document
from app.openapi.names import ENUMS, name_enums, whole_bounds


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    return document()


def _nodes(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        yield path, node
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, child in children:
        yield from _nodes(child, f"{path}/{name}")


def test_every_choice_of_words_has_a_name(api: dict[str, Any]) -> None:
    inline = [
        path for path, node in _nodes(api) if isinstance(node.get("enum"), list) and len(node["enum"]) > 1
    ]
    assert sorted(inline) == [f"/components/schemas/{name}" for name in ENUMS]


def test_every_shape_with_members_has_a_name(api: dict[str, Any]) -> None:
    inline = [
        path
        for path, node in _nodes(api)
        if isinstance(node.get("properties"), dict)
        and not path.startswith("/components/schemas/")
        and "/example" not in path
    ]
    assert inline == []


def test_the_title_of_a_shape_is_its_name_and_no_two_share_one(api: dict[str, Any]) -> None:
    titles = {name: schema.get("title") for name, schema in api["components"]["schemas"].items()}
    assert {name: title for name, title in titles.items() if title != name} == {}


def test_words_are_found_by_their_set_and_keep_what_else_is_said_of_them() -> None:
    told = {
        "type": "string",
        "title": "X",
        "enum": ["LogAppendTime", "CreateTime"],
        "description": "d",
        "default": 1,
    }
    other = {"type": "string", "enum": ["a", "b"]}
    api: dict[str, Any] = {"components": {"schemas": {"A": {"anyOf": [told, {"type": "null"}]}, "B": other}}}
    name_enums(api)
    schemas = api["components"]["schemas"]
    named = {"$ref": "#/components/schemas/TimestampType", "description": "d", "default": 1}
    assert schemas["A"] == {"title": "A", "anyOf": [named, {"type": "null"}]}
    assert schemas["B"] == {"title": "B", "type": "string", "enum": ["a", "b"]}
    assert schemas["TimestampType"]["enum"] == ["CreateTime", "LogAppendTime"]
    assert "Acks" not in schemas


def test_bounds_of_whole_numbers_are_whole_and_include_their_ends(api: dict[str, Any]) -> None:
    bounds: dict[str, Any] = {
        "a": {"type": "integer", "exclusiveMaximum": float(2**63), "minimum": 0.0},
        "b": [{"type": "integer", "exclusiveMinimum": -1.0}, {"type": "number", "minimum": 0.5}],
    }
    whole_bounds(bounds)
    assert bounds["a"] == {"type": "integer", "maximum": 2**63 - 1, "minimum": 0}
    assert bounds["b"] == [{"type": "integer", "minimum": 0}, {"type": "number", "minimum": 0.5}]
    for _, node in _nodes(api):
        if node.get("type") == "integer":
            assert all(isinstance(node[name], int) for name in ("minimum", "maximum") if name in node)
