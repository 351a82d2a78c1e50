"""Routes that not every broker can serve: 501 before anything else is looked at, with the name of the capability.

A gateway over an existing cluster has fewer capabilities than an embedded broker. `GET /api/v1/` lists them.
"""

from __future__ import annotations

from collections.abc import Callable

from app.errors import Problem
from core.vocabulary.capabilities import (
    ACLS,
    CONSUMERS,
    FREEZE,
    GROUP_MEMBERS,
    IDEMPOTENCY_KEYS,
    KAFKA_PORT,
    QUEUES,
    QUOTAS,
    ROLES,
    TAKE_OVER,
    TRANSACTIONS,
    USERS,
)

Capabilities = Callable[[], frozenset[str]]
"""Returns the names of what the broker of this process can do."""

_BROKERS = "GET /api/v1/brokers lists the brokers of the cluster"
_CALLER = (
    "It calls the cluster with the credentials of each request, and keeps none of them after it. Read by offset, and "
    "commit with PATCH /api/v1/groups/{group}/offsets."
)
_REASONS = {
    TRANSACTIONS: "This gateway has no transactions over HTTP. Kafka clients can have transactions on the cluster "
    f"itself: {_BROKERS}.",
    ROLES: "The cluster chooses the leaders of its partitions, and this gateway cannot change them. Use the tools of "
    "the cluster, such as kafka-leader-election.sh.",
    TAKE_OVER: "Groups of Kafka 0.7 can be taken over by an embedded broker alone.",
    KAFKA_PORT: f"This gateway has no Kafka port. {_BROKERS}, with their addresses for Kafka clients.",
    FREEZE: "A gateway over a cluster cannot freeze it: Kafka clients write to its brokers directly.",
    GROUP_MEMBERS: f"This gateway has no members of groups over HTTP. {_CALLER}",
    CONSUMERS: f"This gateway has no managed consumers and no consumer instances. {_CALLER}",
    IDEMPOTENCY_KEYS: f"This gateway takes no Idempotency-Key. {_CALLER}",
    QUEUES: "This gateway has no queues. Use a managed consumer, or share groups of a Kafka client on the cluster: "
    f"{_BROKERS}.",
    **dict.fromkeys(
        (USERS, ACLS, QUOTAS),
        "This gateway calls the cluster as its callers: users, access rules and quotas are those of the cluster. Use "
        "its tools, such as kafka-configs.sh and kafka-acls.sh.",
    ),
}


def require_capability(capabilities: frozenset[str], needed: str) -> None:
    """Raise Problem (501) unless `needed` is among the capabilities; an empty name is needed by no route."""
    if needed and needed not in capabilities:
        raise Problem(
            "missing-capability",
            _REASONS.get(needed, "This server cannot do that."),
            extra={"capability": needed},
        )
