"""What a gateway knows of the brokers of its cluster, for health checks and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from core.counters import Meter


class BrokerLink(NamedTuple):
    """A broker of the cluster: `connections` are open now, `failing` says that the last attempt has failed."""

    broker_id: int
    address: str
    connections: int
    failing: bool


class ClusterState(NamedTuple):
    """The cluster as this process sees it now. `metadata_age_ms` is the age of the newest metadata."""

    cluster_id: str
    metadata_age_ms: int
    brokers: tuple[BrokerLink, ...]

    @property
    def reachable(self) -> bool:
        """Return whether a broker of the cluster is connected, or can be as far as is known."""
        return any(one.connections or not one.failing for one in self.brokers)


class ClientNumbers(NamedTuple):
    """Numbers of the client of the cluster, for the metrics; mappings have the names of APIs as keys.

    `unsent_bytes` are records whose callers wait for the answer of a broker, `window_bytes` the batches that are kept
    for readers, in `windows`.
    """

    requests: Mapping[str, Meter]
    lost: Mapping[str, int]
    throttled_ms: Mapping[str, int]
    opened_connections: int
    failed_connections: int
    failed_logins: int
    unsent_bytes: int
    window_bytes: int
    windows: int
