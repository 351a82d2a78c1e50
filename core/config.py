"""Every limit and default of the broker, in one frozen dataclass, each with its reason.

A loop, queue, buffer or wait that has no limit here does not exist. Topic-level settings live in
`core.topic_config`. Bytes, milliseconds and counts unless the name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

KIB = 1024
MIB = 1024 * 1024
# Broker ids of a cluster are below it: the number of a leader epoch names its leader (core.replication.epochs).
MAX_BROKERS = 32


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address that a listener binds or advertises: `scheme://host:port`.

    `options` are what a listener of its scheme lets itself be told, as (name, value); see `LISTENER_OPTIONS`.
    """

    scheme: str
    host: str
    port: int
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        options = "&".join(f"{name}={value}" for name, value in self.options)
        return f"{self.scheme}://{host}:{self.port}{'?' if options else ''}{options}"

    def option(self, name: str) -> str:
        """The value of an option, or its default: the first of its choices."""
        return dict(self.options).get(name) or LISTENER_OPTIONS[self.scheme][name][0]


# What may stand behind the address of a listener, by scheme: the option, and its values, the default first.
LISTENER_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    # The message format: 1 since Kafka 0.7, 0 before. Clients of one do not understand the other.
    "kafka07": {"magic": ("1", "0")},
}


@dataclass(frozen=True, slots=True)
class Peer:
    """Another broker of the cluster: its id, and the address of its Kafka listener."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one broker process."""

    # --- where -------------------------------------------------------------------------------------------
    data_dir: Path = Path("sluice-data")
    listeners: tuple[Endpoint, ...] = (
        Endpoint("http", "127.0.0.1", 8082),
        Endpoint("kafka", "127.0.0.1", 9092),
    )
    # What Metadata names; None means the address of the listener itself. Never "localhost" by default:
    # librdkafka resolves it to ::1 first.
    advertised: Endpoint | None = None
    broker_id: int = 1
    # Where the ZooKeeper of Kafka 0.7 is, for the listener of 0.7: `host:port`, several with commas, and a path
    # behind them. Empty: nowhere.
    zookeeper: str = ""
    # 0.7's zk.sessiontimeout.ms: so long after its end an unclean broker is still listed.
    zookeeper_session_timeout_ms: int = 6_000
    # No answer of ZooKeeper is waited for longer; the registration is tried again then.
    zookeeper_call_timeout_ms: int = 10_000
    # How often the registration is checked and the consumers' nodes are read.
    zookeeper_refresh_interval_ms: int = 5_000
    # Consumers' nodes that one such reading looks at; each is a request.
    zookeeper_max_nodes: int = 10_000
    # Under which API key the ProtocolVersionRequest of KIP-35's draft is served, which never got one; 0: not at
    # all. Kafka gives its keys out from 0 upwards and is at a hundred.
    protocol_version_api_key: int = 32_035

    # --- frames and connections ----------------------------------------------------------------------------
    # Kafka's socket.request.max.bytes. A larger frame closes the connection with one log line.
    max_frame_bytes: int = 100 * MIB
    # All bytes of half-received requests together; above it, sockets are not read until some are handled.
    max_inflight_bytes: int = 256 * MIB
    # A connection that has sent no whole first request by then is closed (slowloris).
    first_request_timeout_ms: int = 30_000
    # A frame that has started must be complete by then.
    frame_timeout_ms: int = 60_000
    # Kafka's connections.max.idle.ms.
    idle_timeout_ms: int = 600_000
    # Connections per TCP listener; the 20,000 descriptors of a usual process are shared with log files.
    max_connections: int = 15_000
    # Bytes waiting to be sent on one connection before its next request is held back.
    max_write_buffer_bytes: int = 4 * MIB
    # A reader that takes nothing of what waits for it for this long is closed.
    write_timeout_ms: int = 60_000

    # --- produce and fetch ---------------------------------------------------------------------------------
    # Kafka's fetch.max.bytes on the broker: one answer never carries more record bytes (one batch excepted).
    fetch_max_bytes: int = 55 * MIB
    # Bytes that one produce or fetch of an old version converts on the event loop, a few milliseconds of work; more,
    # and what is compressed, goes to a thread.
    convert_on_loop_bytes: int = 256 * KIB
    # Threads that convert. Most of it is Python, of which one runs at a time; each holds `max_decompressed_bytes`.
    convert_threads: int = 1
    # No long poll waits longer, whatever it asks for.
    max_wait_ms: int = 300_000
    # Waiting fetches and polls over all listeners and surfaces; one more is answered at once with what there is.
    max_waiting: int = 50_000
    # Kafka's max.incremental.fetch.session.cache.slots.
    max_fetch_sessions: int = 1_000
    # A decompressed batch, where the broker must look inside one (old formats, REST, compacted topics).
    max_decompressed_bytes: int = 64 * MIB
    # Batches of many records that readers over HTTP have read in part, kept open for their next request.
    max_opened_bytes: int = 16 * MIB

    # --- Kafka 0.7 -----------------------------------------------------------------------------------------
    # One answer to a 0.7 fetch; the message at its start comes whole beyond it. Its clients ask for 300 KB to 1 MB.
    legacy_fetch_max_bytes: int = 1 * MIB
    # Bytes of log that are measured for 0.7 in one go: 10 to 30 ms of a thread.
    legacy_slice_bytes: int = 4 * MIB
    # Slices and fetches of 0.7 at the same time, each in a thread with what one batch decompresses to.
    legacy_threads: int = 2

    # --- HTTP ----------------------------------------------------------------------------------------------
    # A produce body; capped while it is read.
    http_max_body_bytes: int = 16 * MIB
    # Records in one read, when the client names no limit, and at most.
    http_default_limit: int = 500
    http_max_limit: int = 10_000
    # Record bytes in one read, when the client names none, and at most.
    http_default_read_bytes: int = 1 * MIB
    http_max_read_bytes: int = 16 * MIB
    # Items on one page of a listing.
    http_default_page_size: int = 100
    http_max_page_size: int = 1_000
    # Nesting of a JSON body, and of values that are read as JSON: what serde_json takes by default.
    http_max_json_depth: int = 128
    # Records in one produce request: a record of two bytes costs a hundred times that once it is decoded.
    http_max_records: int = 50_000
    # HTTP connections; the 20,000 descriptors of a usual process are shared with the other listeners.
    http_max_connections: int = 10_000
    # All header lines of one request together.
    http_max_header_bytes: int = 64 * KIB
    # After a refusal in the midst of a request, what the client still sends is thrown away for so long, so that
    # the refusal reaches it: a close with bytes unread makes the system take back what was sent.
    http_linger_ms: int = 1_000
    # Records that a filtered read looks at for one answer: about a fifth of a second of work.
    http_max_scan: int = 100_000
    # Streams of records (SSE, NDJSON) at the same time: each holds a connection and a coroutine.
    http_max_streams: int = 5_000
    # Long polls, joins and streams of one client at the same time: half of the connections, so that others get in.
    # Behind a proxy all clients have its address; who has strangers in front sets less.
    http_max_waiting_per_client: int = 5_000
    # A stream without anything to tell says so this often, for proxies that close silent connections.
    stream_comment_ms: int = 15_000
    # A stream gets a piece at most this often, so that under load one piece carries many records.
    stream_interval_ms: int = 10
    # One piece of a stream ends at the first record beyond so many bytes; it waits in memory for a slow reader.
    stream_piece_bytes: int = 64 * KIB
    # Encoded records, and pieces of streams, that are kept for other readers of the same; each.
    stream_cache_bytes: int = 8 * MIB
    # What a browser is told to wait before it connects again, and at most as much again by chance.
    stream_retry_ms: int = 1_000
    # Host names that browsers may use, beside IP addresses, localhost and the listeners' own (DNS rebinding).
    http_allowed_hosts: tuple[str, ...] = ()
    # Origins of foreign web pages that may read and write.
    http_allowed_origins: tuple[str, ...] = ()
    # Whose habits the REST Proxy v2 surface has where the existing proxies differ; Confluent's set the format.
    v2_dialect: str = "confluent"

    # --- line protocol --------------------------------------------------------------------------------------
    # A line holds one message; Kafka's max.message.bytes is a megabyte, too.
    text_max_line_bytes: int = 1 * MIB
    # Record bytes, and records, in the answer to one CONSUME: it is one line in memory.
    text_read_bytes: int = 1 * MIB
    text_max_records: int = 10_000
    # How long a PRODUCE with acks=all waits: long for replicas, short for a person.
    text_acks_timeout_ms: int = 5_000
    # Kafka's default session.timeout.ms; a JOIN cannot name its own.
    text_session_timeout_ms: int = 45_000

    # --- topics --------------------------------------------------------------------------------------------
    auto_create_topics: bool = True
    default_partitions: int = 1
    # Partitions of one topic, and of the broker: each costs a directory and about a kilobyte once used, and
    # one request can name them all (core.protocol.frame.MAX_ELEMENTS).
    max_partitions_per_topic: int = 10_000
    max_partitions: int = 50_000
    # Topics named in one Metadata request are looked up; more than this is refused.
    max_topics_per_request: int = 100_000

    # --- log files -----------------------------------------------------------------------------------------
    # Open segment files over all partitions; the least recently used are closed and opened again at need.
    max_open_files: int = 4_000
    # Kafka's log.index.interval.bytes: one offset-index entry for at least so many bytes of log.
    index_interval_bytes: int = 4 * KIB
    # How often dirty logs are fsynced in the background, so that a crash has only a short tail to scan.
    checkpoint_interval_ms: int = 10_000
    # How often one background step (retention, compaction, file deletion) may run, and its share of bytes.
    background_interval_ms: int = 1_000
    compaction_step_bytes: int = 4 * MIB
    # Kafka's log.cleaner.min.cleanable.ratio: a log is compacted when this share of it is new since the last time.
    compaction_min_dirty_ratio: float = 0.5
    # Deduplication map of one compaction pass: keys at most (about 100 bytes each).
    compaction_max_keys: int = 500_000
    # Deleted segments and topics stay on disk this long, for readers that still hold them.
    file_delete_delay_ms: int = 1_000
    # Kafka's retention check and compaction check.
    retention_check_interval_ms: int = 30_000
    compaction_interval_ms: int = 15_000
    # fsync threads: one waits for the disk, others serve other logs meanwhile.
    flush_threads: int = 4

    # --- idempotent producers ------------------------------------------------------------------------------
    # Kafka's producer.id.expiration.ms.
    producer_id_expiration_ms: int = 86_400_000
    # Producer ids remembered per partition; beyond it the longest idle are forgotten.
    max_producers_per_partition: int = 20_000

    # --- idempotency keys of HTTP requests ------------------------------------------------------------------
    # How long a key, with its answer, is kept: a client that repeats a request for a day is served.
    idempotency_ttl_ms: int = 86_400_000
    # Keys, and bytes of them, that are kept; beyond it the oldest answered ones are forgotten. A key takes about
    # 400 bytes of SQLite.
    idempotency_max_keys: int = 1_000_000
    idempotency_max_bytes: int = 1024 * MIB
    # Producer ids that requests under way hold together, one for each batch of a partition. A partition remembers
    # so many of `max_producers_per_partition` for their sake at most, if nothing crashes.
    idempotency_max_producers: int = 1_000
    # How often keys that are too old, or too many, are removed.
    idempotency_check_interval_ms: int = 60_000

    # --- replication -----------------------------------------------------------------------------------------
    # The other brokers of the cluster; without any, nothing is replicated and nothing waits for a replica.
    peers: tuple[Peer, ...] = ()
    # Replicas of a topic whose creator names no number: Kafka's default.replication.factor.
    default_replication_factor: int = 1
    # Kafka's replica.lag.time.max.ms: a follower that was not caught up for this long leaves the in-sync set.
    replica_lag_time_max_ms: int = 10_000
    # Kafka's replica.fetch.wait.max.ms: a follower's long poll, where there is nothing new.
    replica_fetch_wait_ms: int = 500
    # Record bytes of one fetch of a follower, and of one partition in it (Kafka's replica.fetch.max.bytes is 1 MiB).
    replica_fetch_max_bytes: int = 10 * MIB
    replica_fetch_partition_max_bytes: int = 1 * MIB
    # Before a follower asks again after an error or a lost connection (Kafka's replica.fetch.backoff.ms is 1,000).
    replica_retry_ms: int = 200
    # A question to another broker that is not answered by then counts as refused; its connection is closed.
    peer_timeout_ms: int = 2_000
    # What acks=all waits for the followers, where the producer names no time.
    replica_ack_timeout_ms: int = 30_000
    # Whether a follower fsyncs what it fetched before it asks for more, which is what says that it has it. Without,
    # acks=all survives kill -9 of all brokers, and the power loss of the leader alone.
    replica_fsync: bool = True
    # Brokers that must hold a change of topics, groups or offsets before it is answered; 0 means the majority.
    metadata_min_insync_replicas: int = 0
    # When the log of metadata changes is as long as that, it begins anew with the whole database.
    metadata_log_bytes: int = 256 * MIB
    # A change of metadata that is not replicated by then is answered as failed; it may still come to pass.
    metadata_timeout_ms: int = 5_000

    # --- groups --------------------------------------------------------------------------------------------
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 5_000
    # Bytes of metadata and assignments of one member (CVE-2026 class: 10 MB blobs times members).
    group_max_member_bytes: int = 1 * MIB
    max_groups: int = 100_000
    offset_metadata_max_bytes: int = 4_096
    # Group id, topics and metadata of one commit together: it is one transaction of the store. 100,000
    # partitions with short names fit.
    offset_commit_max_bytes: int = 16 * MIB
    offsets_retention_ms: int = 7 * 86_400_000
    offsets_retention_check_interval_ms: int = 600_000

    # --- managed consumers ---------------------------------------------------------------------------------
    # Each costs a few kilobytes and a heartbeat every few seconds.
    max_consumers: int = 10_000
    # An idle consumer goes after this long, as in the REST proxies, unless it asks for another time up to the most.
    consumer_default_ttl_ms: int = 300_000
    consumer_max_ttl_ms: int = 86_400_000
    # How often expiry, heartbeats and changed topics are looked at: well below the shortest session timeout.
    consumer_check_interval_ms: int = 1_000
    # Before it gives up its partitions in a rebalance, a consumer waits this long for the acknowledgement of the
    # batch it has delivered; else whoever gets them next is given the same records.
    consumer_revoke_grace_ms: int = 1_000
    # Topics, or partitions of its own choice, that one consumer may name.
    max_subscription: int = 10_000
    # Bytes that a topic pattern may take once it is compiled (RE2; matching is linear in the name anyway).
    max_pattern_bytes: int = 1 * MIB

    # --- access rules ----------------------------------------------------------------------------------------
    # Whether access rules (ACLs) hold. They do as well when there are `super_users`.
    authorizer: bool = False
    # Kafka's super.users: principals that may do everything, such as `User:admin`.
    super_users: tuple[str, ...] = ()
    # Kafka's allow.everyone.if.no.acl.found: what no rule of any principal covers is open to all.
    allow_everyone_if_no_acl_found: bool = False
    # Rules at most: each takes a kilobyte of memory, and a start reads all of them.
    max_acls: int = 10_000

    # --- operations ----------------------------------------------------------------------------------------
    # `console` or `json`; `debug`, `info`, `warning` or `error`.
    log_format: str = "console"
    log_level: str = "info"
    # A line for each HTTP request costs 2 µs of it, and 30 µs of another thread.
    access_log: bool = False
    # Lines that wait for that thread (half a kilobyte each); more are dropped and counted.
    access_log_queue: int = 10_000
    # Topics, and pairs of group and topic, with their own numbers in /metrics: a scraper keeps each for months.
    metrics_max_topics: int = 2_000
    metrics_max_group_topics: int = 2_000

    # --- stopping ------------------------------------------------------------------------------------------
    # A drain answers waiting polls, flushes logs and closes; it takes no longer than this.
    drain_timeout_ms: int = 10_000

    # Topic settings for topics that do not name their own (Kafka's broker-level defaults), as text.
    topic_defaults: dict[str, str] = field(default_factory=dict)
