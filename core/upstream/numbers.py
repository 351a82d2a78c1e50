"""Numbers of a gateway's client: for health checks and for the metrics."""

from __future__ import annotations

from core.protocol.apis import APIS
from core.upstream.remote_broker import RemoteBroker
from core.vocabulary.upstream import BrokerLink, ClientNumbers, ClusterState


def cluster_state(broker: RemoteBroker) -> ClusterState:
    """Return the brokers of the cluster, by id, as the client sees them now."""
    cluster = broker.cluster
    links = cluster.links
    brokers = tuple(
        BrokerLink(broker_id, str(one.address), links.open_to(one.address), links.failing(one.address))
        for broker_id, one in sorted(cluster.brokers.items())
    )
    age = max(broker.clock.monotonic() - cluster.read_at, 0.0)
    return ClusterState(cluster.cluster_id, int(age * 1000) if brokers else 0, brokers)


def client_numbers(broker: RemoteBroker) -> ClientNumbers:
    """Return the numbers of the client since its start, and of what it holds now."""
    counts, fetcher = broker.cluster.links.counts, broker.fetcher
    return ClientNumbers(
        requests={APIS[key].name: meter for key, meter in counts.requests.items()},
        lost={APIS[key].name: number for key, number in counts.lost.items()},
        throttled_ms={APIS[key].name: number for key, number in counts.throttled_ms.items()},
        opened_connections=counts.connections,
        failed_connections=counts.failed_connections,
        failed_logins=counts.failed_logins,
        unsent_bytes=broker.producer.waiting_bytes,
        window_bytes=fetcher.memory,
        windows=fetcher.partitions,
    )
