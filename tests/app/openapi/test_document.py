"""The OpenAPI document: valid, complete, the same as the file, and true of the routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from app.native.produce_body import ProduceBody
from app.openapi.document import document, document_text, is_current
from app.rest_v2.routes import TAG

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "openapi" / "openapi.json"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    return document()


def operations(api: dict[str, Any], proxy: bool = True) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """All operations; without those of the v2 surface, whose refusals have another shape, where `proxy` is off."""
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            if proxy or operation["tags"] != [TAG]:
                yield method, path, operation


async def test_the_file_is_what_the_code_says() -> None:
    assert is_current(FILE), "run `sluice openapi`"
    assert document_text() == document_text()


async def test_it_is_openapi_3_1(api: dict[str, Any]) -> None:
    assert api["openapi"] == "3.1.0"
    assert api["info"]["title"] == "Sluice"


async def test_every_operation_has_an_id_of_its_own_a_summary_and_a_tag(api: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(api)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][A-Za-z]+", one) for one in ids)
    for _, _, operation in operations(api):
        assert operation["summary"] and operation["tags"] and operation["description"]


async def test_every_reference_leads_somewhere(api: dict[str, Any]) -> None:
    text = json.dumps(api)
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names <= set(api["components"]["schemas"])
    assert not {"HTTPValidationError", "ValidationError"} & set(api["components"]["schemas"])


async def test_every_refusal_is_declared_as_a_problem(api: dict[str, Any]) -> None:
    for _, path, operation in operations(api, proxy=False):
        for status, response in operation["responses"].items():
            assert "X-Request-Id" in response["headers"]
            if status >= "400" and not path.endswith(("healthz", "readyz")):
                assert list(response["content"]) == ["application/problem+json"], (path, status)
        if path.startswith("/api/"):
            assert {"400", "421", "422", "500"} <= set(operation["responses"])


async def test_every_parameter_of_a_path_is_declared(api: dict[str, Any]) -> None:
    for _, path, operation in operations(api):
        declared = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path))


async def test_every_route_that_is_declared_is_there(api: dict[str, Any], http: httpx.AsyncClient) -> None:
    for method, path, _ in operations(api, proxy=False):
        url = re.sub(
            r"{(partition|offset)}", "0", path.replace("{topic}", "declared").replace("{slug}", "not-found")
        )
        body = {"content": b"{}", "headers": {"content-type": "application/json"}}
        got = await http.request(method.upper(), url, **({} if method in ("get", "delete") else body))  # type: ignore[arg-type]
        assert got.status_code != 405
        assert got.status_code != 404 or got.json()["type"] != "/problems/not-found", (method, path)


async def test_the_examples_of_bodies_are_taken(api: dict[str, Any]) -> None:
    content = api["paths"]["/api/v1/topics/{topic}/records"]["post"]["requestBody"]["content"]
    reader = ProduceBody(max_depth=10, max_records=10)
    for example in content["application/json"]["examples"].values():
        assert reader.from_json(msgspec.json.encode(example["value"]))
    assert len(reader.from_ndjson(content["application/x-ndjson"]["example"].encode())) == 2
