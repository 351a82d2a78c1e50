"""One HTTP/1.1 request and its answer: what a connection passes to the ASGI application.

An exchange runs at once, inside the read that completed its request. Most exchanges end there: their bodies are
complete, and the broker answers from memory. Only an exchange that has to wait becomes a task. That saves a fifth of
the cost of a small request. Code that needs a task around it (`asyncio.timeout`, anyio) awaits `in_task` first.
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
# Characters that would end a header line early, or begin another one.
_BAD_NAME = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_BODY = frozenset({204, 304})
_DISCONNECT: Message = {"type": "http.disconnect"}


class Connection(Protocol):
    """The part of a connection that an exchange uses."""

    transport: asyncio.Transport
    write_paused: bool

    def default_head(self) -> bytes:
        """Return the header lines of every answer (Date)."""
        ...

    def resume_reading(self) -> None:
        """Read more of the body."""
        ...

    async def writable(self) -> None:
        """Return when the client accepts bytes again, or has disconnected."""
        ...

    def hang_up(self) -> None:
        """Close after an answer, so that a client that is still sending can read it."""
        ...

    def answered(self) -> None:
        """Take note that the answer is complete."""
        ...


class Exchange:
    """A request, as far as it has arrived, and its answer, as far as it has been sent."""

    # Initial values are attributes of the class: setting them costs nothing.
    disconnected = False
    # Whether the client waits for "100 Continue" before it sends its body.
    expects_continue = False
    # Bytes of the body that the application has not received yet, and whether more will come.
    held = 0
    more_body = True
    # Whether the exchange runs, whether its answer has begun, and whether the answer has been sent whole.
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
        # Whether the connection stays open after the answer.
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
            # The server stops, and the drain time is over.
            transport.abort()
            raise
        if not self.complete and not self.disconnected:
            # A partial answer cannot be repaired, and the client must not take it for a whole one.
            transport.close()
        # The scope refers to this exchange: a reference cycle would cost the garbage collector time.
        self.scope = {}

    # --- the request ---------------------------------------------------------------------------------------

    def add_body(self, part: bytes) -> None:
        """Take a piece of the body."""
        self._parts.append(part)
        self.held += len(part)
        self.wake()

    def end_body(self) -> None:
        """Take note that the body is complete."""
        self.more_body = False
        self.wake()

    def lost(self) -> None:
        """Take note that the client has disconnected."""
        if not self.complete:
            self.disconnected = True
        self.wake()

    def wake(self) -> None:
        """Wake `receive`, if it waits."""
        if self._event is not None:
            self._event.set()

    def whole_body(self) -> bytes | None:
        """Return the body if it is complete and none of it was received; otherwise None: use `receive`."""
        if self.more_body or not self._end_is_news or self.disconnected or self.complete:
            return None
        self._end_is_news = False
        parts, self._parts, self.held = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def receive(self) -> Message:
        """ASGI's receive: the body as far as it has arrived, or a disconnect, also after a complete answer."""
        connection = self._connection
        if self.expects_continue and not self.started and not connection.transport.is_closing():
            connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False
        # The end of the body is reported once; after that only the disconnect is left to wait for.
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
            # The client waits for permission to send its body. After a final answer it may send the body or the next
            # request: a server cannot tell which, so the connection ends here.
            self.keep_alive = False

    def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer in one write. Return False, with nothing sent, if the client accepts no bytes now.

        ASGI's way is two messages, two writes and a check of each header line: a third of the cost of a request.
        `headers` are our own lines, known to be clean; they include Content-Length where one is required.
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
                raise RuntimeError(f"{name[:60]!r} is not a header line that can be sent")
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
    """Run a coroutine until it waits for something. Return None if it has ended, otherwise a coroutine for the rest.

    Run the rest in a task with the same context.
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
    """Pass the futures that `work` awaits to the task around it, and their results back to `work`."""
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
    """Return inside a task: the caller may then use timeouts, task groups and whatever else requires a task."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)
