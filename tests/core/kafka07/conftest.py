"""A server with a Kafka 0.7 listener for each message format in the tests' own process, and one ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.config import Config, Endpoint
from core.server import Server
from tests.zookeeper_process import ZooKeeperProcess, zookeeper_path

LISTENERS = tuple(Endpoint("kafka07", "127.0.0.1", 0, (("magic", magic),)) for magic in "01")
Serve = Callable[..., Awaitable[Server]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts a server over one and the same directory, with other settings if asked to; the last one is stopped."""
    running: list[Server] = []

    async def start(**settings: Any) -> Server:
        if running:
            await running.pop().stop()
        server = Server(Config(data_dir=tmp_path / "data", listeners=LISTENERS, **settings))
        await server.start()
        running.append(server)
        return server

    yield start
    if running:
        await running.pop().stop()


def port(server: Server, magic: int = 1) -> int:
    """Return the port of the listener of a magic."""
    return server.endpoints[magic].port


@pytest.fixture(scope="session")
def one_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    if zookeeper_path() is None:
        pytest.skip("zookeeperd is not installed")
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    process.start()
    yield process
    process.kill()


@pytest.fixture
def zookeeper(one_zookeeper: ZooKeeperProcess) -> Iterator[ZooKeeperProcess]:
    """The server, running, and without nodes of ours."""
    with_client = _client(one_zookeeper)
    for name in ("brokers", "consumers"):
        if with_client.exists(f"/{name}"):
            with_client.delete(f"/{name}", recursive=True)
    with_client.stop()
    with_client.close()
    yield one_zookeeper


def _client(process: ZooKeeperProcess, **options: Any) -> Any:
    from kazoo.client import KazooClient

    client = KazooClient(hosts=process.address, timeout=10, **options)
    client.start(timeout=20)
    return client


@pytest.fixture
def looker(zookeeper: ZooKeeperProcess) -> Iterator[Any]:
    """A client of ZooKeeper."""
    client = _client(zookeeper)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def another(zookeeper: ZooKeeperProcess) -> Iterator[Any]:
    """Makes clients that stay until the end of the test: their ephemeral nodes do so too."""
    made = []

    def make(**options: Any) -> Any:
        made.append(_client(zookeeper, **options))
        return made[-1]

    yield make
    for client in made:
        client.stop()
        client.close()
