"""The ASGI application in front of every HTTP route: what each request needs, once.

It gives the request an id, enforces the Host and Origin rules, identifies the client, lets the router find the
handler, renders every refusal, and counts. No error leaves it as a traceback.

Browser rules. A page of another site must not write to a broker on the user's loopback (a POST with text/plain
needs no CORS preflight), so a foreign Origin is refused on every method but GET, HEAD and OPTIONS. `app.http.hosts`
has the rule for the Host header.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable
from functools import partial
from typing import Any, Protocol

from app.errors import Problem
from app.http.cors import Cors
from app.http.exchange import in_task
from app.http.hosts import Hosts
from app.http.loop_time import SHARE, Share
from app.http.metrics import Traffic
from app.http.principal import LOGIN, Resolver, principal_of, resolve
from app.http.refusals import Refusals
from app.http.request import Answer, ClientGoneError, Receive, Request, Scope, Send, Streamed
from app.http.router import READING
from app.http.sender import Sender
from app.http.waiting import WAITING
from app.logs import REQUEST_ID
from core.clock import Clock
from core.config import Config
from core.errors import BrokerError
from core.security.audit import SOURCE, Source
from core.security.quotas import QuotaTable
from core.vocabulary.idempotency import NO_PRINCIPAL

log = logging.getLogger("sluice.http")

_SOURCE = Source("http")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")


class Answering(Protocol):
    """What finds the answer to a request: `app.http.router.Router`."""

    def answer(self, request: Request, sender: Sender) -> Awaitable[Answer | Streamed | None]:
        """Return the awaitable that answers; its result is None if `sender` has answered."""
        ...


class Forwarding(Protocol):
    """The other gateways of a cluster: see `app.gateways`."""

    def arrive(self, request: Request) -> Any:
        """Return the hop of a request from another gateway, None for that of a client. Raises Problem."""
        ...

    def route(self, request: Request, hop: Any) -> Awaitable[Answer | Streamed] | None:
        """Return the awaitable that forwards a request to its owner; None if it is served here."""
        ...


class HttpApplication:
    """The ASGI application that the HTTP server runs; it takes scopes of HTTP alone."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        router: Answering,
        traffic: Traffic,
        refusals: Refusals,
        resolver: Resolver | None,
        quotas: QuotaTable,
        forwarding: Forwarding | None = None,
    ) -> None:
        self._clock = clock
        self._forwarding = forwarding
        self._quotas = quotas
        self._config = config
        self._router = router
        self._traffic = traffic
        self._refusals = refusals
        self._resolver = resolver
        # Ids for requests without one. The number is unique in this process, the prefix between processes.
        self._id_prefix = clock.uuid4().hex[:16].encode()
        self._requests = 0
        self._cors = Cors(config)
        self._hosts = Hosts(config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = self._request_id(headers.get(b"x-request-id"))
        REQUEST_ID.set(request_id)
        SOURCE.set(_SOURCE)
        traffic = self._traffic
        request = Request(scope, receive, headers, self._config, traffic.in_flight)
        scope[WAITING] = traffic.waiting
        more = partial(self._cors.lines, headers.get(b"origin")) if self._cors.open else None
        sender = Sender(send, request_id, scope.get("extensions"), more)
        started = traffic.now()
        traffic.in_progress += 1
        try:
            if self._quotas.has_time_quotas:
                scope[SHARE] = share = Share(self._quotas, self._clock)
                await share.timed(self._serve(request, sender))
            else:
                await self._serve(request, sender)
        finally:
            traffic.in_progress -= 1
            traffic.done(request, request_id, started, sender.status, sender.sent)

    async def _serve(self, request: Request, sender: Sender) -> None:
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
            answer = self._refusals.answer(error, scope["path"])
        except Exception:
            log.exception(
                "request %s: %s %s failed", REQUEST_ID.get().decode(), scope["method"], scope["path"]
            )
            if sender.started:
                return
            problem = Problem("internal-error", "The server failed; its log says more.")
            answer = self._refusals.answer(problem, scope["path"])
        finally:
            request.release()
            if (login := scope.get(LOGIN)) is not None:
                login.close()
        if answer is not None and not sender.answer_at_once(answer):
            await sender.answer(answer)

    def _handle(self, request: Request, sender: Sender) -> Awaitable[Answer | Streamed | None]:
        """Check the rules for all requests. Return the awaitable that answers; it has not started yet."""
        scope = request.scope
        method = scope["method"]
        host = request.headers.get(b"host")
        # Another gateway has made the checks of the header lines before it forwarded the request.
        hop = self._forwarding.arrive(request) if self._forwarding is not None else None
        if host is not None and hop is None:
            self._hosts.check(host)
        if (origin := request.headers.get(b"origin")) is not None:
            if method not in READING:
                self._cors.check_write(origin, host)
            elif method == "OPTIONS" and (granted := self._cors.preflight(origin, request.headers)):
                return _ready(granted)
        if self._forwarding is not None and (elsewhere := self._forwarding.route(request, hop)) is not None:
            # The owner checks the credentials: they are passed on as they are.
            sender.relayed = True
            return elsewhere
        if self._resolver is not None:
            return self._handle_resolved(self._resolver, request, sender)
        if SHARE in scope:
            scope[SHARE].admit(scope)
        return self._router.answer(request, sender)

    async def _handle_resolved(
        self, resolver: Resolver, request: Request, sender: Sender
    ) -> Answer | Streamed | None:
        await in_task()
        await resolve(resolver, request)
        sender.private = principal_of(request.scope) != NO_PRINCIPAL
        if SHARE in request.scope:
            request.scope[SHARE].admit(request.scope)
        return await self._router.answer(request, sender)

    def _request_id(self, given: bytes | None) -> bytes:
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given
        self._requests += 1
        return b"%s-%x" % (self._id_prefix, self._requests)


async def _ready(answer: Answer) -> Answer:
    return answer
