"""Operations of the OpenAPI document, made from the rows of a route table."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

from app.http.parameters import PATH_PARAMETERS, AnsweredRequestId
from app.http.route import Body, Reply, Route
from app.openapi.schemas import Member, Schemas

_JSON = "application/json"


class Style(NamedTuple):
    """How the rows of a surface are shown.

    `prefix` comes before their paths. `bodies` and `answers` are the media types of JSON, `anywhere` the statuses of
    refusals that every route may have, `refusal` makes the response for such a status.
    """

    prefix: str
    schemas: Schemas
    anywhere: tuple[int, ...]
    refusal: Callable[[int], dict[str, Any]]
    bodies: tuple[str, ...] = (_JSON,)
    answers: tuple[str, ...] = (_JSON,)


class Paths:
    """The operations of the document, by path and method."""

    def __init__(self) -> None:
        self.operations: dict[str, dict[str, Any]] = {}

    def add(
        self,
        style: Style,
        routes: Iterable[Route[Any]],
        parameters: Callable[[Route[Any]], list[dict[str, Any]]] | None = None,
    ) -> None:
        """Add the operations of rows. `parameters` returns those of a row that does not declare them (FastAPI)."""
        for route in routes:
            shown = _parameters(style.schemas, route) if parameters is None else parameters(route)
            operation: dict[str, Any] = {
                "tags": [route.tag],
                "summary": route.summary,
                "description": inspect.getdoc(route.handle),
                "operationId": route.name,
            }
            if route.needs:
                # Served if `capabilities` of GET /api/v1/ has this name.
                operation["x-capability"] = route.needs
            if shown:
                operation["parameters"] = shown
            if route.request is not None:
                operation["requestBody"] = _body(style, route.request)
            operation["responses"] = _responses(style, route)
            self.operations.setdefault(style.prefix + route.path, {})[route.method.lower()] = operation


def header_lines(schemas: Schemas, struct: type) -> dict[str, Any]:
    """Return the header lines of a response, which are the members of a struct."""
    return {member.name: _described(member.schema) for member in schemas.members(struct)}


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as a parameter or header has it: the description and the example stand beside it."""
    shown = {"description": schema.pop("description", ""), "schema": schema}
    if examples := schema.pop("examples", None):
        shown["example"] = examples[0]
    return shown


def _parameters(schemas: Schemas, route: Route[Any]) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)}", route.path)
    found = [("path", Member(name, True, _of_path(schemas, name))) for name in names]
    for place, struct in (("query", route.query), ("header", route.headers)):
        if struct is not None:
            found += [(place, member) for member in schemas.members(struct)]
    return [_parameter(place, member) for place, member in found]


def _of_path(schemas: Schemas, name: str) -> dict[str, Any]:
    shape: Any = PATH_PARAMETERS[name]
    return {**schemas.of(shape), "examples": shape.__metadata__[0].examples}


def _parameter(place: str, member: Member) -> dict[str, Any]:
    shown = {"name": member.name, "in": place, "required": member.required, **_described(member.schema)}
    if "$ref" in shown["schema"]:
        # An object: each of its members is a parameter of its own.
        shown |= {"style": "form", "explode": True}
    return shown


def _body(style: Style, request: object) -> dict[str, Any]:
    body = request if isinstance(request, Body) else Body(dict.fromkeys(style.bodies, request))
    content = {media_type: style.schemas.content(shape) for media_type, shape in body.media.items()}
    return {"required": not body.optional, "content": content}


def _refusals(style: Style, route: Route[Any]) -> tuple[int, ...]:
    return (*style.anywhere, *route.refuses, *([501] if route.needs else []))


def _responses(style: Style, route: Route[Any]) -> dict[str, Any]:
    responses = {str(status): style.refusal(status) for status in _refusals(style, route)}
    for status, answer in route.answers.items():
        reply = answer if isinstance(answer, Reply) else Reply(f"{HTTPStatus(status).phrase}.", answer)
        shown: dict[str, Any] = {"description": reply.text, "headers": {}}
        if reply.headers is not None:
            shown["headers"] |= header_lines(style.schemas, reply.headers)
        shown["headers"] |= header_lines(style.schemas, AnsweredRequestId)
        shapes = dict.fromkeys(style.answers, reply.shape) if reply.shape is not None else {}
        if content := shapes | dict(reply.media):
            shown["content"] = {name: style.schemas.content(shape) for name, shape in content.items()}
        responses[str(status)] = shown
    return dict(sorted(responses.items()))
