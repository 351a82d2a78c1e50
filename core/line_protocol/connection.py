"""One TCP connection of the line protocol: the same reading, order, answers and deadlines as a connection of frames.

Theory. A line ends with LF; a CR before the LF is part of the end. Lines that are complete in the shared receive
buffer are handled there. Only a line that is still arriving gets a buffer of its own, on the same budget as frames.
A line does not announce its length, so it is refused when it has passed the limit: once, then the rest of the line is
discarded as it arrives, and the next line is handled as usual.

The end of the input is not the end of the connection: `printf … | nc` shuts down its side and waits for the answers.
(Under TLS it is: what is not answered by then is lost.)
The lines before the end are answered, then the connection is closed. A last line without LF is refused and never
executed, because it may have been cut.

One read may bring a hundred thousand lines of one byte. `_LINES_AT_ONCE` of them are handled in one turn of the event
loop, so that other connections get their turn.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from core.listeners.connection import (
    SPEAKS_TLS,
    Answer,
    Connection,
    Session,
    Shared,
    begins_with_tls,
)

# Lines handled in one turn of the event loop: a few milliseconds.
_LINES_AT_ONCE = 50
_CR = 13


class LineHandler(Session, Protocol):
    """A session whose `handle` gets a line without its end."""

    def unreadable(self, reason: str) -> Answer:
        """Return the answer to a line that `handle` cannot take."""
        ...


class LineConnection(Connection):
    """The protocol object of one connection."""

    def __init__(self, shared: Shared, session: Session) -> None:
        super().__init__(shared, session)
        self._limit = shared.config.text_max_line_bytes
        # Whether the bytes that arrive are the rest of a line that was refused as too long.
        self._skipping = False
        self._ended = False
        self._turn: asyncio.Handle | None = None

    def eof_received(self) -> bool:
        """asyncio: the client has shut down its side. Answer the lines that have arrived, then close."""
        self._ended = True
        if self._frame is not None:
            self._drop_frame()
            self._unfinished()
        self.drain()
        # Under TLS one side cannot be shut down alone: the transport closes whatever is returned.
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is None

    def expire(self) -> None:
        """Close the connection: its deadline has passed."""
        if self._skipping:
            self.refuse("a line was too long, and had no end")
        else:
            super().expire()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is closed."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        super().connection_lost(exc)

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: `nbytes` have arrived."""
        if self._frame is None:
            if begins_with_tls(self._shared.view[:nbytes]):
                # No command begins so, and there may never be an end of a line.
                self.refuse(SPEAKS_TLS)
            else:
                self._consume(self._shared.view[:nbytes])
            return
        start, self._filled = self._filled, self._filled + nbytes
        if self._frame.find(b"\n", start, self._filled) >= 0:
            frame, self._frame = self._frame, None
            self._consume(memoryview(frame)[: self._filled])
            self._shared.release(frame)
        elif self._filled >= self._size:
            self._drop_frame()
            self._skip()
        elif self._filled == len(self._frame):
            self.grow()

    def _busy(self) -> bool:
        return self._turn is not None or super()._busy()

    def _handle_whole(self, data: memoryview) -> int:
        """Handle complete lines until one must wait; return the position after the last one."""
        position, end, handled = 0, len(data), 0
        whole = cast(bytearray, data.obj)
        while not self._busy():
            found = whole.find(b"\n", position, end)
            if found < 0:
                return end if self._skipping else position
            start, position = position, found + 1
            if self._skipping:
                self._skipping = False
                continue
            if found > start and whole[found - 1] == _CR:
                found -= 1
            if found - start > self._limit:
                self._answer_unreadable(self._too_long)
            else:
                self._handle(data[start:found])
            handled += 1
            if handled == _LINES_AT_ONCE:
                self._turn = self._shared.loop.call_soon(self._next_turn)
        return position

    def _next_turn(self) -> None:
        self._turn = None
        self._continue()

    def _keep(self, data: memoryview, position: int) -> None:
        if self._busy():
            super()._keep(data, position)
        elif self._ended:
            self._unfinished()
        elif len(data) - position > self._limit + 1:
            self._skip()
        else:
            self._begin_frame(self._limit + 2, data[position:])

    def _skip(self) -> None:
        self._skipping = True
        self._answer_unreadable(self._too_long)
        self._set_deadline(self._shared.config.frame_timeout_ms)

    @property
    def _too_long(self) -> str:
        return f"the line is longer than {self._limit} bytes"

    def _unfinished(self) -> None:
        self._answer_unreadable("the input ended within a line; a line ends with LF")

    def _answer_unreadable(self, reason: str) -> None:
        answer = cast(LineHandler, self._session).unreadable(reason)
        if answer:
            self._send(answer)
