"""The cluster: the first request of a client, with the address for clients that use the binary port."""

from __future__ import annotations

from fastapi import Request

from app.native.dependencies import BrokerDep, SharedDep
from app.native.record_json import iso_time
from app.native.schemas import (
    BrokerDetail,
    Brokers,
    Cluster,
    Freezing,
    Overview,
    ProtocolApi,
    ProtocolVersions,
)
from app.shared import Shared
from app.version import VERSION
from core.config import Endpoint
from core.facade import Facade
from core.vocabulary.capabilities import KAFKA_PORT, UPSTREAM
from core.vocabulary.freeze import FreezeState

WILDCARDS = frozenset({"0.0.0.0", "::"})


async def get_overview(shared: SharedDep, broker: BrokerDep) -> Overview:
    """Versions, limits, links."""
    config = shared.config
    return Overview(
        name="sluice",
        version=VERSION,
        cluster_id=broker.cluster_id,
        capabilities=sorted(broker.capabilities),
        limits={
            "body_bytes": config.http_max_body_bytes,
            "records_per_write": config.http_max_records,
            "records_per_read": config.http_max_limit,
            "bytes_per_read": config.http_max_read_bytes,
            "wait_ms": config.max_wait_ms,
            "page_size": config.http_max_page_size,
            "json_depth": config.http_max_json_depth,
        },
        links={
            "cluster": "/api/v1/cluster",
            "brokers": "/api/v1/brokers",
            **_links_of_the_port(broker),
            "topics": "/api/v1/topics",
            "console": "/console",
            "docs": "/docs",
            "openapi": "/openapi.json",
            "problems": "/problems",
            "ready": "/readyz",
        },
    )


def _links_of_the_port(broker: Facade) -> dict[str, str]:
    return {"protocol_versions": "/api/v1/protocol-versions"} if KAFKA_PORT in broker.capabilities else {}


async def get_cluster(request: Request, shared: SharedDep, broker: BrokerDep) -> Cluster:
    """The cluster's id, its brokers, how much it holds."""
    await broker.look(None)
    topics = broker.topics.list(include_internal=True)
    return Cluster(
        cluster_id=broker.cluster_id,
        controller_id=broker.roles.metadata_leader,
        brokers=_brokers(shared, broker, request),
        topics=len(topics),
        partitions=sum(topic.partitions for topic in topics),
        frozen=broker.freezing.state.frozen,
    )


async def freeze(broker: BrokerDep) -> Freezing:
    """Refuse records and changes of topics from now on, so that they can be moved to another cluster.

    Writes get 503 with `Retry-After`, Kafka clients a retriable error. Reads, members of groups and their commits are
    served. The cluster stays frozen over a restart. It needs ALTER on the cluster.
    """
    return _freezing(await broker.freezing.freeze())


async def thaw(broker: BrokerDep) -> Freezing:
    """Take writes again. It needs ALTER on the cluster."""
    return _freezing(await broker.freezing.thaw())


def _freezing(state: FreezeState) -> Freezing:
    return Freezing(frozen=state.frozen, since=None if state.since_ms is None else iso_time(state.since_ms))


async def list_brokers(request: Request, shared: SharedDep, broker: BrokerDep) -> Brokers:
    """The brokers, with the address for Kafka clients."""
    return Brokers(items=_brokers(shared, broker, request))


async def get_protocol_versions(shared: SharedDep) -> ProtocolVersions:
    """Which APIs of the Kafka protocol are served, and in which versions.

    The answer of KIP-35's draft, over HTTP. Versions are in reverse order of preference, the best last. Deprecated
    ones work too, but Kafka 4 no longer serves them.
    """
    return ProtocolVersions(
        apis=[
            ProtocolApi(
                api_key=api.api_key,
                api_name=api.api_name,
                versions=list(api.versions),
                deprecated_versions=list(api.deprecated_versions),
            )
            for api in shared.protocol_versions()
        ]
    )


def _brokers(shared: Shared, broker: Facade, request: Request) -> list[BrokerDetail]:
    """The brokers of the cluster. Of another one than this, only the Kafka port is known."""
    peers = [
        BrokerDetail(
            broker_id=peer,
            kafka=endpoint.address,
            listeners=[str(endpoint)],
        )
        for peer, endpoint in broker.roles.peers()
    ]
    # A gateway is no broker of its cluster.
    own = [] if UPSTREAM in broker.capabilities else [_this_broker(shared, request)]
    return sorted([*own, *peers], key=lambda one: one.broker_id)


def _this_broker(shared: Shared, request: Request) -> BrokerDetail:
    config = shared.config
    first = next((e for e in shared.endpoints if e.scheme == "kafka"), None)
    kafka = (first.advertised if first is not None else None) or config.advertised or first
    if kafka is not None and kafka.host in WILDCARDS:
        # No client can connect to a wildcard. The address of this request is one of the same machine.
        kafka = Endpoint(kafka.scheme, request.scope["server"][0], kafka.port)
    return BrokerDetail(
        broker_id=config.broker_id,
        kafka=None if kafka is None else kafka.address,
        listeners=[str(endpoint) for endpoint in (*shared.http_endpoints, *shared.endpoints)],
    )
