"""The front door: the raw ASGI application before every HTTP route.

It does what every request needs, once: a request id, the Host and Origin rules, the body limit, the path
without its trailing slash, and the rendering of every refusal. Then it calls a lean route, or hands the
request to FastAPI. Nothing gets past it as a traceback.

Browser rules. A page of another site must not write to a broker on somebody's loopback (a POST with text/plain
needs no CORS preflight), so a foreign Origin is refused on every method but GET, HEAD and OPTIONS. A DNS name
that an attacker points at 127.0.0.1 must not make us his own site, so only known names are answered for; an
IP address in the Host header cannot be such a name.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from app.errors import Problem, from_broker, renderer_of
from app.http.cors import Cors
from app.http.exchange import ASGIApp, in_task
from app.http.json_errors import fault_of, refuse_fault, refuse_twins
from app.http.metrics import CLIENT_GONE, REFUSALS, Traffic
from app.http.principal import Resolver, resolve
from app.http.request import (
    DIRECT,
    Answer,
    ClientGoneError,
    Direct,
    InFlight,
    Message,
    Receive,
    Request,
    Scope,
    Send,
    Streamed,
    decode_path,
)
from app.http.route import Found, RouteTable
from app.http.waiting import WAITING, Waiting
from app.logs import REQUEST_ID
from core.clock import Clock
from core.config import Config
from core.errors import BrokerError

log = logging.getLogger("sluice.http")

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
# A length of 0 would be wrong for what a 304 stands for, and is forbidden with 204 (RFC 9110, section 8.6).
_WITHOUT_BODY = frozenset({204, 304})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_JSON_BODY = re.compile(rb"application/(json|[a-z0-9.!#$&^_-]+\+json)")
_decode_raw = msgspec.json.Decoder(msgspec.Raw).decode


# Paths whose routes are remembered: as many as a busy server's clients write to and read from, and no longer
# than a path with the longest name of a topic, escaped.
_REMEMBERED_PATHS = 1000
_REMEMBERED_PATH = 800


class Surface(Protocol):
    """A whole surface below FastAPI, which routes and refuses by itself."""

    def owns(self, path: str) -> bool:
        """Whether a path belongs to it, be there a route or not."""
        ...

    async def answer(self, request: Request, path: str) -> Answer | Streamed:
        """The answer to a request for such a path, refusals included."""
        ...


class Front:
    """The ASGI application that the HTTP server runs."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        inner: ASGIApp,
        lean: RouteTable,
        prefix: str,
        surfaces: Sequence[Surface] = (),
        traffic: Traffic | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        self._config = config
        self._inner = inner
        self._prefix = prefix
        self._surfaces = surfaces
        self._traffic = traffic or Traffic(clock)
        self.in_flight = InFlight(config.max_inflight_bytes)
        self.waiting = Waiting(config.http_max_waiting_per_client)
        self._resolver = resolver
        # Ids of requests that bring none: unique in this process by the number, between processes by the rest.
        self._id_prefix = clock.uuid4().hex[:16].encode()
        self._requests = 0
        self._cors = Cors(config)
        self._hosts = _known_hosts(config)
        self._good_hosts: set[bytes] = set()
        self._lean = lean
        self._taken: dict[tuple[str, bytes | None], Found] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = self._request_id(headers.get(b"x-request-id"))
        REQUEST_ID.set(request_id)
        request = Request(scope, receive, headers, self._config, self.in_flight)
        scope[WAITING] = self.waiting
        scope[REFUSALS] = self._traffic.refusals
        sender = _Sender(send, request_id, scope.get("extensions"))
        if self._cors.open:
            sender.more = partial(self._cors.lines, headers.get(b"origin"))
        traffic = self._traffic
        started = traffic.now()
        traffic.in_progress += 1
        try:
            await self._serve(request, sender)
        finally:
            traffic.in_progress -= 1
            traffic.done(request, request_id, started, sender.status, sender.sent)

    async def _serve(self, request: Request, sender: _Sender) -> None:
        scope = request.scope
        try:
            answer = await self._handle(request, sender)
            if isinstance(answer, Streamed):
                await sender.stream(answer, scope["method"])
                return
        except ClientGoneError:
            return
        except (Problem, BrokerError) as error:
            if sender.started:
                raise
            answer = refusal(error, scope)
        except Exception:
            log.exception(
                "request %s: %s %s failed", REQUEST_ID.get().decode(), scope["method"], scope["path"]
            )
            if sender.started:
                return
            answer = refusal(Problem("internal-error", "The server failed; its log says more."), scope)
        finally:
            request.release()
        if answer is not None and not sender.answer_at_once(answer):
            await sender.answer(answer)

    def _handle(self, request: Request, sender: _Sender) -> Awaitable[Answer | Streamed | None]:
        """What will answer, once the rules for all requests are kept; it is not begun yet."""
        scope = request.scope
        method = scope["method"]
        host = request.headers.get(b"host")
        if host is not None and host not in self._good_hosts:
            self._check_host(host)
        if (origin := request.headers.get(b"origin")) is not None:
            if method not in _READING:
                self._cors.check_write(origin, host)
            elif method == "OPTIONS" and (granted := self._cors.preflight(origin, request.headers)):
                return _ready(granted)
        if self._resolver is not None:
            return self._handle_resolved(self._resolver, request, sender)
        return self._route(request, sender)

    async def _handle_resolved(
        self, resolver: Resolver, request: Request, sender: _Sender
    ) -> Answer | Streamed | None:
        await in_task()
        await resolve(resolver, request)
        return await self._route(request, sender)

    def _route(self, request: Request, sender: _Sender) -> Awaitable[Answer | Streamed | None]:
        scope = request.scope
        method = scope["method"]
        known = self._taken.get((method, raw := scope.get("raw_path")))
        if known is None:
            path = decode_path(scope)
            known = self._lean.find(method, path)
            if known is not None and raw is not None and len(raw) <= _REMEMBERED_PATH:
                if len(self._taken) >= _REMEMBERED_PATHS:
                    self._taken.clear()
                self._taken[method, raw] = known
        if known is not None:
            handle, segments, request.route = known
            return handle(request, segments)
        return self._answer_elsewhere(request, path, sender)

    async def _answer_elsewhere(
        self, request: Request, path: str, sender: _Sender
    ) -> Answer | Streamed | None:
        await in_task()
        for surface in self._surfaces:
            if surface.owns(path):
                return await surface.answer(request, path)
        await self._call_inner(request, path, sender)
        return None

    def _template(self, template: str, path: str) -> str:
        """A template of FastAPI with its prefix; some versions leave out that of an included router."""
        if f"{path}/".startswith(self._prefix) and not f"{template}/".startswith(self._prefix):
            return self._prefix[:-1] + template
        return template

    def _request_id(self, given: bytes | None) -> bytes:
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given
        self._requests += 1
        return b"%s-%x" % (self._id_prefix, self._requests)

    # --- browser rules -------------------------------------------------------------------------------------

    def _check_host(self, host: bytes) -> None:
        name = host_name(host)
        if name is None:
            raise Problem("malformed-request", "The Host header cannot be read.")
        if not (name in self._hosts or name.endswith(".localhost") or _is_address(name)):
            raise Problem("unknown-host", f"This server does not answer for the host name {name[:80]!r}.")
        if len(self._good_hosts) < 1000:
            self._good_hosts.add(host)

    # --- FastAPI -------------------------------------------------------------------------------------------

    async def _call_inner(self, request: Request, path: str, sender: _Sender) -> None:
        """Hand the request to FastAPI, with its body read under the limits and known to be clean JSON."""
        scope = {**request.scope, "path": path, "raw_path": path.encode()}
        body = b""
        if scope["method"] == "HEAD":
            # The server leaves the body out; the routes need not know.
            scope["method"] = "GET"
        elif scope["method"] not in _READING:
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
            await self._inner(scope, receive, sender.send)
        finally:
            if (route := scope.get("route")) is not None:
                request.route = self._template(route.path_format, path)


# Blanks around it are no sign of sense.
_LONGEST_NULL = 100


def check_json_body(request: Request, body: bytes) -> None:
    """Refuse a body of a control route that is not clean JSON: 415 for its type, 400 for its bytes, 422 for twins."""
    essence, parameters = request.media_type()
    if not _JSON_BODY.fullmatch(essence):
        shown = essence.decode("latin-1")[:60] or "none"
        raise Problem(
            "unsupported-media-type",
            f"The body must be JSON (Content-Type: application/json), not {shown!r}.",
            headers={"accept": "application/json"},
        )
    check_charset(parameters)
    try:
        if not body.isascii():
            str(body, "utf-8")
        _decode_raw(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refuse_fault(fault_of(body, error))
    refuse_twins(body)
    if len(body) < _LONGEST_NULL and body.strip() == b"null":
        raise Problem("invalid-request", "The body must be an object; where it is optional, leave it out.")


def check_charset(parameters: bytes) -> None:
    """Refuse a text body in another charset than UTF-8."""
    for part in parameters.split(b";") if parameters else ():
        name, _, value = part.partition(b"=")
        if name.strip().lower() == b"charset" and value.strip(b' "').lower() not in (
            b"utf-8",
            b"utf8",
            b"us-ascii",
        ):
            raise Problem(
                "unsupported-media-type", "Text must be UTF-8; leave the charset out, or send charset=utf-8."
            )


def refusal(error: Problem | BrokerError, scope: Scope) -> Answer:
    """A refusal as the surface of that path renders it."""
    problem = error if isinstance(error, Problem) else from_broker(error)
    if (refusals := scope.get(REFUSALS)) is not None:
        refusals[problem.kind] += 1
    path = scope["path"]
    rendered = renderer_of(path)(problem, path)
    headers = tuple(
        (name.encode(), value.encode("latin-1", "replace")) for name, value in problem.headers.items()
    )
    return Answer(problem.status, rendered.body, rendered.media_type.encode(), headers)


async def _ready(answer: Answer) -> Answer:
    return answer


class _Sender:
    """Sends answers with the lines that all of them carry."""

    __slots__ = ("_direct", "_request_id", "_send", "more", "sent", "started", "status")

    def __init__(self, send: Send, request_id: bytes, extensions: Mapping[str, Any] | None) -> None:
        self._send = send
        self._direct: Direct | None = extensions.get(DIRECT) if extensions else None
        self._request_id = request_id
        # Lines that depend on the others, those of CORS; None where no foreign origin is allowed.
        self.more: Callable[[list[tuple[bytes, bytes]]], Iterable[tuple[bytes, bytes]]] | None = None
        self.started = False
        # For the counters: what was answered, and bytes of the body.
        self.status = CLIENT_GONE
        self.sent = 0

    def answer_at_once(self, answer: Answer) -> bool:
        """Send a whole answer where nothing has to be waited for; else False, and nothing is done."""
        if self._direct is None or not self._direct.answer(answer.status, self._head(answer), answer.body):
            return False
        self.started = True
        return True

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer by ASGI's messages."""
        self.started = True
        await self._send(
            {"type": "http.response.start", "status": answer.status, "headers": self._head(answer)}
        )
        await self._send({"type": "http.response.body", "body": answer.body})

    def _head(self, answer: Answer) -> list[tuple[bytes, bytes]]:
        self.status = answer.status
        self.sent = len(answer.body)
        headers = [(b"x-request-id", self._request_id), _NOSNIFF, *answer.headers]
        if self.more is not None:
            headers += self.more(headers)
        if answer.status not in _WITHOUT_BODY:
            headers.append((b"content-type", answer.media_type))
            headers.append((b"content-length", b"%d" % len(answer.body)))
        return headers

    async def stream(self, answer: Streamed, method: str) -> None:
        """Send an answer piece by piece, as it comes."""
        await in_task()
        self.started = True
        self.status = answer.status
        headers = [(b"content-type", answer.media_type), (b"x-request-id", self._request_id), _NOSNIFF]
        headers += answer.headers
        if self.more is not None:
            headers += self.more(headers)
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if method != "HEAD":
            await answer.run(self._write)
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, piece: bytes) -> None:
        self.sent += len(piece)
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def send(self, message: Message) -> None:
        """Pass a message of FastAPI on, with our lines added to its headers."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._request_id), _NOSNIFF]
            message["headers"] = headers if self.more is None else [*headers, *self.more(headers)]
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)


# --- hosts --------------------------------------------------------------------------------------------------


def _known_hosts(config: Config) -> frozenset[str]:
    names = {"localhost", *config.http_allowed_hosts}
    names |= {e.host.lower() for e in config.listeners}
    if config.advertised is not None:
        names.add(config.advertised.host.lower())
    return frozenset(names)


def host_name(host: bytes) -> str | None:
    """The name or address in a Host header, without its port; None if it cannot be one."""
    text = host.decode("latin-1").lower()
    if text.startswith("["):
        name, bracket, port = text[1:].partition("]")
        if not bracket or (port and not _is_port(port)):
            return None
        return name
    name, colon, port = text.partition(":")
    if not name or (colon and not _is_port(":" + port)):
        return None
    return name.rstrip(".")


def _is_port(text: str) -> bool:
    return text == ":" or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit() and len(text) <= 6)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
