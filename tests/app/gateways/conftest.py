"""Several gateways on real sockets in one process. Each has a broker of its own, so a test sees which one answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.gateways.ownership import owner_of
from app.http.server import HttpServer, bind
from app.main import Application, create_app
from core.clock import Clock
from core.config import Config, Endpoint, Gateway

NAMES = ("a", "b", "c")


class Running:
    """One gateway: its application, its HTTP server, and a client of it."""

    def __init__(self, name: str, app: Application, server: HttpServer, port: int) -> None:
        self.name = name
        self.app = app
        self.server = server
        self.port = port
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False, headers={"connection": "close"}
        )

    def counts(self) -> dict[tuple[str, str], int]:
        """Requests that this gateway has forwarded, by owner and result."""
        assert self.app.forwarding is not None
        return dict(self.app.forwarding.counts.forwarded)


class Gateways(dict[str, Running]):
    """The gateways by name."""

    def owner(self, group: str) -> Running:
        """The gateway that owns a group."""
        return self[owner_of(NAMES, b"group " + group.encode())]

    def others(self, owner: Running) -> list[Running]:
        """The other ones."""
        return [one for one in self.values() if one is not owner]


async def start(name: str, config: Config, socket: Any, stack: AsyncExitStack) -> Running:
    """Start a gateway on a bound socket."""
    port = socket.getsockname()[1]
    config = replace(config, gateway_name=name)
    app = create_app(config, http_endpoints=[replace(config.listeners[0], port=port)])
    await stack.enter_async_context(app.lifespan())
    server = HttpServer(app.http, [socket], config, Clock(), app.traffic)
    await server.start()
    running = Running(name, app, server, port)

    async def stop() -> None:
        await running.http.aclose()
        app.drain()
        await server.stop()

    stack.push_async_callback(stop)
    return running


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file with the secret of the gateways."""
    file = tmp_path_factory.mktemp("secret") / "secret"
    file.write_text("of all gateways, 16 bytes and more\n")
    file.chmod(0o600)
    return file


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateways(
    tmp_path_factory: pytest.TempPathFactory, secret: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Gateways]:
    """Three gateways that forward among each other; a module may set CONFIG, changes of the settings."""
    changes = getattr(request.module, "CONFIG", {})
    sockets = bind([Endpoint("http", "127.0.0.1", 0) for _ in NAMES])
    listed = tuple(
        Gateway(n, "http", "127.0.0.1", s.getsockname()[1]) for n, s in zip(NAMES, sockets, strict=True)
    )
    started = Gateways()
    async with AsyncExitStack() as stack:
        for name, one in zip(NAMES, sockets, strict=True):
            config = Config(
                data_dir=tmp_path_factory.mktemp("gateway") / name,
                listeners=(Endpoint("http", "127.0.0.1", 0),),
                gateways=listed,
                gateway_secret_file=secret,
                **changes,
            )
            started[name] = await start(name, config, one, stack)
        yield started
