"""Several brokers of one cluster in one process, each with a Kafka listener. Each can be stopped, killed, started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.broker.broker import Broker
from core.config import Config, Endpoint, Peer
from core.errors import BrokerError
from core.server import Server
from core.types import TopicPartition
from core.vocabulary.replicas import METADATA
from tests.ports import free_ports

SECONDS = 10.0


async def until(condition: Callable[[], Any], what: str = "it", seconds: float = SECONDS) -> Any:
    """Wait until a condition holds; what it gave."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not (found := condition()):
        assert asyncio.get_running_loop().time() < deadline, f"{what} did not come to be in {seconds} s"
        await asyncio.sleep(0.01)
    return found


class Brokers:
    """A cluster of `count` brokers, numbered from 1, over directories below `path`."""

    def __init__(self, path: Path, count: int = 2, **settings: Any) -> None:
        ports = free_ports(count)
        self.ports = dict(enumerate(ports, 1))
        settings.setdefault("replica_retry_ms", 20)
        settings.setdefault("replica_fetch_wait_ms", 100)
        settings.setdefault("replica_lag_time_max_ms", 2_000)
        settings.setdefault("peer_timeout_ms", 1_000)
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        # Where one broker looks for another one; a proxy may stand between.
        self.routes: dict[tuple[int, int], int] = {}
        self._path = path
        self._settings = settings
        self.servers: dict[int, Server] = {}

    def config(self, number: int) -> Config:
        """The settings of one broker."""
        peers = tuple(
            Peer(other, "127.0.0.1", self.routes.get((number, other), port))
            for other, port in self.ports.items()
            if other != number
        )
        return replace(
            Config(
                data_dir=self._path / str(number),
                listeners=(Endpoint("kafka", "127.0.0.1", self.ports[number]),),
                broker_id=number,
                peers=peers,
            ),
            **self._settings,
        )

    async def start(self, *numbers: int) -> None:
        """Start some brokers, or all."""
        for number in numbers or self.ports:
            server = self.servers[number] = Server(self.config(number))
            await server.start()

    async def stop(self, *numbers: int) -> None:
        """Stop some brokers in order, or all."""
        for number in numbers or tuple(self.servers):
            await self.servers.pop(number).stop()

    def __getitem__(self, number: int) -> Broker:
        return self.servers[number].broker

    async def __aenter__(self) -> Brokers:
        await self.start()
        await self.serving()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def serving(self, number: int | None = None) -> Broker:
        """The broker that keeps the metadata, once there is one; or once it is this one."""

        def found() -> Broker | None:
            for n, server in self.servers.items():
                metadata = server.broker.metadata
                if metadata is not None and metadata.serving >= 0 and number in (None, n):
                    return server.broker
            return None

        broker: Broker = await until(found, "a broker that keeps the metadata")
        return broker

    async def create(self, topic: str, **settings: Any) -> None:
        """A topic with a replica on every broker, known everywhere and in sync."""
        leader = await self.serving()
        settings.setdefault("replication_factor", len(self.ports))
        info = await leader.topics.create(topic, **settings)
        await until(lambda: all(self._knows(n, topic) for n in self.servers), f"topic {topic} everywhere")
        for partition in range(info.partitions if len(info.replicas) > 1 else 0):
            await self.in_sync(TopicPartition(topic, partition))

    def _knows(self, number: int, topic: str) -> bool:
        try:
            self[number].topics.get(topic)
        except BrokerError:
            return False
        return True

    def leader(self, tp: TopicPartition = METADATA) -> Broker | None:
        """The broker that leads a partition, if one does; of several that believe it, the one that is right."""
        found: dict[int, Broker] = {}
        for server in self.servers.values():
            copy = server.broker.replicas.get(tp)
            if copy is not None and copy.replica.leads:
                found[copy.replica.epoch] = server.broker
        return found[max(found)] if found else None

    async def in_sync(self, tp: TopicPartition, count: int | None = None) -> None:
        """Wait until this many replicas are in sync and know it; by default all that run."""
        wanted = count or len(self.servers)

        def holds() -> bool:
            leader = self.leader(tp)
            if leader is None:
                return False
            info = leader.partitions.info(tp)
            progress = leader.replicas.get(tp).replica.followers.values()  # type: ignore[union-attr]
            return len(info.isr) >= wanted and sum(one.heard for one in progress) >= wanted - 1

        await until(holds, f"{wanted} replicas of {tp} in sync")
