"""What a broker can do, by name. `GET /api/v1/` announces the names; a client looks for one before it relies on it.

A call that needs a missing capability raises UNSUPPORTED_VERSION (501 over HTTP), or the value that it would show is
null.
"""

from __future__ import annotations

from core.errors import BrokerError, ErrorCode

# Topics and records: create, change, delete, produce, read, long polls, streams.
TOPICS, RECORDS, STREAMS = "topics", "records", "streams"
# Groups with their positions; members over HTTP; managed consumers.
GROUPS, GROUP_MEMBERS, CONSUMERS = "groups", "group-members", "consumers"
# Writes with an idempotency key; transactions over HTTP.
IDEMPOTENCY_KEYS, TRANSACTIONS = "idempotency-keys", "transactions"
# Queues, which are share groups.
QUEUES = "queues"
# Bytes on disk and times of creation; the roles of brokers, and how to change them; moving groups to this broker.
SIZES, ROLES, TAKE_OVER = "sizes", "roles", "group-take-over"
# Users, tokens, access rules and quotas of this process.
USERS, ACLS, QUOTAS = "users", "acls", "quotas"
# The port for Kafka clients, that for Kafka 0.7, and the line protocol.
KAFKA_PORT, KAFKA07_PORT, LINE_PORT = "kafka-port", "kafka07-port", "line-port"
# `POST /cluster:freeze`: refuse writes, for a move to another cluster.
FREEZE = "freeze"
# The topics and records are those of an existing Kafka cluster; `/brokers` names its brokers.
UPSTREAM = "upstream"

EMBEDDED = frozenset(
    {
        TOPICS, RECORDS, STREAMS, GROUPS, GROUP_MEMBERS, CONSUMERS, IDEMPOTENCY_KEYS, TRANSACTIONS, SIZES, ROLES,
        QUEUES, TAKE_OVER, USERS, ACLS, QUOTAS, KAFKA_PORT, KAFKA07_PORT, LINE_PORT, FREEZE,
    }
)  # fmt: skip
"""The capabilities of an embedded broker: all but `upstream`."""

OVER_A_CLUSTER = frozenset(
    {
        TOPICS, RECORDS, STREAMS, GROUPS, GROUP_MEMBERS, CONSUMERS, IDEMPOTENCY_KEYS, USERS, ACLS, QUOTAS, UPSTREAM,
    }
)  # fmt: skip
"""The capabilities of a gateway over an existing cluster."""

FOR_CALLERS = frozenset({TOPICS, RECORDS, STREAMS, GROUPS, UPSTREAM})
"""Those of a gateway that calls the cluster as its callers: what lasts longer than a request is missing; users and
access rules are the cluster's."""


def unsupported(what: str) -> BrokerError:
    """Return the error for a call that a cluster of other brokers cannot answer; `what` is a sentence."""
    return BrokerError(ErrorCode.UNSUPPORTED_VERSION, what)
