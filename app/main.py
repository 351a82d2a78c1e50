"""create_app: the broker, its TCP doors and the HTTP surfaces, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app import operations, problem_pages
from app.console import routes as console
from app.dependencies import Gateway, known_parameters_only
from app.docs import routes as docs
from app.errors import RENDERERS, Problem
from app.front import Front, refusal
from app.metrics import Metrics
from app.native import cluster, consumers, groups, members, topics
from app.native.merged import MergedRoutes
from app.native.one_record import OneRecord
from app.native.records import RecordRoutes
from app.principal import Resolver
from app.proxy.surface import RENDERERS as PROXY_RENDERERS
from app.proxy.surface import ProxySurface
from app.requests import Answer, Receive, Scope, Send
from app.traffic import LoopDelay, Traffic
from app.validation_errors import problem_of_http_error, problem_of_validation
from app.version import VERSION
from core.clock import Clock
from core.config import Config
from core.errors import BrokerError
from core.server import Server

NATIVE_PREFIX = "/api/v1"
# What the front door refuses before a surface is asked has the shape of the surface that was meant.
RENDERERS[:0] = PROXY_RENDERERS
DESCRIPTION = (
    "Sluice: a Kafka that you can curl. The native HTTP API of a broker that Kafka clients reach on its binary "
    "port. Every refusal is a problem document (RFC 9457)."
)


class Application:
    """The ASGI application, and the life of the server behind it.

    An ASGI server that knows lifespans may run it as it is; `app.serving` runs `lifespan` itself, so that a
    start that fails is one line and not a traceback.
    """

    def __init__(self, config: Config, clock: Clock | None = None, resolver: Resolver | None = None) -> None:
        clock = clock or Clock()
        self.server = Server(config, clock)
        self.gateway = Gateway(config, self.server.broker)
        self.gateway.protocol_versions = self.server.protocol_versions
        self.gateway.zookeeper_state = self.server.zookeeper_state
        self.gateway.http_endpoints = [e for e in config.listeners if e.scheme == "http"]
        self.fastapi = make_fastapi(self.gateway)
        find = self.gateway.current_broker
        lean = [r for rooms in (RecordRoutes, MergedRoutes, OneRecord) for r in rooms(config, find).routes()]
        proxy = ProxySurface(self.gateway)
        self.traffic = Traffic(clock)
        self.front = Front(
            config, clock, self.fastapi, lean, f"{NATIVE_PREFIX}/", [proxy], self.traffic, resolver
        )
        self._delay = LoopDelay(clock)
        self.waiting = self.front.waiting
        self.metrics = Metrics(self.server.broker, self.traffic, self._delay, self.front.in_flight)
        self.metrics.doors, self.metrics.api_name = self.server.load, self.server.api_name
        self.metrics.zookeeper = self.server.zookeeper_numbers
        self.fastapi.state.metrics = self.metrics

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


def make_fastapi(gateway: Gateway) -> FastAPI:
    """The FastAPI application with all routes that are not lean."""
    from fastapi import Depends

    app = FastAPI(
        title="Sluice",
        version=VERSION,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=_exception_handlers(),
    )
    app.state.gateway = gateway
    strict = [Depends(known_parameters_only)]
    app.include_router(operations.router)
    app.include_router(problem_pages.router)
    app.include_router(console.router)
    app.include_router(docs.router)
    app.include_router(cluster.router, prefix=NATIVE_PREFIX, dependencies=strict)
    app.include_router(topics.router, prefix=NATIVE_PREFIX, dependencies=strict)
    app.include_router(groups.router, prefix=NATIVE_PREFIX, dependencies=strict)
    app.include_router(members.router, prefix=NATIVE_PREFIX, dependencies=strict)
    app.include_router(consumers.router, prefix=NATIVE_PREFIX, dependencies=strict)
    return app


def _exception_handlers() -> dict[Any, Any]:
    async def refuse(request: Request, error: Problem | BrokerError) -> Response:
        return _response(refusal(error, request.scope))

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _response(refusal(problem_of_validation(error), request.scope))

    async def http_error(request: Request, error: HTTPException) -> Response:
        return _response(refusal(problem_of_http_error(error, request), request.scope))

    async def failure(request: Request, error: Exception) -> Response:
        # The front door logs it: Starlette raises it again once this answer is sent.
        problem = Problem("internal-error", "The server failed; its log says more.")
        return _response(refusal(problem, request.scope))

    return {
        Exception: failure,
        Problem: refuse,
        BrokerError: refuse,
        RequestValidationError: invalid,
        HTTPException: http_error,
    }


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status, media_type=answer.media_type.decode())
    for name, value in answer.headers:
        response.headers[name.decode()] = value.decode("latin-1")
    return response
