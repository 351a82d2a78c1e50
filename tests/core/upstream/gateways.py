"""A gateway over the cluster in memory, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from core.client.settings import Address, ClientSettings
from core.config import Config
from core.upstream.remote_broker import RemoteBroker
from tests.upstream.cluster import PORT, Cluster
from tests.virtual_time import LoopClock, run

Scenario = Callable[[Cluster, RemoteBroker], Awaitable[None]]


def bootstrap(cluster: Cluster) -> tuple[Address, ...]:
    """Return the addresses of all nodes."""
    return tuple(Address(node.host, PORT) for node in cluster.nodes.values())


async def open_gateway(cluster: Cluster, data_dir: Path, **settings: Any) -> RemoteBroker:
    """Open a gateway over the cluster."""
    data_dir.mkdir(parents=True, exist_ok=True)
    config = Config(data_dir=data_dir, listeners=(), **settings)
    gateway = RemoteBroker(config, LoopClock(), ClientSettings(bootstrap=bootstrap(cluster)), cluster)
    await gateway.open()
    return gateway


def with_gateway(
    tmp_path: Path, scenario: Scenario, *, gateway: dict[str, Any] | None = None, **how: Any
) -> None:
    """Run a scenario; `gateway` are settings of the gateway, `how` those of the cluster."""

    async def whole() -> None:
        async with Cluster.open(tmp_path / "cluster", LoopClock(), **how) as cluster:
            opened = await open_gateway(cluster, tmp_path / "gateway", **(gateway or {}))
            try:
                await scenario(cluster, opened)
            finally:
                await opened.close()

    run(whole())
