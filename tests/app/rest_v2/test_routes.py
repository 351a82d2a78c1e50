"""The table of the v2 surface in the OpenAPI document: examples that are taken, shapes that are answered."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import msgspec
import pytest

from app.main import Application
from app.openapi.document import document
from app.rest_v2 import schemas as shapes
from app.rest_v2.dialect import DIALECTS
from app.rest_v2.routes import BINARY_RECORDS, JSON_RECORDS, TAG, TEXT_RECORDS, v2_routes
from core.clock import Clock

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
    of_dialect = {
        name: {
            (row.method, row.path)
            for row in v2_routes(app.shared.config, Clock(), dialect, app.shared.current_broker)
        }
        for name, dialect in DIALECTS.items()
    }
    assert of_dialect["confluent"] == set(operations)
    assert len(operations) == 23
    assert of_dialect["karapace"] - set(operations) == {("GET", "/_health")}


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
            shape = getattr(shapes, content["schema"]["$ref"].rpartition("/V2")[2])
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
    assert list(content) == [JSON_RECORDS, BINARY_RECORDS, TEXT_RECORDS]
    for media_type, one in content.items():
        answer = await http.post("/topics/t", json=one["example"], headers={"content-type": media_type})
        assert answer.status_code == 200, media_type
        assert all(entry["error_code"] is None for entry in answer.json()["offsets"])


async def test_names_are_set_apart_from_those_of_the_native_surface(api: dict[str, Any]) -> None:
    found = {name: one for name, one in api["components"]["schemas"].items() if name.startswith("V2")}
    assert {"V2ProduceRequest", "V2ProduceRecord", "V2ConsumerRecord", "V2ErrorMessage"} <= set(found)
    references = re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(found))
    assert set(references) <= set(found)
    assert found["V2ProduceRequest"]["required"] == ["records"]
    assert found["V2ProduceRecord"]["required"] == []


async def test_options_have_the_names_of_the_wire(api: dict[str, Any]) -> None:
    names = set(api["components"]["schemas"]["V2CreateInstance"]["properties"])
    assert {
        "auto.offset.reset", "auto.commit.enable", "fetch.min.bytes", "consumer.request.timeout.ms",
    } <= names  # fmt: skip
    assert len(names) == len(shapes.CreateInstance.__struct_fields__)
