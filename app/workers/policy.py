"""What each worker does, and which requests it forwards to another one.

Over a Kafka cluster every worker is a gateway with a data directory of its own (`.workers/worker-<n>`; worker 0 has
the configured one). A rendezvous hash over the workers names the owner of a group or a key, as it does for gateways
on several hosts.

Over the embedded broker all state is in worker 0, which runs it: consumers, keys, transactions, users. The others are
gateways over its Kafka listener. They write and read records themselves, which is most of the work, and forward the
rest. So the number of workers can change between two starts, and nothing is lost.

If clients log in, users and access rules are known to worker 0 alone. Then, and without a Kafka listener that takes
connections of this host without a login, the others only read and write HTTP and TLS, and forward everything.
"""

from __future__ import annotations

import enum

from app.gateways.ownership import KEY_HEADER, Policy, hashed
from app.http.request import Request
from app.native.transaction_header import HEADER as TRANSACTION
from app.settings import is_loopback
from core.config import LOOPBACK_OF, Config, Endpoint

LEVEL = "worker"
# The worker that runs the broker, or has the users.
FIRST = "0"
# Served by each process: whether it lives, and files that are the same in all of them.
_OWN = frozenset({"/livez"})
_FILES = ("/docs", "/problems", "/openapi.json", "/favicon.ico")


class Part(enum.Enum):
    """What a worker is."""

    # It has a broker, or is a gateway over a cluster, with state of its own.
    WHOLE = "whole"
    # It is a gateway over the broker of worker 0.
    RECORDS = "records"
    # It forwards everything.
    RELAY = "relay"


def part_of(config: Config, number: int) -> Part:
    """Return what the worker of this number is."""
    if number == 0:
        return Part.WHOLE
    if asks_login(config):
        return Part.RELAY
    if config.upstream is not None:
        return Part.WHOLE
    return Part.RELAY if plain_kafka(config) is None else Part.RECORDS


def asks_login(config: Config) -> bool:
    """Return whether clients of an HTTP listener log in, or may show a certificate."""
    asking = {one.name for one in config.tls if one.client_auth != "none"}
    http = [one for one in config.listeners if one.scheme == "http"]
    return any(one.authentication or one.tls in asking for one in http)


def plain_kafka(config: Config) -> int | None:
    """Return the place, among the TCP listeners, of one that gateways of this host can use without a login."""
    tcp = [one for one in config.listeners if one.scheme != "http"]
    for place, one in enumerate(tcp):
        if one.scheme == "kafka" and not one.authentication and not one.tls and _is_near(one):
            return place
    return None


def _is_near(endpoint: Endpoint) -> bool:
    return endpoint.host in LOOPBACK_OF or is_loopback(endpoint.host)


def policy_of(config: Config, number: int, workers: int) -> Policy | None:
    """Return the rule by which the worker of this number forwards to others; None if it keeps everything."""
    part = part_of(config, number)
    if part is Part.RELAY:
        return _everything
    if part is Part.RECORDS:
        return _all_but_records
    if config.upstream is not None and not asks_login(config):
        return hashed([str(one) for one in range(workers)])
    return None


def _everything(request: Request) -> str | None:
    return None if request.scope["path"] in _OWN else FIRST


def _all_but_records(request: Request) -> str | None:
    """Serve plain writes and reads of records here, and files."""
    path: str = request.scope["path"]
    if path in _OWN or path.startswith(_FILES):
        return None
    headers = request.headers
    if KEY_HEADER in headers or TRANSACTION in headers:
        return FIRST
    if path.startswith("/api/v1/topics/"):
        return None if path.rstrip("/").endswith("/records") or "/records/" in path else FIRST
    if path.startswith("/topics/") and request.scope["method"] == "POST":
        return None
    return FIRST
