"""How many connections each IP address has open, and opens: Kafka's max.connections.per.ip and the quota of KIP-612.

All listeners share the counts. A connection is counted at its accept, so that one whose TLS handshake never ends
counts as well, until it is closed.
"""

from __future__ import annotations

import ipaddress
import math

from core.clock import Clock
from core.config import Config
from core.security.quotas import QuotaTable, host_of

# The value of a setting that means no limit.
NO_LIMIT = 2**31 - 1


class Addresses:
    """The connections of one process, by the IP addresses of their clients."""

    def __init__(self, config: Config, clock: Clock, quotas: QuotaTable) -> None:
        self._most = config.max_connections_per_ip
        rate = config.max_connection_rate_per_ip
        self._rate = math.inf if rate == NO_LIMIT else float(rate)
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
        if self._quotas.has_ip_quotas or self._rate < math.inf:
            now = self._clock.monotonic()
            bucket = self._quotas.connection_bucket(host, now, self._rate)
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


def network_of(host: str) -> str:
    """Return the address of a client; of IPv6 the network of one site (64 bits), whose addresses cost nothing."""
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or ipaddress.IPv6Address(int(address) >> 64 << 64))
