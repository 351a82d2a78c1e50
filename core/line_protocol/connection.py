"""One TCP connection of lines: the same reading, order, answers and deadlines as one of frames.

Theory. A line ends with LF; a CR before it belongs to the end. Lines that lie in the shared receive buffer whole
are handled there; only one that is still arriving gets a buffer of its own, on the same budget as frames. Nothing
is announced, so a line is known to be too long only when it is: that is answered once, the rest of the line is
thrown away as it comes, and the next line counts again.

The end of the input is not the end of the connection: `printf … | nc` shuts its side down and waits for the
answers. Lines that have come are answered, then the connection is closed. A last line without its LF is refused
and never executed: nobody knows whether it was cut.

A read may bring a hundred thousand lines of one byte. So many are handled in a turn, then others have theirs.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from core.listeners.connection import Answer, Connection, Session, Shared

# Lines handled in one turn of the event loop: a few milliseconds.
_LINES_AT_ONCE = 50
_CR = 13


class LineSession(Session, Protocol):
    """What a door of lines keeps for one connection. `handle` gets a line without its end."""

    def unreadable(self, reason: str) -> Answer:
        """The answer to a line that cannot be handed over."""
        ...


class LineConnection(Connection):
    """The protocol object of one connection."""

    def __init__(self, shared: Shared, session: Session) -> None:
        super().__init__(shared, session)
        self._limit = shared.config.text_max_line_bytes
        # In a line that is too long, and refused already.
        self._skipping = False
        self._ended = False
        self._turn: asyncio.Handle | None = None

    def eof_received(self) -> bool:
        """asyncio: the client sends no more. What it has asked is answered; then the connection closes."""
        self._ended = True
        if self._frame is not None:
            self._drop_frame()
            self._unfinished()
        self.drain()
        return True

    def expire(self) -> None:
        """Close because the present phase has taken too long."""
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
        """asyncio: so many bytes have arrived."""
        if self._frame is None:
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
        """Handle the lines that have arrived whole, while none must wait; gives where it stopped."""
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
        self._go_on()

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
        answer = cast(LineSession, self._session).unreadable(reason)
        if answer:
            self._send(answer)
