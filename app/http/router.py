"""Find what answers a request: a lean route, a whole surface, or FastAPI.

A lean route is a plain function from a `Request` to an `Answer`, found by the segments of its path. A surface routes
all paths below its own prefixes. FastAPI gets the rest, with the body read and checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from app.http.exchange import ASGIApp, in_task
from app.http.json_body import check_json_body
from app.http.request import Answer, Message, Request, Streamed, decode_path
from app.http.route import Found, RouteTable
from app.http.sender import Sender

# Methods without a body that a route reads.
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# The cache of routes by path: the number of paths that clients of a busy server use, and the length of a path with
# the longest topic name, escaped.
_REMEMBERED_PATHS = 1000
_REMEMBERED_PATH = 800


class Surface(Protocol):
    """A surface without FastAPI, which routes and refuses by itself."""

    def owns(self, path: str) -> bool:
        """Whether a path belongs to the surface, with or without a route."""
        ...

    async def answer(self, request: Request, path: str) -> Answer | Streamed:
        """Return the answer to a request for such a path, refusals included."""
        ...


class Router:
    """The routes of one application. `lean` are those without FastAPI; FastAPI gets what no surface owns.

    `checks` has a function for each header line that only some routes take: it is called with the path, and raises.
    `aliases` are beginnings of paths by other beginnings that mean the same; they end at a segment.
    """

    def __init__(
        self,
        lean: RouteTable,
        surfaces: Sequence[Surface],
        fastapi: ASGIApp,
        checks: Mapping[bytes, Callable[[Request, str], None]],
        aliases: Mapping[str, str] = {},
    ) -> None:
        self._aliases = aliases
        self._checks = checks
        self._lean = lean
        self._surfaces = surfaces
        self._fastapi = fastapi
        self._taken: dict[tuple[str, bytes | None], Found] = {}

    def answer(self, request: Request, sender: Sender) -> Awaitable[Answer | Streamed | None]:
        """Return the awaitable that answers; it has not started. Its result is None if `sender` has answered."""
        scope = request.scope
        method = scope["method"]
        known = self._taken.get((method, raw := scope.get("raw_path")))
        if known is None:
            path = self._real(decode_path(scope))
            known = self._lean.find(method, path)
            if known is not None and raw is not None and len(raw) <= _REMEMBERED_PATH:
                if len(self._taken) >= _REMEMBERED_PATHS:
                    self._taken.clear()
                self._taken[method, raw] = known
        # After a method that the path does not take.
        for name, check in self._checks.items():
            if name in request.headers:
                check(request, self._real(decode_path(scope)))
        if known is not None:
            handle, segments, request.route = known
            return handle(request, segments)
        return self._answer_elsewhere(request, path, sender)

    def _real(self, path: str) -> str:
        """Return the path whose route answers: that of an alias is another one."""
        for alias, meant in self._aliases.items():
            if path.startswith(alias) and path[len(alias) : len(alias) + 1] in ("", "/"):
                return meant + path[len(alias) :]
        return path

    async def _answer_elsewhere(
        self, request: Request, path: str, sender: Sender
    ) -> Answer | Streamed | None:
        await in_task()
        for surface in self._surfaces:
            if surface.owns(path):
                return await surface.answer(request, path)
        await self._call_fastapi(request, path, sender)
        return None

    async def _call_fastapi(self, request: Request, path: str, sender: Sender) -> None:
        """Let FastAPI answer, after the body was read within the limits and checked as JSON."""
        scope = {**request.scope, "path": path, "raw_path": path.encode()}
        body = b""
        if scope["method"] == "HEAD":
            # The server leaves the body out.
            scope["method"] = "GET"
        elif scope["method"] not in READING:
            body = await request.body()
            if body:
                check_json_body(request, body)
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if sent:
                return await request.receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            await self._fastapi(scope, receive, sender.send)
        finally:
            if (route := scope.get("route")) is not None:
                request.route = route.path_format
