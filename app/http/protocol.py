"""One HTTP/1.1 connection: bytes to exchanges in order, under our limits.

httptools parses. A connection is in one of three states, and each has its deadline:

    idle        no request has begun                the idle time, at the first the time for a first request
    head        header lines are arriving           the time for a frame, from the first byte on
    exchange    the header lines are complete       none here: bodies and waits have their own

A request that comes before the previous one is answered waits its turn. Header bytes, slow senders, slow
readers and connections are bounded.
"""

from __future__ import annotations

import asyncio
import contextvars
import urllib.parse
from collections import deque
from collections.abc import Coroutine
from email.utils import formatdate
from typing import Any, cast

import httptools

from app.errors import Problem, render_problem
from app.http.exchange import ASGIApp, Exchange, begin
from app.http.metrics import Traffic
from app.http.request import DIRECT, Scope
from app.http.request_head import HeadRefusedError, check_head, head_without_upgrade, split_target
from core.clock import Clock
from core.config import Config

# Bytes of a body that wait for their reader before no more are read.
_BODY_HELD = 65_536
_NO_DEADLINE = float("inf")
# A chunk of one byte is six bytes on the wire; more than that is no way to send a body.
_BYTES_PER_BODY_BYTE = 8


class Shared:
    """What the connections of one server share: the application, the limits, the Date line, the list of them."""

    def __init__(
        self, app: ASGIApp, config: Config, clock: Clock, traffic: Traffic, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.app = app
        self.config = config
        # Kept, because asking which loop runs is a system call each time.
        self.loop = loop
        self.connections: set[HttpProtocol] = set()
        # Requests that wait for something.
        self.tasks: set[asyncio.Task[None]] = set()
        self._clock = clock
        self._traffic = traffic
        self._default_head = b""
        self._default_head_until = float("-inf")

    def add(self, connection: HttpProtocol) -> None:
        """Take a connection on the list."""
        self.connections.add(connection)
        self._traffic.connections = len(self.connections)

    def discard(self, connection: HttpProtocol) -> None:
        """Take a connection off the list."""
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

    def __init__(self, shared: Shared) -> None:
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
        self._scheme = "http"
        # The request that is arriving.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._begun = False
        self._in_headers = True
        self._header_bytes = 0
        # Its head without its Upgrade line, while a parser has to begin it again; and bytes that are not body.
        self._again = b""
        self._excess = 0
        # The exchange whose body is arriving, the one under way, and those that wait for it.
        self._arriving: Exchange | None = None
        self._current: Exchange | None = None
        self._waiting: deque[Exchange] = deque()
        self._read_paused = False
        # What is refused after the exchanges before it are answered; what still comes is not looked at.
        self._refusal: Problem | None = None
        # It has been answered for good, and what still comes is thrown away.
        self._hanging_up = False
        self._writable: asyncio.Event | None = None
        self._deadline = _NO_DEADLINE
        self._head_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._unsent = 0

    # --- the connection ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, unless there are too many."""
        self.transport = cast(asyncio.Transport, transport)
        self._client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        self._scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        self._shared.add(self)
        if len(self._shared.connections) > self._limits.http_max_connections:
            self.refuse(Problem("not-ready", "There are too many connections; try again in a moment."))
            return
        self._expect_within(self._limits.first_request_timeout_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits, and forget the connection."""
        self._shared.discard(self)
        self._deadline = _NO_DEADLINE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._forget_patience()
        if self._current is not None:
            self._current.lost()
        self._waiting.clear()
        self._set_writable()
        # It refers to us, and nobody else does any more.
        self._parser = None

    def drain(self) -> None:
        """Close as soon as the request under way is answered."""
        if self._current is None or self._current.complete:
            self.transport.close()
        else:
            self._current.keep_alive = False

    # --- deadlines -----------------------------------------------------------------------------------------

    def _expect_within(self, timeout_ms: int, deadline: float = _NO_DEADLINE) -> None:
        """Something must happen within a time, and before a deadline where one is given.

        The timer is only touched when it would come too late: most are never needed, and to make one and cancel
        it costs more than to look at the clock.
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
        # uvloop's timers are of whole milliseconds and may come that much early.
        if self._deadline > self._loop.time() + 0.001:
            self._timer = self._loop.call_at(self._deadline, self._look_at_clock)
        elif self._begun:
            self.refuse(Problem("request-timeout", "The request did not arrive in time."))
        else:
            # Browsers open connections ahead and send nothing; there is no request to refuse.
            self.transport.close()

    def _await_request(self) -> None:
        """Nothing is under way: the next request may take its time, one that has begun may not."""
        self._head_is_due = self._begun
        if self._begun:
            self._expect_within(self._limits.frame_timeout_ms, self._deadline)
        else:
            self._expect_within(self._limits.idle_timeout_ms)

    # --- slow readers --------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The client does not take what waits for it; its handler waits, and not for ever."""
        self.write_paused = True
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        self._forget_patience()
        self._set_writable()

    async def writable(self) -> None:
        """Return when the client takes bytes again, or has gone."""
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
            # A close would wait for the bytes to go out.
            self.transport.abort()

    def _forget_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    # --- bytes → requests ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless the header lines have become too long; then begin what has arrived."""
        if self._hanging_up or self._refusal is not None:
            return
        if self._in_headers:
            before = self._header_bytes
            # A body may follow in the same read; only what cannot be anything but header lines counts.
            if before > self._limits.http_max_header_bytes:
                self._refuse_arriving(self._head_too_large())
                return
            self._header_bytes = before + len(data)
        arriving = self._arriving
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            cause = error.__context__
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
        """Parse. The parser leaves the body of an upgrade to its caller: parse that request again without it."""
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                data = self._again + data[upgrade.args[0] :]
                self._again = b""
                self._parser = self._new_parser()

    def _limit_excess(self, count: int) -> None:
        """Bound what a body brings beside its bytes: chunk extensions and trailers, which are not kept."""
        self._excess = max(0, self._excess + count)
        if self._excess > self._limits.http_max_header_bytes:
            self._refuse_arriving(self._head_too_large())

    def _new_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        # Bytes behind a request that ends the connection are not looked at.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._headers = []
        self._begun = True

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header line. Trailers come here too: they are not header lines (RFC 9110, section 6.5)."""
        if self._in_headers:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The header lines are complete: an exchange begins, or waits its turn. Raises HeadRefusedError."""
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
        exchange = Exchange(self, version != "1.0" and parser.should_keep_alive())
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
        }
        self._arriving = exchange
        if self._current is None or self._current.complete:
            self._current = exchange
            self._deadline = _NO_DEADLINE
        else:
            # Nothing more is read before it is its turn.
            self._waiting.append(exchange)
            self._pause_reading()

    def on_body(self, body: bytes) -> None:
        """A piece of the body; it is dropped if the answer is complete already."""
        self._excess -= _BYTES_PER_BODY_BYTE * len(body)
        if self._arriving is not None and not self._arriving.complete:
            self._arriving.add_body(body)

    def on_message_complete(self) -> None:
        """The request is complete; the next bytes are header lines again."""
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
        """Run an exchange in a task, or at once: then it may be over when this returns."""
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
        """The answer to the current exchange is complete: the next one, or wait for one."""
        if self._hanging_up or self.transport.is_closing():
            return
        if self._waiting:
            self._current = self._waiting.popleft()
            # A chain of them must not keep the loop to itself.
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
        """More bytes are wanted."""
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
            # Without its body it must not run, nor wait for one.
            arriving.lost()
            if self._waiting and self._waiting[-1] is arriving:
                self._waiting.pop()
        current = self._current
        if current is None or current.complete or current is arriving:
            self.refuse(problem)
        else:
            self._refusal = problem

    def refuse(self, problem: Problem) -> None:
        """Answer a problem below the application, and close."""
        if self._hanging_up or self.transport.is_closing():
            return
        if self._arriving is not None and self._arriving.started:
            # A second answer would be taken for that to the client's next request.
            self.hang_up()
            return
        body = render_problem(problem, "/").body
        self.transport.write(
            b"HTTP/1.1 %d \r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (problem.status, len(body), body)
        )
        self.hang_up()

    def hang_up(self) -> None:
        """Close behind an answer; while the client still sends, what comes is thrown away for a moment."""
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
    """Host and port of one end of a TCP connection; None for other sockets."""
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None


def _expects_continue(scope: Scope) -> bool:
    """Whether the client waits to be told to send its body; HTTP/1.0 knows no such thing (RFC 9110, 10.1.1)."""
    return scope["http_version"] != "1.0" and any(
        name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
    )
