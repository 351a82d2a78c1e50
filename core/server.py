"""Composition root: open the broker, start the TCP listeners, drain, close.

The HTTP listeners belong to `app`, which uses `Server.broker`. One process owns a data directory: a lock file with
its pid keeps a second process out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config
from core.counters import Handshakes, ListenerLoad
from core.directory import BROKER_DATABASE, GATEWAY_DATABASE, DataDirectory
from core.errors import StartupError
from core.kafka07.views import Kafka07Views
from core.listeners.acceptor import Acceptor, Listener
from core.listeners.connection import Connection
from core.listeners.kafka.dispatch import HANDLERS, PEER_HANDLERS
from core.listeners.kafka.handler import protocol_versions
from core.listeners.kafka.listener import KafkaListener
from core.metadata.acls import load_acls
from core.metadata.store import Store
from core.metadata.topics import load_settings
from core.metadata.users import load_users
from core.protocol.apis import APIS
from core.replication.promises import ROLES
from core.security.acls import Acls
from core.security.addresses import Addresses
from core.security.authorizer import Authorizer
from core.security.keeper import Alone
from core.security.tls import Certificates
from core.security.users import Users
from core.types import ApiSupport
from core.vocabulary.transactions import TransactionTotals
from core.vocabulary.upstream import ClientNumbers

if TYPE_CHECKING:
    from core.kafka07.registration import ZooKeeperRegistry

T = TypeVar("T")

KAFKA_07 = "kafka07"
HTTP_SCHEMES = frozenset({"http"})


def _kafka(server: Server) -> tuple[Listener, type[Connection]]:
    return KafkaListener(server.broker, HANDLERS), Connection


def _peer(server: Server) -> tuple[Listener, type[Connection]]:
    return KafkaListener(server.broker, PEER_HANDLERS, of_peers=True), Connection


def _line(server: Server) -> tuple[Listener, type[Connection]]:
    # Imported here, so that a broker without such a listener does not load its modules.
    from core.line_protocol.commands import HANDLERS
    from core.line_protocol.connection import LineConnection
    from core.line_protocol.listener import LineListener

    return LineListener(server.broker, HANDLERS), LineConnection


def _kafka07(server: Server) -> tuple[Listener, type[Connection]]:
    from core.kafka07.listener import Kafka07Listener

    return Kafka07Listener(server.broker, server.kafka07_views), Connection


# By the scheme of the URL: the listener, and the class that splits the bytes of its connections into requests.
LISTENERS: dict[str, Callable[[Server], tuple[Listener, type[Connection]]]] = {
    "kafka": _kafka,
    "kafka07": _kafka07,
    "peer": _peer,
    "text": _line,
}


class Server:
    """A broker with its TCP listeners.

    `endpoints` are the addresses bound, after `start` has returned.
    """

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self.config = config
        self.broker = Broker(config, clock or Clock())
        self.certificates = Certificates(config, self.broker.clock)
        # Of all listeners, those of HTTP included.
        self.addresses = Addresses(config, self.broker.clock, self.broker.quota_table)
        # Subscribed also without a 0.7 listener: byte addresses that clients have stored must stay valid.
        self.kafka07_views = Kafka07Views(
            self.broker.logs.pool,
            max_bytes=config.max_decompressed_bytes,
            slice_bytes=config.legacy_slice_bytes,
        )
        self.broker.logs.subscribe(self.kafka07_views)
        self.endpoints = self.broker.endpoints
        self._directory = DataDirectory(Path(config.data_dir))
        self._acceptors: list[Acceptor] = []
        self._zookeeper: ZooKeeperRegistry | None = None

    async def start(self, stopping: asyncio.Event | None = None) -> None:
        """Lock the directory, bind the ports, open the broker, then accept. Raises StartupError.

        It waits for no other process: `stopping` is that of a gateway (`core.gateway`).
        """
        if self.config.zookeeper and KAFKA_07 not in [e.scheme for e in self.config.listeners]:
            raise StartupError(
                f"--zookeeper registers a listener of Kafka 0.7: add one, such as --listener {KAFKA_07}://127.0.0.1:9093."
            )
        self._directory.acquire()
        opened = False
        try:
            if (Path(self.config.data_dir) / GATEWAY_DATABASE).exists():
                raise StartupError(
                    f"{self.config.data_dir} belongs to a gateway over a Kafka cluster. Start it with --upstream, or "
                    "choose another directory with --data-dir."
                )
            self.certificates.load()
            for endpoint in self.config.listeners:
                if endpoint.scheme in HTTP_SCHEMES:
                    continue
                make_listener = LISTENERS.get(endpoint.scheme)
                if make_listener is None:
                    raise StartupError(
                        f"Unknown listener scheme in {endpoint}; known are: http, {', '.join(LISTENERS)}."
                    )
                listener, connection = make_listener(self)
                certificate = self.certificates.by_name()[endpoint.tls] if endpoint.tls else None
                acceptor = Acceptor(
                    endpoint,
                    self.config,
                    self.broker.clock,
                    listener,
                    connection,
                    certificate,
                    self.addresses,
                )
                acceptor.bind()
                self._acceptors.append(acceptor)
            await self.broker.open()
            opened = True
            self.certificates.start()
            for acceptor in self._acceptors:
                await acceptor.start()
                self.endpoints.append(acceptor.endpoint)
            if self.config.zookeeper:
                self._zookeeper = await self._register()
        except BaseException:
            self.certificates.stop()
            for acceptor in self._acceptors:
                await acceptor.stop()
            if opened:
                await self.broker.close()
            self._directory.release()
            raise

    async def _register(self) -> ZooKeeperRegistry:
        # Imported here, so that a broker without ZooKeeper does not load the module.
        from core.kafka07.registration import ZooKeeperRegistry

        # ZooKeeper has one address for a broker. With several listeners it is that of the first.
        endpoint = next(e for e in self.endpoints if e.scheme == KAFKA_07)
        registry = ZooKeeperRegistry(self.broker, endpoint)
        await registry.start()
        return registry

    def zookeeper_state(self) -> str | None:
        """Return the state of the registration in ZooKeeper, in a word or two; None without `--zookeeper`."""
        return self._zookeeper.registration.state if self._zookeeper is not None else None

    def zookeeper_numbers(self) -> dict[str, int]:
        """Return the counters of the registration by name; empty without `--zookeeper`."""
        return self._zookeeper.registration.numbers() if self._zookeeper is not None else {}

    def api_name(self, api_key: int) -> str:
        """Return Kafka's name for an API, for the labels of counters."""
        return APIS[api_key].name

    def protocol_versions(self) -> list[ApiSupport]:
        """Return each API that the Kafka listener serves, as the draft of KIP-35 lists them."""
        return protocol_versions(HANDLERS, self.config.protocol_version_api_key)

    def transaction_totals(self) -> TransactionTotals:
        """Return what there is of transactions."""
        return self.broker.transactions.totals()

    def cluster_state(self) -> None:
        """Return None: this process is a broker itself."""

    def client_numbers(self) -> ClientNumbers:
        """Raise NotImplementedError: there is no client of another cluster."""
        raise NotImplementedError

    def load(self) -> list[ListenerLoad]:
        """Return the load of each TCP listener now."""
        return [acceptor.load for acceptor in self._acceptors]

    def handshakes(self) -> list[tuple[str, Handshakes]]:
        """Return the TLS handshakes of each TCP listener with TLS, with its scheme."""
        return [
            (one.endpoint.scheme, one.handshakes) for one in self._acceptors if one.handshakes is not None
        ]

    def reload(self) -> None:
        """See `app.hosting.Host.reload`."""
        self.certificates.reload()

    def drain(self) -> None:
        """Answer all waiting requests and accept no new connections. Requests under way continue."""
        self.broker.drain()
        for acceptor in self._acceptors:
            acceptor.drain()

    async def stop(self) -> None:
        """Drain, close the connections, flush, write the clean-shutdown marker, unlock."""
        self.drain()
        self.certificates.stop()
        if self._zookeeper is not None:
            # First, so that no client learns this address from ZooKeeper any more.
            await self._zookeeper.stop()
        try:
            for acceptor in self._acceptors:
                await acceptor.stop()
            await self.broker.close()
        finally:
            self._directory.release()


@asynccontextmanager
async def stopped_users(data_dir: Path) -> AsyncIterator[Users]:
    """Open the users of a broker that is stopped, with its directory locked. Raises StartupError."""
    async with _stopped_store(data_dir) as (store, clock):
        with ThreadPoolExecutor(1) as threads:
            users = Users(Config(data_dir=data_dir), clock, store, threads)
            names, credentials, _ = await store.read(load_users)
            users.load(await store.read(load_settings), names, credentials)
            yield users


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Carry out a change; here no client can leave before its end."""
    return await work


@asynccontextmanager
async def stopped_acls(data_dir: Path) -> AsyncIterator[Acls]:
    """Open the access rules of a broker that is stopped, with its directory locked. Raises StartupError."""
    async with _stopped_store(data_dir) as (store, _):
        config = Config(data_dir=data_dir)
        acls = Acls(config, store, Alone(), Authorizer(enabled=True), _to_the_end)
        acls.load(await store.read(load_acls))
        yield acls


@asynccontextmanager
async def _stopped_store(data_dir: Path) -> AsyncIterator[tuple[Store, Clock]]:
    """Open the database of a broker that is stopped, with its directory locked.

    Raises StartupError for a directory without a database, in use, or of a broker of a cluster.
    """
    found = [file for name in (BROKER_DATABASE, GATEWAY_DATABASE) if (file := data_dir / name).is_file()]
    if not found:
        raise StartupError(f"{data_dir} is not the data directory of a broker: it has no {BROKER_DATABASE}.")
    if (data_dir / ROLES).exists():
        raise StartupError(f"{data_dir} belongs to a broker of a cluster; change it while it runs.")
    directory = DataDirectory(data_dir)
    directory.acquire()
    try:
        clock = Clock()
        store = Store(found[0], clock)
        await store.open(check=True)
        try:
            yield store, clock
        finally:
            await store.close()
    finally:
        directory.release()
