"""The v2 surface as a whole: what is its own, and that it leaves the rest alone."""

from __future__ import annotations

import httpx
import pytest

from app.main import Application
from app.proxy.surface import ProxySurface, Route
from tests.app.proxy.conftest import V2, Refused

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_four_roots_belong_to_it(app: Application) -> None:
    surface = ProxySurface(app.gateway)
    for path in ("/", "/brokers", "/topics", "/topics/a", "/consumers/g/instances/i", "/topics/a/b/c/d/e/f"):
        assert surface.owns(path)
    for path in ("/api/v1/topics", "/topicsx", "/problems", "/readyz", "/console", "/v3/clusters"):
        assert not surface.owns(path)


async def test_a_route_knows_its_parameters() -> None:
    async def handle(*_: object) -> None: ...

    route = Route("GET", "/topics/{topic}/partitions", handle)  # type: ignore[arg-type]
    assert route.segments == ("topics", None, "partitions")


async def test_the_native_surface_keeps_its_own_refusals(http: httpx.AsyncClient) -> None:
    native = await http.get("/api/v1/topics/nothing")
    assert native.json()["type"] == "/problems/unknown-topic-or-partition"
    assert (await http.get("/nothing")).headers["content-type"] == "application/problem+json"


async def test_a_refusal_has_the_media_type_that_is_accepted(
    http: httpx.AsyncClient, refused: Refused
) -> None:
    for accept, answered in [(V2, V2), ("*/*", "application/json"), ("text/html", "application/json")]:
        answer = await http.get("/consumers/g/instances/i/subscription", headers={"accept": accept})
        refused(answer, 404, 40403)
        assert answer.headers["content-type"] == answered


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_methods_that_no_route_has_are_405(
    http: httpx.AsyncClient, refused: Refused, method: str
) -> None:
    answer = await http.request(method, "/topics/t/partitions/0")
    refused(answer, 405, 405)
    assert answer.headers["allow"] == "GET, POST"
