"""Health, liveness, readiness."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from app.main import create_app
from core.config import Endpoint
from tests.app.conftest import client_of, config_for

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/"])
async def test_a_running_broker_is_well(http: httpx.AsyncClient, path: str) -> None:
    got = await http.get(path)
    assert (got.status_code, got.json()) == (200, {"status": "ok"})


async def test_a_broker_that_drains_is_alive_but_not_ready(tmp_path: Path) -> None:
    app = create_app(config_for(tmp_path / "data"))
    async with client_of(app) as http:
        assert (await http.get("/readyz")).status_code == 503
        async with app.lifespan():
            assert (await http.get("/readyz")).status_code == 200
            app.drain()
            assert (await http.get("/livez")).status_code == 200
            for path in ("/readyz", "/healthz"):
                got = await http.get(path)
                assert (got.status_code, got.json()) == (503, {"status": "starting or stopping"})


async def test_open_listeners_are_told_with_the_right_to_describe_the_cluster(tmp_path: Path) -> None:
    listeners = (Endpoint("http", "0.0.0.0", 8082), Endpoint("kafka", "127.0.0.1", 0))
    app = create_app(config_for(tmp_path / "data", listeners=listeners))
    async with app.lifespan(), client_of(app) as http:
        got = await http.get("/healthz")
        assert got.json() == {"status": "ok", "open_listeners": ["http://0.0.0.0:8082"]}
        await app.server.broker.users.create("alice", None)
        assert (await http.get("/healthz")).json() == {"status": "ok"}
