"""Where a client begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import Application, create_app
from app.version import VERSION
from core.config import Endpoint
from tests.app.conftest import client_of, config_for

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("path", ["/api/v1", "/api/v1/"])
async def test_the_overview_links_to_what_is_there(http: httpx.AsyncClient, path: str) -> None:
    body = (await http.get(path)).json()
    assert (body["name"], body["version"]) == ("sluice", VERSION)
    assert body["limits"]["body_bytes"] == 16 * 1024 * 1024
    for link in body["links"].values():
        assert (await http.get(link)).status_code == 200


async def test_the_cluster_names_its_kafka_address(http: httpx.AsyncClient, app: Application) -> None:
    await http.put("/api/v1/topics/cluster-test", json={"partitions": 3})
    port = app.server.endpoints[0].port
    assert port > 0
    body = (await http.get("/api/v1/cluster")).json()
    assert len(body["cluster_id"]) == 22
    assert (body["topics"], body["partitions"], body["controller_id"]) == (1, 3, 1)
    (broker,) = (await http.get("/api/v1/brokers")).json()["items"]
    assert body["brokers"] == [broker]
    assert broker["kafka"] == f"127.0.0.1:{port}"
    assert broker["listeners"] == ["http://127.0.0.1:8082", f"kafka://127.0.0.1:{port}"]


async def test_an_advertised_address_is_the_one_that_is_told(tmp_path: Path) -> None:
    app = create_app(config_for(tmp_path / "data", advertised=Endpoint("kafka", "::1", 19092)))
    async with app.lifespan(), client_of(app) as http:
        (broker,) = (await http.get("/api/v1/brokers")).json()["items"]
        assert broker["kafka"] == "[::1]:19092"


async def test_a_wildcard_is_told_as_the_address_by_which_the_request_came(tmp_path: Path) -> None:
    listeners = (Endpoint("kafka", "0.0.0.0", 0),)
    app = create_app(config_for(tmp_path / "data", listeners=listeners))
    async with app.lifespan(), client_of(app) as http:
        (broker,) = (await http.get("/api/v1/brokers")).json()["items"]
        assert broker["kafka"] == f"127.0.0.1:{app.server.endpoints[0].port}"


async def test_the_versions_of_the_kafka_listener_are_told_over_http(http: httpx.AsyncClient) -> None:
    apis = {api["api_key"]: api for api in (await http.get("/api/v1/protocol-versions")).json()["apis"]}
    assert apis[1] == {
        "api_key": 1,
        "api_name": "FetchRequest",
        "versions": list(range(4, 19)),
        "deprecated_versions": [0, 1, 2, 3],
    }
    assert apis[32_035]["api_name"] == "ProtocolVersionRequest"


async def test_an_unknown_parameter_is_refused(
    http: httpx.AsyncClient, problem: Callable[[httpx.Response, int, str], dict[str, Any]]
) -> None:
    document = problem(await http.get("/api/v1/cluster?verbose=1"), 422, "invalid-request")
    assert document["errors"][0]["parameter"] == "verbose"
