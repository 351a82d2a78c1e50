"""create_app: the broker, its TCP listeners and the HTTP surfaces, put together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from app.gateways.forwarding import Forwarding
from app.gateways.setup import forwarding_of
from app.hosting import Host
from app.http.application import HttpApplication
from app.http.authentication import Authenticator
from app.http.exchange import ASGIApp
from app.http.lazy_app import LazyApp
from app.http.metrics import LoopDelay, Traffic, Visits
from app.http.principal import Resolver
from app.http.refusals import Refusals
from app.http.request import Receive, Scope, Send
from app.http.route import RouteTable
from app.http.router import Router
from app.metrics import Metrics
from app.native.idempotency import HEADER as IDEMPOTENCY_KEY
from app.native.idempotency import key_check
from app.native.operations import Operations
from app.native.routes import ALIASES, PREFIX, lean_routes, operation_routes
from app.native.transaction_header import HEADER as TRANSACTION
from app.native.transaction_header import transaction_check
from app.rest_v2.surface import RENDERERS as V2_RENDERERS
from app.rest_v2.surface import ProxySurface
from app.settings import load_with_file, open_listeners
from app.shared import Shared
from core.clock import Clock
from core.config import Config, Endpoint
from core.security.setup import SetupToken


class Application:
    """The whole program as an ASGI application: `HttpApplication`, and the life of the broker that it serves.

    An ASGI server that knows lifespans may run it as it is. `app.serve` runs `lifespan` itself, so that a start that
    fails is one line and not a traceback, and gives the server `http`.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        server: Host,
        resolver: Resolver | None,
        http_endpoints: Sequence[Endpoint],
        visits: Visits | None,
        when_loaded: Callable[[], None],
        forwarding: Forwarding | None,
    ) -> None:
        self.server = server
        self.traffic = traffic = Traffic(config, clock, visits)
        # A refusal before a surface is asked has the shape of the surface that the path belongs to.
        refusals = Refusals(V2_RENDERERS, traffic.refusals)
        self.setup = SetupToken(clock, server.broker.users)
        self.shared = shared = Shared(
            config,
            server.broker,
            refusals,
            protocol_versions=server.protocol_versions,
            endpoints=server.endpoints,
            http_endpoints=http_endpoints,
            setup=self.setup,
        )
        self._delay = LoopDelay(clock)
        self._when_loaded = when_loaded
        self.forwarding = forwarding
        self.metrics = Metrics(server, traffic, self._delay, self.forwarding)
        self.fastapi = LazyApp(self._load_fastapi)
        find = shared.current_broker
        operations = Operations(
            find,
            shared.acting,
            server.zookeeper_state,
            self.metrics.scrape,
            open_listeners(config.listeners, config.tls),
            server.cluster_state,
        )
        lean = RouteTable(
            (PREFIX, lean_routes(config, shared.acting, shared.long_transactions)),
            ("", operation_routes(operations)),
            capabilities=shared.capabilities,
        )
        checks = {
            TRANSACTION: transaction_check(shared.capabilities),
            IDEMPOTENCY_KEY: key_check(shared.capabilities),
        }
        router = Router(lean, [ProxySurface(shared)], self.fastapi, checks, ALIASES)
        if resolver is None and any(endpoint.authentication for endpoint in http_endpoints):
            resolver = self._authenticator(config, http_endpoints)
        self.http = HttpApplication(
            config, clock, router, traffic, refusals, resolver, server.broker.quota_table, self.forwarding
        )

    def _authenticator(self, config: Config, http_endpoints: Sequence[Endpoint]) -> Authenticator:
        """Return what finds the principals of requests, on listeners whose clients log in."""
        broker, shared = self.shared.broker, self.shared
        return Authenticator(
            config, http_endpoints, broker.passwords, broker.logins, self.setup, shared.sessions, shared.tickets,
            broker.jwts, broker.audit,
        )  # fmt: skip

    def _load_fastapi(self) -> ASGIApp:
        from app.fastapi_app import make_fastapi

        app = make_fastapi(self.shared)
        self._when_loaded()
        return app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self.http(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, stopping: asyncio.Event | None = None) -> AsyncIterator[None]:
        """Start the server, and stop it cleanly in the end. Raises StartupError.

        `stopping` ends a start that waits for a cluster.
        """
        await self.server.start(stopping)
        self._delay.start()
        try:
            yield
        finally:
            self._delay.stop()
            if self.forwarding is not None:
                self.forwarding.close()
            await self.server.stop()

    def drain(self) -> None:
        """Answer everything that waits; the first half of a stop."""
        self.server.drain()

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
                self.drain()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})


def make_server(config: Config, clock: Clock) -> Host:
    """Return an embedded broker with its listeners; in upstream mode a gateway, which loads no module of a broker."""
    if config.upstream is not None:
        from core.gateway import Gateway

        return Gateway(config, clock)
    from core.server import Server

    return Server(config, clock)


def create_app(
    config: Config | None = None,
    clock: Clock | None = None,
    resolver: Resolver | None = None,
    *,
    server: Host | None = None,
    http_endpoints: Sequence[Endpoint] | None = None,
    visits: Visits | None = None,
    when_loaded: Callable[[], None] = lambda: None,
    forwarding: Forwarding | None = None,
) -> Application:
    """Return the application over one configuration; it opens nothing before its lifespan begins.

    Without `config` it takes the settings of the environment and of the file that SLUICE_CONFIG names, so that
    `uvicorn --factory app.main:create_app` works; then uvicorn's own options set where HTTP listens, and its limits
    hold in the place of ours. `resolver` finds the principal of a request; without one every client is the same.
    `server` is one in the place of that of `make_server`. `http_endpoints` are the addresses that are really bound;
    without them, those of the settings are shown. `visits` takes the access log. `when_loaded` is called, in a
    thread, when FastAPI has been loaded. `forwarding` is one in the place of that of
    `forwarding_of`. Raises StartupError.
    """
    if config is None:
        config = load_with_file(os.environ, None)
    if http_endpoints is None:
        http_endpoints = [e for e in config.listeners if e.scheme == "http"]
    clock = clock or Clock()
    host = server or make_server(config, clock)
    forwarding = forwarding or forwarding_of(config, clock)
    return Application(config, clock, host, resolver, http_endpoints, visits, when_loaded, forwarding)
