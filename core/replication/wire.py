"""Frames from a peer into one buffer that stays: large answers cost no copy and no fresh memory.

A frame is a view into the buffer, and good until the next request is sent. Streams of asyncio copy each byte three
times into memory that was never touched before, which on a virtual machine costs more than the fetch itself.
"""

from __future__ import annotations

import asyncio
from typing import cast

_HEAD = 4
_INITIAL = 64 * 1024


class FrameProtocol(asyncio.BufferedProtocol):
    """One request and one answer at a time."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max = max_frame_bytes
        self._buffer = bytearray(_INITIAL)
        self._have = 0
        self._want = 0
        self._waiter: asyncio.Future[memoryview] | None = None
        self._lost: Exception | None = None
        self.transport: asyncio.Transport | None = None

    async def ask(self, request: bytes) -> memoryview:
        """Send a framed request; the answer without its size. Raises OSError, EOFError."""
        if self._lost is not None or self.transport is None:
            raise self._lost or EOFError("the connection is closed")
        self._have = self._want = 0
        self._waiter = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._fail(exc or EOFError("the other broker closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio: what is free, up to the end of the frame."""
        free = memoryview(self._buffer)[self._have : self._want or None]
        # After a whole frame only the end of the connection may follow, and it needs space in the buffer as well.
        return free if free else memoryview(bytearray(1))

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio."""
        self._have += nbytes
        if not self._want and self._have >= _HEAD:
            size = int.from_bytes(self._buffer[:_HEAD], "big", signed=True)
            if not _HEAD <= size <= self._max:
                self._fail(EOFError(f"it announced {size} bytes"))
                return
            self._want = _HEAD + size
            if self._want > len(self._buffer):
                larger = bytearray(self._want)
                larger[: self._have] = self._buffer[: self._have]
                self._buffer = larger
        if self._want and self._have >= self._want:
            if self._have > self._want or self._waiter is None or self._waiter.done():
                self._fail(EOFError("it sent an answer without a question"))
            else:
                self._waiter.set_result(memoryview(self._buffer)[_HEAD : self._want])

    def eof_received(self) -> bool:
        """See asyncio: nothing more comes."""
        return False

    def _fail(self, error: Exception) -> None:
        if self._lost is None:
            self._lost = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        if self.transport is not None:
            self.transport.close()
