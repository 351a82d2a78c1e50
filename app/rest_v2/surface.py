"""The v2 surface as the router sees it: which paths are its own, and an answer for each request to them.

It routes by itself, below FastAPI, as the native record routes do: the paths are few, every one is a hot path of
some client, and each refusal must have v2's shape under the media type that the client takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.errors import Problem, Rendered
from app.http.request import Answer, Request, Streamed
from app.http.route import RouteTable
from app.rest_v2.dialect import DIALECTS
from app.rest_v2.errors import ProxyError, as_problem, body_of, code_of, render_before_routing
from app.rest_v2.media import JSON, accept_of
from app.rest_v2.routes import v2_routes
from app.shared import Shared
from core.errors import BrokerError

ROOTS = frozenset({"", "brokers", "topics", "consumers"})
# How requests are refused before this surface is asked, by the beginning of the path.
RENDERERS: list[tuple[str, Callable[[Problem, str], Rendered]]] = [
    (f"/{root}", render_before_routing) for root in sorted(ROOTS) if root
]


class ProxySurface:
    """All v2 routes."""

    def __init__(self, shared: Shared) -> None:
        config, clock = shared.config, shared.broker.clock
        self._dialect = DIALECTS[config.v2_dialect]
        self._counts = shared.refusals.counts
        routes = v2_routes(config, clock, self._dialect, shared.acting)
        self._table = RouteTable(("", routes), capabilities=shared.capabilities)
        self._roots = {route.path[1:].partition("/")[0] for route in routes}

    def owns(self, path: str) -> bool:
        """Whether a path belongs to this surface, be there a route for it or not."""
        return path[1:].partition("/")[0] in self._roots

    async def answer(self, request: Request, path: str) -> Answer | Streamed:
        """The answer to a request for a path of ours; every refusal is one."""
        try:
            found = self._table.find(request.scope["method"], path)
            if found is None:
                raise Problem("not-found", "HTTP 404 Not Found")
            handle, segments, request.route = found
            return await handle(request, segments)
        except (ProxyError, Problem, BrokerError) as error:
            return self._refusal(error, request)

    def _refusal(self, error: ProxyError | Problem | BrokerError, request: Request) -> Answer:
        headers: tuple[tuple[bytes, bytes], ...] = ()
        names: Mapping[str, object]
        if isinstance(error, ProxyError):
            status, code, message, names = error.status, error.error_code, error.message, error.names
            kind = f"v2-{code}"
        else:
            problem = as_problem(error)
            status, code, message = problem.status, code_of(problem), problem.detail
            names = problem.extra
            headers = tuple(
                (name.encode(), value.encode("latin-1", "replace")) for name, value in problem.headers.items()
            )
            kind = problem.kind
        self._counts[kind] += 1
        choices = accept_of(request.headers.get(b"accept", b"")).choices
        media_type = choices[0][0] if choices else JSON
        message = self._dialect.message(code, message, names)
        return Answer(status, body_of(self._dialect.code(code, status), message), media_type, headers)
