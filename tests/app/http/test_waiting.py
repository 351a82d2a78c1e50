"""One client's share of waiting requests: polls of every kind and streams take from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.http.waiting import WAITING, Waiting, check_share, client_of, share
from app.main import Application
from core.errors import BrokerError, ErrorCode

SHARE = 3
CONFIG = {"http_max_waiting_per_client": SHARE, "group_initial_rebalance_delay_ms": 0}
pytestmark = pytest.mark.asyncio(loop_scope="module")
T, G = "/api/v1/topics/quiet", "/api/v1/groups/g"
# A request of each kind that waits where nothing comes.
POLLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "one partition": ("GET", f"{T}/partitions/0/records?offset=latest&wait_ms=20000", {}),
    "all partitions": ("GET", f"{T}/records?from=latest&wait_ms=20000", {}),
    "managed consumer": ("POST", f"{G}/consumers/c:poll", {"json": {"wait_ms": 20_000}}),
    "events": ("GET", f"{T}/records?from=latest", {"headers": {"accept": "text/event-stream"}}),
    "lines": ("GET", f"{T}/records?from=latest", {"headers": {"accept": "application/x-ndjson"}}),
    "v2 partition": ("GET", "/topics/quiet/partitions/0/records?offset=0&timeout=20000", {}),
    "v2 instance": ("GET", "/consumers/g2/instances/i/records?timeout=20000", {}),
}
NO_WAIT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "one partition": ("GET", f"{T}/partitions/0/records", {}),
    "a write": ("POST", "/api/v1/topics/busy/records", {"json": {"value": 1}}),
    "a poll that does not wait": ("POST", f"{G}/consumers/c:poll", {"json": {"wait_ms": 0}}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def world(http: httpx.AsyncClient) -> None:
    """A topic without records, a managed consumer of it, an instance of v2."""
    assert (await http.put(T, json={})).status_code == 201
    assert (await http.post(f"{G}/consumers", json={"name": "c", "topics": ["quiet"]})).status_code == 201
    async with asyncio.timeout(20):
        while (await http.post(f"{G}/consumers/c:poll", json={"wait_ms": 50})).json()["state"] != "stable":
            pass
    assert (await http.post("/consumers/g2", json={"name": "i", "format": "json"})).status_code == 200
    body = {"partitions": [{"topic": "quiet", "partition": 0}]}
    assert (await http.post("/consumers/g2/instances/i/assignments", json=body)).status_code == 204


def from_address(app: Application, host: str) -> httpx.AsyncClient:
    """A client that has this address."""
    transport = httpx.ASGITransport(app=app, client=(host, 4711))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8082", timeout=20)


@asynccontextmanager
async def waiting(app: Application, client: httpx.AsyncClient, poll: Any, count: int) -> AsyncIterator[None]:
    """A number of requests that wait; cancelled at the end."""
    before = len(app.traffic.waiting)
    method, path, more = poll
    tasks = [asyncio.ensure_future(client.request(method, path, **more)) for _ in range(count)]
    try:
        async with asyncio.timeout(60):
            while len(app.traffic.waiting) < before + count:
                await asyncio.sleep(0.005)
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(60):
            while len(app.traffic.waiting) > before:
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("poll", list(POLLS))
async def test_a_client_that_has_taken_its_share_waits_no_more_and_others_do(
    app: Application, poll: str
) -> None:
    async with from_address(app, "10.0.0.1") as client, waiting(app, client, POLLS["one partition"], SHARE):
        method, path, more = POLLS[poll]
        refused = await client.request(method, path, **more)
        assert refused.status_code == 429, refused.text
        assert refused.headers["retry-after"] == "1"
        told = refused.json()
        assert told.get("error_code") == 42901 or told["type"] == "/problems/throttling-quota-exceeded", told
        for method, path, more in NO_WAIT.values():
            assert (await client.request(method, path, **more)).status_code == 200
        async with from_address(app, "10.0.0.2") as other, waiting(app, other, POLLS[poll], 1):
            pass


@pytest.mark.parametrize("poll", ["all partitions", "events", "lines", "v2 partition"])
async def test_whatever_waits_takes_from_the_share_until_it_ends(app: Application, poll: str) -> None:
    async with from_address(app, "10.0.0.3") as client:
        async with waiting(app, client, POLLS[poll], SHARE):
            method, path, more = POLLS["one partition"]
            assert (await client.request(method, path, **more)).status_code == 429
        async with waiting(app, client, POLLS["one partition"], SHARE):
            pass
    assert len(app.traffic.waiting) == 0


Scope = Callable[[str], dict[str, Any]]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
async def test_a_client_is_an_address_and_of_ipv6_a_network(one: str, other: str, same: bool) -> None:
    assert (client_of({"client": (one, 1)}) == client_of({"client": (other, 2)})) is same


async def test_a_name_counts_more_than_an_address() -> None:
    ann = {"client": ("10.0.0.1", 1), "sluice.principal": "ann"}
    assert client_of(ann) == client_of({**ann, "client": ("10.0.0.2", 1)}) == "ann"
    # No name can be that of an address.
    assert client_of({"client": ("ann", 1)}) != "ann"
    assert client_of({"client": None}) == client_of({})


async def test_nothing_is_kept_of_a_client_without_waiting_requests() -> None:
    room = Waiting(1)
    scope = {"client": ("10.0.0.1", 1), WAITING: room}
    with share(scope):
        assert len(room) == 1
        with pytest.raises(BrokerError) as refused:
            check_share(scope)
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        check_share({**scope, "client": ("10.0.0.2", 1)})
    assert len(room) == 0 and room._counts == {}
    check_share({})
