"""Join the tables of all files into the table of served APIs. A new file is a line here."""

from __future__ import annotations

from core.listeners.kafka import (
    acls,
    config_resources,
    configs,
    consumer_groups,
    credentials,
    fetch,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    quorum,
    quotas,
    reassignments,
    roles,
    sasl,
    share_acknowledge,
    share_fetch,
    share_groups,
    topics,
    transactions,
    versions,
)
from core.listeners.kafka.handler import Handler

HANDLERS: dict[int, Handler] = {
    key: handler
    for module in (
        produce,
        fetch,
        offsets,
        metadata,
        topics,
        roles,
        reassignments,
        quorum,
        configs,
        config_resources,
        groups,
        consumer_groups,
        group_offsets,
        quotas,
        acls,
        credentials,
        sasl,
        share_acknowledge,
        share_fetch,
        share_groups,
        transactions,
        versions,
    )
    for key, handler in module.HANDLERS.items()
}

# What a follower asks its leader, Fetch, ApiVersions and OffsetForLeaderEpoch, and what a broker forwards for its
# client, DescribeQuorum. Questions about roles have a key of their own.
PEER_HANDLERS: dict[int, Handler] = {key: HANDLERS[key] for key in (1, 18, 23, 55)}
