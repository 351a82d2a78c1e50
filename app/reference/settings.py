"""docs/reference/settings.md: every setting of the process.

About thirty settings are documented by name. The others are limits and intervals that few people change: they may
change without notice.
"""

from __future__ import annotations

from app.reference.markdown import table
from app.settings import SETTINGS, plain_fields, variable_of

_INTRODUCTION = """\
# Settings

Written by `sluice docs` from the code. [Configuration](../operations/configuration.md) says how to set them: a flag
wins over the environment, and the environment wins over the configuration file. In the file a name is in lower case
and without `SLUICE_`. A setting without a flag is set by the environment or the file alone. `sluice config show`
prints the values of these two and their source.

## Documented settings
"""
_OTHERS = """
## Other settings

These settings may change without notice: limits, buffers and intervals. A release may rename or remove them. Sizes
are in bytes and times are in milliseconds unless the sentence says otherwise.
"""

# Numbers and switches that people set; their names are kept.
DOCUMENTED: dict[str, str] = {
    "workers": "Processes that serve HTTP on the same port. Use the number of cores.",
    "broker_id": "The number of this broker in its cluster.",
    "access_log": "Log a line for each HTTP request.",
    "auto_create_topics": "Create a topic when a client writes to it or asks for it.",
    "default_partitions": "Partitions of a topic if its creator gives no number.",
    "default_replication_factor": "Replicas of a topic if its creator gives no number.",
    "authorizer": "Whether access rules (ACLs) hold. They also hold if there is a user, or `SLUICE_SUPER_USERS`.",
    "allow_everyone_if_no_acl_found": "Whether all users may use a resource that no access rule covers.",
    "open_metrics": "Whether `/metrics` can be read without a login and without a right.",
    "offsets_retention_ms": "How long an empty group keeps its committed offsets.",
    "group_initial_rebalance_delay_ms": "How long a new group waits for more members.",
    "idempotency_ttl_ms": "How long an `Idempotency-Key` is kept.",
    "consumer_default_ttl_ms": "How long an idle managed consumer is kept if it asks for no other time.",
    "max_connections": "Connections to one Kafka listener.",
    "max_connections_per_ip": "Connections from one IP address to all listeners.",
    "http_max_connections": "HTTP connections.",
    "http_max_body_bytes": "The largest HTTP body.",
    "max_frame_bytes": "The largest Kafka request. A larger one closes its connection.",
    "max_wait_ms": "The longest long poll.",
    "max_partitions": "Partitions of all topics together.",
    "replica_lag_time_max_ms": "A follower that is not caught up for this long leaves the in-sync set.",
    "replica_fsync": "Whether a follower fsyncs records before it acknowledges them.",
    "metadata_min_insync_replicas": "Brokers that must store a change of topics, groups or offsets before it is "
    "answered. 0 is the majority.",
    "max_reauth_ms": "How long a Kafka client may use its connection before it must log in again (Kafka's "
    "`connections.max.reauth.ms`). 0 is without end.",
    "drain_timeout_ms": "How long a stop waits for requests in progress.",
}

# Those of the above that have a flag of `sluice serve`.
FLAGS = {"workers": "`--workers`", "broker_id": "`--broker-id`", "access_log": "`--access-log`"}

OTHER: dict[str, str] = {
    "max_partitions_per_topic": "Partitions of one topic.",
    "webhooks": "Whether queues may have webhooks (`--webhooks`). On by itself where all listeners are loopback.",
    "webhook_allow_only": "Whether webhooks reach nothing but the hosts of `SLUICE_WEBHOOK_ALLOW`. On by itself "
    "where clients of other machines need no login.",
    "max_webhooks": "Webhooks of all queues.",
    "max_webhook_requests": "Requests of all webhooks at the same time.",
    "checkpoint_interval_ms": "How often the broker fsyncs logs in the background. This bounds what a power loss can "
    "take from `acks=0` and `acks=1`.",
    "zookeeper_session_timeout_ms": "How long ZooKeeper still lists a broker that was killed.",
    "zookeeper_call_timeout_ms": "How long the broker waits for an answer of ZooKeeper.",
    "zookeeper_refresh_interval_ms": "How often the broker checks its registration and reads the consumers.",
    "zookeeper_max_nodes": "Nodes of consumers that one such check reads.",
    "protocol_version_api_key": "The API key of the ProtocolVersionRequest of KIP-35's draft. 0 turns it off.",
    "tls_handshake_timeout_ms": "A client must complete the TLS handshake within this time.",
    "tls_max_handshakes": "TLS handshakes on one listener at the same time. One more closes the oldest.",
    "tls_check_interval_ms": "How often the broker checks the files of certificates for changes.",
    "max_acls": "Access rules at most.",
    "max_quotas": "Client quotas at most.",
    "worker_linger_ms": "How long a worker that is replaced still answers on its open connections.",
    "worker_hold_ms": "How long a request waits for the worker that owns it, while that worker is restarted.",
    "gateway_connect_timeout_ms": "How long a gateway waits for a connection to another one.",
    "gateway_max_requests": "Requests that are forwarded to one other gateway at the same time.",
    "max_inflight_bytes": "Bytes of requests that are partly received, over all connections.",
    "first_request_timeout_ms": "A connection must send its first request within this time.",
    "frame_timeout_ms": "A request that has begun must be complete within this time.",
    "idle_timeout_ms": "An idle connection is closed after this time.",
    "max_write_buffer_bytes": "Bytes that wait for one Kafka client before its next request is held back.",
    "write_timeout_ms": "A Kafka client that reads none of its answers is closed after this time.",
    "fetch_max_bytes": "Record bytes in one answer to a Kafka fetch.",
    "convert_on_loop_bytes": "Bytes that a produce or fetch of an old version converts on the event loop. More bytes "
    "are converted in a thread.",
    "convert_threads": "Threads that convert old formats.",
    "max_waiting": "Long polls that wait at the same time, over all listeners.",
    "max_fetch_sessions": "Incremental fetch sessions that are kept.",
    "max_decompressed_bytes": "The largest batch after decompression, where the broker must read its records.",
    "max_opened_bytes": "Decompressed large batches that are kept for readers that read them in parts.",
    "legacy_fetch_max_bytes": "Bytes in one answer to a fetch of Kafka 0.7. A larger message is sent whole.",
    "legacy_slice_bytes": "Bytes of log that are measured for Kafka 0.7 in one step.",
    "legacy_threads": "Threads that measure and read logs for Kafka 0.7.",
    "http_default_limit": "Records in one HTTP read if the client gives no limit.",
    "http_max_limit": "Records in one HTTP read at most.",
    "http_default_read_bytes": "Record bytes in one HTTP read if the client gives no number.",
    "http_max_read_bytes": "Record bytes in one HTTP read at most.",
    "http_default_page_size": "Items on one page of a list if the client gives no number.",
    "http_max_page_size": "Items on one page of a list at most.",
    "http_max_json_depth": "Nesting of JSON in bodies, and of values that are read as JSON.",
    "http_max_records": "Records in one HTTP write.",
    "http_max_header_bytes": "Header lines of one HTTP request.",
    "http_linger_ms": "How long a refused client may continue to send, so that it receives the refusal.",
    "http_max_scan": "Records that a filtered read examines for one answer.",
    "http_max_streams": "Streams of records at the same time.",
    "http_max_waiting_per_client": "Long polls, joins and streams of one client address at the same time. One "
    "more is refused with 429.",
    "stream_comment_ms": "How often a stream without records sends a comment.",
    "stream_interval_ms": "The least time between two chunks of a stream.",
    "stream_piece_bytes": "A chunk of a stream ends at the first record beyond this size.",
    "stream_cache_bytes": "Cache size for encoded records, and separately for encoded chunks, shared by readers of "
    "the same topic.",
    "stream_retry_ms": "How long a browser waits before it reconnects to a stream.",
    "text_max_line_bytes": "The longest line of the line protocol.",
    "text_read_bytes": "Record bytes in the answer to one CONSUME.",
    "text_max_records": "Records in the answer to one CONSUME.",
    "text_acks_timeout_ms": "How long a PRODUCE with `acks=all` waits for replicas.",
    "text_session_timeout_ms": "How long a member that joined by JOIN is kept after its last good line.",
    "max_topics_per_request": "Topics that one Metadata request may name.",
    "max_open_files": "Segment files that are open at the same time.",
    "index_interval_bytes": "Bytes of log between two entries of the offset index.",
    "background_interval_ms": "How often one step of background work runs.",
    "compaction_step_bytes": "Bytes that one step of compaction handles.",
    "compaction_min_dirty_ratio": "The share of a log that must be new before it is compacted, 0 to 1.",
    "compaction_max_keys": "Keys that one pass of compaction remembers.",
    "file_delete_delay_ms": "How long a deleted segment stays on disk for its readers.",
    "retention_check_interval_ms": "How often the broker checks retention.",
    "compaction_interval_ms": "How often the broker looks for logs to compact.",
    "flush_threads": "Threads that wait for the disk.",
    "producer_id_expiration_ms": "The broker forgets an idempotent producer that has not written for this time.",
    "max_producers_per_partition": "Idempotent producers that a partition remembers.",
    "transaction_max_timeout_ms": "The longest time that a transaction may ask to stay open.",
    "transactional_id_expiration_ms": "A transactional id that is not used for this time is forgotten.",
    "max_transactional_ids": "Transactional ids that are kept. Beyond it the one that was used least recently is "
    "forgotten.",
    "max_transaction_partitions": "Partitions of one transaction.",
    "long_transaction_max_ms": "The longest time that a transaction of several HTTP requests may be open.",
    "max_long_transactions": "Open transactions of several HTTP requests.",
    "max_long_transactions_per_client": "Open transactions of several HTTP requests, of one principal.",
    "max_transaction_participants": "Transactions that one decision commits.",
    "transaction_hold_ms": "How long a request waits for another one of its transactional id.",
    "transaction_check_interval_ms": "How often the broker looks for transactions that are open for too long.",
    "idempotency_max_keys": "Idempotency keys that are kept. Beyond it the oldest are deleted.",
    "idempotency_max_bytes": "Bytes of keys and their answers that are kept. Beyond it the oldest are deleted.",
    "idempotency_max_producers": "Batches per partition that are being written under keys at the same time.",
    "idempotency_check_interval_ms": "How often the broker deletes keys beyond these limits.",
    "replica_fetch_wait_ms": "How long a follower's fetch waits for records.",
    "replica_fetch_max_bytes": "Record bytes of one fetch of a follower.",
    "replica_fetch_partition_max_bytes": "Record bytes of one partition in a fetch of a follower.",
    "replica_retry_ms": "How long a follower waits after an error before it fetches again.",
    "peer_timeout_ms": "A broker that does not answer another one within this time counts as unreachable.",
    "replica_ack_timeout_ms": "How long `acks=all` waits for followers at most.",
    "metadata_log_bytes": "The log of metadata changes is rewritten as a snapshot when it is this long.",
    "metadata_timeout_ms": "A metadata change that is not replicated within this time is answered as failed.",
    "group_min_session_timeout_ms": "The shortest session of a member.",
    "group_max_session_timeout_ms": "The longest session of a member.",
    "group_max_size": "Members of one group.",
    "group_consumer_session_timeout_ms": "The session of a member of a consumer group (KIP-848).",
    "group_consumer_min_session_timeout_ms": "The shortest that such a group may set.",
    "group_consumer_max_session_timeout_ms": "The longest that such a group may set.",
    "group_consumer_heartbeat_interval_ms": "How often a member of a consumer group sends a heartbeat.",
    "group_consumer_min_heartbeat_interval_ms": "The shortest interval that such a group may set.",
    "group_consumer_max_heartbeat_interval_ms": "The longest interval that such a group may set.",
    "group_consumer_assignment_interval_ms": "The shortest time between two assignments of a consumer group.",
    "group_consumer_upgrade": "A classic group with members may become a consumer group (KIP-848).",
    "group_consumer_downgrade": "A consumer group may become a classic group when only such members are left.",
    "group_share_session_timeout_ms": "The session of a member of a share group (KIP-932).",
    "group_share_min_session_timeout_ms": "The shortest that such a group may set.",
    "group_share_max_session_timeout_ms": "The longest that such a group may set.",
    "group_share_heartbeat_interval_ms": "How often a member of a share group sends a heartbeat.",
    "group_share_min_heartbeat_interval_ms": "The shortest interval that such a group may set.",
    "group_share_max_heartbeat_interval_ms": "The longest interval that such a group may set.",
    "group_share_record_lock_duration_ms": "How long a record stays acquired by a share consumer.",
    "group_share_min_record_lock_duration_ms": "The shortest that a share group may set.",
    "group_share_max_record_lock_duration_ms": "The longest that a share group may set.",
    "group_share_delivery_count_limit": "Deliveries of a record to a share group.",
    "group_share_partition_max_record_locks": "Records of one partition that a share group has in flight.",
    "group_share_max_size": "Members of one share group.",
    "group_share_max_share_sessions": "Share sessions, that is share consumers with a connection, in all.",
    "group_max_member_bytes": "Metadata and assignment of one member.",
    "max_groups": "Groups.",
    "offset_metadata_max_bytes": "Metadata of one committed offset.",
    "offset_commit_max_bytes": "Metadata of one commit, over all its partitions.",
    "offsets_retention_check_interval_ms": "How often the broker looks for expired offsets.",
    "max_consumers": "Managed consumers.",
    "consumer_max_ttl_ms": "How long an idle managed consumer is kept at most.",
    "consumer_check_interval_ms": "How often the broker checks managed consumers for expiry and changed topics.",
    "consumer_revoke_grace_ms": "How long a rebalance waits for the acknowledgement of a delivered batch.",
    "max_subscription": "Topics or partitions that one managed consumer may name.",
    "max_pattern_bytes": "Memory of a compiled topic pattern.",
    "max_connection_rate_per_ip": "New connections per second from one IP address, unless a quota says otherwise.",
    "unauthenticated_max_bytes": "Frames of all clients of a listener that have not logged in.",
    "unauthenticated_max_frame_bytes": "The largest request of a Kafka client that has not logged in.",
    "authentication_timeout_ms": "A Kafka client must log in within this time.",
    "failed_authentication_delay_ms": "How long a wrong password or token waits for its refusal.",
    "scram_iterations": "PBKDF2 rounds of a new password, 4,096 at least.",
    "max_users": "Users.",
    "max_tokens_per_user": "Tokens of one user.",
    "password_threads": "Threads that check passwords.",
    "upstream_max_callers": "With `--upstream-identity caller`: callers with connections of their own to the "
    "cluster. Beyond, those of the caller that was idle for the longest time are closed.",
    "upstream_caller_idle_ms": "When the connections of a caller without a request are closed.",
    "max_password_checks": "Passwords that wait for their check at the same time. One more is refused.",
    "max_password_checks_per_address": "Those of one client address.",
    "max_wrong_passwords_per_address": "Wrong passwords of one client address in a second, 1 at least. More are "
    "refused without a check.",
    "password_cache_ms": "How long a password is not computed again, right or wrong.",
    "token_ttl_ms": "How long a token is valid if its creator gives no time.",
    "audit_events_per_second": "Logins and denials in the audit log in a second. More are dropped and counted.",
    "access_log_queue": "Lines of the access log that may wait to be written. More lines are dropped and counted.",
    "metrics_max_topics": "Topics with their own numbers in `/metrics`, the oldest first; and partitions with "
    "open transactions.",
    "metrics_max_group_topics": "Pairs of group and topic with their lag in `/metrics`.",
}


def page() -> str:
    """Return the page. Raises KeyError for a setting that has no sentence here."""
    defaults = plain_fields()
    named = [
        (f"`{s.variable}`", f"`{s.flag}`" if s.flag else "", _code(s.default), s.meaning) for s in SETTINGS
    ]
    numbers = [
        (_variable(name), FLAGS.get(name, ""), _shown(defaults[name]), text)
        for name, text in DOCUMENTED.items()
    ]
    rest = [
        (_variable(name), _shown(default), OTHER[name])
        for name, default in defaults.items()
        if name not in DOCUMENTED
    ]
    first = table(("variable", "flag", "default", "meaning"), [*named, *numbers])
    return _INTRODUCTION + first + _OTHERS + table(("variable", "default", "meaning"), rest)


def _variable(name: str) -> str:
    return f"`{variable_of(name)}`"


def _code(text: str) -> str:
    return text if " " in text or text in ("none", "off") else f"`{text}`"


def _shown(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:,}"
