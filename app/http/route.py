"""One row of a surface's table of routes, and the router of the hot paths, which is made from such rows.

Each surface has one table: `app/native/routes.py`, `app/rest_v2/routes.py`. A row says everything about a route: this
router or FastAPI serves it, the metrics count it under its path, and `app/openapi` describes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from app.errors import Problem
from app.http.capabilities import Capabilities, require_capability
from app.http.request import Answer, Request, Streamed
from core.vocabulary.capabilities import EMBEDDED

Handle = Callable[[Request, list[str]], Awaitable[Answer | Streamed]]
"""Answers a request. The list has the segments of the path without the surface's prefix; it must not be changed."""

H = TypeVar("H", bound=Callable[..., Any])


class Lines(NamedTuple):
    """A body of lines (NDJSON). Each line is the JSON of a type."""

    shape: type


class Body(NamedTuple):
    """The body of a request: a type for each media type, and whether it may be left out."""

    media: Mapping[str, object]
    optional: bool = False


class Reply(NamedTuple):
    """The answer under one status: a sentence, the type of its JSON, types of other media types, header lines.

    `headers` is a struct with a member for each header line.
    """

    text: str
    shape: object = None
    media: Mapping[str, object] = {}
    headers: type | None = None


@dataclass(frozen=True, slots=True)
class Route(Generic[H]):
    """A route. The OpenAPI document takes its description from the docstring of the handler.

    `path` is relative to the prefix of the surface, with parameters as `{name}`. `name` is the operation id, which is
    the method's name in generated clients. `request` is the type of the JSON body, or a `Body`. `answers` maps each
    status below 400 to the type of the JSON, to a `Reply`, or to None (no body); the first status is the usual one.
    `refuses` lists the statuses of refusals beside those of every route of the surface. `query` and `headers` are
    structs with a member for each parameter; FastAPI's handlers declare parameters in their signatures instead.
    """

    method: str
    path: str
    handle: H
    name: str
    tag: str
    summary: str
    answers: Mapping[int, object] = field(kw_only=True)
    request: object = field(default=None, kw_only=True)
    refuses: tuple[int, ...] = field(default=(), kw_only=True)
    query: type | None = field(default=None, kw_only=True)
    headers: type | None = field(default=None, kw_only=True)
    # Of a lean route: the other methods of the path, which FastAPI takes.
    beside: tuple[str, ...] = field(default=(), kw_only=True)
    # The capability that the broker must have; without it the answer is 501.
    needs: str = field(default="", kw_only=True)


class Found(NamedTuple):
    """The route of a request: its handler, the segments for it, and the path of the row, for the metrics."""

    handle: Handle
    segments: list[str]
    template: str


class _Entry(NamedTuple):
    """A row as the router compares it.

    In the pattern None is a parameter, and what begins with a colon is a parameter with that verb at its end.
    """

    pattern: tuple[str | None, ...]
    prefix_segments: int
    template: str
    route: Route[Handle]

    def fits(self, segments: list[str]) -> bool:
        """Return whether a path with as many segments is a path of this row."""
        for wanted, segment in zip(self.pattern, segments, strict=True):
            if wanted is None or wanted == segment:
                continue
            if wanted[:1] != ":" or not segment.endswith(wanted) or len(segment) == len(wanted):
                return False
        return True


def _wanted(segment: str) -> str | None:
    """Return what a segment of a path must be: a text, `:verb` after a parameter, or None for any."""
    return segment if segment[:1] != "{" else segment.partition("}")[2] or None


class RouteTable:
    """Finds the row of a request. Each part is a prefix and the rows below it.

    `capabilities` returns those of the broker, which do not change.
    """

    def __init__(
        self, *parts: tuple[str, Iterable[Route[Handle]]], capabilities: Capabilities = lambda: EMBEDDED
    ) -> None:
        self._capabilities = capabilities
        self._by_length: dict[int, list[_Entry]] = {}
        for prefix, routes in parts:
            skipped = prefix.count("/") + 1
            for route in routes:
                template = prefix + route.path
                pattern = tuple(_wanted(segment) for segment in template.split("/"))
                entry = _Entry(pattern, skipped, template, route)
                self._by_length.setdefault(len(pattern), []).append(entry)

    def find(self, method: str, path: str) -> Found | None:
        """Return the route of a request, or None. HEAD is served as GET.

        Raise Problem (405) if the path takes other methods, and (501) without the capability that the route needs.
        """
        segments = path.split("/")
        allowed: list[str] = []
        for entry in self._by_length.get(len(segments), ()):
            if entry.fits(segments):
                taken = entry.route.method
                if taken == method or (method == "HEAD" and taken == "GET"):
                    require_capability(self._capabilities(), entry.route.needs)
                    return Found(entry.route.handle, segments[entry.prefix_segments :], entry.template)
                if method in entry.route.beside or (method == "HEAD" and "GET" in entry.route.beside):
                    return None
                allowed += (taken, *entry.route.beside)
        if allowed:
            raise method_not_allowed(method, allowed)
        return None


def method_not_allowed(method: str, allowed: Iterable[str]) -> Problem:
    """Return the refusal 405, with the methods that the path takes."""
    names = ", ".join(sorted(allowed))
    return Problem(
        "method-not-allowed",
        f"This path does not take {method[:20]!r}; it takes {names}.",
        headers={"allow": names},
    )
