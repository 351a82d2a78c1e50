"""What a client of a Kafka cluster needs to know. `core.client.properties` reads it from Kafka's property names."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from msgspec import Struct

MIB = 1024 * 1024

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Secret = Callable[[], Awaitable[str]]
"""Returns a password or an access token. It is called for each login, so that it may be renewed in between."""


class Login:
    """A SASL mechanism with what it needs; its repr hides the secret.

    `secret` is the password, for OAUTHBEARER the access token. `extensions` are pairs of OAUTHBEARER (RFC 7628).
    """

    __slots__ = ("extensions", "mechanism", "secret", "username")

    def __init__(
        self,
        mechanism: Mechanism,
        username: str,
        secret: Secret,
        extensions: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.mechanism = mechanism
        self.username = username
        self.secret = secret
        self.extensions = extensions

    def take(self, other: Login) -> None:
        """Take the credentials of another one: each connection uses them for its next login."""
        self.mechanism, self.username = other.mechanism, other.username
        self.secret, self.extensions = other.secret, other.extensions

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.username!r}, ***)"


class ClientSettings(Struct, frozen=True, kw_only=True):
    """How to reach a cluster, and the limits of a client. Times are milliseconds, memory is bytes.

    `tls` None is plaintext. `check_host` belongs to `tls`: the broker's certificate must name its host.
    """

    bootstrap: tuple[Address, ...]
    client_id: str = "sluice"
    tls: ssl.SSLContext | None = None
    login: Login | None = None
    # Kafka's request.timeout.ms, and socket.connection.setup.timeout.ms.
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    # Kafka's 5 min are long for a gateway that answers questions about topics.
    metadata_max_age_ms: int = 30_000
    # retry.backoff.ms, retry.backoff.max.ms: the pause doubles after each failure.
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    # A connection of a lane of its own is closed after this time without a request.
    connections_max_idle_ms: int = 540_000
    # An answer that announces more bytes closes its connection.
    max_frame_bytes: int = 128 * MIB
    # --- producer ---
    delivery_timeout_ms: int = 30_000
    # The broker remembers five batches of a producer for each partition (KIP-98).
    max_in_flight: int = 5
    # How long records wait for the answer to the request before them, to share the next one.
    linger_ms: float = 2.0
    max_batch_bytes: int = MIB
    max_request_bytes: int = 8 * MIB
    # Records of callers that wait for their answers, as buffer.memory.
    buffer_memory: int = 64 * MIB
    # --- fetcher ---
    fetch_memory: int = 64 * MIB
    fetch_wait_ms: int = 500
    max_partition_fetch_bytes: int = MIB
    fetch_max_bytes: int = 8 * MIB
    # A partition that nothing has read for this time is not followed any more.
    fetch_idle_ms: int = 30_000
