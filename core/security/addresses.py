"""How many connections each IP address has open, and opens: Kafka's max.connections.per.ip and the quota of KIP-612.

All listeners share the counts. A connection is counted at its accept, so that one whose TLS handshake never ends
counts as well, until it is closed.
"""

from __future__ import annotations

from core.clock import Clock
from core.config import Config
from core.security.quotas import QuotaTable, host_of


class Addresses:
    """The connections of one process, by the IP addresses of their clients."""

    def __init__(self, config: Config, clock: Clock, quotas: QuotaTable) -> None:
        self._most = config.max_connections_per_ip
        self._clock = clock
        self._quotas = quotas
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, host: str) -> str:
        """Count a new connection and return "", or return why it must be closed.

        A connection that is admitted counts until `release`.
        """
        host = host_of(host)
        count = self._open.get(host, 0)
        if count >= self._most:
            return f"{count} connections are open from this address"
        if self._quotas.has_ip_quotas:
            now = self._clock.monotonic()
            bucket = self._quotas.connection_bucket(host, now)
            if bucket is not None:
                if bucket.wait(now) > 0:
                    return f"this address may open {bucket.bound:g} connections per second"
                bucket.record(1, now)
        self._open[host] = count + 1
        return ""

    def release(self, host: str) -> None:
        """Forget a connection that was admitted."""
        host = host_of(host)
        left = self._open.get(host, 0) - 1
        if left > 0:
            self._open[host] = left
        else:
            self._open.pop(host, None)
