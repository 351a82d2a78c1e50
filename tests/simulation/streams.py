"""Client ends of the virtual network: a Kafka connection and an HTTP connection, without a library in between."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

import httptools

from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.protocol.schema import Message
from tests.simulation.network import Network, SimTransport


class GoneError(ConnectionError):
    """The connection broke, or no answer came in time: the fate of the request is not known."""


class _Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = bytearray()
        self.closed = False
        self._arrival: asyncio.Future[None] | None = None

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.data += data
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._wake()

    async def more(self) -> None:
        """Wait for more bytes. Raises GoneError when the connection is closed."""
        if self.closed:
            raise GoneError("closed")
        self._arrival = asyncio.get_running_loop().create_future()
        await self._arrival


class Stream:
    """One connection to a port, opened when it is needed, dropped when something is wrong with it."""

    def __init__(self, network: Network, port: int) -> None:
        self._network, self._port = network, port
        self._protocol = _Client()
        self._transport: SimTransport | None = None

    async def open(self) -> SimTransport:
        """The open connection. Raises GoneError."""
        if self._transport is None or self._protocol.closed:
            self._protocol = _Client()
            try:
                self._transport = await self._network.connect(self._port, self._protocol)
            except ConnectionRefusedError as error:
                raise GoneError(str(error)) from None
        return self._transport

    @property
    def connected(self) -> bool:
        """Whether the connection is open, as far as this end knows."""
        return self._transport is not None and not self._protocol.closed

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()
        self._transport = None

    async def bytes(self, count: int) -> bytes:
        """Read the next `count` bytes."""
        while len(self._protocol.data) < count:
            await self._protocol.more()
        data = bytes(self._protocol.data[:count])
        del self._protocol.data[:count]
        return data

    async def some(self) -> bytes:
        """Whatever arrives next."""
        while not self._protocol.data:
            await self._protocol.more()
        data = bytes(self._protocol.data)
        self._protocol.data.clear()
        return data


class KafkaStream(Stream):
    """Kafka requests, one at a time."""

    _correlation = 0

    async def call(self, key: int, version: int, request: Message, timeout: float = 20.0) -> Any:
        """The answer to a request. Raises GoneError."""
        try:
            async with asyncio.timeout(timeout):
                transport = await self.open()
                self._correlation += 1
                head = encode_request_header(key, version, self._correlation, "simulation")
                frame = head + bytes(encode_request(key, version, request))
                transport.write(struct.pack(">i", len(frame)) + frame)
                (size,) = struct.unpack(">i", await self.bytes(4))
                answer = await self.bytes(size)
        except (GoneError, TimeoutError) as error:
            self.close()
            raise GoneError(str(error)) from None
        correlation, position = decode_response_header(key, version, answer)
        assert correlation == self._correlation, "an answer to another request"
        return decode_response(key, version, answer, position)

    async def tell(self, key: int, version: int, request: Message) -> None:
        """Send a request that has no answer. Raises GoneError."""
        transport = await self.open()
        self._correlation += 1
        head = encode_request_header(key, version, self._correlation, "simulation")
        frame = head + bytes(encode_request(key, version, request))
        transport.write(struct.pack(">i", len(frame)) + frame)


class _Response:
    def __init__(self) -> None:
        self.body = bytearray()
        self.done = False
        self.headers: dict[str, str] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.done = True


class HttpStream(Stream):
    """HTTP/1.1 requests, one at a time on a connection that is kept."""

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = 40.0,
    ) -> tuple[int, Any]:
        """Status and JSON body of the answer. Raises GoneError."""
        data = b"" if body is None else json.dumps(body).encode()
        lines = {"Host": "127.0.0.1", "Content-Length": str(len(data)), **(headers or {})}
        if body is not None:
            lines.setdefault("Content-Type", "application/json")
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items()) + "\r\n"
        found = _Response()
        parser = httptools.HttpResponseParser(found)
        try:
            async with asyncio.timeout(timeout):
                transport = await self.open()
                transport.write(head.encode() + data)
                while not found.done:
                    parser.feed_data(await self.some())
        except (GoneError, TimeoutError) as error:
            self.close()
            raise GoneError(str(error)) from None
        if found.headers.get("connection") == "close":
            self.close()
        return parser.get_status_code(), json.loads(found.body) if found.body else None
