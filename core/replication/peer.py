"""A connection to another broker: one question at a time, answers in time or not at all.

It is opened when it is first needed and again after it broke; a question in between fails at once.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Any

from core.config import Config, Peer
from core.protocol.apis import EXCHANGE_KEY
from core.protocol.codec import decode_response, encode_request
from core.protocol.header import decode_response_header, encode_request_header
from core.protocol.primitives import ProtocolError
from core.replication.peer_protocol import Answer, Question, decode_answer, encode
from core.replication.wire import FrameProtocol
from core.security.peers import check_server, client_context

_SIZE = Struct(">i")
_CORRELATION = Struct(">i")
_HEADER = Struct(">hhih")
PEER_CLIENT_ID = "sluice-replica-"
"""How the client ids begin under which brokers ask each other."""


class PeerError(Exception):
    """The other broker cannot be reached, or says what it should not."""


class PeerConnection:
    """One connection to one peer."""

    def __init__(self, peer: Peer, config: Config) -> None:
        self.peer = peer
        self._config = config
        self._lock = asyncio.Lock()
        self._protocol: FrameProtocol | None = None
        self._correlation = 0
        self._client_id = f"{PEER_CLIENT_ID}{config.broker_id}"

    async def request(self, key: int, version: int, message: Any, *, wait_ms: int = 0) -> Any:
        """Send a request of the Kafka protocol and give the response; `wait_ms` is what the other may take longer.

        Records in it are good until the next request. Raises PeerError.
        """
        header = encode_request_header(key, version, 0, self._client_id)
        frame = await self._ask(header + encode_request(key, version, message), wait_ms)
        try:
            _, position = decode_response_header(key, version, frame)
            return decode_response(key, version, frame, position)
        except ProtocolError as error:
            self.close()
            raise PeerError(f"broker {self.peer.broker_id} sent a malformed answer: {error}") from None

    async def exchange(self, question: Question) -> Answer:
        """Ask about roles. Raises PeerError."""
        name = self._client_id.encode()
        header = _HEADER.pack(EXCHANGE_KEY, 0, 0, len(name)) + name
        frame = await self._ask(header + encode(question), 0)
        try:
            return decode_answer(frame[4:])
        except ValueError as error:
            self.close()
            raise PeerError(f"broker {self.peer.broker_id} sent a malformed answer: {error}") from None

    def close(self) -> None:
        """Let the connection go; the next question opens another one."""
        if self._protocol is not None and self._protocol.transport is not None:
            self._protocol.transport.close()
        self._protocol = None

    async def _ask(self, request: bytes, wait_ms: int) -> memoryview:
        async with self._lock:
            try:
                async with asyncio.timeout((self._config.peer_timeout_ms + wait_ms) / 1000):
                    if self._protocol is not None:
                        try:
                            return await self._round_trip(request)
                        except (OSError, EOFError):
                            # The other one may have been restarted since; nothing that is asked does harm twice.
                            self.close()
                    return await self._round_trip(request)
            except (OSError, EOFError, TimeoutError) as error:
                self.close()
                raise PeerError(
                    f"broker {self.peer.broker_id} at {self.peer.host}:{self.peer.port}: "
                    f"{error or type(error).__name__}"
                ) from None
            except BaseException:
                # The next request would get the answer to this one.
                self.close()
                raise

    async def _round_trip(self, request: bytes) -> memoryview:
        if self._protocol is None:
            self._protocol = await self._connect()
        self._correlation = (self._correlation + 1) & 0x7FFF_FFFF
        correlation = _CORRELATION.pack(self._correlation)
        # The correlation id: four bytes after key and version in each request of Kafka.
        framed = b"".join([_SIZE.pack(len(request)), request[:4], correlation, request[8:]])
        frame = await self._protocol.ask(framed)
        if frame[:4] != correlation:
            raise EOFError("it answered another question")
        return frame

    async def _connect(self) -> FrameProtocol:
        """Connect; with a listener of the brokers' own over TLS, both sides being proven. Raises OSError."""
        peer, config = self.peer, self._config
        context = client_context(config)
        secure: dict[str, Any] = {} if context is None else {"ssl": context, "server_hostname": peer.host}
        transport, protocol = await asyncio.get_running_loop().create_connection(
            lambda: FrameProtocol(config.max_frame_bytes), peer.host, peer.port, **secure
        )
        if context is not None:
            try:
                check_server(config, peer.broker_id, transport)
            except BaseException:
                transport.abort()
                raise
        return protocol

    async def wait_closed(self) -> None:
        """Close, and let the loop take note of it."""
        self.close()
        await asyncio.sleep(0)
