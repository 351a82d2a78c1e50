"""Settings of the broker that need a restart, under Kafka's names: DescribeConfigs shows them as read-only.

Only settings that the broker has an equivalent for; a name that is not here has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from core.config import Config
from core.topic_config import LONG_MAX

# Times that Kafka has in milliseconds without a default, and in another setting with one: its name and default.
WHOLE_UNITS: dict[str, tuple[str, str]] = {
    "log.retention.ms": ("log.retention.hours", "168"),
    "log.roll.ms": ("log.roll.hours", "168"),
    "log.roll.jitter.ms": ("log.roll.jitter.hours", "0"),
    "log.flush.interval.ms": ("log.flush.scheduler.interval.ms", str(LONG_MAX)),
}


class Fixed(NamedTuple):
    """One setting: its name, type, meaning, and its value as text. `given`: it always comes from the start."""

    name: str
    type: str
    doc: str
    value: Callable[[Config], str]
    given: bool = False


FIXED: tuple[Fixed, ...] = (
    Fixed("advertised.listeners", "STRING", "The address that clients are told.", lambda c: "", given=True),
    Fixed(
        "auto.create.topics.enable", "BOOLEAN", "Whether a topic is created when a client asks for it.",
        lambda c: str(c.auto_create_topics).lower(),
    ),
    Fixed("broker.id", "INT", "The number of this broker.", lambda c: str(c.broker_id), given=True),
    Fixed(
        "connections.max.idle.ms", "LONG", "How long a connection may be silent.",
        lambda c: str(c.idle_timeout_ms),
    ),
    Fixed(
        "default.replication.factor", "INT", "Replicas of a topic whose creator names no number.",
        lambda c: str(c.default_replication_factor),
    ),
    Fixed("delete.topic.enable", "BOOLEAN", "Whether topics can be deleted.", lambda c: "true"),
    Fixed("fetch.max.bytes", "INT", "Record bytes in one answer at most.", lambda c: str(c.fetch_max_bytes)),
    Fixed(
        "group.initial.rebalance.delay.ms", "INT", "How long an empty group waits for more members.",
        lambda c: str(c.group_initial_rebalance_delay_ms),
    ),
    Fixed(
        "group.max.session.timeout.ms", "INT", "The longest session timeout.",
        lambda c: str(c.group_max_session_timeout_ms),
    ),
    Fixed("group.max.size", "INT", "Members of one group at most.", lambda c: str(c.group_max_size)),
    Fixed(
        "group.min.session.timeout.ms", "INT", "The shortest session timeout.",
        lambda c: str(c.group_min_session_timeout_ms),
    ),
    Fixed(
        "listener.security.protocol.map", "STRING", "The security protocol of each listener name.",
        lambda c: "PLAINTEXT:PLAINTEXT",
    ),
    Fixed("listeners", "STRING", "The addresses of the Kafka listeners.", lambda c: "", given=True),
    Fixed(
        "log.cleaner.backoff.ms", "LONG", "How often logs are looked at for compaction.",
        lambda c: str(c.compaction_interval_ms),
    ),
    Fixed("log.cleaner.enable", "BOOLEAN", "Whether logs are compacted.", lambda c: "true"),
    Fixed("log.dirs", "STRING", "The data directory.", lambda c: str(c.data_dir.absolute()), given=True),
    Fixed(
        "log.flush.offset.checkpoint.interval.ms", "INT", "How often recovery points are written.",
        lambda c: str(c.checkpoint_interval_ms),
    ),
    Fixed(
        "log.retention.check.interval.ms", "LONG", "How often logs are looked at for retention.",
        lambda c: str(c.retention_check_interval_ms),
    ),
    Fixed("log.retention.hours", "INT", "The default of retention.ms, in hours.", lambda c: "168"),
    Fixed("log.roll.hours", "INT", "The default of segment.ms, in hours.", lambda c: "168"),
    Fixed(
        "max.connections", "INT", "Connections of one listener at most.", lambda c: str(c.max_connections)
    ),
    Fixed(
        "max.incremental.fetch.session.cache.slots", "INT", "Fetch sessions at most.",
        lambda c: str(c.max_fetch_sessions),
    ),
    Fixed("node.id", "INT", "The number of this broker.", lambda c: str(c.broker_id), given=True),
    Fixed(
        "num.partitions", "INT", "Partitions of a topic whose creator names no number.",
        lambda c: str(c.default_partitions),
    ),
    Fixed(
        "offset.metadata.max.bytes", "INT", "Metadata of one committed offset at most.",
        lambda c: str(c.offset_metadata_max_bytes),
    ),
    Fixed(
        "offsets.retention.check.interval.ms", "LONG", "How often committed offsets are looked at.",
        lambda c: str(c.offsets_retention_check_interval_ms),
    ),
    Fixed(
        "offsets.retention.minutes", "INT", "How long the offsets of an empty group are kept.",
        lambda c: str(c.offsets_retention_ms // 60_000),
    ),
    Fixed("process.roles", "LIST", "What this process does.", lambda c: "broker,controller", given=True),
    Fixed(
        "replica.fetch.backoff.ms", "INT", "How long a follower waits after an error.",
        lambda c: str(c.replica_retry_ms),
    ),
    Fixed(
        "replica.fetch.max.bytes", "INT", "Record bytes of one partition in a follower's fetch.",
        lambda c: str(c.replica_fetch_partition_max_bytes),
    ),
    Fixed(
        "replica.fetch.response.max.bytes", "INT", "Record bytes in a follower's fetch.",
        lambda c: str(c.replica_fetch_max_bytes),
    ),
    Fixed(
        "replica.fetch.wait.max.ms", "INT", "How long a follower's fetch waits.",
        lambda c: str(c.replica_fetch_wait_ms),
    ),
    Fixed(
        "replica.lag.time.max.ms", "LONG", "After how long a follower that lags leaves the in-sync set.",
        lambda c: str(c.replica_lag_time_max_ms),
    ),
    Fixed(
        "socket.request.max.bytes", "INT", "The largest request.", lambda c: str(c.max_frame_bytes)
    ),
)  # fmt: skip
"""The settings that need a restart."""
