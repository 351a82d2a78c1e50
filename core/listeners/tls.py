"""Accept connections with TLS on a listening socket.

asyncio would make the protocol of a connection at the accept, and tell it of the connection after the handshake. So a
client that is silent, or fails, is seen by no limit and no log. Here the handshakes are counted from the accept on:

    accept → the first byte → handshake → the protocol, as on a connection without TLS

The first byte tells TLS (22, RFC 8446 section 5.1) from a client that speaks plain text. Such a client, and one whose
handshake fails, gets one line in the log. All of it has one deadline. A client that connects and says nothing costs a
socket and a task until then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from core.config import Config
from core.counters import Handshakes
from core.security.addresses import Addresses
from core.security.tls import HANDSHAKES, Handshake, ServerCertificate

log = logging.getLogger(__name__)

_HANDSHAKE_RECORD = 22
# Connections accepted in one turn of the event loop.
_ACCEPTS_AT_ONCE = 64
# The system has no descriptor or memory for another connection: try again after this time.
_PAUSE_SECONDS = 1.0
# After the last bytes to a client that is refused, what it still sends is read for this long, in pieces of this size.
_LINGER_SECONDS = 1.0
_READ_BYTES = 64 * 1024
# Failed handshakes that are logged in one second: a flood of them must not fill the disk.
_LINES_PER_SECOND = 10


class TlsServer:
    """Accepts on one socket that listens, until `close`; the part of `asyncio.Server` that listeners use.

    `factory` makes the protocol of a connection. `plain_answer` is sent to a client that speaks plain text, as a
    whole, in the protocol that it probably speaks; then its connection is closed. `addresses` admits connections; it
    is the protocol that releases one whose handshake was completed.
    """

    def __init__(
        self,
        listening: socket.socket,
        certificate: ServerCertificate,
        factory: Callable[[], asyncio.BaseProtocol],
        config: Config,
        addresses: Addresses | None = None,
        *,
        http: bool = False,
        plain_answer: bytes = b"",
    ) -> None:
        self.handshakes = Handshakes()
        self._listening = listening
        self._certificate = certificate
        self._factory = factory
        self._addresses = addresses
        self._timeout = config.tls_handshake_timeout_ms / 1000
        # A close first sends what waits for a slow reader; asyncio's 30 s would cut it off.
        self._shutdown_timeout = config.write_timeout_ms / 1000
        self._most = config.tls_max_handshakes
        self._http = http
        self._plain_answer = plain_answer
        self._loop = asyncio.get_running_loop()
        # In the order of their accepts.
        self._under_way: dict[asyncio.Task[bool], None] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._lines = 0
        self._lines_since = 0.0
        self._closed = False

    def start(self) -> None:
        """Accept from now on."""
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Close the socket that listens, and end the handshakes under way: none of these has sent a request."""
        if self._closed:
            return
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._listening)
        self._listening.close()
        for task in list(self._under_way):
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                log.error("cannot accept a connection: %s", error.strerror)
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(_PAUSE_SECONDS, self.start)
                return
            if self._addresses is not None and (reason := self._addresses.admit(address[0])):
                self.handshakes.failed += 1
                connection.close()
                self._report(f"{address[0]}:{address[1]}", reason)
                continue
            if len(self._under_way) >= self._most:
                oldest = next(iter(self._under_way))
                del self._under_way[oldest]
                oldest.cancel()
            connection.setblocking(False)
            task = self._loop.create_task(self._serve(connection, f"{address[0]}:{address[1]}"))
            self._under_way[task] = None
            self.handshakes.under_way += 1
            task.add_done_callback(partial(self._ended, connection, address[0]))

    def _ended(self, connection: socket.socket, host: str, task: asyncio.Task[bool]) -> None:
        self._under_way.pop(task, None)
        self.handshakes.under_way -= 1
        served = not task.cancelled() and task.exception() is None and task.result()
        if not served and self._addresses is not None:
            self._addresses.release(host)
        if task.cancelled():
            # Also a task that had not begun; a transport that has the socket is closed already.
            self.handshakes.failed += 1
            connection.close()
        elif (error := task.exception()) is not None:
            connection.close()
            log.error("a connection could not be opened", exc_info=error)

    async def _serve(self, connection: socket.socket, peer: str) -> bool:
        """Make the handshake and give the connection to its protocol, or close it. Return whether it was given."""
        try:
            async with asyncio.timeout(self._timeout):
                if not await self._speaks_tls(connection, peer):
                    connection.close()
                    return False
                await self._shake_hands(connection)
        except (OSError, TimeoutError) as error:
            self.handshakes.failed += 1
            connection.close()
            self._report(peer, _reason(error, self._timeout))
            return False
        self.handshakes.completed += 1
        return True

    async def _shake_hands(self, connection: socket.socket) -> None:
        """Make the handshake; tell the client why it fails. Raises OSError.

        asyncio and uvloop close the socket of a failed handshake without sending its alert. Java's clients would take
        that for a broken network, and retry without end. So the alert is sent over a second descriptor of the socket.
        """
        made: list[Handshake] = []
        HANDSHAKES.set(made)
        with connection.dup() as second:
            try:
                await self._loop.connect_accepted_socket(
                    self._factory,
                    connection,
                    ssl=self._certificate.context(http=self._http),
                    ssl_handshake_timeout=self._timeout,
                    ssl_shutdown_timeout=self._shutdown_timeout,
                )
            except ssl.SSLError:
                if made and made[0].alert:
                    await self._say_last(second, made[0].alert)
                raise

    async def _say_last(self, connection: socket.socket, data: bytes) -> None:
        """Send the last bytes, and read what the client still sends: a close with bytes unread takes them back."""
        with contextlib.suppress(OSError, TimeoutError):
            connection.send(data)
            connection.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_LINGER_SECONDS):
                while await self._readable(connection) and connection.recv(_READ_BYTES):
                    pass

    async def _readable(self, connection: socket.socket) -> bool:
        """Return once there are bytes to read, or the end of them."""
        arrived = self._loop.create_future()
        self._loop.add_reader(connection, _arrived, arrived)
        try:
            await arrived
        finally:
            self._loop.remove_reader(connection)
        return True

    async def _speaks_tls(self, connection: socket.socket, peer: str) -> bool:
        """Return whether a client begins with TLS; answer one that does not. One that leaves has said nothing."""
        await self._readable(connection)
        first = connection.recv(1, socket.MSG_PEEK)
        if first and first[0] == _HANDSHAKE_RECORD:
            return True
        if first:
            self.handshakes.failed += 1
            self._report(
                peer, f"the client does not speak TLS, and this listener does ({self._certificate.name!r})"
            )
            if self._plain_answer:
                await self._say_last(connection, self._plain_answer)
        return False

    def _report(self, peer: str, reason: str) -> None:
        now = self._loop.time()
        if now - self._lines_since >= 1:
            self._lines, self._lines_since = 0, now
        self._lines += 1
        if self._lines <= _LINES_PER_SECOND:
            log.warning("%s: closed: %s", peer, reason)


def _arrived(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _reason(error: OSError | TimeoutError, timeout: float) -> str:
    if isinstance(error, ssl.SSLError):
        text = (error.reason or str(error)).replace("_", " ").lower()
        return f"the TLS handshake failed: {text}"
    if isinstance(error, TimeoutError):
        return f"the TLS handshake was not complete within {timeout:g} s"
    return f"the client left during the TLS handshake ({error.strerror or type(error).__name__})"
