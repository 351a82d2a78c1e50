"""The HTTP server: sockets that accept connections, and the end of these connections.

It has the same life as a TCP listener (`core.listeners.acceptor`):

    bind     take the ports, before anything else is opened: a taken port ends the start in one line
    start    accept connections
    drain    accept no more; each connection closes once the request under way is answered
    stop     drain, wait for the drain time, then cancel what still runs and close
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from app.errors import Problem, render_problem
from app.http.exchange import ASGIApp
from app.http.metrics import Traffic
from app.http.protocol import HttpProtocol, Shared
from core.clock import Clock
from core.config import Config, Endpoint
from core.errors import StartupError
from core.listeners.sockets import bind_socket
from core.listeners.tls import TlsServer
from core.security.addresses import Addresses
from core.security.tls import ServerCertificate

log = logging.getLogger("sluice.http")

BACKLOG = 2048
# How often a stop checks whether the last request is answered.
_STOP_POLL_SECONDS = 0.01
# The least time for a drain: answers that it releases must still be sent, even if the drain time is 0.
_LEAST_DRAIN_SECONDS = 1.0


def bind(endpoints: Sequence[Endpoint]) -> list[socket.socket]:
    """Bind a listening socket for each endpoint. Raises StartupError; then none stays open.

    Connections are accepted by the system from here on, and answered once the server has started. `[::]` does not
    include IPv4, so that `0.0.0.0` may be given beside it.
    """
    sockets: list[socket.socket] = []
    try:
        for endpoint in endpoints:
            sockets.append(bind_socket(endpoint, backlog=BACKLOG, only_ipv6=True))
    except StartupError:
        for one in sockets:
            one.close()
        raise
    return sockets


def bind_for_workers(endpoint: Endpoint, count: int) -> list[socket.socket]:
    """Return a listening socket for each worker, all with the same address. Raises StartupError.

    A first socket without SO_REUSEPORT finds out whether another program has the port: two programs of one user
    could share it otherwise, and each would get a part of the connections.
    """
    probe = bind_socket(endpoint, only_ipv6=True)
    port = probe.getsockname()[1]
    probe.close()
    chosen = replace(endpoint, port=port)
    return [bind_socket(chosen, backlog=BACKLOG, only_ipv6=True, reuse_port=True) for _ in range(count)]


class HttpServer:
    """Runs an ASGI application on bound sockets; `http_max_connections` counts over all of them.

    `certificates` has one for each socket with TLS, and None for one without; empty means that none has TLS.
    `addresses` counts the connections of each client's address, over all listeners.
    """

    def __init__(
        self,
        app: ASGIApp,
        sockets: Sequence[socket.socket],
        config: Config,
        clock: Clock,
        traffic: Traffic,
        certificates: Sequence[ServerCertificate | None] = (),
        addresses: Addresses | None = None,
    ) -> None:
        self._app = app
        self._sockets = sockets
        self._config = config
        self._clock = clock
        self._traffic = traffic
        self._addresses = addresses
        self._certificates = certificates or [None] * len(sockets)
        self._servers: list[asyncio.Server | TlsServer] = []
        # Sockets of workers that are down.
        self._adopted: dict[int, list[tuple[socket.socket, asyncio.Server | TlsServer]]] = {}
        self._shared: Shared | None = None

    async def start(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        shared = self._shared = Shared(
            self._app, self._config, self._clock, self._traffic, loop, self._addresses
        )
        for one, certificate in zip(self._sockets, self._certificates, strict=True):
            self._servers.append(await self._accept(shared, one, certificate))

    async def _accept(
        self, shared: Shared, one: socket.socket, certificate: ServerCertificate | None
    ) -> asyncio.Server | TlsServer:
        factory = partial(HttpProtocol, shared, certificate)
        if certificate is None:
            if one.family == socket.AF_UNIX:
                return await shared.loop.create_unix_server(factory, sock=one, backlog=BACKLOG)
            return await shared.loop.create_server(factory, sock=one, backlog=BACKLOG)
        secure = TlsServer(
            one,
            certificate,
            factory,
            self._config,
            shared.addresses,
            http=True,
            plain_answer=_plain_answer(),
        )
        secure.start()
        self._traffic.handshakes.append(secure.handshakes)
        return secure

    async def adopt(self, worker: int, sockets: Sequence[socket.socket]) -> None:
        """Accept connections on the sockets of another worker as well: one for each of the first listeners."""
        if self._shared is None or self._shared.closing:
            for one in sockets:
                one.close()
            return
        for one, certificate in zip(sockets, self._certificates, strict=False):
            server = await self._accept(self._shared, one, certificate)
            self._adopted.setdefault(worker, []).append((one, server))

    def release(self, worker: int) -> None:
        """Accept no more connections on the sockets of another worker; open ones stay."""
        for one, server in self._adopted.pop(worker, []):
            server.close()
            one.close()

    async def linger(self, seconds: float) -> None:
        """Accept no more; for this time answer on open connections, which close after their next answer.

        Return earlier when none is open. A client that keeps a connection alive sends its next request within the
        time, and learns that it must open another one. If the connection were closed at once, that request could be
        lost on its way.
        """
        shared = self._shared
        if shared is None:
            return
        shared.closing = True
        self._accept_no_more()
        for connection in list(shared.connections):
            connection.linger()
        deadline = self._clock.monotonic() + seconds
        while shared.connections and self._clock.monotonic() < deadline:
            await asyncio.sleep(_STOP_POLL_SECONDS)

    def drain(self) -> None:
        """Accept no more; each connection closes when the request under way is answered."""
        self._accept_no_more()
        if self._shared is not None:
            for connection in list(self._shared.connections):
                connection.drain()

    def _accept_no_more(self) -> None:
        for worker in list(self._adopted):
            self.release(worker)
        for server in self._servers:
            server.close()
        for one in self._sockets:
            one.close()

    async def stop(self) -> None:
        """Drain; when the drain time is over, cancel the requests under way and close what is still open."""
        self.drain()
        shared = self._shared
        if shared is None:
            return
        deadline = self._clock.monotonic() + max(_LEAST_DRAIN_SECONDS, self._config.drain_timeout_ms / 1000)
        while (shared.connections or shared.tasks) and self._clock.monotonic() < deadline:
            await asyncio.sleep(_STOP_POLL_SECONDS)
        if shared.connections or shared.tasks:
            log.warning(
                "closed %d connections and cancelled %d requests that did not end within the drain time",
                len(shared.connections),
                len(shared.tasks),
            )
            for task in shared.tasks:
                task.cancel()
            for connection in list(shared.connections):
                connection.transport.abort()
            await asyncio.sleep(0)


def _plain_answer() -> bytes:
    """Return the answer to a client that speaks HTTP without TLS."""
    body = render_problem(Problem("malformed-request", "This listener speaks TLS: use https://."), "/").body
    head = "HTTP/1.1 400 \r\ncontent-type: application/problem+json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
