"""One ZooKeeper for the tests of this room, and a client that looks at its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.zookeeper_process import ZooKeeperProcess, zookeeper_path


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
