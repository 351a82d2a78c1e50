"""The OpenAPI 3.1 document: FastAPI's half, the lean routes' half, and one set of errors for both."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

from fastapi.openapi.utils import get_openapi

from app.errors import KINDS, PROBLEM_MEDIA_TYPE
from app.fastapi_app import DESCRIPTION, NATIVE_PREFIX, make_fastapi
from app.native import operations
from app.native.consumer_schemas import BATCH_SCHEMA
from app.native.schemas import Health, ProblemDocument
from app.openapi import merged as merged_openapi
from app.openapi import records as record_openapi
from app.openapi import rest_v2 as proxy_openapi
from app.openapi.names import name_enums, whole_bounds, without_null_body
from app.shared import Gateway
from app.version import VERSION
from core.broker.broker import Broker
from core.config import Config

_PROBLEM_REF = {"$ref": "#/components/schemas/ProblemDocument"}
_REF = "#/components/schemas/{model}"
# What any route may answer beside its own: the front door refuses before it is asked.
_EVERYWHERE = (400, 421, 422, 431, 500)
_ON_WRITES = (403, 408, 413, 415, 503, 507)
_OF_TOPIC = (404,)
_ALSO: dict[str, tuple[int, ...]] = {
    "createTopic": (409,),
    "changeTopic": (409, 412),
    "deleteTopic": (403, 409, 412),
    "truncateTopic": (416,),
    "produceRecords": (406, 409, 429, 504),
    "readRecords": (410, 416, 429),
    "readTopicRecords": (406, 410, 416, 429),
    "getRecord": (406, 410),
    "listGroups": (503,),
    "getGroup": (404, 503),
    "getGroupOffsets": (404, 503),
    "getGroupLag": (404, 503),
    "deleteGroup": (404, 409),
    "takeOverGroup": (404, 409),
    "setGroupOffsets": (404, 409),
    "resetGroupOffsets": (404, 409),
    "deleteGroupTopicOffsets": (404, 409),
    "deleteGroupPartitionOffset": (404, 409),
    "joinGroup": (404, 409, 429),
    "syncGroup": (404, 409, 429),
    "heartbeat": (404, 409),
    "leaveGroup": (404, 409),
    "createConsumer": (404, 409, 429),
    "getConsumer": (404,),
    "deleteConsumer": (404,),
    "pollConsumer": (404, 409, 416, 429),
    "ackConsumer": (404, 409),
    "seekConsumer": (404, 409, 410, 416, 429),
    "pauseConsumer": (404, 409),
    "resumeConsumer": (404, 409),
}
_TITLES = {
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
    if name not in ("topic-differs", "not-found", "idempotency-key-in-use", "idempotency-key-reused")
}
_HEADERS = {
    "X-Request-Id": {
        "description": "The id of the request: the one that it brought, or a new one.",
        "schema": {"type": "string"},
    }
}


def document() -> dict[str, Any]:
    """The whole document, the same on every machine."""
    config = Config()
    app = make_fastapi(Gateway(config, Broker.__new__(Broker)))
    whole = get_openapi(
        title="Sluice", version=VERSION, openapi_version="3.1.0", description=DESCRIPTION, routes=app.routes
    )
    schemas = whole["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    problem = ProblemDocument.model_json_schema(ref_template=_REF)
    schemas |= problem.pop("$defs", {})
    schemas["ProblemDocument"] = problem
    schemas["PolledBatch"] = BATCH_SCHEMA
    schemas["Health"] = Health.model_json_schema(ref_template=_REF)
    # What is null is left out.
    del schemas["Health"]["properties"]["zookeeper"]["default"]
    schemas |= record_openapi.schemas() | merged_openapi.schemas() | proxy_openapi.schemas()
    for room in (record_openapi, merged_openapi):
        for path, methods in room.paths(NATIVE_PREFIX, config).items():
            whole["paths"].setdefault(path, {}).update(methods)
    whole["paths"] |= operations.paths()
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            _add_errors(path, method, operation)
            without_null_body(operation)
    whole["paths"] |= proxy_openapi.paths(config, _HEADERS)
    whole["components"]["responses"] = proxy_openapi.responses(_HEADERS)
    whole["paths"] = dict(sorted(whole["paths"].items()))
    whole["components"]["schemas"] = schemas
    # A copy: the parts are constants of their rooms.
    whole = deepcopy(whole)
    name_enums(whole)
    whole_bounds(whole)
    whole["components"]["schemas"] = dict(sorted(whole["components"]["schemas"].items()))
    whole["servers"] = [{"url": "http://127.0.0.1:8082"}]
    return whole


def _add_errors(path: str, method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if path.startswith(NATIVE_PREFIX):
        statuses = {*_EVERYWHERE, *_ALSO.get(operation["operationId"], ())}
        if method not in ("get", "head"):
            statuses |= set(_ON_WRITES)
        if "{topic}" in path:
            statuses |= set(_OF_TOPIC)
    else:
        statuses = {400, 421, 431, 500} | ({404} if "{" in path else set())
        responses.pop("422", None)
    for status in statuses:
        known = responses.get(str(status))
        if known is None or status == 422:
            responses[str(status)] = {
                "description": _TITLES[status],
                "content": {PROBLEM_MEDIA_TYPE: {"schema": _PROBLEM_REF}},
            }
    for response in responses.values():
        response["headers"] = {**response.get("headers", {}), **_HEADERS}
    operation["responses"] = dict(sorted(responses.items()))


def document_text() -> str:
    """The document as it stands in `openapi/openapi.json`."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def is_current(path: Path) -> bool:
    """Whether a file holds what the code says."""
    return path.is_file() and path.read_text() == document_text()
