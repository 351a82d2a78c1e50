"""What a gateway cannot do: 501 on every surface, told by the overview, left out of links, shown in the document."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.errors import Problem
from app.http.capabilities import require_capability
from app.http.route import Route, RouteTable
from app.native.routes import PREFIX, control_routes
from app.openapi.document import document
from core.vocabulary.capabilities import EMBEDDED, OVER_A_CLUSTER, TRANSACTIONS
from tests.upstream.cluster import Cluster
from tests.upstream.gateway import Gateway
from tests.virtual_time import LoopClock, run

MISSING = EMBEDDED - OVER_A_CLUSTER


def with_gateway(tmp_path: Path, scenario: Callable[[Gateway], Awaitable[None]]) -> None:
    """Run a scenario over a gateway in memory."""

    async def whole() -> None:
        async with (
            Cluster.open(tmp_path / "cluster", LoopClock()) as cluster,
            Gateway(cluster, tmp_path / "gateway", LoopClock()) as gateway,
        ):
            await scenario(gateway)

    run(whole())


def missing_operations() -> list[tuple[str, str, str]]:
    """Return (method, path, capability) of each operation of the document that a gateway cannot serve."""
    return [
        (method.upper(), path, operation["x-capability"])
        for path, operations in document()["paths"].items()
        for method, operation in operations.items()
        if operation.get("x-capability") in MISSING
    ]


def test_each_operation_that_needs_what_is_missing_answers_501(tmp_path: Path) -> None:
    operations = missing_operations()
    assert {capability for _, _, capability in operations} == MISSING - {"sizes", "kafka07-port", "line-port"}

    async def scenario(gateway: Gateway) -> None:
        for method, path, capability in operations:
            there = re.sub(r"\{partition\}", "0", path)
            there = re.sub(r"\{\w+\}", "x", there)
            # Neither the body nor a parameter is looked at before.
            for body in (b"", b"{}"):
                answer = await gateway.http.request(
                    method, there, content=body, headers={"content-type": "application/json"}
                )
                assert answer.status_code == 501, f"{method} {there}: {answer.text}"
                problem = answer.json()
                assert problem["type"] == "/problems/missing-capability"
                assert problem["capability"] == capability and problem["instance"] == there
        counts = gateway.app.traffic.refusals
        assert counts["missing-capability"] == 2 * len(operations)

    with_gateway(tmp_path, scenario)


def test_every_route_with_a_need_shows_501_in_the_document() -> None:
    paths = document()["paths"]
    needing = [route for route in control_routes() if route.needs]
    assert len(needing) >= 20
    for route in needing:
        operation = paths[PREFIX + route.path][route.method.lower()]
        assert operation["x-capability"] == route.needs in EMBEDDED and "501" in operation["responses"]
    for operations in paths.values():
        for operation in operations.values():
            assert ("501" in operation["responses"]) == ("x-capability" in operation)


def test_the_header_of_a_transaction_is_501_wherever_it_is(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        await gateway.http.put("/api/v1/topics/t", json={})
        for method, path in (
            ("POST", "/api/v1/topics/t/records"), ("GET", "/api/v1/topics/t"), ("GET", "/topics"),
            ("PATCH", "/api/v1/groups/g/offsets"), ("POST", "/api/v1/groups/g/consumers/c:ack"),
        ):  # fmt: skip
            answer = await gateway.http.request(method, path, headers={"transaction": "x"})
            assert answer.status_code == 501, answer.text

    with_gateway(tmp_path, scenario)


def test_links_lead_to_what_is_there(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        overview = (await gateway.http.get("/api/v1/")).json()
        assert set(overview["capabilities"]) == OVER_A_CLUSTER
        for name, link in overview["links"].items():
            answer = await gateway.http.get(link)
            assert answer.status_code == 200, f"{name}: {answer.text}"

    with_gateway(tmp_path, scenario)


def test_a_route_without_its_capability_is_refused_before_its_method() -> None:
    async def handle(*_: object) -> object:
        raise AssertionError("it is not called")

    routes = (Route("GET", "/t", handle, "t", "t", "T", answers={200: None}, needs=TRANSACTIONS),)
    table = RouteTable(("", routes), capabilities=lambda: OVER_A_CLUSTER)  # type: ignore[arg-type]
    with pytest.raises(Problem, match="no transactions over HTTP") as refused:
        table.find("GET", "/t")
    assert refused.value.status == 501 and refused.value.extra == {"capability": TRANSACTIONS}
    assert RouteTable(("", routes)).find("GET", "/t") is not None  # type: ignore[arg-type]


def test_no_need_is_refused_and_an_unknown_one_is() -> None:
    require_capability(frozenset(), "")
    require_capability(EMBEDDED, TRANSACTIONS)
    with pytest.raises(Problem) as refused:
        require_capability(EMBEDDED, "flying")
    assert refused.value.extra == {"capability": "flying"} and refused.value.detail.endswith(".")


def test_health_of_a_gateway_follows_its_brokers(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        healthy = (await gateway.http.get("/healthz")).json()
        assert healthy["status"] == "ok" and len(healthy["cluster"]["brokers"]) == len(gateway.cluster.nodes)
        for node in gateway.cluster.nodes:
            gateway.cluster.stop(node)
        await asyncio.sleep(60)
        unwell = await gateway.http.get("/healthz")
        assert unwell.status_code == 503 and unwell.json()["status"] == "cluster unreachable"
        assert (await gateway.http.get("/readyz")).status_code == 200
        assert (await gateway.http.get("/livez")).status_code == 200
        for node in gateway.cluster.nodes:
            gateway.cluster.start(node)
        await asyncio.sleep(60)
        assert (await gateway.http.get("/healthz")).json()["status"] == "ok"

    with_gateway(tmp_path, scenario)


def test_a_gateway_that_drains_is_not_ready(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        gateway.app.drain()
        assert (await gateway.http.get("/readyz")).status_code == 503
        assert (await gateway.http.get("/healthz")).json()["status"] == "starting or stopping"

    with_gateway(tmp_path, scenario)
