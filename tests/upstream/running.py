"""Run a scenario in virtual time over a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.client.cluster import ClusterClient
from core.client.settings import Address, ClientSettings
from core.types import TopicPartition
from tests.upstream.cluster import PORT, Cluster
from tests.upstream.gateway import Gateway
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


def with_gateway(
    tmp_path: Path,
    scenario: Callable[[Cluster, Gateway], Awaitable[None]],
    *,
    gateway: dict[str, Any] | None = None,
    users: dict[str, str] | None = None,
    **how: Any,
) -> None:
    """Run `scenario` with a cluster and a gateway over it.

    `gateway` are settings of that, `users` the passwords of users of the cluster, `how` is as above.
    """

    async def over(cluster: Cluster) -> None:
        for name, password in (users or {}).items():
            await cluster.broker.users.create(name, password)
        async with Gateway(cluster, tmp_path / "gateway", LoopClock(1), **(gateway or {})) as made:
            await scenario(cluster, made)

    with_cluster(tmp_path, over, **how)


async def stored(cluster: Cluster, topic: str, partition: int = 0) -> list[tuple[int, str]]:
    """Return (offset, value) of all records of a partition, as the embedded broker has them."""
    tp = TopicPartition(topic, partition)
    end = cluster.broker.partitions.offsets(tp).high_watermark
    found: list[tuple[int, str]] = []
    offset = cluster.broker.partitions.offsets(tp).log_start_offset
    while offset < end:
        read = await cluster.broker.records.read(
            tp, offset, max_bytes=1 << 20, max_records=1000, committed=False
        )
        found += [(one.offset, (one.value or b"").decode()) for one in read.records]
        offset = read.next_offset
    return found


def now() -> float:
    """Return the virtual time in seconds."""
    return asyncio.get_running_loop().time()
