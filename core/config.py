"""Every limit and default of the broker, in one frozen dataclass, each with its reason.

A loop, queue, buffer or wait that has no limit here does not exist. Topic-level settings live in
`core.topic_config`. Bytes, milliseconds and counts unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

KIB = 1024
MIB = 1024 * 1024
# Broker ids of a cluster are below it: the number of a leader epoch names its leader (core.replication.epochs).
MAX_BROKERS = 32


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address that a listener binds or advertises: `scheme://host:port`.

    `options` are (name, value) pairs, as in the query of a URL. `LISTENER_OPTIONS` has those of each scheme. HTTP
    over TLS has the scheme `http` and the option `tls`; it is shown as `https`.
    """

    scheme: str
    host: str
    port: int
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        secure = self.scheme == "http" and bool(self.tls)
        hidden = [(TLS, DEFAULT_CERTIFICATE)] if secure else []
        options = "&".join(f"{name}={value}" for name, value in self.options if (name, value) not in hidden)
        return f"{'https' if secure else self.scheme}://{self.address}{'?' if options else ''}{options}"

    @property
    def url(self) -> str:
        """Return the address for a client: what `str` gives without the options."""
        return f"{str(self).partition('://')[0]}://{self.address}"

    @property
    def reachable(self) -> Endpoint:
        """Return an address to connect to from this machine: loopback in the place of a wildcard."""
        return replace(self, host=LOOPBACK_OF.get(self.host, self.host))

    @property
    def address(self) -> str:
        """Return `host:port`, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def tls(self) -> str:
        """Return the name of the certificate of a listener with TLS; empty without TLS."""
        return dict(self.options).get(TLS, "")

    @property
    def advertised(self) -> Endpoint | None:
        """Return the address that clients of this listener are told; None if it has no such option."""
        host, _, port = dict(self.options).get(ADVERTISED, "").rpartition(":")
        return Endpoint(self.scheme, host.strip("[]"), int(port)) if host else None

    def option(self, name: str) -> str:
        """Return the value of an option, or its default: the first of its choices, empty if it has none."""
        return dict(self.options).get(name) or next(iter(LISTENER_OPTIONS[self.scheme][name]), "")

    @property
    def authentication(self) -> tuple[str, ...]:
        """Return the ways in which clients of the listener authenticate, as its option `auth` names them."""
        return tuple(filter(None, dict(self.options).get(AUTH, "").split(",")))


# Where this machine reaches a listener on all addresses.
LOOPBACK_OF = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# The file of the data directory that has the addresses of a running broker.
LISTENERS_FILE = "listeners.json"
TLS = "tls"
ADVERTISED = "advertised"
# The name of a certificate if the listener or the setting gives none.
DEFAULT_CERTIFICATE = "default"
# The option of a listener whose value is a list, separated by commas: how its clients authenticate.
AUTH = "auth"
# Options after the address of a listener, by scheme: the name, and the allowed values, the default first. An option
# without values here takes any text: `tls` the name of a certificate, `advertised` the `host:port` for clients.
LISTENER_OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "http": {AUTH: ("", "basic", "token", "jwt"), TLS: ()},
    "kafka": {AUTH: ("", "scram-sha-256", "scram-sha-512", "plain", "oauthbearer"), TLS: (), ADVERTISED: ()},
    # The message format: 1 since Kafka 0.7, 0 before. Clients of one format cannot read the other.
    "kafka07": {"magic": ("1", "0"), TLS: ()},
    # For the other brokers of the cluster alone.
    "peer": {TLS: ()},
    "text": {TLS: ()},
}
PEER = "peer"
CLIENT_AUTH = ("none", "requested", "required")


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """A certificate that listeners name by `?tls=NAME`, and what they ask of the certificates of clients.

    `certificate` is a PEM file with the chain, the server's own certificate first, and `key` one with its private
    key. Without `certificate` the broker makes a self-signed pair itself. `client_ca` is a PEM file of the
    authorities of clients. `client_auth` is one of `CLIENT_AUTH`, with the meaning of Kafka's `ssl.client.auth`.
    `principal_mapping_rules` are those of KIP-371.
    """

    name: str
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    client_auth: str = "none"
    principal_mapping_rules: str = "DEFAULT"


@dataclass(frozen=True, slots=True)
class JwtIssuer:
    """An issuer whose access tokens (JWTs) let clients in, by the exact text of their claim `iss`.

    `audience` are the values of `aud` of which a token must have one; `algorithms` those of its signature. `jwks_uri`
    is the address of the issuer's keys; without it the issuer's discovery document names it. The principal is
    `User:` with `principal_prefix` and the value of `principal_claim`.
    """

    issuer: str
    audience: tuple[str, ...]
    algorithms: tuple[str, ...]
    jwks_uri: str = ""
    principal_claim: str = "sub"
    principal_prefix: str = ""


# The default, and the most: a session of the console lasts no longer (MAX_SECONDS of core/security/sessions.py).
OIDC_SESSION_MINUTES, MAX_OIDC_SESSION_MINUTES = 60, 720


@dataclass(frozen=True, slots=True)
class OidcClient:
    """How the console logs users in at an OpenID provider: one of the issuers, and the broker as its client.

    The provider leads browsers back to `redirect_uri`. `secret_file` has the secret of a confidential client. Without
    `token_endpoint` the discovery document of the issuer names it.
    """

    issuer: str
    client_id: str
    redirect_uri: str
    secret_file: Path | None = None
    scope: str = "openid"
    token_endpoint: str = ""
    # How long a login lasts. The broker does not learn that the provider has locked a user out; the next login does.
    session_minutes: int = OIDC_SESSION_MINUTES


@dataclass(frozen=True, slots=True)
class Peer:
    """Another broker of the cluster: its id, and the address of its Kafka listener."""

    broker_id: int
    host: str
    port: int


class Gateway(NamedTuple):
    """One of several gateways over the same cluster: its name, and where the others reach it."""

    name: str
    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}={self.scheme}://{host}:{self.port}"


# As which principal a gateway calls its cluster: as its own. The first is the default.
CALLER = "caller"
IDENTITIES = ("gateway", CALLER)


@dataclass(frozen=True, slots=True)
class Upstream:
    """The Kafka cluster whose gateway this process is.

    `servers` are brokers of it, as `host:port`. `properties` are those of Kafka's clients, without
    `bootstrap.servers`: they may be secrets, and no `repr` shows them. `identity` is one of `IDENTITIES`. `file` is
    the file of the properties, and `read` reads it again; it raises StartupError.
    """

    servers: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    identity: str = IDENTITIES[0]
    file: Path | None = None
    read: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False, compare=False)

    def with_properties(self, properties: Mapping[str, str]) -> Upstream:
        """Return the same cluster with other properties."""
        return Upstream(self.servers, properties, self.identity, self.file, self.read)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one broker process."""

    # --- addresses ---------------------------------------------------------------------------------------
    data_dir: Path = Path("sluice-data")
    listeners: tuple[Endpoint, ...] = (
        Endpoint("http", "127.0.0.1", 8082),
        Endpoint("kafka", "127.0.0.1", 9092),
    )
    # The address in Metadata responses of listeners that have none of their own; None means the address of the
    # listener itself. The default is never "localhost", because librdkafka resolves it to ::1 first.
    advertised: Endpoint | None = None
    broker_id: int = 1
    # The ZooKeeper that the listener of Kafka 0.7 registers in: `host:port`, several separated by commas, then an
    # optional path. Empty: no registration.
    zookeeper: str = ""
    # 0.7's zk.sessiontimeout.ms: after a crash ZooKeeper still lists the broker for this long.
    zookeeper_session_timeout_ms: int = 6_000
    # A call to ZooKeeper that is not answered by then has failed; the registration is retried.
    zookeeper_call_timeout_ms: int = 10_000
    # How often the registration is checked and the consumers' nodes are read.
    zookeeper_refresh_interval_ms: int = 5_000
    # Consumers' nodes that are read each time, at most; each is one request.
    zookeeper_max_nodes: int = 10_000
    # The API key of ProtocolVersionRequest, which only the draft of KIP-35 has and which never got a key. 0 turns
    # it off. Kafka assigns keys from 0 upwards and has reached about 100.
    protocol_version_api_key: int = 32_035

    # --- several processes -----------------------------------------------------------------------------------
    # Processes that serve HTTP: a number of cores.
    workers: int = 1
    # How long a worker that is replaced still answers on its connections, so that clients learn to open others. Links
    # between workers are not used after half of it without a request.
    worker_linger_ms: int = 2_000
    # How long a request for a consumer or a key waits while its worker is restarted. A start takes a second or two.
    worker_hold_ms: int = 10_000

    # --- several gateways ----------------------------------------------------------------------------------
    # All gateways of the cluster, this one included, and its name among them.
    gateways: tuple[Gateway, ...] = ()
    gateway_name: str = ""
    # The secret by which they know each other's requests; needed with two and more.
    gateway_secret_file: Path | None = None
    # A PEM file with the authorities of their certificates; None means those of the system.
    gateway_ca: Path | None = None
    # A gateway of the same site accepts a connection within milliseconds; a client waits no longer for its 503.
    gateway_connect_timeout_ms: int = 2_000
    # Forwarded requests to one gateway at the same time. Each is a connection, and long polls hold it for long: half
    # of what the other side takes.
    gateway_max_requests: int = 5_000

    # --- upstream mode ---------------------------------------------------------------------------------------
    # The Kafka cluster in the place of an embedded broker. None: this process is the broker.
    upstream: Upstream | None = None
    # Callers with connections of their own to the cluster (`--upstream-identity caller`), each about 1 MiB and its
    # windows; a caller without a request for this time has none any more.
    upstream_max_callers: int = 200
    upstream_caller_idle_ms: int = 300_000

    # --- TLS -----------------------------------------------------------------------------------------------
    # The certificates of listeners, by their names.
    tls: tuple[TlsSettings, ...] = ()
    # A client must complete the TLS handshake by then; asyncio's own limit is 60 s.
    tls_handshake_timeout_ms: int = 10_000
    # Handshakes under way on one listener (about 30 KB each); one more closes the oldest, which a client that
    # answers has long left.
    tls_max_handshakes: int = 1_024
    # How often the files of certificates are checked for changes.
    tls_check_interval_ms: int = 60_000

    # --- frames and connections ----------------------------------------------------------------------------
    # Kafka's socket.request.max.bytes. A larger frame closes the connection with one log line.
    max_frame_bytes: int = 100 * MIB
    # Bytes of all incomplete requests together. Above it, sockets are not read until some requests are complete.
    max_inflight_bytes: int = 256 * MIB
    # A connection that has not sent a complete first request by then is closed (slowloris).
    first_request_timeout_ms: int = 30_000
    # A frame that has started must be complete by then.
    frame_timeout_ms: int = 60_000
    # Kafka's connections.max.idle.ms.
    idle_timeout_ms: int = 600_000
    # Connections per TCP listener. A usual process has 20,000 descriptors, and log files need some of them.
    max_connections: int = 15_000
    # Kafka's max.connections.per.ip, over all listeners; no limit, as in Kafka: a proxy has one address.
    max_connections_per_ip: int = 2**31 - 1
    # New connections per second of an IP address for which no quota `connection_creation_rate` is set.
    max_connection_rate_per_ip: int = 2**31 - 1
    # Bytes that wait to be sent on one connection; above it, its next request is not handled yet.
    max_write_buffer_bytes: int = 4 * MIB
    # A connection whose client has read nothing of a waiting answer for this long is closed.
    write_timeout_ms: int = 60_000

    # --- produce and fetch ---------------------------------------------------------------------------------
    # Kafka's fetch.max.bytes on the broker: record bytes of one answer. A single batch may be larger.
    fetch_max_bytes: int = 55 * MIB
    # Bytes of message sets that one produce or fetch request converts on the event loop: a few milliseconds of
    # work. More bytes, and compressed ones, are converted in a thread.
    convert_on_loop_bytes: int = 256 * KIB
    # Threads that convert message sets. The work is mostly Python, which runs in one thread at a time. Each thread
    # holds up to `max_decompressed_bytes`.
    convert_threads: int = 1
    # The longest wait of a long poll; a client that asks for more gets this.
    max_wait_ms: int = 300_000
    # Waiting fetches and polls over all listeners and surfaces. Above it, a request is answered without a wait.
    max_waiting: int = 50_000
    # Kafka's max.incremental.fetch.session.cache.slots.
    max_fetch_sessions: int = 1_000
    # Size of one decompressed batch, where the broker must decompress it (message sets, HTTP, compacted topics).
    max_decompressed_bytes: int = 64 * MIB
    # Cache size for decompressed batches that HTTP clients have read in part; their next request reads on there.
    max_opened_bytes: int = 16 * MIB

    # --- Kafka 0.7 -----------------------------------------------------------------------------------------
    # Bytes of one answer to a 0.7 fetch; its first message may be larger. 0.7's clients ask for 300 KB to 1 MB.
    legacy_fetch_max_bytes: int = 1 * MIB
    # Bytes of log that are measured for 0.7 at a time: 10 to 30 ms in a thread.
    legacy_slice_bytes: int = 4 * MIB
    # Slices and fetches of 0.7 at the same time. Each runs in a thread and holds one decompressed batch.
    legacy_threads: int = 2

    # --- HTTP ----------------------------------------------------------------------------------------------
    # Size of a produce body. A larger one is refused while it is read.
    http_max_body_bytes: int = 16 * MIB
    # Records in one read: the number if the client names none, and the maximum.
    http_default_limit: int = 500
    http_max_limit: int = 10_000
    # Record bytes in one read: the number if the client names none, and the maximum.
    http_default_read_bytes: int = 1 * MIB
    http_max_read_bytes: int = 16 * MIB
    # Items on one page of a listing: the number if the client names none, and the maximum.
    http_default_page_size: int = 100
    http_max_page_size: int = 1_000
    # Nesting of a JSON body, and of values that are read as JSON. serde_json has the same limit by default.
    http_max_json_depth: int = 128
    # Records in one produce request. A record of two bytes takes about 200 bytes of memory once it is decoded.
    http_max_records: int = 50_000
    # HTTP connections. A usual process has 20,000 descriptors, which the other listeners and log files share.
    http_max_connections: int = 10_000
    # All header lines of one request together.
    http_max_header_bytes: int = 64 * KIB
    # How long the rest of a refused request is read and discarded before the connection is closed. If unread bytes
    # were left, the system would reset the connection, and the client could lose the error.
    http_linger_ms: int = 1_000
    # Records that one filtered read examines: about 200 ms of work.
    http_max_scan: int = 100_000
    # Streams of records (SSE, NDJSON) at the same time: each holds a connection and a coroutine.
    http_max_streams: int = 5_000
    # Long polls, joins and streams of one client at the same time: half of the connections, so that other clients
    # can connect. Clients of one proxy share its address and this limit. Set less if you do not trust the clients.
    http_max_waiting_per_client: int = 5_000
    # A stream without new records sends a comment this often, because proxies close silent connections.
    stream_comment_ms: int = 15_000
    # The shortest time between two chunks of a stream, so that under load one chunk carries many records.
    stream_interval_ms: int = 10
    # A chunk of a stream ends at the first record beyond this many bytes. It waits in memory for a slow reader.
    stream_piece_bytes: int = 64 * KIB
    # Cache size for encoded records, and separately for encoded stream chunks, shared by readers of the same topic.
    stream_cache_bytes: int = 8 * MIB
    # The reconnection time in a stream's `retry` field. Each stream gets a random time from 1 to 2 times this.
    stream_retry_ms: int = 1_000
    # Host names that browsers may use, in addition to IP addresses, localhost and the listeners' own names. Other
    # names are refused, against DNS rebinding.
    http_allowed_hosts: tuple[str, ...] = ()
    # Origins of other web pages that may read and write.
    http_allowed_origins: tuple[str, ...] = ()
    # The proxy that the REST Proxy v2 surface follows where the existing ones differ. Confluent's set the format.
    v2_dialect: str = "confluent"

    # --- line protocol --------------------------------------------------------------------------------------
    # Size of one line. A line holds one message, and Kafka's max.message.bytes is 1 MiB as well.
    text_max_line_bytes: int = 1 * MIB
    # Record bytes, and records, in the answer to one CONSUME, which is built in memory.
    text_read_bytes: int = 1 * MIB
    text_max_records: int = 10_000
    # How long a PRODUCE with acks=all waits for replicas. A person at a terminal waits as well, so it is short.
    text_acks_timeout_ms: int = 5_000
    # Kafka's default session.timeout.ms; a JOIN cannot set its own.
    text_session_timeout_ms: int = 45_000

    # --- topics --------------------------------------------------------------------------------------------
    auto_create_topics: bool = True
    default_partitions: int = 1
    # Partitions of one topic, and of the broker. Each costs a directory and, once used, about 1 KiB of memory. One
    # request can name all of them (core.protocol.frame.MAX_ELEMENTS).
    max_partitions_per_topic: int = 10_000
    max_partitions: int = 50_000
    # Topics in one Metadata request; a request with more is refused.
    max_topics_per_request: int = 100_000

    # --- log files -----------------------------------------------------------------------------------------
    # Open segment files over all partitions. The least recently used ones are closed, and reopened when needed.
    max_open_files: int = 4_000
    # Kafka's log.index.interval.bytes: the least number of log bytes between two entries of the offset index.
    index_interval_bytes: int = 4 * KIB
    # How often unflushed logs are fsynced in the background, so that after a crash only a short tail is scanned.
    checkpoint_interval_ms: int = 10_000
    # How often a background step (retention, compaction, file deletion) runs, and the bytes that it may compact.
    background_interval_ms: int = 1_000
    compaction_step_bytes: int = 4 * MIB
    # Kafka's log.cleaner.min.cleanable.ratio: a log is compacted when this share of it is newer than the last
    # compaction.
    compaction_min_dirty_ratio: float = 0.5
    # Keys in the deduplication map of one compaction pass (about 100 bytes each).
    compaction_max_keys: int = 500_000
    # Deleted segments and topics stay on disk this long, for readers that still hold them.
    file_delete_delay_ms: int = 1_000
    # How often retention and compaction are checked. Kafka: log.retention.check.interval.ms and
    # log.cleaner.backoff.ms.
    retention_check_interval_ms: int = 30_000
    compaction_interval_ms: int = 15_000
    # Threads that fsync. While one waits for the disk, the others serve other logs.
    flush_threads: int = 4

    # --- idempotent producers ------------------------------------------------------------------------------
    # Kafka's producer.id.expiration.ms.
    producer_id_expiration_ms: int = 86_400_000
    # Producer ids remembered per partition. Above it, the ids that have been idle longest are forgotten.
    max_producers_per_partition: int = 20_000

    # --- transactions --------------------------------------------------------------------------------------
    # Kafka's transaction.max.timeout.ms: the longest time that a transaction may ask for. Meanwhile readers
    # of committed records wait in all its partitions. Flink asks for an hour.
    transaction_max_timeout_ms: int = 900_000
    # Kafka's transactional.id.expiration.ms: an id that was not used for a week is forgotten.
    transactional_id_expiration_ms: int = 7 * 86_400_000
    # Transactional ids, half a kilobyte each. Above it the one that was used least recently is forgotten.
    max_transactional_ids: int = 100_000
    # Partitions of one transaction. All of them get their markers in one turn of the loop, 20 µs each.
    max_transaction_partitions: int = 10_000
    # Transactions that one decision commits: a task of Spark each. Their rows are one transaction of the store.
    max_transaction_participants: int = 2_000
    # A transaction over HTTP of several requests: the longest time that it may be open, however busy it is, because
    # readers of committed records wait meanwhile.
    long_transaction_max_ms: int = 300_000
    # Open transactions of several requests, in total and of one principal. Each holds up the readers of its topics.
    max_long_transactions: int = 1_000
    max_long_transactions_per_client: int = 100
    # How long a request waits for another one of the same transactional id, before it is told to try again.
    transaction_hold_ms: int = 5_000
    # How often open transactions are looked at for their time.
    transaction_check_interval_ms: int = 1_000

    # --- idempotency keys of HTTP requests ------------------------------------------------------------------
    # How long a key is kept with its answer: a client may repeat a request for a day.
    idempotency_ttl_ms: int = 86_400_000
    # Keys that are kept, and their bytes. Above it, the oldest answered keys are deleted. A key takes about 400
    # bytes in SQLite.
    idempotency_max_keys: int = 1_000_000
    idempotency_max_bytes: int = 1024 * MIB
    # Producer ids that all requests under way hold together, one for each batch of a partition. Without a crash
    # they take at most this many of a partition's `max_producers_per_partition`.
    idempotency_max_producers: int = 1_000
    # How often expired keys, and keys above the limits, are deleted.
    idempotency_check_interval_ms: int = 60_000

    # --- replication -----------------------------------------------------------------------------------------
    # The other brokers of the cluster. Without peers nothing is replicated, and no request waits for a replica.
    peers: tuple[Peer, ...] = ()
    # Whose certificate that of another broker is: its principal, with the number of the broker in place of `{id}`.
    peer_principal: str = "User:CN=broker-{id}"
    # Kafka's default.replication.factor: replicas of a topic whose creator names no number.
    default_replication_factor: int = 1
    # Kafka's replica.lag.time.max.ms: a follower that has not caught up for this long leaves the in-sync set.
    replica_lag_time_max_ms: int = 10_000
    # Kafka's replica.fetch.wait.max.ms: how long a follower's fetch waits for new records.
    replica_fetch_wait_ms: int = 500
    # Record bytes of one fetch of a follower, and of one partition in it (Kafka's replica.fetch.max.bytes is 1 MiB).
    replica_fetch_max_bytes: int = 10 * MIB
    replica_fetch_partition_max_bytes: int = 1 * MIB
    # How long a follower waits after an error or a lost connection (Kafka's replica.fetch.backoff.ms is 1,000).
    replica_retry_ms: int = 200
    # A request to another broker that is not answered by then counts as refused, and its connection is closed.
    peer_timeout_ms: int = 2_000
    # How long acks=all waits for the followers, if the producer sets no timeout.
    replica_ack_timeout_ms: int = 30_000
    # Whether a follower fsyncs the records that it fetched before its next fetch acknowledges them. If not, acks=all
    # survives kill -9 of all brokers, and a power loss of the leader alone.
    replica_fsync: bool = True
    # Brokers that must have a change of topics, groups or offsets before it is answered; 0 means the majority.
    metadata_min_insync_replicas: int = 0
    # Size of the log of metadata changes at which it starts again with a copy of the whole database.
    metadata_log_bytes: int = 256 * MIB
    # A change of metadata that is not replicated by then is answered as failed; it may still take effect later.
    metadata_timeout_ms: int = 5_000

    # --- groups --------------------------------------------------------------------------------------------
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 5_000
    # Bytes of metadata and assignments of one member. Without a limit, members with 10 MB each fill the memory.
    group_max_member_bytes: int = 1 * MIB
    max_groups: int = 100_000
    # Kafka's group.consumer.* and group.share.* (KIP-848, KIP-932): what a group that sets nothing itself has, and
    # the bounds of what a group may set. The broker tells the interval of heartbeats to its members.
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    # A group gets at most one new target assignment in this time (KIP-1263); the first one comes at once.
    group_consumer_assignment_interval_ms: int = 1_000
    # Whether a group with members may become one of KIP-848, and a classic group again: together Kafka's
    # group.consumer.migration.policy. An empty group always may.
    group_consumer_upgrade: bool = True
    group_consumer_downgrade: bool = True
    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_record_lock_duration_ms: int = 30_000
    group_share_min_record_lock_duration_ms: int = 15_000
    group_share_max_record_lock_duration_ms: int = 60_000
    group_share_delivery_count_limit: int = 5
    group_share_partition_max_record_locks: int = 2_000
    # Members of one share group, and share consumers that a broker serves at once (KIP-932).
    group_share_max_size: int = 200
    group_share_max_share_sessions: int = 2_000
    offset_metadata_max_bytes: int = 4_096
    # Bytes of group id, topics and metadata of one commit, which is one transaction of the store. 100,000
    # partitions with short names fit.
    offset_commit_max_bytes: int = 16 * MIB
    offsets_retention_ms: int = 7 * 86_400_000
    offsets_retention_check_interval_ms: int = 600_000

    # --- managed consumers ---------------------------------------------------------------------------------
    # Each consumer costs a few kilobytes of memory and a heartbeat every few seconds.
    max_consumers: int = 10_000
    # An idle consumer is deleted after this long, as in the REST proxies, unless it asks for another time. The
    # second number is the longest that it may ask for.
    consumer_default_ttl_ms: int = 300_000
    consumer_max_ttl_ms: int = 86_400_000
    # How often expiration, heartbeats and changed topics are checked: well below the shortest session timeout.
    consumer_check_interval_ms: int = 1_000
    # How long a consumer waits in a rebalance for the acknowledgement of its last batch, before it gives up its
    # partitions. Without it, the partitions' next consumer would get the same records again.
    consumer_revoke_grace_ms: int = 1_000
    # Topics that one consumer may subscribe to, or partitions that it may assign to itself.
    max_subscription: int = 10_000
    # Bytes of a compiled topic pattern. RE2 matches in time linear in the length of the name.
    max_pattern_bytes: int = 1 * MIB

    # --- security ------------------------------------------------------------------------------------------
    # A file with the password of `admin`, which a start creates if there is no user.
    admin_password_file: Path | None = None
    # A frame of a client that has not authenticated. The messages of SASL are below a kilobyte, JWTs below ten.
    unauthenticated_max_frame_bytes: int = 64 * KIB
    # Arriving frames of all such clients of a listener together, apart from the budget of the others.
    unauthenticated_max_bytes: int = 8 * MIB
    # A client of a listener with authentication that has not authenticated by then is closed.
    authentication_timeout_ms: int = 30_000
    # Kafka's connection.failed.authentication.delay.ms: how long a client waits after a wrong password.
    failed_authentication_delay_ms: int = 100
    # Kafka's connections.max.reauth.ms, 0 (no end) in Kafka. A client logs in again by then, or is closed, so that a
    # deleted user cannot continue for longer.
    max_reauth_ms: int = 3_600_000
    # PBKDF2 rounds of a new password: the most that Kafka's tools set (4,096 is the least). 7 ms of one core.
    scram_iterations: int = 16_384
    # Users, all of which are kept in memory (about a kilobyte each), and tokens of one user.
    max_users: int = 10_000
    max_tokens_per_user: int = 100
    # Threads that check passwords (PLAIN, Basic), and checks that wait for one, from everywhere and from one address.
    password_threads: int = 1
    max_password_checks: int = 64
    max_password_checks_per_address: int = 8
    # Wrong passwords of one address in a second, and those of two seconds at once. 7 % of a core at most.
    max_wrong_passwords_per_address: int = 10
    # How long the result of a check holds, either way: a change of the password ends it at once.
    password_cache_ms: int = 60_000
    # A token whose creator names no time of expiry: 90 days.
    token_ttl_ms: int = 90 * 86_400_000

    # Issuers of access tokens (JWTs) that clients may log in with.
    oauth: tuple[JwtIssuer, ...] = ()
    # The login of the console at one of them.
    console_oidc: OidcClient | None = None

    # --- access rules ----------------------------------------------------------------------------------------
    # Whether access rules (ACLs) hold. They do as well when there are `super_users`, and when there is a user.
    authorizer: bool = False
    # Kafka's super.users: principals that may do everything. Without any, `User:admin` may.
    super_users: tuple[str, ...] = ()
    # Kafka's allow.everyone.if.no.acl.found: what no rule of any principal covers is open to all.
    allow_everyone_if_no_acl_found: bool = False
    # Rules at most: each takes a kilobyte of memory, and a start reads all of them.
    max_acls: int = 10_000
    # Client quotas at most, one for each key of an entity.
    max_quotas: int = 10_000

    # --- webhooks ----------------------------------------------------------------------------------------------
    # Whether queues may send their records to HTTP endpoints. `app.settings` switches it off by itself where a
    # listener is not loopback: to clients of other machines a webhook is a way into the network of this one.
    webhooks: bool = True
    # Networks, addresses and hosts that webhooks may reach although they are not public, also without TLS.
    webhook_allow: tuple[str, ...] = ()
    # Whether webhooks reach nothing else. `app.settings` switches it on if a client needs no login.
    webhook_allow_only: bool = False
    # Each has a task that waits for records.
    max_webhooks: int = 1_000
    # Requests of all webhooks at the same time: each holds a descriptor and a record.
    max_webhook_requests: int = 1_000

    # --- operations ----------------------------------------------------------------------------------------
    # `console` or `json`; `debug`, `info`, `warning` or `error`.
    log_format: str = "console"
    log_level: str = "info"
    # Whether to log a line for each HTTP request. It costs the request 2 µs, and another thread 30 µs.
    access_log: bool = False
    # Lines that wait for that thread (about 500 bytes each). More are dropped and counted.
    access_log_queue: int = 10_000
    # The file of the audit log; None for stderr.
    audit_log: Path | None = None
    # Logins and denials that are logged in a second (about 300 bytes each). More are dropped and counted.
    audit_events_per_second: int = 50
    # Whether /metrics can be read without a login and without a right.
    open_metrics: bool = False
    # Topics, and pairs of group and topic, that have their own time series in /metrics. Monitoring keeps each for
    # months.
    metrics_max_topics: int = 2_000
    metrics_max_group_topics: int = 2_000

    # --- stopping ------------------------------------------------------------------------------------------
    # The longest time of a drain, which answers waiting polls, flushes logs and closes connections.
    drain_timeout_ms: int = 10_000

    # Settings for topics that do not set their own (Kafka's broker-level defaults), as text.
    topic_defaults: dict[str, str] = field(default_factory=dict)

    @property
    def peer_listener(self) -> Endpoint | None:
        """Return the listener for the other brokers of the cluster; None if they use that of the clients."""
        return next((one for one in self.listeners if one.scheme == PEER), None)

    @property
    def peers_authenticate(self) -> bool:
        """Return whether another broker has to prove its number.

        It can do so over the listener of the brokers alone. So without that listener replication ends as soon as
        clients log in.
        """
        return bool(self.peers) and any(one.scheme == PEER or one.authentication for one in self.listeners)
