"""One HTTP/1.1 request and its answer: what a connection hands to the ASGI application.

An exchange is run at once, inside the read that brought the end of its request, and most are over before that
read is: their bodies are there, and the broker answers from memory. Only one that has to wait becomes a task.
That is a fifth of what a small request costs. Whoever needs a task around it (`asyncio.timeout`, anyio) awaits
`in_task` first.
"""

from __future__ import annotations

import asyncio
import logging
import re
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from http import HTTPStatus
from typing import Any, Protocol

from app.http.request import Message, Receive, Scope, Send

log = logging.getLogger("sluice.http")

ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]
_STATUS_LINES = {one.value: b"HTTP/1.1 %d %b\r\n" % (one, one.phrase.encode()) for one in HTTPStatus}
# What would end a header line early, or begin another one.
_BAD_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_BODY = frozenset({204, 304})
_DISCONNECT: Message = {"type": "http.disconnect"}


class Connection(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport
    write_paused: bool

    def default_head(self) -> bytes:
        """Header lines that all answers have (Date)."""
        ...

    def resume_reading(self) -> None:
        """More of the body is wanted."""
        ...

    async def writable(self) -> None:
        """Return when the client takes bytes again, or has gone."""
        ...

    def hang_up(self) -> None:
        """Close behind an answer, so that it reaches a client that is still sending."""
        ...

    def answered(self) -> None:
        """The answer is complete."""
        ...


class Exchange:
    """A request, as far as it has come, and its answer, as far as it has gone."""

    # As attributes of the class, what is so at the beginning costs nothing to set.
    disconnected = False
    # Whether the client waits to be told to send its body.
    expects_continue = False
    # Bytes of the body that nobody has received yet, and whether more will come.
    held = 0
    more_body = True
    # Whether it is being run, whether the answer has begun, and whether it has gone out whole.
    begun = False
    started = False
    complete = False
    _end_is_news = True
    _chunked = False
    _left = 0
    _event: asyncio.Event | None = None

    def __init__(self, connection: Connection, keep_alive: bool) -> None:
        self._connection = connection
        self.scope: Scope = {}
        # Whether the connection goes on afterwards.
        self.keep_alive = keep_alive
        self._parts: list[bytes] = []

    async def run(self, app: ASGIApp) -> None:
        """Let the application answer; an answer that it does not finish closes the connection."""
        transport = self._connection.transport
        try:
            await app(self.scope, self.receive, self.send)
        except Exception:
            log.exception("The application failed.")
        except BaseException:
            # The server stops, and has waited for long enough.
            transport.abort()
            raise
        if not self.complete and not self.disconnected:
            # Half an answer cannot be mended, and none at all must not look like one.
            transport.close()
        # It refers back to us: what goes in a circle costs the collector of garbage its time.
        self.scope = {}

    # --- the request ---------------------------------------------------------------------------------------

    def add_body(self, part: bytes) -> None:
        """A piece of the body has come."""
        self._parts.append(part)
        self.held += len(part)
        self.wake()

    def end_body(self) -> None:
        """The body is complete."""
        self.more_body = False
        self.wake()

    def lost(self) -> None:
        """The client has gone."""
        if not self.complete:
            self.disconnected = True
        self.wake()

    def wake(self) -> None:
        """Something has happened that `receive` may wait for."""
        if self._event is not None:
            self._event.set()

    def whole_body(self) -> bytes | None:
        """The body, when all of it is there and none was taken; else None, and `receive` is the way."""
        if self.more_body or not self._end_is_news or self.disconnected or self.complete:
            return None
        self._end_is_news = False
        parts, self._parts, self.held = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def receive(self) -> Message:
        """ASGI's receive: what has come of the body, or that the client has gone or got its answer."""
        connection = self._connection
        if self.expects_continue and not self.started and not connection.transport.is_closing():
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False
        # The end of the body is told once; from then on there is nothing but the disconnect to wait for.
        while not (self._parts or (self._end_is_news and not self.more_body)):
            if self.disconnected or self.complete:
                break
            connection.resume_reading()
            if self._event is None:
                self._event = asyncio.Event()
            self._event.clear()
            await self._event.wait()
        if self.disconnected or self.complete:
            return _DISCONNECT
        parts, self._parts, self.held = self._parts, [], 0
        self._end_is_news = self.more_body
        return {"type": "http.request", "body": b"".join(parts), "more_body": self.more_body}

    # --- the answer ----------------------------------------------------------------------------------------

    def _begin_answer(self) -> None:
        self.started = True
        if self.expects_continue and self.more_body:
            # The client waits to be told to send its body. After another answer it may send it, or the next
            # request: no reader can tell which, so the connection ends here.
            self.keep_alive = False

    def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer in one write; False, and nothing done, when the client takes no bytes at the moment.

        ASGI's own way is two messages, two writes and a look at each header line: a third of what a request
        costs there. `headers` are our own lines, known to be clean; they hold a Content-Length where one belongs.
        """
        connection = self._connection
        if connection.write_paused or self.started:
            return False
        if self.disconnected:
            return True
        self._begin_answer()
        parts = [_STATUS_LINES[status], connection.default_head()]
        for name, value in headers:
            if name == b"connection":
                self.keep_alive = False
            else:
                parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        if self.scope["method"] != "HEAD":
            parts.append(body)
        connection.transport.write(b"".join(parts))
        self._finish()
        return True

    async def send(self, message: Message) -> None:
        """ASGI's send."""
        connection = self._connection
        if connection.write_paused and not self.disconnected:
            await connection.writable()
        if self.disconnected:
            return
        if self.complete:
            raise RuntimeError("the answer is complete already")
        if self.started:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            self._send_head(message["status"], message.get("headers", ()))

    def _send_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self._begin_answer()
        lines = [_STATUS_LINES[status], self._connection.default_head()]
        length: int | None = None
        chunked = False
        for given, value in headers:
            name = given.lower()
            if _BAD_NAME.search(name) or _BAD_VALUE.search(value):
                raise RuntimeError(f"{name[:60]!r} is no header line that can be sent")
            if name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                chunked = value.lower() == b"chunked"
            elif name == b"connection":
                self.keep_alive = self.keep_alive and b"close" not in value.lower()
                continue
            lines += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        bodiless = self.scope["method"] == "HEAD" or status in _WITHOUT_BODY
        if length is None and not chunked and not bodiless:
            chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        self._chunked = chunked
        self._left = 0 if bodiless or length is None else length
        lines.append(b"\r\n")
        self._connection.transport.write(b"".join(lines))

    def _send_body(self, body: bytes, *, more: bool) -> None:
        transport = self._connection.transport
        if self.scope["method"] == "HEAD":
            pass
        elif self._chunked:
            piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                piece += b"0\r\n\r\n"
            if piece:
                transport.write(piece)
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body is not as long as its Content-Length")
            if body:
                transport.write(body)
        if not more:
            self._finish()

    def _finish(self) -> None:
        self.complete = True
        self.wake()
        if not self.keep_alive:
            self._connection.hang_up()
        self._connection.answered()


# --- running without a task until one is needed -------------------------------------------------------------


def begin(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None] | None:
    """Run a coroutine up to the first thing that it waits for: None when it is over by then, else what does the rest.

    The rest is for a task in the same context.
    """
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    return _rest(work, waits_for)


async def _rest(work: Coroutine[Any, Any, None], waits_for: Any) -> None:
    await _resume(work, waits_for)


@types.coroutine
def _resume(work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """Hand what `work` waits for to the task around us, and what the task answers to `work`."""
    try:
        while True:
            try:
                got = yield waits_for
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = work.send(got)
    except StopIteration:
        return


async def in_task() -> None:
    """Return inside a task: what follows may use timeouts, task groups and other things that ask for one."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)
