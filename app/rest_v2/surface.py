"""The v2 surface as the front door sees it: which paths are its own, and an answer for each request to them.

It routes by itself, below FastAPI, as the native record routes do: the paths are few, every one is a hot path of
some client, and each refusal must have v2's shape under the media type that the client takes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from app.errors import Problem, Rendered
from app.http.request import Answer, Request
from app.http.router import method_not_allowed
from app.rest_v2.consumers import ConsumerRoutes, Instances
from app.rest_v2.dialect import DIALECTS
from app.rest_v2.errors import ProxyError, as_problem, body_of, code_of, render_before_routing
from app.rest_v2.media import JSON, accept_of
from app.rest_v2.offsets import OffsetRoutes
from app.rest_v2.produce import ProduceRoutes
from app.rest_v2.records import PartitionReadRoutes
from app.rest_v2.topics import TopicRoutes
from app.shared import Gateway
from core.errors import BrokerError

ROOTS = frozenset({"", "brokers", "topics", "consumers"})
HEALTH = "_health"
# How requests are refused before this surface is asked, by the beginning of the path.
RENDERERS: list[tuple[str, Callable[[Problem, str], Rendered]]] = [
    (f"/{root}", render_before_routing) for root in sorted(ROOTS) if root
]

Handler = Callable[[Request, list[str]], Awaitable[Answer]]


class Route(NamedTuple):
    """A route: its method, its path as in the documentation, and its handler."""

    method: str
    path: str
    handle: Handler

    @property
    def segments(self) -> tuple[str | None, ...]:
        """The path in parts; None stands for a parameter."""
        return tuple(None if s.startswith("{") else s for s in self.path[1:].split("/"))


class ProxySurface:
    """All v2 routes over one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._dialect = DIALECTS[gateway.config.v2_dialect]
        self._counts = gateway.refusals.counts
        self._roots = ROOTS | {HEALTH} if self._dialect.health else ROOTS
        self.routes = list(self._all_routes(gateway))
        self._by_length: dict[tuple[int, str | None], list[tuple[tuple[str | None, ...], Route]]] = {}
        for route in self.routes:
            segments = route.segments
            self._by_length.setdefault((len(segments), segments[0]), []).append((segments, route))

    def _all_routes(self, gateway: Gateway) -> Iterable[Route]:
        config, dialect = gateway.config, self._dialect
        topics = TopicRoutes(gateway)
        produce = ProduceRoutes(config, dialect, gateway.current_broker)
        reads = PartitionReadRoutes(config, dialect, gateway.current_broker)
        partition = "/topics/{topic}/partitions/{partition}"
        yield Route("GET", "/", topics.root)
        if dialect.health:
            yield Route("GET", f"/{HEALTH}", topics.health)
        yield Route("GET", "/brokers", topics.brokers)
        yield Route("GET", "/topics", topics.topics)
        yield Route("GET", "/topics/{topic}", topics.topic)
        yield Route("POST", "/topics/{topic}", produce.to_topic)
        yield Route("GET", "/topics/{topic}/partitions", topics.partitions)
        yield Route("GET", partition, topics.partition)
        yield Route("POST", partition, produce.to_partition)
        yield Route("GET", f"{partition}/offsets", topics.offsets)
        yield Route("GET", f"{partition}/records", reads.read)
        instances = Instances(config, dialect, gateway.current_broker)
        yield from _consumer_routes(ConsumerRoutes(instances), OffsetRoutes(instances))

    def owns(self, path: str) -> bool:
        """Whether a path belongs to this surface, be there a route for it or not."""
        return path[1:].partition("/")[0] in self._roots

    async def answer(self, request: Request, path: str) -> Answer:
        """The answer to a request for a path of ours; every refusal is one."""
        try:
            segments = path[1:].split("/")
            route = self._route(request.scope["method"], segments)
            request.route = route.path
            return await route.handle(request, segments)
        except (ProxyError, Problem, BrokerError) as error:
            return self._refusal(error, request)

    def _route(self, method: str, segments: list[str]) -> Route:
        allowed = []
        for pattern, route in self._by_length.get((len(segments), segments[0]), ()):
            if all(w is None or w == s for w, s in zip(pattern, segments, strict=True)):
                if route.method == method or (method == "HEAD" and route.method == "GET"):
                    return route
                allowed.append(route.method)
        if allowed:
            raise method_not_allowed(method, allowed)
        raise Problem("not-found", "HTTP 404 Not Found")

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


def _consumer_routes(consumers: ConsumerRoutes, offsets: OffsetRoutes) -> Iterable[Route]:
    instance = "/consumers/{group}/instances/{instance}"
    yield Route("POST", "/consumers/{group}", consumers.create)
    yield Route("DELETE", instance, consumers.delete)
    yield Route("POST", f"{instance}/subscription", consumers.subscribe)
    yield Route("GET", f"{instance}/subscription", consumers.subscription)
    yield Route("DELETE", f"{instance}/subscription", consumers.unsubscribe)
    yield Route("POST", f"{instance}/assignments", consumers.assign)
    yield Route("GET", f"{instance}/assignments", consumers.assignments)
    yield Route("GET", f"{instance}/records", consumers.records)
    yield Route("POST", f"{instance}/offsets", offsets.commit)
    yield Route("GET", f"{instance}/offsets", offsets.committed)
    yield Route("POST", f"{instance}/positions", offsets.seek)
    yield Route("POST", f"{instance}/positions/beginning", offsets.to_beginning)
    yield Route("POST", f"{instance}/positions/end", offsets.to_end)
