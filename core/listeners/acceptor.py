"""A listening socket: bind it, accept connections, close those whose deadline has passed, drain."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace
from typing import Protocol

from core.clock import Clock
from core.config import Config, Endpoint
from core.counters import Handshakes, ListenerLoad
from core.listeners.connection import Connection, Session, Shared
from core.listeners.sockets import bind_socket
from core.listeners.tls import TlsServer
from core.security.addresses import Addresses
from core.security.tls import ServerCertificate

log = logging.getLogger(__name__)

# How often deadlines are checked. Deadlines are tens of seconds, so a second late does not matter.
_SWEEP_SECONDS = 1.0
_BACKLOG = 1024


class Listener(Protocol):
    """A protocol on a port. It makes a session for each connection."""

    def bound(self, endpoint: Endpoint) -> None:
        """Take the address that was bound; its port is never 0."""
        ...

    def session(self) -> Session:
        """Return a session for a new connection."""
        ...


class Acceptor:
    """The socket of one TCP listener. `endpoint` is the real address after `bind`.

    `connection` is the class that splits the bytes of a connection into requests. The default splits by length
    prefixes. With `certificate` the listener has TLS. `addresses` counts the connections of all listeners.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        config: Config,
        clock: Clock,
        listener: Listener,
        connection: type[Connection] = Connection,
        certificate: ServerCertificate | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._config = config
        self._clock = clock
        self._listener = listener
        self._connection = connection
        self._certificate = certificate
        self._addresses = addresses
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | TlsServer | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._shared: Shared | None = None

    def bind(self) -> None:
        """Take the port. Raises StartupError with one line."""
        self._socket = bind_socket(self.endpoint)
        port = self._socket.getsockname()[1]
        self.endpoint = replace(self.endpoint, port=port)
        self._listener.bound(self.endpoint)

    async def start(self) -> None:
        """Accept connections."""
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        self._shared = Shared(self._config, self._clock, loop, self._certificate, self._addresses)
        if self._certificate is None:
            self._server = await loop.create_server(
                self._make_connection, sock=self._socket, backlog=_BACKLOG
            )
        else:
            self._socket.listen(_BACKLOG)
            self._server = TlsServer(
                self._socket, self._certificate, self._make_connection, self._config, self._shared.addresses
            )
            self._server.start()
        self._sweeper = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _make_connection(self) -> Connection:
        assert self._shared is not None
        return self._connection(self._shared, self._listener.session())

    @property
    def handshakes(self) -> Handshakes | None:
        """Return the TLS handshakes of this listener; None without TLS."""
        return self._server.handshakes if isinstance(self._server, TlsServer) else None

    @property
    def load(self) -> ListenerLoad:
        """Return the load of this listener now."""
        shared, scheme = self._shared, self.endpoint.scheme
        if shared is None:
            return ListenerLoad(scheme, 0, 0, 0, 0)
        return ListenerLoad(scheme, len(shared.connections), shared.inflight, shared.accepted, shared.refused)

    def drain(self) -> None:
        """Accept no more; each connection closes when its request under way is answered."""
        if self._server is not None:
            self._server.close()
        if self._shared is not None:
            for connection in list(self._shared.connections):
                connection.drain()

    async def stop(self) -> None:
        """Drain, and close what is still open when the drain time is over."""
        self.drain()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._shared is not None:
            deadline = self._clock.monotonic() + self._config.drain_timeout_ms / 1000
            while self._shared.connections and self._clock.monotonic() < deadline:
                await asyncio.sleep(0.01)
            for connection in list(self._shared.connections):
                connection.refuse("the broker is stopping")
            await asyncio.sleep(0)
        if self._socket is not None:
            self._socket.close()

    def _sweep(self) -> None:
        assert self._shared is not None
        now = self._clock.monotonic()
        for connection in [c for c in self._shared.connections if c.expired(now)]:
            connection.expire()
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)
