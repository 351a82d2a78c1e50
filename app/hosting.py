"""What the HTTP application needs of the broker that it serves, and of the server around it.

`core.server.Server` has an embedded broker and its TCP listeners, `core.gateway.Gateway` a Kafka cluster in the place
of both.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from core.config import Endpoint
from core.counters import Handshakes, ListenerLoad
from core.security.addresses import Addresses
from core.security.audit import Audit
from core.security.guarded import Guarding
from core.security.guarded_users import Ruled
from core.security.jwt import JwtVerifier
from core.security.logins import OpenLogins
from core.security.passwords import PasswordChecks
from core.security.quotas import QuotaTable
from core.security.tls import Certificates
from core.security.tokens import Tokens
from core.security.users import Users
from core.transactions.long_transactions import LongTransactions
from core.types import ApiSupport
from core.vocabulary.transactions import TransactionTotals
from core.vocabulary.upstream import ClientNumbers, ClusterState


class Served(Ruled, Protocol):
    """A broker with the users of this process. See `core.security.local` for the members."""

    @property
    def users(self) -> Users:
        """The users of this process."""

    @property
    def tokens(self) -> Tokens:
        """Tokens of its users."""

    @property
    def passwords(self) -> PasswordChecks:
        """The checks of passwords and tokens."""

    @property
    def logins(self) -> OpenLogins:
        """The logins of open connections."""

    @property
    def jwts(self) -> JwtVerifier:
        """The checks of access tokens of issuers."""

    @property
    def audit(self) -> Audit:
        """The audit log."""

    @property
    def quota_table(self) -> QuotaTable:
        """The client quotas, as they are asked for each request."""

    @property
    def guards(self) -> Guarding:
        """The facades of callers."""

    @property
    def long_transactions(self) -> LongTransactions:
        """The transactions of several requests. Without the capability each call raises UNSUPPORTED_VERSION."""


class Host(Protocol):
    """A broker with what the process opens around it. Metrics show its numbers."""

    @property
    def broker(self) -> Served:
        """The broker."""

    @property
    def certificates(self) -> Certificates:
        """The certificates of all listeners."""

    @property
    def addresses(self) -> Addresses:
        """The addresses of clients of all listeners."""

    @property
    def endpoints(self) -> list[Endpoint]:
        """The addresses that TCP listeners are bound to, after `start` has returned."""

    async def start(self, stopping: asyncio.Event | None = None) -> None:
        """Lock the data directory, open the broker, accept. Raises StartupError.

        `stopping` ends a start that waits for a cluster.
        """

    def reload(self) -> None:
        """Read certificates again, and the credentials of a gateway."""

    def drain(self) -> None:
        """Answer all waiting requests and accept no new connections."""

    async def stop(self) -> None:
        """Drain, close, unlock the data directory."""

    def zookeeper_state(self) -> str | None:
        """Return the state of the registration in ZooKeeper, in a word or two; None without one."""

    def zookeeper_numbers(self) -> dict[str, int]:
        """Return the counters of the registration by name; empty without one."""
        ...

    def api_name(self, api_key: int) -> str:
        """Return Kafka's name for an API, for the labels of counters."""
        ...

    def protocol_versions(self) -> list[ApiSupport]:
        """Return each API that the Kafka listener serves."""
        ...

    def transaction_totals(self) -> TransactionTotals | None:
        """Return what there is of transactions; None if this process coordinates none."""

    def cluster_state(self) -> ClusterState | None:
        """Return the brokers of the cluster that this process is a gateway of; None for an embedded broker."""

    def client_numbers(self) -> ClientNumbers:
        """Return the numbers of the client of that cluster."""
        ...

    def load(self) -> list[ListenerLoad]:
        """Return the load of each TCP listener now."""
        ...

    def handshakes(self) -> list[tuple[str, Handshakes]]:
        """Return the TLS handshakes of each TCP listener with TLS, with its scheme."""
        ...
