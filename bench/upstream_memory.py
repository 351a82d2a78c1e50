"""Memory of a gateway over a real Kafka: idle, with partitions that are followed, with idle managed consumers."""

from __future__ import annotations

import time

from bench.case import Figure, case, median_of
from bench.http import Http, get, post
from bench.listeners import listeners
from bench.load import Connection
from bench.server import resident_bytes
from bench.upstream import answered, cluster, gateway
from tests.gateway_process import GatewayProcess

PARTITIONS = 500
CONSUMERS = 10_000
# How long consumers are made, at most: each joins a group of its own in the cluster.
CONSUMERS_SECONDS = 240.0
MOST_IDLE = 90.0
# What a listener of the case and an open connection have asked for before counts as settled after this time.
SETTLED_SECONDS = 1.0
_MIB, _KIB = 1 << 20, 1 << 10
_STREAM = get("/api/v1/topics/wide/records?from=latest").replace(b"application/json", b"text/event-stream")
_RECORDS = [{"value": "v" * 1000, "partition": number % PARTITIONS} for number in range(500)]


def resident_mib(server: GatewayProcess) -> float:
    """Return the resident memory once the gateway has had time to settle."""
    time.sleep(SETTLED_SECONDS)
    return resident_bytes(server.pid) / _MIB


@case
def gateway_memory(repeats: int) -> list[Figure]:
    """A gateway over a real Kafka: resident memory idle, and with 500 followed partitions, 20 MB through them."""
    idle, followed, loaded = [], [], []
    with cluster([("wide", PARTITIONS)]) as kafka:
        for _ in range(min(repeats, 3)):
            with gateway(kafka) as server:
                idle.append(resident_mib(server))
                http = Http(server)
                with listeners(("127.0.0.1", server.ports["http"]), _STREAM, 1, 1 << 30):
                    followed.append(resident_mib(server) - idle[-1])
                    for _ in range(40):
                        answered(http, post("/api/v1/topics/wide/records", {"records": _RECORDS}))
                    loaded.append(resident_mib(server) - idle[-1])
                http.close()
    return [
        median_of("gateway: resident memory, idle", idle, "MiB", MOST_IDLE),
        median_of(f"  a listener follows {PARTITIONS} partitions, more", followed, "MiB"),
        median_of("  after 20,000 records of 1 KB through them, more", loaded, "MiB"),
    ]


@case
def gateway_consumers(_repeats: int) -> list[Figure]:
    """A gateway over a real Kafka: memory of idle managed consumers, each in a group of its own."""
    with cluster([("bench", 1)]) as kafka, gateway(kafka) as server:
        connection, http = Connection(kafka.address), Http(server)
        for number in range(100):
            _make(http, f"first-{number}")
        before, start = resident_mib(server), time.monotonic()
        made = 0
        while made < CONSUMERS and time.monotonic() - start < CONSUMERS_SECONDS:
            _make(http, f"idle-{made}")
            made += 1
        took = time.monotonic() - start
        after = resident_mib(server)
        connection.close()
        http.close()
    return [
        Figure(f"gateway: {made} idle managed consumers in as many groups", after - before, "MiB"),
        Figure("  each", (after - before) * _KIB / made, "KiB"),
        Figure("  made, one after the other", made / took, "/s"),
    ]


def _make(http: Http, group: str) -> None:
    answered(http, post(f"/api/v1/groups/{group}/consumers", {"name": "c", "topics": ["bench"]}))
    # The first poll joins.
    answered(http, post(f"/api/v1/groups/{group}/consumers/c:poll", {"ack": None, "wait_ms": 0, "limit": 10}))
