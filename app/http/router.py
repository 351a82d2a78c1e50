"""Find what answers a request: a lean route, a whole surface, or FastAPI.

A lean route is a plain function from a `Request` to an `Answer`, found by the segments of its path. A surface
routes all paths below its own beginnings by itself. FastAPI gets the rest, with the body read and checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from app.errors import Problem
from app.http.exchange import ASGIApp, in_task
from app.http.json_body import check_json_body
from app.http.request import Answer, Message, Request, Streamed, decode_path
from app.http.sender import Sender

# Methods without a body that a route reads.
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# Paths whose routes are remembered: as many as the clients of a busy server use, and up to the length of a path with
# the longest topic name, escaped.
_REMEMBERED_PATHS = 1000
_REMEMBERED_PATH = 800

# The parameter that follows a segment.
_PARAMETERS = {"topics": "{topic}", "partitions": "{partition}", "records": "{offset}", "groups": "{group}"}


Handle = Callable[[Request, list[str]], Awaitable[Answer | Streamed]]
"""Answers a request for a path with these segments; it must not change the list."""


class LeanRoute(NamedTuple):
    """A route without FastAPI: its method, and its path as segments (None is a parameter)."""

    method: str
    segments: tuple[str | None, ...]
    handle: Handle

    @property
    def template(self) -> str:
        """Return the path as the OpenAPI document has it."""
        before = ("", *self.segments)
        return "/".join(s or _PARAMETERS[before[i] or ""] for i, s in enumerate(self.segments))

    def fits(self, segments: list[str]) -> bool:
        """Whether a path with the same number of segments matches this route."""
        for wanted, segment in zip(self.segments, segments, strict=True):
            if wanted is not None and wanted != segment:
                return False
        return True


class Surface(Protocol):
    """A surface without FastAPI, which routes and refuses by itself."""

    def owns(self, path: str) -> bool:
        """Whether a path belongs to the surface, with or without a route."""
        ...

    async def answer(self, request: Request, path: str) -> Answer:
        """Return the answer to a request for such a path, refusals included."""
        ...


class Router:
    """The routes of one application. `prefix` ends with a slash; the lean routes and FastAPI's are below it."""

    def __init__(
        self, prefix: str, lean: Iterable[LeanRoute], surfaces: Sequence[Surface], fastapi: ASGIApp
    ) -> None:
        self._prefix = prefix
        self._surfaces = surfaces
        self._fastapi = fastapi
        self._taken: dict[tuple[str, bytes | None], tuple[Handle, list[str], str]] = {}
        self._routes: dict[int, list[tuple[LeanRoute, str]]] = {}
        for route in lean:
            self._routes.setdefault(len(route.segments), []).append((route, prefix + route.template))

    def answer(self, request: Request, sender: Sender) -> Awaitable[Answer | Streamed | None]:
        """Return what will answer a request; it is not begun yet. None comes of it where `sender` has answered."""
        scope = request.scope
        method = scope["method"]
        known = self._taken.get((method, raw := scope.get("raw_path")))
        if known is None:
            path = decode_path(scope)
            known = self._take(method, path)
            if known is not None and raw is not None and len(raw) <= _REMEMBERED_PATH:
                if len(self._taken) >= _REMEMBERED_PATHS:
                    self._taken.clear()
                self._taken[method, raw] = known
        if known is not None:
            handle, segments, request.route = known
            return handle(request, segments)
        return self._answer_elsewhere(request, path, sender)

    async def _answer_elsewhere(
        self, request: Request, path: str, sender: Sender
    ) -> Answer | Streamed | None:
        await in_task()
        for surface in self._surfaces:
            if surface.owns(path):
                return await surface.answer(request, path)
        await self._call_fastapi(request, path, sender)
        return None

    def _take(self, method: str, path: str) -> tuple[Handle, list[str], str] | None:
        """Return the lean route that matches a path: its handler, the path's segments, and its template."""
        if not path.startswith(self._prefix):
            return None
        segments = path[len(self._prefix) :].split("/")
        allowed = []
        for route, template in self._routes.get(len(segments), ()):
            if route.fits(segments):
                if route.method == method or (method == "HEAD" and route.method == "GET"):
                    return route.handle, segments, template
                allowed.append(route.method)
        if allowed:
            raise method_not_allowed(method, allowed)
        return None

    def _template(self, template: str, path: str) -> str:
        """Return a template of FastAPI with its prefix, which some versions of FastAPI leave out."""
        if f"{path}/".startswith(self._prefix) and not f"{template}/".startswith(self._prefix):
            return self._prefix[:-1] + template
        return template

    async def _call_fastapi(self, request: Request, path: str, sender: Sender) -> None:
        """Let FastAPI answer; the body has been read under the limits and is clean JSON."""
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
                request.route = self._template(route.path_format, path)


def method_not_allowed(method: str, allowed: Iterable[str]) -> Problem:
    """Return the refusal (405) that names the methods of a path."""
    names = ", ".join(sorted(allowed))
    return Problem(
        "method-not-allowed",
        f"This path does not take {method[:20]!r}; it takes {names}.",
        headers={"allow": names},
    )
