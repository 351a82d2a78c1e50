"""The OpenAPI 3.1 document: both surfaces, from the rows of their route tables.

Schemas come from the types that the rows name, descriptions from the docstrings of the handlers, parameters of
FastAPI's handlers from their signatures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi

from app.errors import KINDS, PROBLEM_MEDIA_TYPE
from app.http.parameters import AnsweredRequestId
from app.http.request import Scope
from app.http.route import Route
from app.native import routes as native
from app.native.fastapi_routes import add_routes
from app.native.operations import Operations
from app.native.schemas import ProblemDocument
from app.openapi.names import name_enums, whole_bounds
from app.openapi.operations import Paths, Style, header_lines
from app.openapi.schemas import Schemas
from app.rest_v2 import routes as v2
from app.rest_v2.dialect import DIALECTS
from app.rest_v2.errors import MEANINGS
from app.rest_v2.schemas import ErrorMessage
from app.version import VERSION
from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config
from core.security.guarded import Guarded
from core.transactions.long_transactions import CallersTransactions

DESCRIPTION = (
    "Sluice: a Kafka that you can curl. The native HTTP API of a broker that Kafka clients reach on its binary "
    "port. Every refusal is a problem document (RFC 9457)."
)
_REF = "#/components/schemas/{model}"
_V2_REFUSAL = "V2Refusal{}"
# What a status means on the native surface. The titles of problems are the rest.
_MEANINGS = {
    404: "There is no such thing: the topic, partition, group or member.",
    409: "The state of the resource is against it.",
    410: "The offset lies below the start of the partition; the bounds say where that is.",
    416: "The offset lies above the end of the partition; the bounds say where that is.",
    429: "Too much at once; try again after `Retry-After` seconds.",
    504: "The broker did not do it in time.",
    507: "The disk does not take it: it is full or broken.",
} | {
    kind.status: kind.title + "."
    for name, kind in KINDS.items()
    if name
    not in ("topic-differs", "group-type", "not-found", "idempotency-key-in-use", "idempotency-key-reused")
}


def document() -> dict[str, Any]:
    """Return the whole document. It is the same on every machine."""
    config, found = Config(), Paths()
    schemas, v2_schemas = Schemas(), Schemas("V2")
    control, pages = native.control_routes(), native.problem_routes()
    declared = _declared_by_fastapi((*control, *pages))
    parameters = _parameters_of(declared)

    surface = Style(native.PREFIX, schemas, native.ANYWHERE, lambda status: _problem(schemas, status))
    elsewhere = surface._replace(prefix="", anywhere=native.ANYWHERE_ELSE)
    found.add(surface, native.lean_routes(config, _no_caller, _no_transactions))
    found.add(surface, control, parameters)
    found.add(
        elsewhere, native.operation_routes(Operations(_no_broker, _no_caller, lambda: None, _no_metrics))
    )
    found.add(elsewhere, pages, parameters)
    found.add(
        Style("", v2_schemas, v2.ANYWHERE, _v2_reference, (v2.V2,), (v2.V2, "application/json")),
        v2.v2_routes(config, Clock(), DIALECTS[config.v2_dialect], _no_caller),
    )
    components = declared["components"]["schemas"] | _problem_schemas()
    responses = {_V2_REFUSAL.format(status): _v2_refusal(v2_schemas, status) for status in MEANINGS}
    whole: dict[str, Any] = deepcopy({
        "openapi": "3.1.0",
        "info": {"title": "Sluice", "description": DESCRIPTION, "version": VERSION},
        "paths": dict(sorted(found.operations.items())),
        "components": {
            "schemas": components | schemas.components | v2_schemas.components, "responses": responses,
        },
        "servers": [{"url": "http://127.0.0.1:8082"}],
    })  # fmt: skip
    name_enums(whole)
    whole_bounds(whole)
    whole["components"]["schemas"] = dict(sorted(whole["components"]["schemas"].items()))
    return whole


def document_text() -> str:
    """Return the document as it is in `openapi/openapi.json`."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def is_current(path: Path) -> bool:
    """Return whether a file holds what the code says."""
    return path.is_file() and path.read_text() == document_text()


def _no_broker() -> Broker:
    raise AssertionError("The document is made without a broker.")


def _no_caller(scope: Scope) -> Guarded:
    raise AssertionError("The document is made without a broker.")


def _no_transactions(scope: Scope) -> CallersTransactions:
    raise AssertionError("The document is made without a broker.")


async def _no_metrics(accept: str) -> tuple[bytes, str]:
    raise AssertionError("The document is made without metrics.")


# --- FastAPI's part -----------------------------------------------------------------------------------------


def _declared_by_fastapi(routes: tuple[Route[Callable[..., Any]], ...]) -> dict[str, Any]:
    """Return what FastAPI knows from the signatures of handlers: parameters, and the schemas of pydantic models."""
    router = APIRouter()
    add_routes(router, routes, "/control")
    declared = get_openapi(title="", version="", routes=router.routes)
    for name in ("HTTPValidationError", "ValidationError"):
        declared["components"]["schemas"].pop(name, None)
    return declared


def _parameters_of(declared: dict[str, Any]) -> Callable[[Route[Any]], list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {
        operation["operationId"]: operation.get("parameters", [])
        for methods in declared["paths"].values()
        for operation in methods.values()
    }
    return lambda route: found[route.name]


# --- refusals -----------------------------------------------------------------------------------------------


def _problem_schemas() -> dict[str, Any]:
    problem = ProblemDocument.model_json_schema(ref_template=_REF)
    return {**problem.pop("$defs", {}), "ProblemDocument": problem}


def _problem(schemas: Schemas, status: int) -> dict[str, Any]:
    return {
        "description": _MEANINGS[status],
        "content": {PROBLEM_MEDIA_TYPE: {"schema": schemas.of(ProblemDocument)}},
        "headers": header_lines(schemas, AnsweredRequestId),
    }


def _v2_reference(status: int) -> dict[str, Any]:
    return {"$ref": "#/components/responses/" + _V2_REFUSAL.format(status)}


def _v2_refusal(schemas: Schemas, status: int) -> dict[str, Any]:
    meaning, code, message = MEANINGS[status]
    shown = {"schema": schemas.of(ErrorMessage), "example": {"error_code": code, "message": message}}
    return {
        "description": meaning,
        "headers": header_lines(schemas, AnsweredRequestId),
        "content": dict.fromkeys((v2.V2, "application/json"), shown),
    }
