"""The SQLite schema: what the broker must remember beside the logs.

Tables only; each statement is in the module that uses it. A change here needs a new revision in `migrations/versions`
and a new `SCHEMA_REVISION`. A test checks that a fresh database and a migrated one are the same.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

SCHEMA_REVISION = "0013"

metadata = MetaData()

# Single values: cluster id, next producer id.
settings = Table(
    "settings",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)

# One row a topic. `configs` is a JSON object of the overrides, as text; `version` rises with each change;
# `replicas` is a JSON array of broker ids, empty for a topic that is not replicated.
topics = Table(
    "topics",
    metadata,
    Column("name", String(249), primary_key=True),
    Column("topic_id", LargeBinary(16), nullable=False, unique=True),
    Column("partitions", Integer, nullable=False),
    Column("configs", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("replicas", Text, nullable=False, server_default="[]"),
)

# One row a setting of a broker that was changed at run time, under Kafka's name. `broker` is its number, or empty
# for all brokers.
broker_configs = Table(
    "broker_configs",
    metadata,
    Column("broker", String(16), primary_key=True),
    Column("name", String(249), primary_key=True),
    Column("value", Text, nullable=False),
)

# One row an access rule, under the numbers of the protocol (`core.security.acl`).
acls = Table(
    "acls",
    metadata,
    Column("resource_type", Integer, primary_key=True),
    Column("resource_name", String, primary_key=True),
    Column("pattern_type", Integer, primary_key=True),
    Column("principal", String, primary_key=True),
    Column("host", String, primary_key=True),
    Column("operation", Integer, primary_key=True),
    Column("permission", Integer, primary_key=True),
    sqlite_with_rowid=False,
)

# One row a user. The next two tables have its credentials.
users = Table(
    "users",
    metadata,
    Column("name", String, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
)

# One row a password under one mechanism, by Kafka's number for it (KIP-554): never the password.
scram_credentials = Table(
    "scram_credentials",
    metadata,
    Column("name", String, primary_key=True),
    Column("mechanism", Integer, primary_key=True),
    Column("salt", LargeBinary, nullable=False),
    Column("stored_key", LargeBinary, nullable=False),
    Column("server_key", LargeBinary, nullable=False),
    Column("iterations", Integer, nullable=False),
)

# One row a token of a user. `digest` is the SHA-256 of its secret half. `expires_ms` is −1 for never. `scope` is
# JSON, or empty for none.
tokens = Table(
    "tokens",
    metadata,
    Column("token_id", String(16), primary_key=True),
    Column("owner", String, nullable=False),
    Column("description", Text, nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("scope", Text, nullable=False, server_default=""),
)

# One row a quota of a client. `entity` is a JSON array of [type, name] pairs; `name` is the key of the quota.
client_quotas = Table(
    "client_quotas",
    metadata,
    Column("entity", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("value", Float, nullable=False),
    sqlite_with_rowid=False,
)

# One row a group that has had members. `empty_since_ms` is −1 while it has some.
groups = Table(
    "groups",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("state", String(32), nullable=False),
    Column("protocol_type", String),
    Column("generation", Integer, nullable=False),
    Column("protocol", String),
    Column("leader_id", String),
    Column("empty_since_ms", BigInteger, nullable=False),
)

# One row a member. `protocols` is a MessagePack array of [name, metadata].
group_members = Table(
    "group_members",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("member_id", String, primary_key=True),
    Column("group_instance_id", String),
    Column("client_id", String, nullable=False),
    Column("client_host", String, nullable=False),
    Column("session_timeout_ms", Integer, nullable=False),
    Column("rebalance_timeout_ms", Integer, nullable=False),
    Column("protocols", LargeBinary, nullable=False),
    Column("assignment", LargeBinary, nullable=False),
)

# One row a group to whose members the broker assigns (KIP-848, KIP-932); a group has a row here or in `groups`.
# `details` are MessagePack of the machine of that type.
modern_groups = Table(
    "modern_groups",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("group_type", String, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("empty_since_ms", BigInteger, nullable=False),
    Column("details", LargeBinary, nullable=False),
)

# One row a member of these.
modern_members = Table(
    "modern_members",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("member_id", String, primary_key=True),
    Column("details", LargeBinary, nullable=False),
)

# One row a setting that a group sets itself, under Kafka's name. A group need not exist to have some.
group_configs = Table(
    "group_configs",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("name", String(249), primary_key=True),
    Column("value", Text, nullable=False),
    sqlite_with_rowid=False,
)

# One row a committed offset; a group need not have a row of its own for it. The rows lie in the order of their
# key, for a commit writes neighbours.
committed_offsets = Table(
    "committed_offsets",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("committed_offset", BigInteger, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("commit_ms", BigInteger, nullable=False),
    Column("expire_ms", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# One row an offset that a producer has staged in its open transaction. `commit_seq` rises with each; `superseded` is
# 1 once a newer commit of the partition was made. The end of the transaction deletes the row.
pending_offsets = Table(
    "pending_offsets",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("topic_id", LargeBinary(16), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("producer_id", BigInteger, primary_key=True),
    Column("producer_epoch", Integer, nullable=False),
    Column("committed_offset", BigInteger, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("commit_ms", BigInteger, nullable=False),
    Column("commit_seq", BigInteger, nullable=False),
    Column("superseded", Integer, nullable=False),
    sqlite_with_rowid=False,
)
Index("pending_offsets_by_producer", pending_offsets.c.producer_id)

# One row a managed consumer. `generation` is the one that its positions belong to; a batch that was delivered and
# not acknowledged has the number `sequence`, `outstanding` is a MessagePack array of its ranges. `subscription`,
# `options` and `paused` are MessagePack as well, as `core.consumers.store` writes them.
consumers = Table(
    "consumers",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("nonce", String(16), nullable=False),
    Column("subscription", LargeBinary, nullable=False),
    Column("options", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("member_id", String, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("outstanding", LargeBinary, nullable=False),
    Column("paused", LargeBinary, nullable=False),
    Column("deadline_ms", BigInteger, nullable=False),
)

# The next offset that a consumer will be given, for each partition that it owns.
consumer_positions = Table(
    "consumer_positions",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("topic", String, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("position", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# One row for each idempotency key. `digest` is of principal, path and key, `fingerprint` of query and body. `plan` is
# what to append where, as `core.idempotency.plan` writes it. `places` are the known places in the logs. `answer` is
# NULL until the request is done. `size` is the approximate size of the row in bytes.
idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("fingerprint", LargeBinary(32), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("size", Integer, nullable=False),
    Column("plan", LargeBinary, nullable=False),
    Column("places", LargeBinary, nullable=False),
    Column("answer", LargeBinary),
)
# Age and size of all keys, without reading the rows.
Index("idempotency_keys_by_age", idempotency_keys.c.created_ms, idempotency_keys.c.size)
# The few without an answer, which a start looks through.
Index(
    "idempotency_keys_open",
    idempotency_keys.c.digest,
    sqlite_where=idempotency_keys.c.answer.is_(None),
)

# One row a transactional id, under the names of `core.transactions.transaction`. `parts` is a MessagePack array
# of the partitions with records of an open transaction, as far as they were known when the row was written.
transactional_ids = Table(
    "transactional_ids",
    metadata,
    Column("transactional_id", String, primary_key=True),
    Column("producer_id", BigInteger, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("previous_id", BigInteger, nullable=False),
    Column("previous_epoch", Integer, nullable=False),
    Column("timeout_ms", Integer, nullable=False),
    Column("state", Integer, nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    Column("parts", LargeBinary, nullable=False),
)

# One row a transaction that has ended and whose markers may not be on the disk everywhere. It is not a state of the
# transactional id: the next transaction of that id may end before the markers of this one are on the disk.
transaction_decisions = Table(
    "transaction_decisions",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("producer_id", BigInteger, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("marker_epoch", Integer, nullable=False),
    Column("coordinator_epoch", Integer, nullable=False),
    Column("commit", Boolean, nullable=False),
    Column("parts", LargeBinary, nullable=False),
)

# One row a queue (share group). `settings` is a MessagePack map, as `core.queues.settings` writes it. `version` rises
# with each change of them. Numbers of leases below `leases` may have been given out.
share_groups = Table(
    "share_groups",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("settings", LargeBinary, nullable=False),
    Column("version", Integer, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("leases", BigInteger, nullable=False),
)

# One row a receive that may be repeated. `ranges` is a MessagePack array of what its lease holds.
share_attempts = Table(
    "share_attempts",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("attempt", String, primary_key=True),
    Column("until_ms", BigInteger, nullable=False),
    Column("ranges", LargeBinary, nullable=False),
)

# One row a partition of a queue, as of its last fold. `nonce` is that of its receipts. No record from `tracked_end`
# on is known. `snapshot` is what `core.queues` knows of the records from `start` to there.
share_partitions = Table(
    "share_partitions",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("topic_id", LargeBinary(16), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("start", BigInteger, nullable=False),
    Column("nonce", BigInteger, nullable=False),
    Column("tracked_end", BigInteger, nullable=False),
    Column("snapshot", LargeBinary, nullable=False),
)

# One row a change of such a partition since its last fold, in the order of `seq`.
share_updates = Table(
    "share_updates",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("topic_id", LargeBinary(16), primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("tracked_end", BigInteger, nullable=False),
    Column("change", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# What was redriven or purged of the dead letters of a queue, and its redrives, as `core.queues.redrive` writes them.
# A queue that was deleted and created again has another `created_ms`: the row is deleted.
share_dead_letters = Table(
    "share_dead_letters",
    metadata,
    Column("group_id", String, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
    Column("state", LargeBinary, nullable=False),
)

# One row a webhook of a queue. `settings` and `secrets` are MessagePack, as `core.queues.webhooks.store` writes them.
# A queue that was deleted and created again has another `queue_created_ms`: its webhooks are deleted.
webhooks = Table(
    "webhooks",
    metadata,
    Column("queue", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("queue_created_ms", BigInteger, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("settings", LargeBinary, nullable=False),
    Column("secrets", LargeBinary, nullable=False),
    Column("off_because", Text, nullable=False),
    Column("failing_since_ms", BigInteger),
)
