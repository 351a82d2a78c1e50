"""What generated clients depend on is not lost: operations, parameters, media types, statuses, schemas, members.

`promises.txt` lists it, one fact a line. A line may be added with a new operation or refusal; one that is removed, or
changes, breaks programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.openapi.document import document

FILE = Path(__file__).parent / "promises.txt"


@pytest.fixture(scope="module")
def kept() -> set[str]:
    return set(promises(document()))


def test_nothing_that_generated_clients_depend_on_is_lost(kept: set[str]) -> None:
    promised = FILE.read_text().splitlines()
    assert len(promised) > 1_000 and promised == sorted(set(promised))
    assert sorted(set(promised) - kept) == []


def promises(api: dict[str, Any]) -> Iterator[str]:
    """One line for each fact of a document."""
    shared = api["components"].get("responses", {})
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            yield from _of_operation(f"{method.upper()} {path}", operation, shared)
    for name, schema in api["components"]["schemas"].items():
        yield f"schema {name}"
        for member, kind in schema.get("properties", {}).items():
            need = "required" if member in schema.get("required", ()) else "optional"
            yield f"schema {name}: {member} {need} {_kind(kind)}"
        for word in schema.get("enum", ()):
            yield f"schema {name}: word {word}"


def _of_operation(route: str, operation: dict[str, Any], shared: dict[str, Any]) -> Iterator[str]:
    name = operation["operationId"]
    yield f"{route} is {name} of {', '.join(operation['tags'])}"
    for one in operation.get("parameters", ()):
        need = "required" if one["required"] else "optional"
        yield f"{name} takes {one['in']} {one['name']} {need} {_kind(one['schema'])}"
    body = operation.get("requestBody")
    if body is not None:
        need = "required" if body.get("required") else "optional"
        for media_type, content in body["content"].items():
            yield f"{name} takes body {need} {media_type} {_kind(content['schema'])}"
    for status, response in operation["responses"].items():
        whole = shared[response["$ref"].rpartition("/")[2]] if "$ref" in response else response
        shapes = [f"{kind} {_kind(one['schema'])}" for kind, one in whole.get("content", {}).items()]
        if status >= "400":
            yield f"{name} refuses {status}: {', '.join(shapes)}"
            continue
        yield f"{name} answers {status}"
        yield from (f"{name} answers {status} {shape}" for shape in shapes)
        yield from (
            f"{name} answers {status} header {one}" for one in whole["headers"] if one != "X-Request-Id"
        )


def _kind(schema: dict[str, Any]) -> str:
    """A schema in one word or a few: its type or reference, its items, its bounds and default."""
    if "$ref" in schema:
        text = schema["$ref"].rpartition("/")[2]
    elif parts := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        text = "|".join(sorted(_kind(one) for one in parts))
    elif isinstance(schema.get("type"), list):
        text = "|".join(sorted(schema["type"]))
    else:
        text = str(schema.get("type", "any"))
    if "items" in schema:
        text += f"[{_kind(schema['items'])}]"
    if isinstance(schema.get("additionalProperties"), dict):
        text += f"{{{_kind(schema['additionalProperties'])}}}"
    bounds = (
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "pattern",
        "default",
        "format",
    )
    return text + "".join(f" {bound}={schema[bound]}" for bound in bounds if bound in schema)
