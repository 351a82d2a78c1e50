"""The v2 routes in the OpenAPI document: all of them, with examples that are taken and shapes that are answered."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import msgspec
import pytest

from app.main import Application
from app.openapi.document import document
from app.openapi.rest_v2 import RECORD_TYPES, TAG
from app.rest_v2 import schemas as shapes
from app.rest_v2.surface import ProxySurface

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    return document()


@pytest.fixture(scope="module")
def operations(api: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
        if operation["tags"] == [TAG]
    }


async def test_the_routes_are_those_that_are_described(app: Application, operations: dict[Any, Any]) -> None:
    routes = {(route.method, route.path) for route in ProxySurface(app.gateway).routes}
    assert routes == set(operations)
    assert len(routes) == 23


async def test_every_refusal_has_the_shape_of_v2(api: dict[str, Any], operations: dict[Any, Any]) -> None:
    for operation in operations.values():
        for status, response in operation["responses"].items():
            if status < "400":
                assert "X-Request-Id" in response["headers"]
                continue
            name = response["$ref"].removeprefix("#/components/responses/")
            shared = api["components"]["responses"][name]
            assert "X-Request-Id" in shared["headers"]
            for content in shared["content"].values():
                assert content["schema"] == {"$ref": "#/components/schemas/V2ErrorMessage"}
                assert str(content["example"]["error_code"])[:1] in "45"


async def test_every_reference_leads_somewhere(api: dict[str, Any], operations: dict[Any, Any]) -> None:
    components = api["components"]
    text = json.dumps([list(operations.values()), components["responses"]])
    for kind, name in re.findall(r'"#/components/(\w+)/([^"]+)"', text):
        assert name in components[kind], name


async def test_the_examples_of_bodies_are_of_their_shape(operations: dict[Any, Any]) -> None:
    for operation in operations.values():
        for content in operation.get("requestBody", {}).get("content", {}).values():
            shape = getattr(shapes, re.sub(".*/V2(Binary|Text)?", "", content["schema"]["$ref"]))
            msgspec.json.decode(json.dumps(content["example"]), type=shape, strict=False)


async def test_the_examples_of_answers_are_of_their_shape(operations: dict[Any, Any]) -> None:
    for operation in operations.values():
        for content in operation["responses"].get("200", {}).get("content", {}).values():
            schema, example = content["schema"], content["example"]
            reference = schema.get("$ref") or schema.get("items", {}).get("$ref")
            if reference is None:
                continue
            shape = getattr(shapes, reference.removeprefix("#/components/schemas/V2"))
            wanted = list[shape] if "items" in schema else shape  # type: ignore[valid-type]
            assert msgspec.to_builtins(msgspec.json.decode(json.dumps(example), type=wanted)) == example


async def test_the_examples_of_records_are_taken(http: httpx.AsyncClient, operations: dict[Any, Any]) -> None:
    content = operations["POST", "/topics/{topic}"]["requestBody"]["content"]
    assert list(content) == list(RECORD_TYPES)
    for media_type, one in content.items():
        answer = await http.post("/topics/t", json=one["example"], headers={"content-type": media_type})
        assert answer.status_code == 200, media_type
        assert all(entry["error_code"] is None for entry in answer.json()["offsets"])
