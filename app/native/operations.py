"""The handlers for supervisors and Prometheus: is the process alive, is it ready for traffic, what does it count.

They run below FastAPI: supervisors ask every few seconds, and must not make a gateway load what its clients do not
need.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from app.http.exchange import in_task
from app.http.request import Answer, Request, Scope
from core.config import Endpoint
from core.facade import Facade
from core.security.acl import Operation, ResourceType
from core.security.guarded import Guarded
from core.vocabulary.upstream import BrokerLink, ClusterState

_encode = msgspec.json.Encoder().encode
_DESCRIBE_CLUSTER = (Operation.DESCRIBE, ResourceType.CLUSTER)
MetricsText = Annotated[
    str,
    Meta(
        examples=[
            "# HELP sluice_ready 1 while traffic is welcome.\n# TYPE sluice_ready gauge\nsluice_ready 1.0\n"
        ]
    ),
]
ZooKeeperState = Annotated[
    str,
    Meta(extra_json_schema={"enum": ["away", "registering", "registered", "held by another broker"]}),
]


class BrokerHealth(Struct):
    """A broker of the cluster as this gateway sees it."""

    broker_id: int
    address: str
    state: Annotated[
        Literal["connected", "not connected", "unreachable"],
        Meta(description="A connection is opened when it is needed."),
    ]


class ClusterHealth(Struct):
    """The cluster of a gateway."""

    cluster_id: str
    metadata_age_ms: int
    brokers: list[BrokerHealth]


class Health(Struct):
    """Whether the process does its work."""

    status: Annotated[
        Literal["ok", "cluster unreachable", "starting or stopping"],
        Meta(
            description="`cluster unreachable`: `/healthz` of a gateway can reach no broker of its cluster."
        ),
    ]
    zookeeper: Annotated[
        ZooKeeperState | UnsetType | None,
        Meta(
            description="With --zookeeper: the state of the registration. The broker works without ZooKeeper as well."
        ),
    ] = UNSET
    open_listeners: Annotated[
        list[str] | UnsetType,
        Meta(
            description="With --insecure: listeners that other machines can reach, and whose clients need not log in."
        ),
    ] = UNSET
    cluster: Annotated[
        ClusterHealth | UnsetType,
        Meta(description="With --upstream, in `/healthz`: the brokers of the cluster."),
    ] = UNSET


def _cluster_health(state: ClusterState) -> ClusterHealth:
    def word(one: BrokerLink) -> Literal["connected", "not connected", "unreachable"]:
        return "connected" if one.connections else "unreachable" if one.failing else "not connected"

    brokers = [BrokerHealth(one.broker_id, one.address, word(one)) for one in state.brokers]
    return ClusterHealth(state.cluster_id, state.metadata_age_ms, brokers)


class Operations:
    """The handlers. `scrape` returns the metrics and their media type for an Accept header.

    `acting` returns the broker as the client of a request may use it: the metrics, and the state of the
    registration, need DESCRIBE on the cluster. `zookeeper` returns that state, or None without ZooKeeper.
    `open_listeners` are those that only --insecure allows. `cluster` returns the state of the cluster of a gateway.
    """

    def __init__(
        self,
        broker: Callable[[], Facade],
        acting: Callable[[Scope], Guarded],
        zookeeper: Callable[[], str | None],
        scrape: Callable[[str], Awaitable[tuple[bytes, str]]],
        open_listeners: Sequence[Endpoint] = (),
        cluster: Callable[[], ClusterState | None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._acting = acting
        self._zookeeper = zookeeper
        self._scrape = scrape
        self._open_listeners = [str(endpoint) for endpoint in open_listeners]

    async def live(self, request: Request, segments: list[str]) -> Answer:
        """Answer 200 while the process answers. A supervisor restarts it when this fails."""
        return Answer(200, _encode(Health("ok")))

    async def ready(self, request: Request, segments: list[str]) -> Answer:
        """Answer 200 while traffic is welcome, 503 while the broker is starting or stopping.

        A gateway is ready also if no broker of its cluster can be reached: another gateway could not reach it either.
        """
        health = self._health(request)
        return Answer(200 if self._broker().ready else 503, _encode(health))

    async def health(self, request: Request, segments: list[str]) -> Answer:
        """Answer as `/readyz`, of a gateway with the brokers of its cluster, and 503 if none can be reached."""
        health, state = self._health(request), self._cluster()
        if state is None:
            return Answer(200 if self._broker().ready else 503, _encode(health))
        if health.status == "ok" and not state.reachable:
            health.status = "cluster unreachable"
        if self._acting(request.scope).rights.may(*_DESCRIBE_CLUSTER):
            health.cluster = _cluster_health(state)
        return Answer(200 if health.status == "ok" else 503, _encode(health))

    def _health(self, request: Request) -> Health:
        ready = self._broker().ready
        health = Health("ok" if ready else "starting or stopping")
        zookeeper = self._zookeeper()
        has_more = zookeeper is not None or self._open_listeners
        if has_more and self._acting(request.scope).rights.may(*_DESCRIBE_CLUSTER):
            if zookeeper is not None:
                health.zookeeper = zookeeper
            if self._open_listeners:
                health.open_listeners = self._open_listeners
        return health

    async def scrape(self, request: Request, segments: list[str]) -> Answer:
        """What this process counts, for Prometheus: requests, bytes, latencies, logs, lag, its own state."""
        await in_task()
        if not self._broker().config.open_metrics:
            # Their labels name topics and groups.
            self._acting(request.scope).rights.require(*_DESCRIBE_CLUSTER)
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        text, media_type = await self._scrape(accept)
        return Answer(200, text, media_type.encode(), ((b"cache-control", b"no-store"),))
