"""The metrics of a gateway about its cluster: connections, requests, what waits and what is kept for readers."""

from __future__ import annotations

from collections.abc import Iterator

from app.metrics_families import Family, Meterings, Timing, counter, gauge
from core.vocabulary.upstream import ClientNumbers, ClusterState


def of_cluster(state: ClusterState, numbers: ClientNumbers) -> Iterator[Family | Timing]:
    """Return the families; labels are broker ids and names of APIs."""
    prefix = "sluice_upstream"
    meters: Meterings = [((api,), meter) for api, meter in numbers.requests.items()]
    for name, meaning, samples in (
        ("requests", "Requests to brokers that were answered.", [(key, one.count) for key, one in meters]),
        ("sent_bytes", "Bytes of requests to brokers.", [(key, one.bytes_out) for key, one in meters]),
        ("received_bytes", "Bytes of the answers of brokers.", [(key, one.bytes_in) for key, one in meters]),
    ):
        yield Family("counter", f"{prefix}_{name}", meaning, ("api",), [*samples])
    times = [(key, one.buckets[:], one.seconds) for key, one in meters]
    yield Timing(f"{prefix}_request_duration_seconds", "How long requests to brokers took.", ("api",), times)
    for name, meaning, by_api, unit in (
        ("lost_requests", "Requests whose connection ended before the answer.", numbers.lost, 1),
        ("throttled_seconds", "Time for which brokers asked to wait.", numbers.throttled_ms, 1000),
    ):
        yield Family(
            "counter", f"{prefix}_{name}", meaning, ("api",), [((a,), n / unit) for a, n in by_api.items()]
        )
    for name, meaning, number in (
        ("opened_connections", "Connections to brokers that were opened.", numbers.opened_connections),
        (
            "failed_connections",
            "Connections to brokers that could not be opened.",
            numbers.failed_connections,
        ),
        ("failed_logins", "Logins that a broker refused.", numbers.failed_logins),
    ):
        yield counter(f"{prefix}_{name}", meaning, number)
    yield Family(
        "gauge", f"{prefix}_connections", "Open connections to a broker.", ("broker",),
        [((str(one.broker_id),), one.connections) for one in state.brokers],
    )  # fmt: skip
    yield Family(
        "gauge", f"{prefix}_failing", "1 if the last attempt to reach a broker has failed.", ("broker",),
        [((str(one.broker_id),), int(one.failing)) for one in state.brokers],
    )  # fmt: skip
    for name, meaning, now in (
        ("metadata_age_seconds", "Age of the newest metadata of the cluster.", state.metadata_age_ms / 1000),
        ("unsent_bytes", "Bytes of records that wait for the answer of a broker.", numbers.unsent_bytes),
        ("window_bytes", "Bytes of batches that are kept for readers.", numbers.window_bytes),
        ("windows", "Partitions whose batches are kept for readers, by isolation level.", numbers.windows),
    ):  # fmt: skip
        yield gauge(f"{prefix}_{name}", meaning, now)
