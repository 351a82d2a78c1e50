"""Composition root of upstream mode: a gateway over an existing Kafka cluster, with no broker and no TCP listener.

It has what `core.server.Server` has for the HTTP application: the broker, here over the cluster, the certificates of
HTTP, and the data directory, whose lock keeps a second process out.
"""

from __future__ import annotations

import logging
from pathlib import Path

from core.client.cluster import ClusterClient
from core.client.network import Network
from core.client.properties import client_settings
from core.client.settings import ClientSettings
from core.clock import Clock
from core.config import Config, Upstream
from core.counters import Handshakes, ListenerLoad
from core.directory import DataDirectory
from core.errors import BrokerError, ErrorCode, StartupError
from core.protocol.apis import APIS
from core.security.addresses import Addresses
from core.security.tls import Certificates
from core.types import ApiSupport
from core.upstream.remote_broker import RemoteBroker

log = logging.getLogger(__name__)

# Refusals of a login. What to check is the same for all of them.
_LOGIN = frozenset(
    {
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    }
)
_FORBIDDEN = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)


def settings_of(upstream: Upstream) -> ClientSettings:
    """Return the settings of the client of a cluster. Raises StartupError, which shows no value of a property."""
    try:
        return client_settings({**upstream.properties, "bootstrap.servers": ",".join(upstream.servers)})
    except ValueError as error:
        raise StartupError(f"SLUICE_UPSTREAM_CONFIG: {error}") from None


def startup_error(error: BrokerError, upstream: Upstream) -> StartupError:
    """Return what a start says that could not reach its cluster: what was tried, and what to check."""
    tried = ", ".join(upstream.servers)
    why = error.message.rstrip(".")
    if error.code in _LOGIN:
        return StartupError(
            f"The Kafka cluster at {tried} refuses the login: {why}. Check sasl.mechanism, sasl.username and "
            "sasl.password in the file of --upstream-config."
        )
    if error.code in _FORBIDDEN:
        return StartupError(
            f"The Kafka cluster at {tried} does not let this principal in: {why}. Grant DESCRIBE on the cluster and on "
            "the topics."
        )
    if "certificate" in why.lower() or "ssl" in why.lower() or "tls" in why.lower():
        return StartupError(
            f"No TLS connection to the Kafka cluster at {tried}: {why}. Check security.protocol, ssl.ca.location or "
            "ssl.truststore.location, and whether the certificate names the host."
        )
    return StartupError(
        f"No broker of the Kafka cluster answers. Tried {tried}: {why}. Check --upstream, and security.protocol in the "
        "file of --upstream-config: a broker that expects TLS or a login closes other connections."
    )


class Gateway:
    """A gateway over the cluster of `config.upstream`. `network` is that of tests."""

    def __init__(self, config: Config, clock: Clock | None = None, network: Network | None = None) -> None:
        assert config.upstream is not None
        self.config = config
        self._upstream = config.upstream
        clock = clock or Clock()
        self.client = ClusterClient(settings_of(config.upstream), clock, network)
        self.broker = RemoteBroker(config, clock, self.client)
        self.certificates = Certificates(config, clock)
        self.addresses = Addresses(config, clock, self.broker.quota_table)
        self.endpoints = self.broker.endpoints
        self._directory = DataDirectory(Path(config.data_dir))

    async def start(self) -> None:
        """Lock the directory, ask the cluster for its metadata, open the broker. Raises StartupError."""
        self._directory.acquire()
        try:
            self.certificates.load()
            log.info("connecting to the Kafka cluster at %s", ", ".join(self._upstream.servers))
            try:
                await self.client.open()
            except BrokerError as error:
                raise startup_error(error, self._upstream) from None
            await self.broker.open()
        except BaseException:
            await self.client.close()
            self._directory.release()
            raise
        self.certificates.start()

    def drain(self) -> None:
        """Answer all waiting requests. Requests under way continue."""
        self.broker.drain()

    async def stop(self) -> None:
        """Drain, close the connections to the cluster, unlock."""
        self.drain()
        self.certificates.stop()
        try:
            await self.broker.close()
            await self.client.close()
        finally:
            self._directory.release()

    # --- what a gateway does not have ------------------------------------------------------------------------

    def zookeeper_state(self) -> str | None:
        """Return None: a gateway registers nothing."""
        return None

    def zookeeper_numbers(self) -> dict[str, int]:
        """Return nothing: a gateway registers nothing."""
        return {}

    def api_name(self, api_key: int) -> str:
        """Return Kafka's name for an API."""
        return APIS[api_key].name

    def protocol_versions(self) -> list[ApiSupport]:
        """Return nothing: a gateway has no Kafka listener."""
        return []

    def transaction_totals(self) -> None:
        """Return None: the cluster coordinates transactions."""

    def load(self) -> list[ListenerLoad]:
        """Return nothing: a gateway has no TCP listener but those of HTTP."""
        return []

    def handshakes(self) -> list[tuple[str, Handshakes]]:
        """Return nothing: those of HTTP belong to the application."""
        return []
