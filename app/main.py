"""create_app: the broker, its TCP doors and the HTTP surfaces, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.errors import RENDERERS
from app.gateway import Gateway
from app.http.exchange import ASGIApp
from app.http.metrics import LoopDelay, Traffic
from app.http.principal import Resolver
from app.http.request import Receive, Scope, Send
from app.http.route import RouteTable
from app.http.router import Front, Surface
from app.late import LateApp
from app.metrics import Metrics
from app.native.operations import Operations
from app.native.routes import PREFIX, lean_routes, operation_routes
from app.rest_v2.surface import RENDERERS as PROXY_RENDERERS
from app.rest_v2.surface import ProxySurface
from core.clock import Clock
from core.config import Config
from core.server import Server

# What the front door refuses before a surface is asked has the shape of the surface that was meant.
RENDERERS[:0] = PROXY_RENDERERS


class Application:
    """The ASGI application, and the life of the server behind it.

    An ASGI server that knows lifespans may run it as it is; `app.http.server` runs `lifespan` itself, so that a
    start that fails is one line and not a traceback.
    """

    def __init__(self, config: Config, clock: Clock | None = None, resolver: Resolver | None = None) -> None:
        clock = clock or Clock()
        self.server = Server(config, clock)
        self.gateway = Gateway(config, self.server.broker)
        self.gateway.protocol_versions = self.server.protocol_versions
        self.gateway.http_endpoints = [e for e in config.listeners if e.scheme == "http"]
        find = self.gateway.current_broker
        self.traffic = Traffic(clock)
        operations = Operations(find, self.server.zookeeper_state, lambda accept: self.metrics.scrape(accept))
        lean = RouteTable((PREFIX, lean_routes(config, find)), ("", operation_routes(operations)))
        self.control = LateApp(self._load_control)
        surfaces: list[Surface] = [ProxySurface(self.gateway)]
        self.front = Front(config, clock, self.control, lean, f"{PREFIX}/", surfaces, self.traffic, resolver)
        self._delay = LoopDelay(clock)
        self.waiting = self.front.waiting
        self.metrics = Metrics(self.server.broker, self.traffic, self._delay, self.front.in_flight)
        self.metrics.doors, self.metrics.api_name = self.server.load, self.server.api_name
        self.metrics.zookeeper = self.server.zookeeper_numbers

    def _load_control(self) -> ASGIApp:
        from app.fastapi_app import make_fastapi

        return make_fastapi(self.gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self.front(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Start the server, and stop it cleanly in the end. Raises StartupError."""
        await self.server.start()
        self.gateway.endpoints = self.server.endpoints
        self._delay.start()
        try:
            yield
        finally:
            self._delay.stop()
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


def create_app(config: Config, clock: Clock | None = None, resolver: Resolver | None = None) -> Application:
    """The whole application over one configuration; nothing is opened before its lifespan begins.

    `resolver` says who sends a request; without one everybody is the same.
    """
    return Application(config, clock, resolver)
