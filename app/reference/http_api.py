"""docs/reference/http-api.md: every route of openapi.json, with its parameters and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from app.openapi.document import document_text
from app.reference.markdown import cell, table

_INTRODUCTION = """\
# HTTP API

Written by `sluice docs` from [openapi.json](../../openapi/openapi.json), which has the fields of each type as well. A
running gateway shows it under `/docs`. The [guide](../guides/http.md) explains records, encodings and errors.

"""
_METHODS = ("get", "put", "post", "patch", "delete")


def page() -> str:
    """Return the page."""
    document = msgspec.json.decode(document_text())
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                by_tag.setdefault(item[method]["tags"][0], []).append((method.upper(), path, item[method]))
    parts = [_INTRODUCTION]
    for tag, routes in sorted(by_tag.items()):
        rows = [(f"{method} `{path}`", route["summary"]) for method, path, route in routes]
        parts.append(f"## {tag}\n{table(('route', ''), rows)}\n")
        parts.extend(part for method, path, route in routes for part in _route(document, method, path, route))
    return "".join(parts).rstrip() + "\n"


def _route(document: Mapping[str, Any], method: str, path: str, route: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {method} {path}\n`{route['operationId']}`. {cell(route.get('description') or route['summary'])}\n\n"
    parameters = [_resolved(document, one) for one in route.get("parameters", ())]
    rows = [
        (f"`{one['name']}`", one["in"] + (", required" if one.get("required") else ""), _type(one.get("schema", {})),
         one.get("description", ""))
        for one in parameters
        if one["in"] != "path"
    ]  # fmt: skip
    if rows:
        yield table(("parameter", "in", "type", "meaning"), rows) + "\n"
    body = _resolved(document, route.get("requestBody", {})).get("content", {})
    if body:
        yield f"Body: {_contents(body)}\n\n"
    answers = {status: _resolved(document, answer) for status, answer in route["responses"].items()}
    good = [
        (status, cell(answer.get("description", "")), _contents(answer.get("content", {})))
        for status, answer in answers.items()
        if status < "4"
    ]
    yield table(("status", "meaning", "body"), good) + "\n"
    refused = [status for status in answers if status >= "4"]
    if refused:
        yield f"Errors: {', '.join(refused)}.\n\n"


def _resolved(document: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The thing that a `$ref` names, or the value itself."""
    if "$ref" not in value:
        return value
    found: Any = document
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return _resolved(document, found)


def _contents(content: Mapping[str, Any]) -> str:
    return ", ".join(f"`{media}`: {_type(one.get('schema', {}))}" for media, one in content.items())


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words: the name of a type, its choices, or its kind and bounds."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[key]))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    default = f", default `{schema['default']}`" if schema.get("default") is not None else ""
    return f"{kind}{default}"
