"""POST /api/v1/cluster:freeze and :thaw."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from tests.app.conftest import Problem

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def frozen(http: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    assert (await http.put("/api/v1/topics/t")).is_success
    answer = await http.post("/api/v1/cluster:freeze")
    assert answer.status_code == 200 and answer.json()["frozen"] and answer.json()["since"]
    yield http
    assert (await http.post("/api/v1/cluster:thaw")).json() == {"frozen": False, "since": None}


@pytest.mark.parametrize("method, path", [("POST", "/topics/t/records"), ("PUT", "/topics/other")])
async def test_writes_get_503_with_retry_after(
    frozen: httpx.AsyncClient, problem: Problem, method: str, path: str
) -> None:
    body = {"records": [{"value": "a"}]} if "records" in path else {}
    answer = await frozen.request(method, f"/api/v1{path}", json=body)
    kind = "not-leader-or-follower" if "records" in path else "not-controller"
    assert "frozen" in problem(answer, 503, kind)["detail"] and answer.headers["retry-after"] == "5"


async def test_reads_are_served_and_the_cluster_says_that_it_is_frozen(frozen: httpx.AsyncClient) -> None:
    assert (await frozen.get("/api/v1/topics/t/partitions/0/records?offset=0")).status_code == 200
    assert (await frozen.get("/api/v1/cluster")).json()["frozen"] is True
