"""Gateways over a `Cluster`: the whole HTTP application in upstream mode, in the event loop of the test.

A gateway can be stopped in order, and it can die: its connections break, nothing that it still does has an effect,
and the next start finds its directory as it was in that moment.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from app.main import Application, create_app
from core.clock import Clock
from core.config import Config, Endpoint, Upstream
from core.directory import LOCK_FILE
from core.gateway import Gateway as GatewayServer
from tests.upstream.cluster import Cluster
from tests.upstream.transport import MemoryTransport

HOST = "127.0.0.1:8082"


class _OwnNetwork:
    """The connections of one gateway, so that they can be cut."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._transports: list[MemoryTransport] = []
        self.dead = False

    async def connect(self, protocol: Callable[[], asyncio.BufferedProtocol], address: Any, tls: Any) -> None:
        """See `core.client.network.Network`."""
        if self.dead:
            raise ConnectionRefusedError("the process is dead")
        self._transports = [one for one in self._transports if not one.closed]
        self._transports.append(await self._cluster.connected(protocol, address))

    def cut(self) -> None:
        """Break all connections, and let none begin."""
        self.dead = True
        for one in self._transports:
            one.abort()


class Gateway:
    """One gateway. `http` is a client of it."""

    def __init__(self, cluster: Cluster, directory: Path, clock: Clock, **settings: Any) -> None:
        self.cluster = cluster
        self.clock = clock
        self.starts = 0
        self._directory = directory
        upstream = Upstream(
            tuple(cluster.bootstrap.split(",")),
            settings.pop("properties", {}),
            settings.pop("identity", "gateway"),
        )
        self.config = replace(
            Config(
                data_dir=directory / "0", listeners=(Endpoint("http", "127.0.0.1", 8082),), upstream=upstream
            ),
            **settings,
        )
        self._dead: list[Application] = []
        self._network = _OwnNetwork(cluster)
        self.app: Application
        self.http: httpx.AsyncClient

    async def __aenter__(self) -> Gateway:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        for app in self._dead:
            await app.server.stop()

    @property
    def broker(self) -> Any:
        """The broker that the application serves."""
        return self.app.server.broker

    async def start(self) -> None:
        """Start it over its directory."""
        self._network = _OwnNetwork(self.cluster)
        server = GatewayServer(self.config, self.clock, self._network)
        self.app = create_app(self.config, self.clock, server=server)
        await server.start()
        self.starts += 1
        self.http = client_of(self.app)

    async def stop(self) -> None:
        """Stop it in order."""
        await self.http.aclose()
        await self.app.server.stop()

    async def kill(self) -> None:
        """Let it die, as by SIGKILL."""
        self._network.cut()
        await self.http.aclose()
        # What the dead one still writes must not be seen by the next one.
        before = Path(self.config.data_dir)
        after = self._directory / str(self.starts)
        shutil.copytree(before, after, ignore=shutil.ignore_patterns(LOCK_FILE))
        self.config = replace(self.config, data_dir=after)
        self._dead.append(self.app)
        await asyncio.sleep(0)

    async def restart(self) -> None:
        """Let it die, and start it again."""
        await self.kill()
        await self.start()


def client_of(app: Application, address: str = "127.0.0.1") -> httpx.AsyncClient:
    """Return an HTTP client with this address that calls the application without a socket."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True, client=(address, 123))
    return httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}", timeout=None)
