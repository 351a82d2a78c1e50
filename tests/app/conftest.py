"""The whole HTTP application over a real broker on port 0, one for each test file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import httpx
import pytest
import pytest_asyncio

from app.main import Application, create_app
from core.clock import Clock
from core.config import Config, Endpoint
from tests.broker_process import ROOT
from tests.upstream.cluster import Cluster
from tests.upstream.gateway import Gateway
from tests.upstream.suites import modes

HOST = "127.0.0.1:8082"


def config_for(data_dir: Path, **changes: Any) -> Config:
    """Settings of a broker for tests: its own directory, a Kafka port that the system chooses."""
    listeners = (Endpoint("http", "127.0.0.1", 8082), Endpoint("kafka", "127.0.0.1", 0))
    return replace(Config(data_dir=data_dir, listeners=listeners), **changes)


def client_of(app: Application) -> httpx.AsyncClient:
    """An HTTP client that calls the application without a socket."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app, raise_app_exceptions=True),
        base_url=f"http://{HOST}",
        timeout=20,
    )


# The brokers of the clusters of gateways.
_LOGS: WeakKeyDictionary[Application, Any] = WeakKeyDictionary()


def logs_of(app: Application) -> Any:
    """Return the embedded broker that has the logs: the application's own, or that of a gateway's cluster."""
    return _LOGS.get(app) or app.server.broker


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of tests/upstream/suites.py over a gateway, too."""
    if "app" in metafunc.fixturenames:
        file = metafunc.definition.path.relative_to(ROOT).as_posix()
        found = modes(file, metafunc.definition.originalname)
        if len(found) > 1:
            metafunc.parametrize("app", found, indirect=True, scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Application]:
    """The application of this test file; a module may set CONFIG, changes of the settings.

    In upstream mode it is a gateway over a cluster in memory, which has the same settings.
    """
    changes = getattr(request.module, "CONFIG", {})
    directory = tmp_path_factory.mktemp("broker")
    if getattr(request, "param", "embedded") == "upstream":
        async with (
            Cluster.open(directory / "cluster", Clock(), settings=changes) as cluster,
            Gateway(cluster, directory / "gateway", Clock(), **changes) as gateway,
        ):
            _LOGS[gateway.app] = cluster.broker
            yield gateway.app
        return
    application = create_app(config_for(directory / "data", **changes))
    async with application.lifespan():
        yield application


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(app: Application) -> AsyncIterator[httpx.AsyncClient]:
    """A client of that application."""
    async with client_of(app) as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test alone."""
    name: str = request.node.name
    return "".join(c if c.isalnum() else "-" for c in name)[:200]


Problem = Callable[[httpx.Response, int, str], dict[str, Any]]


@pytest.fixture
def problem() -> Problem:
    """Checks that a response is a whole problem document of one kind, and answers it."""

    def check(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        document: dict[str, Any] = response.json()
        assert document["type"] == f"/problems/{kind}"
        assert document["status"] == status
        assert document["title"] and document["detail"]
        assert document["instance"] == response.request.url.path.rstrip("/")
        assert isinstance(document["retriable"], bool)
        return document

    return check
