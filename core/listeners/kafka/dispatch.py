"""Which APIs this door serves: the sum of the tables of its files. A new API is a new file and a line here."""

from __future__ import annotations

from core.listeners.kafka import (
    configs,
    fetch,
    group_offsets,
    groups,
    metadata,
    offsets,
    produce,
    roles,
    topics,
    versions,
)
from core.listeners.kafka.handler import Handler

HANDLERS: dict[int, Handler] = {
    key: handler
    for module in (produce, fetch, offsets, metadata, topics, roles, configs, groups, group_offsets, versions)
    for key, handler in module.HANDLERS.items()
}
