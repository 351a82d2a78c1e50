"""A network of one machine's ports, in virtual time: bytes are delayed, split, held back and cut off.

The broker's own protocol objects (`Connection` of the Kafka listener, the HTTP protocol) hang on these transports as
they would on sockets; clients hang on the other end.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import socket
from collections.abc import Callable
from typing import Any

from tests.simulation.loop import Process, SimLoop

_HIGH_WATER = 256 * 1024
_LEAST_GAP = 1e-6


class FakeSocket:
    """Replaces a listening socket."""

    family = socket.AF_INET

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self.closed = False

    def getsockname(self) -> tuple[str, int]:
        """Where it listens."""
        return self.address

    def close(self) -> None:
        """Listen no more."""
        self.closed = True


class _Listening:
    """What `loop.create_server` answers."""

    def __init__(self, network: Network, port: int) -> None:
        self._network, self._port = network, port

    def close(self) -> None:
        """Refuse connections from now on."""
        self._network.unlisten(self._port)


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, context: contextvars.Context, port: int) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", port)})
        self.network = network
        self.context = context
        self.protocol: Any = None
        self.peer: SimTransport = self
        self.closed = False
        self._closing = False
        self._reading = True
        self._arrived: list[bytes | None] = []
        self._in_flight = 0
        self._last = 0.0
        self._paused = False

    # --- what protocols call -------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        """Send bytes to the other end."""
        if self.closed or self._closing or not data:
            return
        whole = bytes(data)
        for piece in self.network.split(whole):
            self._in_flight += len(piece)
            self._send(self.peer._arrive, piece, self.network.power_cuts)
        if self._in_flight > _HIGH_WATER and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        """Send several pieces."""
        self.write(b"".join(bytes(piece) for piece in list_of_data))

    def _send(self, deliver: Callable[..., None], *arguments: Any) -> None:
        loop = self.network.loop
        self._last = max(loop.time() + self.network.latency(), self._last + _LEAST_GAP)
        loop.call_at(self._last, deliver, *arguments, context=self.peer.context)

    def close(self) -> None:
        """Close once the written bytes are sent."""
        if self.closed or self._closing:
            return
        self._closing = True
        self._send(self.peer._arrive, None, self.network.power_cuts)
        self.network.loop.call_at(self._last, self._lost, None, context=self.context)

    def abort(self) -> None:
        """Close at once; the other end is told a moment later."""
        if self.closed:
            return
        self.closed = self._closing = True
        self.network.loop.call_soon(self.protocol.connection_lost, None, context=self.context)
        self._send(self.peer._lost, ConnectionResetError("reset by peer"))

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._closing or self.closed

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._reading = False

    def resume_reading(self) -> None:
        """Deliver what was kept."""
        self._reading = True
        self.network.loop.call_soon(self._deliver, context=self.context)

    def is_reading(self) -> bool:
        """Whether arriving bytes are delivered."""
        return self._reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """One limit serves all here."""

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not taken yet; never 0, so that no code asks for a real socket."""
        return self._in_flight + 1

    def can_write_eof(self) -> bool:
        """asyncio: half of a connection cannot be closed here."""
        return False

    def get_protocol(self) -> Any:
        """The protocol on this end."""
        return self.protocol

    def set_protocol(self, protocol: Any) -> None:
        """Put another protocol on this end."""
        self.protocol = protocol

    # --- arriving ------------------------------------------------------------------------------------------

    def _arrive(self, data: bytes | None, power_cuts: int) -> None:
        if self.closed:
            return
        if power_cuts != self.network.power_cuts:
            # After a loss of power no byte that was sent before it is read.
            self._lost(ConnectionResetError("the power failed"))
            return
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
            room = self.protocol.get_buffer(len(view))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            view = view[count:]
            self.protocol.buffer_updated(count)
            if view and not self._reading:
                self._arrived.insert(0, bytes(view))
                self.peer._in_flight += len(view)
                return

    def _taken(self, count: int) -> None:
        self._in_flight -= count
        if self._paused and self._in_flight <= _HIGH_WATER // 4:
            self._paused = False
            self.network.loop.call_soon(self._space, context=self.context)

    def _space(self) -> None:
        if not self.closed:
            self.protocol.resume_writing()

    def _lost(self, error: Exception | None) -> None:
        if self.closed:
            return
        self.closed = self._closing = True
        self.protocol.connection_lost(error)
        if not self.peer.closed:
            self._send(self.peer._lost, error)


class Network:
    """The listeners of each port, and how bytes travel."""

    def __init__(self, loop: SimLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.stalled_until = 0.0
        self.power_cuts = 0
        self._next_port = 20_000
        self._listeners: dict[int, tuple[Process, Callable[[], Any]]] = {}
        self._servers: list[SimTransport] = []

    def latency(self) -> float:
        """Seconds that the next bytes take; more while the network is stalled."""
        usual = self.chance.expovariate(2000.0) + 0.00005
        return usual + max(0.0, self.stalled_until - self.loop.time())

    def split(self, data: bytes) -> list[bytes]:
        """Cut what is written at random places, as TCP may."""
        if len(data) < 2 or self.chance.random() < 0.8:
            return [data]
        at = self.chance.randrange(1, len(data))
        return [data[:at], data[at:]]

    def bind(self, endpoint: Any) -> FakeSocket:
        """Take a port; 0 lets the network choose."""
        port = endpoint.port
        if not port:
            self._next_port += 1
            port = self._next_port
        return FakeSocket(endpoint.host, port)

    def listen(self, port: int, process: Process, factory: Callable[[], Any]) -> _Listening:
        """Accept connections for a process."""
        self._listeners[port] = (process, factory)
        return _Listening(self, port)

    def unlisten(self, port: int) -> None:
        """Refuse connections to a port."""
        self._listeners.pop(port, None)

    async def connect(self, port: int, protocol: Any) -> SimTransport:
        """Open a connection. Raises ConnectionRefusedError."""
        await asyncio.sleep(self.latency())
        if port not in self._listeners:
            raise ConnectionRefusedError(f"no listener on port {port}")
        process, factory = self._listeners[port]
        here = SimTransport(self, contextvars.copy_context(), port)
        there = SimTransport(self, process.context.copy(), port)
        here.peer, there.peer = there, here
        here.protocol = protocol
        there.context.run(self._accept, there, factory)
        protocol.connection_made(here)
        return here

    def _accept(self, transport: SimTransport, factory: Callable[[], Any]) -> None:
        transport.protocol = factory()
        self._servers = [one for one in self._servers if not one.closed]
        self._servers.append(transport)
        transport.protocol.connection_made(transport)

    def cut_one(self) -> bool:
        """Break a random connection in the middle of whatever it carries."""
        open_ones = [one for one in self._servers if not one.closed]
        if not open_ones:
            return False
        self.break_off(self.chance.choice(open_ones))
        return True

    def break_off(self, transport: SimTransport) -> None:
        """Both ends lose the connection; what is under way is lost."""
        for end in (transport, transport.peer):
            if not end.closed:
                end.closed = end._closing = True
                error = ConnectionResetError("the connection was cut")
                self.loop.call_soon(end.protocol.connection_lost, error, context=end.context)

    def process_died(self, process: Process) -> None:
        """Nothing that a dead process has not sent yet leaves it; its clients see their connections break."""
        for port in [p for p, (owner, _) in self._listeners.items() if owner is process]:
            self.unlisten(port)
        for end in self._servers:
            if not end.closed:
                end.closed = end._closing = True
                end._send(end.peer._lost, ConnectionResetError("the process died"))
        self._servers.clear()
