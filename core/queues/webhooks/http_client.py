"""An HTTP/1.1 client for endpoints that are not trusted: one POST, and as little of the answer as is needed.

It connects to addresses that `addresses` has checked, with the name for SNI, certificate and Host. It follows no
redirect, decodes nothing, uses no proxy, reads 64 KiB of a body at most, and each phase has a limit of time.
httptools parses the answers, as it does for `app.gateways.links`; that client streams bodies both ways, of gateways
that are trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import httptools

from core.clock import Clock
from core.queues.webhooks.addresses import RefusedAddressError, Rules, Target, check_all

_READ = 16_384
MAX_HEAD = 65_536
MAX_BODY = 65_536
# Interim answers (100 Continue, 103 Early Hints) before the final one.
MAX_INTERIM = 10
CONNECT_SECONDS = 10.0
# An answer is complete with its head; its body is read for this long so that the connection can be used again.
BODY_SECONDS = 5.0
# Endpoints close idle connections after a minute or so; and a name is looked up again now and then.
MAX_IDLE_SECONDS = 20.0
# Addresses of a name that are tried one after the other.
_MAX_ADDRESSES = 3
_KEPT_HEADERS = frozenset({"retry-after", "webhook-delivery"})


class NoAnswerError(Exception):
    """The endpoint gave no answer. The text gives the reason, without a name."""


class _LostError(NoAnswerError):
    """The connection ended before the first byte of the answer."""


class Answer(NamedTuple):
    """The status of an answer, and those of its headers that matter, with names in lower case."""

    status: int
    headers: dict[str, str]


class Network(Protocol):
    """Names and connections: of the system, or by what a test hands in."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host. Raises OSError."""
        ...

    async def connect(
        self, address: str, port: int, tls: ssl.SSLContext | None, name: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address, with a TLS handshake for `name` if `tls` is given. Raises OSError."""
        ...


class Internet:
    """The network of the system."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """See `Network.resolve`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(one[4][0]) for one in found))

    async def connect(
        self, address: str, port: int, tls: ssl.SSLContext | None, name: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See `Network.connect`."""
        if tls is None:
            return await asyncio.open_connection(address, port, limit=_READ)
        return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name, limit=_READ)


class _Connection:
    """One connection; it carries one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser: Any = None
        self._kept: dict[str, str] = {}
        self._status = 0
        self._has_head = self._complete = self._stays = False
        self._interim = self._head_bytes = self._body_bytes = 0
        self._sent = False
        self.idle_since = 0.0

    # --- httptools -------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin an answer: after an interim one there is another."""
        self._kept = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header that matters; of duplicates the first."""
        lower = name.decode("latin-1").lower()
        if not self._has_head and lower in _KEPT_HEADERS:
            self._kept.setdefault(lower, value.decode("latin-1")[:200])

    def on_headers_complete(self) -> None:
        """Take note of the head, unless it is that of an interim answer."""
        if self._has_head:
            # A second answer to one request: the connection is of no use any more.
            self._stays = False
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._interim += 1
            return
        self._status = status
        self._has_head = True
        self._stays = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Count the body; it is not kept."""
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        """Take note that the answer is complete."""
        self._complete = self._has_head

    # --- one request -----------------------------------------------------------------------------------------

    async def send(self, head: bytes, body: bytes) -> Answer:
        """Send a request and return the head of its answer. Raises NoAnswerError, OSError."""
        self._parser = httptools.HttpResponseParser(self)
        self._has_head = self._complete = False
        self._interim = self._head_bytes = self._body_bytes = 0
        # An endpoint may answer and close before it has read a large body.
        sending = asyncio.ensure_future(self._write(head, body))
        try:
            while not self._has_head:
                await self._feed()
                if not self._has_head and (self._head_bytes > MAX_HEAD or self._interim > MAX_INTERIM):
                    raise NoAnswerError("its answer has too many header lines or interim answers")
            return Answer(self._status, self._kept)
        finally:
            self._sent = sending.done() and not sending.cancelled() and sending.exception() is None
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending

    async def _write(self, head: bytes, body: bytes) -> None:
        self._writer.write(head + body)
        await self._writer.drain()

    async def finish(self) -> bool:
        """Read the rest of the answer, within limits; return whether the connection can be used again."""
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while not self._complete and self._body_bytes <= MAX_BODY:
                    await self._feed()
        except (NoAnswerError, OSError, TimeoutError):
            return False
        return self._complete and self._sent and self._stays and self._body_bytes <= MAX_BODY and self.open

    async def _feed(self) -> None:
        data = await self._reader.read(_READ)
        if not data:
            raise (
                _LostError("it closed the connection")
                if not self._head_bytes
                else NoAnswerError("it closed the connection within its answer")
            )
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            # What follows a complete head does not change the answer.
            if not self._has_head:
                raise NoAnswerError("its answer is not HTTP/1.1") from None
            self._stays = False
            self._complete = True

    @property
    def open(self) -> bool:
        """Whether the other side has not closed the idle connection, as far as is known."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    def abort(self) -> None:
        """Close at once."""
        self._writer.transport.abort()


class HttpClient:
    """Connections to one endpoint. They are kept for a while after a request."""

    def __init__(
        self,
        target: Target,
        rules: Rules,
        clock: Clock,
        network: Network,
        tls: Callable[[], ssl.SSLContext],
        own: Callable[[], Iterable[tuple[str, int]]],
    ) -> None:
        self.target = target
        self._rules = rules
        self._now = clock.monotonic
        self._network = network
        self._tls = tls
        self._own = own
        self._idle: list[_Connection] = []
        self._closed = False

    async def post(self, headers: Sequence[tuple[str, str]], body: bytes, seconds: float) -> Answer:
        """Send one request; return the answer if it begins within `seconds`. Raises NoAnswerError."""
        lines = [
            f"POST {self.target.path} HTTP/1.1",
            f"host: {self.target.authority}",
            *(f"{name}: {value}" for name, value in headers),
            f"content-length: {len(body)}",
            "\r\n",
        ]
        head = "\r\n".join(lines).encode("latin-1")
        try:
            async with asyncio.timeout(seconds):
                connection, answer = await self._post(head, body, seconds)
        except TimeoutError:
            raise NoAnswerError(f"no answer within {seconds:g} s") from None
        except OSError as error:
            raise NoAnswerError(_text(error)) from None
        await self._keep(connection)
        return answer

    async def _post(self, head: bytes, body: bytes, seconds: float) -> tuple[_Connection, Answer]:
        kept = self._take()
        if kept is not None:
            try:
                return await self._on(kept, head, body)
            except (_LostError, ConnectionError):
                # The endpoint closed the idle connection while the request was on its way. If it got it all the
                # same, it knows the request by its `webhook-id`.
                pass
        return await self._on(await self._connect(min(seconds, CONNECT_SECONDS)), head, body)

    async def _on(self, connection: _Connection, head: bytes, body: bytes) -> tuple[_Connection, Answer]:
        try:
            return connection, await connection.send(head, body)
        except BaseException:
            connection.abort()
            raise

    async def _keep(self, connection: _Connection) -> None:
        """Read the rest of an answer, and keep the connection for the next request or close it."""
        reusable = False
        try:
            reusable = await connection.finish() and not self._closed
        finally:
            if reusable:
                connection.idle_since = self._now()
                self._idle.append(connection)
            else:
                connection.abort()

    def _take(self) -> _Connection | None:
        oldest = self._now() - MAX_IDLE_SECONDS
        found = None
        for one in self._idle[::-1]:
            if found is None and one.open and one.idle_since > oldest:
                found = one
            elif not one.open or one.idle_since <= oldest:
                one.abort()
                self._idle.remove(one)
        if found is not None:
            self._idle.remove(found)
        return found

    async def _connect(self, seconds: float) -> _Connection:
        target = self.target
        try:
            async with asyncio.timeout(seconds):
                found = await self._network.resolve(target.host, target.port)
        except TimeoutError:
            raise NoAnswerError("its name was not resolved in time") from None
        except (OSError, UnicodeError):
            raise NoAnswerError("its name is not known") from None
        try:
            addresses = check_all(self._rules, target, found, self._own())
        except RefusedAddressError as error:
            raise NoAnswerError(str(error)) from None
        tls = self._tls() if target.secure else None
        failure: Exception = NoAnswerError("it has no address")
        for address in addresses[:_MAX_ADDRESSES]:
            try:
                async with asyncio.timeout(seconds / min(len(addresses), _MAX_ADDRESSES)):
                    return _Connection(*await self._network.connect(address, target.port, tls, target.host))
            except TimeoutError:
                failure = NoAnswerError("no connection in time")
            except OSError as error:
                failure = NoAnswerError(_text(error))
        raise failure

    def close(self) -> None:
        """Close the idle connections; the others close after their requests."""
        self._closed = True
        for one in self._idle:
            one.abort()
        self._idle = []


def _text(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or 'unknown reason'}"
    return (error.strerror or str(error) or type(error).__name__).lower()
