"""Run a scenario in virtual time over a cluster in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.client.cluster import ClusterClient
from core.client.settings import Address, ClientSettings
from tests.upstream.cluster import PORT, Cluster
from tests.virtual_time import LoopClock, run


def with_cluster(tmp_path: Path, scenario: Callable[[Cluster], Awaitable[None]], **how: Any) -> None:
    """Run `scenario` with a cluster; `how` is for `Cluster.open`."""

    async def whole() -> None:
        async with Cluster.open(tmp_path / "cluster", LoopClock(), **how) as cluster:
            await scenario(cluster)

    run(whole())


@asynccontextmanager
async def client_of(
    cluster: Cluster, bootstrap: tuple[int, ...] = (), **settings: Any
) -> AsyncIterator[ClusterClient]:
    """Open a client of a cluster; it begins with the nodes `bootstrap`, or with all of them."""
    nodes = [cluster.nodes[n] for n in bootstrap] or list(cluster.nodes.values())
    addresses = tuple(Address(node.host, PORT) for node in nodes)
    client = ClusterClient(ClientSettings(bootstrap=addresses, **settings), LoopClock(), cluster)
    await client.open()
    try:
        yield client
    finally:
        await client.close()
