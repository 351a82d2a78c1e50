"""One HTTP/1.1 connection: bytes to exchanges in order, under our limits.

httptools parses. A connection is in one of three states, and each has its deadline:

    idle        no request has begun                the idle time; before the first request, its own time
    head        header lines are arriving           the time for a frame, from the first byte on
    exchange    the header lines are complete       none here: bodies and waits have their own

A request that arrives before the previous one is answered waits for it. Header bytes, slow senders, slow readers and
connections have limits.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import urllib.parse
from collections import deque
from collections.abc import Coroutine
from email.utils import formatdate
from typing import Any, cast

import httptools

from app.errors import Problem, render_problem
from app.http.exchange import ASGIApp, Exchange, begin
from app.http.metrics import Traffic
from app.http.principal import CERTIFICATE
from app.http.request import DIRECT, Scope
from app.http.request_head import HeadRefusedError, check_head, head_without_upgrade, split_target
from core.clock import Clock
from core.config import Config
from core.security.addresses import Addresses
from core.security.principal import ANONYMOUS
from core.security.quotas import QuotaTable
from core.security.tls import ServerCertificate, UnmappedPrincipalError

log = logging.getLogger("sluice.http")

# Bytes of a body that the application has not received before reading is paused.
_BODY_HELD = 65_536
_NO_DEADLINE = float("inf")
# The first bytes of a TLS handshake (RFC 8446, section 5.1).
_TLS = b"\x16\x03"
# A chunk of one byte takes six bytes on the wire; more overhead than that is refused.
_BYTES_PER_BODY_BYTE = 8


class Shared:
    """What the connections of one server share: the application, the limits, the Date line, the list of them."""

    def __init__(
        self,
        app: ASGIApp,
        config: Config,
        clock: Clock,
        traffic: Traffic,
        loop: asyncio.AbstractEventLoop,
        addresses: Addresses | None = None,
    ) -> None:
        self.addresses = addresses if addresses is not None else Addresses(config, clock, QuotaTable())
        self.app = app
        self.config = config
        # Kept, because asyncio.get_running_loop makes a system call each time.
        self.loop = loop
        self.connections: set[HttpProtocol] = set()
        # Every connection closes after its next answer.
        self.closing = False
        # Requests that wait for something.
        self.tasks: set[asyncio.Task[None]] = set()
        self._clock = clock
        self._traffic = traffic
        self._default_head = b""
        self._default_head_until = float("-inf")

    def add(self, connection: HttpProtocol) -> None:
        """Add a connection to the list."""
        self.connections.add(connection)
        self._traffic.connections = len(self.connections)

    def discard(self, connection: HttpProtocol) -> None:
        """Remove a connection from the list."""
        self.connections.discard(connection)
        self._traffic.connections = len(self.connections)

    def default_head(self) -> bytes:
        """Return the header lines of every answer: the Date, in whole seconds."""
        now = self.loop.time()
        if now >= self._default_head_until:
            seconds, milliseconds = divmod(self._clock.wall_ms(), 1000)
            self._default_head = b"date: %b\r\n" % formatdate(seconds, usegmt=True).encode()
            self._default_head_until = now + 1 - milliseconds / 1000
        return self._default_head


class HttpProtocol(asyncio.Protocol):
    """One HTTP connection."""

    def __init__(self, shared: Shared, certificate: ServerCertificate | None = None) -> None:
        self.transport: asyncio.Transport = None  # type: ignore[assignment]
        self.write_paused = False
        # Bound here, because each answer calls it.
        self.default_head = shared.default_head
        self._shared = shared
        self._limits = shared.config
        self._loop = shared.loop
        self._parser = self._new_parser()
        self._client: tuple[str, int] | None = None
        self._server: tuple[str, int] | None = None
        # The client's address, while the connection counts among those of it.
        self._host: str | None = None
        self._scheme = "http"
        self._certificate = certificate
        # What every scope has besides its request: the principal of a client's certificate.
        self._principal: Scope = {}
        # The request that is arriving.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._begun = False
        self._in_headers = True
        self._header_bytes = 0
        # Its head without the Upgrade line, while it is parsed again; and its bytes that are not content.
        self._again = b""
        self._excess = 0
        # The exchange whose body is arriving, the one under way, and those that wait for their turn.
        self._arriving: Exchange | None = None
        self._current: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._read_paused = False
        # A refusal that is sent after the answers to earlier requests; later bytes are ignored.
        self._refusal: Problem | None = None
        # The last answer has been sent; later bytes are discarded.
        self._hanging_up = False
        self._writable: asyncio.Event | None = None
        self._deadline = _NO_DEADLINE
        self._head_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._unsent = 0

    # --- the connection ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, unless too many are open."""
        self.transport = cast(asyncio.Transport, transport)
        self._client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self._shared.add(self)
        # A connection with TLS was admitted at its accept, before the handshake.
        # Nor is one of another worker of this host counted, over a UNIX socket.
        if self._client is not None:
            host = self._client[0]
            if self._certificate is None and self._shared.addresses.admit(host):
                self.transport.abort()
                return
            self._host = host
        if self._certificate is not None and not self._take_principal(self._certificate):
            self.transport.abort()
            return
        if len(self._shared.connections) > self._limits.http_max_connections:
            self.refuse(Problem("not-ready", "There are too many connections; try again in a moment."))
            return
        self._expect_within(self._limits.first_request_timeout_ms)

    def _take_principal(self, certificate: ServerCertificate) -> bool:
        """Take the principal of the client's certificate; False if it has one that gives none."""
        try:
            principal = certificate.principal(self.transport)
        except UnmappedPrincipalError as error:
            log.warning("%s: closed: %s", self._client, error)
            return False
        if principal is not ANONYMOUS:
            self._principal = {CERTIFICATE: principal}
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Wake the exchange under way, and forget the connection."""
        self._shared.discard(self)
        if self._host is not None:
            self._shared.addresses.release(self._host)
        self._deadline = _NO_DEADLINE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._forget_patience()
        if self._current is not None:
            self._current.lost()
        self._waiting.clear()
        self._set_writable()
        # Break the reference cycle: the parser refers to this protocol.
        self._parser = None

    def linger(self) -> None:
        """Close after the answer to the request under way, or to the next one."""
        if self._current is not None and not self._current.started:
            self._current.keep_alive = False

    def drain(self) -> None:
        """Close as soon as the request under way is answered."""
        if self._current is None or self._current.complete:
            self.transport.close()
        else:
            self._current.keep_alive = False

    # --- deadlines -----------------------------------------------------------------------------------------

    def _expect_within(self, timeout_ms: int, deadline: float = _NO_DEADLINE) -> None:
        """Set the deadline of the current phase: `timeout_ms` from now, or `deadline` if that is earlier.

        The timer changes only if it would fire too late: most timers are never needed, and to make and cancel one
        costs more than to read the clock.
        """
        loop = self._loop
        self._deadline = deadline = min(loop.time() + timeout_ms / 1000, deadline)
        timer = self._timer
        if timer is None or timer.when() > deadline:
            if timer is not None:
                timer.cancel()
            self._timer = loop.call_at(deadline, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        if self._deadline == _NO_DEADLINE:
            return
        # uvloop's timers count whole milliseconds and may fire up to one too early.
        if self._deadline > self._loop.time() + 0.001:
            self._timer = self._loop.call_at(self._deadline, self._look_at_clock)
        elif self._begun:
            self.refuse(Problem("request-timeout", "The request did not arrive in time."))
        else:
            # Browsers open connections in advance and send nothing: there is no request to refuse.
            self.transport.close()

    def _await_request(self) -> None:
        """Set the deadline between requests: the idle time, or the time for a frame if a request has begun."""
        self._head_is_due = self._begun
        if self._begun:
            self._expect_within(self._limits.frame_timeout_ms, self._deadline)
        else:
            self._expect_within(self._limits.idle_timeout_ms)

    # --- slow readers --------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Let the handler wait, for a limited time: the client does not read."""
        self.write_paused = True
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """Let the handler continue: the client has read most of the answer."""
        self._forget_patience()
        self._set_writable()

    async def writable(self) -> None:
        """Return when the client accepts bytes again, or has disconnected."""
        while self.write_paused:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def _set_writable(self) -> None:
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def _wait_for_reader(self) -> None:
        self._forget_patience()
        self._unsent = self.transport.get_write_buffer_size()
        self._patience = self._loop.call_later(self._limits.write_timeout_ms / 1000, self._check_reader)

    def _check_reader(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent:
            self._wait_for_reader()
        else:
            # A close would wait until the bytes are sent.
            self.transport.abort()

    def _forget_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # --- bytes → requests ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse the bytes, unless the header lines are too long; then begin the exchange that is complete."""
        if self._hanging_up or self._refusal is not None:
            return
        if self._in_headers:
            before = self._header_bytes
            # A body may follow in the same read: count only the bytes of earlier reads.
            if before > self._limits.http_max_header_bytes:
                self._refuse_arriving(self._head_too_large())
                return
            self._header_bytes = before + len(data)
        arriving = self._arriving
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
            if data[:2] == _TLS:
                log.warning(
                    "%s: the client speaks TLS, and this listener does not: use http://", self._client
                )
            self._refuse_arriving(cause.problem if isinstance(cause, HeadRefusedError) else _malformed())
        else:
            if arriving is not None and self._arriving is arriving:
                self._limit_excess(len(data))
        if self._hanging_up or self.transport.is_closing():
            return
        current = self._current
        if current is not None and not current.complete:
            if not current.begun:
                self._begin(current, at_once=not (current.more_body or self._waiting))
            if current.more_body and current.held > _BODY_HELD:
                self._pause_reading()
        elif self._begun != self._head_is_due:
            self._await_request()

    def _feed(self, data: bytes) -> None:
        """Parse. The parser stops at an Upgrade line: parse that request again without the line."""
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = self._again + data[upgrade.args[0] :]
                self._again = b""
                self._parser = self._new_parser()

    def _limit_excess(self, count: int) -> None:
        """Limit the bytes of a body that are not content: chunk extensions and trailers. They are not kept."""
        self._excess = max(0, self._excess + count)
        if self._excess > self._limits.http_max_header_bytes:
            self._refuse_arriving(self._head_too_large())

    def _new_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        # Bytes after a request that ends the connection are ignored.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def on_message_begin(self) -> None:
        """httptools: a request begins."""
        self._url = b""
        self._headers = []
        self._begun = True

    def on_url(self, url: bytes) -> None:
        """httptools: a piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header line, or a trailer, which is ignored (RFC 9110, section 6.5)."""
        if self._in_headers:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """httptools: the header lines are complete. Begin or queue an exchange. Raises HeadRefusedError."""
        parser = self._parser
        method = parser.get_method()
        version = parser.get_http_version()
        check_head(method, version, self._headers)
        if parser.should_upgrade():
            self._again = head_without_upgrade(method, version, self._url, self._headers)
            return
        raw_path, query = split_target(self._url, self._headers)
        self._in_headers = False
        self._head_is_due = False
        self._excess = 0
        stays = version != "1.0" and parser.should_keep_alive() and not self._shared.closing
        exchange = Exchange(self, stays)
        path = raw_path.decode("ascii")
        exchange.scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": method.decode("ascii"),
            "scheme": self._scheme,
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": self._headers,
            "client": self._client,
            "server": self._server,
            "extensions": {DIRECT: exchange},
            **self._principal,
        }
        self._arriving = exchange
        if self._current is None or self._current.complete:
            self._current = exchange
            self._deadline = _NO_DEADLINE
        else:
            # Nothing more is read until this request is handled.
            self._waiting.append(exchange)
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        """httptools: a piece of the body; it is dropped if the answer is complete already."""
        self._excess -= _BYTES_PER_BODY_BYTE * len(body)
        if self._arriving is not None and not self._arriving.complete:
            self._arriving.add_body(body)

    def on_message_complete(self) -> None:
        """httptools: the request is complete; the next bytes are header lines again."""
        if self._again:
            return
        self._in_headers = True
        self._begun = False
        self._header_bytes = 0
        if self._arriving is not None:
            self._arriving.end_body()
            self._arriving = None

    # --- exchanges -----------------------------------------------------------------------------------------

    def _begin(self, exchange: Exchange, *, at_once: bool) -> None:
        """Run an exchange at once, or in a task. At once, it may have ended when this returns."""
        exchange.begun = True
        work = exchange.run(self._shared.app)
        if not at_once:
            exchange.expects_continue = exchange.more_body and _expects_continue(exchange.scope)
            self._in_task(work)
            return
        context = contextvars.copy_context()
        rest = context.run(begin, work)
        if rest is not None:
            self._in_task(rest, context)

    def _in_task(self, work: Coroutine[Any, Any, None], context: contextvars.Context | None = None) -> None:
        task = self._loop.create_task(work, context=context)
        self._shared.tasks.add(task)
        task.add_done_callback(self._shared.tasks.discard)

    def answered(self) -> None:
        """The answer to the current exchange is complete: begin the next one, or wait for it."""
        if self._hanging_up or self.transport.is_closing():
            return
        if self._waiting:
            self._current = self._waiting.popleft()
            # In a task: a chain of pipelined requests must not block the loop.
            self._begin(self._current, at_once=False)
        elif self._refusal is not None:
            self.refuse(self._refusal)
        else:
            self._await_request()
        self.resume_reading()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read more bytes, unless requests wait for earlier ones."""
        if self._read_paused and not self._waiting:
            self._read_paused = False
            self.transport.resume_reading()

    # --- refusals ------------------------------------------------------------------------------------------

    def _head_too_large(self) -> Problem:
        limit = self._limits.http_max_header_bytes
        return Problem("header-too-large", "The header lines are too long.", extra={"limit": limit})

    def _refuse_arriving(self, problem: Problem) -> None:
        """Refuse the request that is arriving, after the answers to those before it, and read no further."""
        arriving = self._arriving
        if arriving is not None:
            # It must neither run without its body nor wait for it.
            arriving.lost()
            if self._waiting and self._waiting[-1] is arriving:
                self._waiting.pop()
        current = self._current
        if current is None or current.complete or current is arriving:
            self.refuse(problem)
        else:
            self._refusal = problem

    def refuse(self, problem: Problem) -> None:
        """Answer a problem without the application, and close."""
        if self._hanging_up or self.transport.is_closing():
            return
        if self._arriving is not None and self._arriving.started:
            # The client would take a second answer for that to its next request.
            self.hang_up()
            return
        body = render_problem(problem, "/").body
        self.transport.write(
            b"HTTP/1.1 %d \r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (problem.status, len(body), body)
        )
        self.hang_up()

    def hang_up(self) -> None:
        """Close after an answer; discard what the client still sends for a moment, so that it can read the answer."""
        transport = self.transport
        if self._hanging_up or transport.is_closing():
            return
        if (self._arriving is None and not self._begun) or not transport.can_write_eof():
            transport.close()
            return
        self._hanging_up = True
        self._begun = False
        transport.write_eof()
        self._expect_within(self._limits.http_linger_ms)
        self._waiting.clear()
        self.resume_reading()


def _malformed() -> Problem:
    return Problem("malformed-request", "This is not HTTP/1.1.")


def _address(found: Any) -> tuple[str, int] | None:
    """Return host and port of one end of a TCP connection; None for other sockets."""
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None


def _expects_continue(scope: Scope) -> bool:
    """Whether the client waits for "100 Continue"; HTTP/1.0 does not know it (RFC 9110, section 10.1.1)."""
    return scope["http_version"] != "1.0" and any(
        name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
    )
