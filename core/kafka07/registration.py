"""Keeps the broker registered in ZooKeeper, and brings what 0.7 consumers have written there.

    away ──connected──► registering ──all nodes are ours──► registered
     ▲                      │  ▲                                │
     │                      ▼  └── checked now and then ◄───────┤ topics change, the session is a new one
     └──── lost ──────── held: the node of our id has another broker's address

The broker never waits for ZooKeeper: it starts and serves without it, and logs that. If the process was killed and is
back before ZooKeeper has noticed, the node of its earlier session still exists. It has the same address, so it is
taken over at once. A node with another address is left alone until ZooKeeper deletes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass

from core.broker.broker import Broker
from core.config import Endpoint
from core.kafka07.zookeeper import (
    CONNECTED,
    CONSUMERS,
    LOST,
    HeldError,
    Node,
    SessionError,
    ZooKeeperSession,
    creator_of,
    id_node,
    read_groups,
    same_address,
    topic_node,
)

log = logging.getLogger(__name__)

AWAY, REGISTERING, REGISTERED, HELD = "away", "registering", "registered", "held by another broker"
_WILDCARDS = ("0.0.0.0", "::", "")


@dataclass(slots=True)
class Registration:
    """The state of the registration, for status and metrics. `nodes` counts the published nodes."""

    state: str = AWAY
    nodes: int = 0
    lost_sessions: int = 0
    foreign_groups: int = 0

    def numbers(self) -> dict[str, int]:
        """For a scraper."""
        return {
            "registered": int(self.state == REGISTERED),
            "nodes": self.nodes,
            "lost_sessions": self.lost_sessions,
            "groups": self.foreign_groups,
        }


class ZooKeeperRegistry:
    """The registration of one broker under one listener of Kafka 0.7."""

    def __init__(self, broker: Broker, endpoint: Endpoint) -> None:
        self.broker = broker
        self.endpoint = endpoint
        self.registration = Registration()
        config = broker.config
        self._session = ZooKeeperSession(
            config.zookeeper,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            call_timeout_ms=config.zookeeper_call_timeout_ms,
            on_state=self._state_changed,
        )
        self._connected = self._has_session = False
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        # What this session has published: path → value.
        self._published: dict[str, bytes] = {}
        self._published_version = -1
        # Counts the sessions that were lost: what was put into one of them is not there in the next.
        self._session_number = 0
        self._creator = ""
        self._id = Node("", b"")
        self._said_cut = False

    async def start(self) -> None:
        """Begin; returns at once, whether ZooKeeper is there or not."""
        self.broker.changes.listeners.append(self._wake.set)
        log.info("registering in ZooKeeper at %s", self.broker.config.zookeeper)
        await self._session.start()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Unregister: the session ends, and its nodes with it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self.broker.changes.listeners.remove(self._wake.set)
        await self._session.stop()
        self.registration = Registration()

    def _state_changed(self, state: str) -> None:
        """kazoo's connection was made or lost. After SUSPENDED the same session may still continue."""
        was = self._connected
        self._connected = state == CONNECTED
        if state == LOST:
            self._session_number += 1
            self._published.clear()
            self._published_version = -1
            self.registration.lost_sessions += self._has_session
            self._has_session = False
        if self._connected:
            self._has_session = True
            log.info("connected to ZooKeeper at %s", self.broker.config.zookeeper)
            self._set_state(REGISTERING)
        elif was:
            log.warning(
                "no connection to ZooKeeper (%s); the broker continues, and tries again", state.lower()
            )
            self._set_state(AWAY)
        self._wake.set()

    def _set_state(self, state: str) -> None:
        self.registration.state = state
        self.registration.nodes = len(self._published)

    async def _run(self) -> None:
        interval = self.broker.config.zookeeper_refresh_interval_ms / 1000
        first = True
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._wake.wait()
            self._wake.clear()
            if not self._connected:
                if first:
                    log.warning(
                        "ZooKeeper at %s is away; the broker works without it", self.broker.config.zookeeper
                    )
                    first = False
                continue
            first = False
            try:
                await self._publish()
                await self._read_consumers()
            except HeldError as error:
                if self.registration.state != HELD:
                    log.warning(
                        "%s is held by another broker: %s; waiting until ZooKeeper deletes it",
                        self._id.path,
                        error.value.decode("utf-8", "backslashreplace")[:200],
                    )
                self._set_state(HELD)
            except SessionError as error:
                log.warning("ZooKeeper: %s", error)
                self._set_state(AWAY if not self._connected else REGISTERING)

    async def _publish(self) -> None:
        """Bring the nodes into line with the topics: the id first, for the topics' nodes point to it."""
        if not self._creator:
            host = await self._host()
            self._creator = creator_of(host, self.broker.clock.wall_ms())
            self._id = id_node(self.broker.config.broker_id, self._creator, host, self.endpoint.port)
        if self._published and not await self._session.owns(self._id.path):
            # Another client deleted it, or a session was lost without notice: check everything again.
            self._published.clear()
            self._published_version = -1
        version = self.broker.changes.version
        if version == self._published_version:
            return
        if self._id.path not in self._published:
            await self._put(self._id, lambda value: same_address(value, self._id.value))
        broker_id = self.broker.config.broker_id
        wanted = dict(topic_node(broker_id, t.name, t.partitions) for t in self.broker.topics.list())
        for path in [p for p in self._published if p not in wanted and p != self._id.path]:
            await self._session.remove(path)
            del self._published[path]
        for path, value in wanted.items():
            if self._published.get(path) != value:
                await self._put(Node(path, value))
        self._published_version = version
        if self.registration.state != REGISTERED:
            log.info("registered in ZooKeeper as %s, with %d topics", self._id.value.decode(), len(wanted))
        self._set_state(REGISTERED)

    async def _put(self, node: Node, may_replace: Callable[[bytes], bool] | None = None) -> None:
        session = self._session_number
        await self._session.put(node, self._creator.encode(), may_replace)
        if session != self._session_number:
            raise SessionError("the session was lost")
        self._published[node.path] = node.value

    async def _read_consumers(self) -> None:
        config = self.broker.config
        nodes, cut = await self._session.leaves(CONSUMERS, config.zookeeper_max_nodes)
        if cut and not self._said_cut:
            log.warning("more than %d nodes below %s: not all groups are shown", len(nodes), CONSUMERS)
        self._said_cut = cut
        groups = read_groups(nodes, config.broker_id)
        self.broker.foreign_groups.replace(groups)
        self.registration.foreign_groups = len(groups)

    async def _host(self) -> str:
        """Return the host for clients: the advertised one, or the listener's.

        For a wildcard, it is the address by which this machine talks to ZooKeeper.
        """
        config = self.broker.config
        if config.advertised is not None:
            return config.advertised.host
        if self.endpoint.host not in _WILDCARDS:
            return self.endpoint.host
        first = config.zookeeper.partition("/")[0].split(",")[0]
        host, _, port = first.rpartition(":")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, _local_address, host.strip("[]"), int(port))


def _local_address(host: str, port: int) -> str:
    """Our own address on the way to another host. Nothing is sent."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as way:
        way.connect(address)
        return str(way.getsockname()[0])
