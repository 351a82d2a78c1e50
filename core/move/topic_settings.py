"""Settings of topics on their way: which the target has while it is copied, and which in the end."""

from __future__ import annotations

from collections.abc import Callable

from core.move.cluster import MoveCluster
from core.move.journal import Journal

_FOREVER = str(2**63 - 1)
HELD: dict[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _FOREVER,
    "message.timestamp.after.max.ms": _FOREVER,
    "compression.type": "producer",
}
"""What a topic of the target has while it is copied: it keeps all records, as they are."""
HELD_BEFORE_3_6: dict[str, str] = {
    **{key: value for key, value in HELD.items() if not key.endswith("r.max.ms")},
    "message.timestamp.difference.max.ms": _FOREVER,
}
"""The same for Kafka before 3.6, which has one name for the two limits of time stamps (KIP-937)."""
LEFT_OUT = frozenset(
    {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "message.format.version",
        "message.downconversion.enable",
        "message.timestamp.difference.max.ms",
    }
)
"""Settings that say where replicas are, or that Kafka 4 refuses."""


async def finish(target: MoveCluster, journal: Journal, wanted: Callable[[str], bool]) -> list[str]:
    """Give topics of the target the settings that were held back; return their names. It may be repeated."""
    finished = []
    held = HELD.keys() | HELD_BEFORE_3_6.keys()
    for name, moved in journal.topics().items():
        if not wanted(name):
            continue
        there = (await target.overrides([name]))[name]
        own = {key: value for key, value in moved.configs.items() if key in held}
        changes: dict[str, str | None] = {key: None for key in held if key in there}
        await target.alter(name, changes | own)
        journal.put_topic(moved._replace(finished=True))
        finished.append(name)
    return finished
