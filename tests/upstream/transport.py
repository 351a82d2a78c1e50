"""Connections in memory, between tasks of one event loop: what a socket does, without the socket.

Bytes that one end writes reach the other in a later turn of the loop, after `latency` seconds, in their order.
"""

from __future__ import annotations

import asyncio
from typing import Any

# As much as asyncio's own transports hold before they tell the writer to pause.
_HIGH_WATER = 64 * 1024


class MemoryTransport(asyncio.Transport):
    """One end of a connection. `peer` is the other end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, latency: float, local: Any, remote: Any) -> None:
        super().__init__({"peername": remote, "sockname": local})
        self._loop = loop
        self._latency = latency
        self.protocol: Any = None
        self.peer: MemoryTransport = self
        self.closed = False
        self._closing = False
        self._reading = True
        self._arrived: list[bytes | None] = []
        self._in_flight = 0
        self._paused = False

    def write(self, data: Any) -> None:
        """Send bytes to the other end."""
        if self.closed or self._closing or not data:
            return
        whole = bytes(data)
        self._in_flight += len(whole)
        self._send(whole)
        if self._in_flight > _HIGH_WATER and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send several pieces."""
        self.write(b"".join(bytes(piece) for piece in list_of_data))

    def write_eof(self) -> None:
        """Nothing is written any more; asyncio's streams ask for it."""
        self.close()

    def can_write_eof(self) -> bool:
        """asyncio: half of a connection cannot be closed here."""
        return False

    def _send(self, data: bytes | None) -> None:
        if self._latency:
            self._loop.call_later(self._latency, self.peer._arrive, data)
        else:
            self._loop.call_soon(self.peer._arrive, data)

    def close(self) -> None:
        """Close once the written bytes are sent."""
        if not self.closed and not self._closing:
            self._closing = True
            self._send(None)
            self._loop.call_soon(self._lost, None)

    def abort(self) -> None:
        """Close at once. The other end loses the connection too, with whatever was on its way."""
        for end in (self, self.peer):
            end._closing = True
            self._loop.call_soon(end._lost, None if end is self else ConnectionResetError("reset by peer"))

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._closing or self.closed

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver what was kept."""
        self._reading = True
        self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        """Whether arriving bytes are delivered."""
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """One limit serves all here."""

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not taken yet."""
        return self._in_flight

    def get_protocol(self) -> Any:
        """The protocol on this end."""
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        """Put another protocol on this end."""
        self.protocol = protocol

    def _arrive(self, data: bytes | None) -> None:
        self._arrived.append(data)
        self._deliver()

    def _deliver(self) -> None:
        while self._arrived and self._reading and not self.closed:
            data = self._arrived.pop(0)
            if data is None:
                if not self.protocol.eof_received():
                    self._lost(None)
                return
            self.peer._taken(len(data))
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        if not isinstance(self.protocol, asyncio.BufferedProtocol):
            self.protocol.data_received(data)
            return
        view = memoryview(data)
        while view and not self.closed:
            free: Any = self.protocol.get_buffer(len(view))
            count = min(len(free), len(view))
            free[:count] = view[:count]
            view = view[count:]
            self.protocol.buffer_updated(count)

    def _taken(self, count: int) -> None:
        self._in_flight -= count
        if self._paused and self._in_flight <= _HIGH_WATER // 4:
            self._paused = False
            if not self.closed:
                self.protocol.resume_writing()

    def _lost(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = self._closing = True
        self.protocol.connection_lost(error)
        if not self.peer.closed:
            self._loop.call_soon(self.peer._lost, error)


def pair(
    here: Any, there: Any, address: tuple[str, int], latency: float = 0.0
) -> tuple[MemoryTransport, MemoryTransport]:
    """Connect a client's protocol with a server's; return both ends, the client's first."""
    loop = asyncio.get_running_loop()
    client = MemoryTransport(loop, latency, ("127.0.0.1", 40_000), address)
    server = MemoryTransport(loop, latency, address, ("127.0.0.1", 40_000))
    client.peer, server.peer = server, client
    client.protocol, server.protocol = here, there
    there.connection_made(server)
    here.connection_made(client)
    return client, server
