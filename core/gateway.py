"""Composition root of upstream mode: a gateway over an existing Kafka cluster, with no broker and no TCP listener.

It has what `core.server.Server` has for the HTTP application: the broker, here over the cluster, the certificates of
HTTP, and the data directory, whose lock keeps a second process out.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from core.client.network import Network
from core.client.properties import client_settings
from core.client.settings import ClientSettings
from core.clock import Clock
from core.config import Config, Upstream
from core.counters import Handshakes, ListenerLoad
from core.directory import BROKER_DATABASE, DataDirectory
from core.errors import StartupError
from core.protocol.apis import APIS
from core.security.addresses import Addresses
from core.security.tls import Certificates
from core.types import ApiSupport
from core.upstream.credentials import Credentials
from core.upstream.numbers import client_numbers, cluster_state
from core.upstream.remote_broker import RemoteBroker
from core.upstream.rights import missing_rights
from core.vocabulary.upstream import ClientNumbers, ClusterState

log = logging.getLogger(__name__)


def settings_of(upstream: Upstream) -> ClientSettings:
    """Return the settings of the client of a cluster. Raises StartupError, which shows no value of a property."""
    try:
        return client_settings({**upstream.properties, "bootstrap.servers": ",".join(upstream.servers)})
    except ValueError as error:
        raise StartupError(f"SLUICE_UPSTREAM_CONFIG: {error}") from None


class Gateway:
    """A gateway over the cluster of `config.upstream`. `network` is that of tests."""

    def __init__(self, config: Config, clock: Clock | None = None, network: Network | None = None) -> None:
        assert config.upstream is not None
        self.config = config
        self._upstream = config.upstream
        clock = clock or Clock()
        settings = settings_of(config.upstream)
        self.broker = RemoteBroker(config, clock, settings, network)
        self.credentials = Credentials(config, config.upstream, settings, settings_of, self.broker.use)
        self.certificates = Certificates(config, clock)
        self.addresses = Addresses(config, clock, self.broker.quota_table)
        self.endpoints = self.broker.endpoints
        self._directory = DataDirectory(Path(config.data_dir))

    async def start(self, stopping: asyncio.Event | None = None) -> None:
        """Lock the directory, ask the cluster for its metadata, open the broker. Raises StartupError.

        A cluster that does not answer is asked for the request timeout; `stopping` ends that.
        """
        self._directory.acquire()
        try:
            self._refuse_data_of_a_broker()
            self.certificates.load()
            log.info("connecting to the Kafka cluster at %s", ", ".join(self._upstream.servers))
            try:
                await self._open(stopping)
                for missing in await missing_rights(self.broker.cluster):
                    log.warning("the principal of this gateway lacks a right: %s", missing)
            except BaseException:
                await self.broker.close()
                raise
        except BaseException:
            self._directory.release()
            raise
        self.certificates.start()
        self.credentials.start()

    async def _open(self, stopping: asyncio.Event | None) -> None:
        if stopping is None:
            await self.broker.open()
            return
        opening, stop = asyncio.ensure_future(self.broker.open()), asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait((opening, stop), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise StartupError("Stopped before the Kafka cluster has answered.")
            opening.result()
        finally:
            for task in (opening, stop):
                task.cancel()
            await asyncio.gather(opening, stop, return_exceptions=True)

    def _refuse_data_of_a_broker(self) -> None:
        data_dir = self.config.data_dir
        if (Path(data_dir) / BROKER_DATABASE).exists():
            raise StartupError(
                f"{data_dir} holds the topics of an embedded broker, which a gateway does not serve. Choose another "
                "directory with --data-dir, or start without --upstream."
            )

    def cluster_state(self) -> ClusterState:
        """Return the brokers of the cluster as this process sees them now."""
        return cluster_state(self.broker)

    def client_numbers(self) -> ClientNumbers:
        """Return the numbers of the client of the cluster."""
        return client_numbers(self.broker)

    def reload(self) -> None:
        """See `app.hosting.Host.reload`."""
        self.certificates.reload()
        self.credentials.check(force=True)

    def drain(self) -> None:
        """Answer all waiting requests. Requests under way continue."""
        self.broker.drain()

    async def stop(self) -> None:
        """Drain, close the connections to the cluster, unlock."""
        self.drain()
        self.certificates.stop()
        self.credentials.stop()
        try:
            await self.broker.close()
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
