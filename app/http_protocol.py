"""uvicorn's HTTP protocol under our limits: header bytes, slow senders, slow readers, connections.

uvicorn with httptools bounds none of these by itself: header lines grow in memory for as long as a client
sends them, and a client that sends nothing, or reads nothing, is kept for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from app.errors import Problem, render_problem
from app.requests import SEND_WHOLE
from core.config import Config


class WholeAnswer:
    """Sends one whole answer in one write.

    uvicorn's own way is two messages, two writes and a regular expression over each header line: a third of
    what a request costs there. `headers` are our own lines, known to be clean.
    """

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, protocol: HttpProtocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle

    def __call__(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send it; False, and nothing done, when the client takes no bytes at the moment."""
        cycle, protocol = self._cycle, self._protocol
        if protocol.flow.write_paused or cycle.response_started:
            return False
        if cycle.disconnected:
            return True
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            if name == b"connection":
                cycle.keep_alive = False
            else:
                parts += (name, b": ", value, b"\r\n")
        if not cycle.keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        if cycle.scope["method"] != "HEAD":
            parts.append(body)
        cycle.transport.write(b"".join(parts))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True


class HttpProtocol(HttpToolsProtocol):
    """One HTTP connection."""

    # uvicorn makes the protocols itself and hands nothing of ours to them: `limited` makes a class for each
    # configuration instead.
    limits: ClassVar[Config] = Config()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_bytes = 0
        self._in_headers = True
        self._begun = False
        self._deadline: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._unsent = 0

    @classmethod
    def limited(cls, config: Config) -> type[HttpProtocol]:
        """This protocol under the limits of one configuration."""
        return type("LimitedHttpProtocol", (cls,), {"limits": config})

    # --- slow senders --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.http_max_connections:
            self.refuse(Problem("not-ready", "There are too many connections; try again in a moment."))
            return
        self._expect_headers(self.limits.first_request_timeout_ms)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._expect_nothing()
        self._forget_patience()
        super().connection_lost(exc)

    def _expect_headers(self, timeout_ms: int) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(timeout_ms / 1000, self._too_slow)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if self._begun:
            self.refuse(Problem("request-timeout", "The request did not arrive in time."))
        else:
            # Browsers open connections ahead and send nothing; there is no request to refuse.
            self.transport.close()

    # --- slow readers --------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The client does not take what waits for it; its handler waits, and not for ever."""
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        self._forget_patience()
        super().resume_writing()

    def _wait_for_reader(self) -> None:
        self._forget_patience()
        self._unsent = self.transport.get_write_buffer_size()
        self._patience = self.loop.call_later(self.limits.write_timeout_ms / 1000, self._check_reader)

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

    # --- header bytes --------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless the header lines have become too long."""
        if self._in_headers:
            self._header_bytes += len(data)
            # A body may follow in the same read; only what cannot be anything but header lines counts.
            if self._header_bytes - len(data) > self.limits.http_max_header_bytes:
                self.refuse(
                    Problem(
                        "header-too-large",
                        "The header lines are too long.",
                        extra={"limit": self.limits.http_max_header_bytes},
                    )
                )
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins: its header lines must be complete in time."""
        super().on_message_begin()
        self._begun = True
        if self._deadline is None:
            self._expect_headers(self.limits.frame_timeout_ms)

    def on_headers_complete(self) -> None:
        """The header lines are complete."""
        self._in_headers = False
        self._expect_nothing()
        super().on_headers_complete()
        # The task of the request has been made, but has not run yet.
        self.scope["extensions"] = {SEND_WHOLE: WholeAnswer(self, self.cycle)}  # type: ignore[dict-item]

    def on_message_complete(self) -> None:
        """The request is complete; the next bytes are header lines again."""
        self._in_headers = True
        self._begun = False
        self._header_bytes = 0
        super().on_message_complete()

    # --- refusals ------------------------------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """What httptools cannot read, as a problem document."""
        self.refuse(Problem("malformed-request", "This is not HTTP/1.1."))

    def refuse(self, problem: Problem) -> None:
        """Answer a problem below the application, and close."""
        if self.transport.is_closing():
            return
        body = render_problem(problem, "/").body
        self.transport.write(
            b"HTTP/1.1 %d \r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (problem.status, len(body), body)
        )
        self.transport.close()
