"""HTTP/1.1 connections from one gateway to another: kept alive, bounded, over TCP, TLS or a UNIX socket.

httptools parses the answers, as it parses requests in `app.http.protocol`. A link carries one request at a time. The
reader of a link holds 128 KiB at most, so an answer that the client does not read is not read from the owner either.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import httptools

from core.clock import Clock

_READ = 65_536
# Header lines of one answer. Ours are far shorter.
_MAX_HEAD = 65_536
# A link that was idle for longer is closed: the owner closes it after `idle_timeout_ms`, and a request that is sent
# at that moment would fail.
MAX_IDLE_SECONDS = 20.0
# Idle links to one gateway. More are made when there are more requests, and closed after them.
_MAX_IDLE = 64


class LinkLostError(Exception):
    """The connection to the other gateway ended before the answer did. The text gives the reason."""


class Target(NamedTuple):
    """Where a gateway is reached: host and port, perhaps with TLS, or the path of a UNIX socket."""

    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None
    unix: Path | None = None

    def __str__(self) -> str:
        return str(self.unix) if self.unix is not None else f"{self.host}:{self.port}"


class Head(NamedTuple):
    """The beginning of an answer: its status, and its header lines with names in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]


class Link:
    """One connection to another gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser: Any = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: deque[bytes] = deque()
        self._head: Head | None = None
        self._without_body = False
        self._stays = False
        self._head_bytes = 0
        self.complete = False
        self.idle_since = 0.0
        # Whether an answer was received over this link before.
        self.used = False

    # --- httptools -----------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header line; a trailer is ignored."""
        if self._head is None:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take note that the head is complete."""
        self._head = Head(self._parser.get_status_code(), self._headers)
        self._stays = self._parser.should_keep_alive()
        if self._without_body:
            self.complete = True

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Take note that the answer is complete."""
        self.complete = True

    # --- one request ---------------------------------------------------------------------------------------

    def begin(self, head: bytes, *, without_body: bool) -> None:
        """Send the head of a request. `without_body`: its answer has none (HEAD)."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers = []
        self._parts.clear()
        self._head = None
        self._head_bytes = 0
        self._without_body = without_body
        self._stays = False
        self.complete = False
        self._writer.write(head)

    async def send(self, piece: bytes) -> None:
        """Send a piece of the body; return when the owner accepts more. Raises LinkLostError."""
        try:
            self._writer.write(piece)
            await self._writer.drain()
        except OSError as error:
            raise LinkLostError(_text(error)) from None

    async def head(self) -> Head:
        """Return the beginning of the answer. Raises LinkLostError."""
        while self._head is None:
            await self._feed()
            if self._head is None and self._head_bytes > _MAX_HEAD:
                raise LinkLostError("its answer has too many header lines")
        return self._head

    async def piece(self) -> bytes:
        """Return the next piece of the answer's body; empty at its end. Raises LinkLostError."""
        while not self._parts:
            if self.complete:
                return b""
            await self._feed()
        return self._parts.popleft()

    async def _feed(self) -> None:
        try:
            data = await self._reader.read(_READ)
        except OSError as error:
            raise LinkLostError(_text(error)) from None
        if not data:
            raise LinkLostError("it closed the connection")
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            raise LinkLostError("its answer is not HTTP/1.1") from None

    @property
    def reusable(self) -> bool:
        """Whether the answer is complete and the connection stays open."""
        return (
            self.complete
            and not self._parts
            and not self._reader.at_eof()
            and not self._writer.is_closing()
            and self._stays
        )

    @property
    def open(self) -> bool:
        """Whether the other side has not closed the idle connection, as far as is known."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    def abort(self) -> None:
        """Close at once: the owner sees that the client has disconnected."""
        self._writer.transport.abort()


class Links:
    """The connections to one gateway."""

    def __init__(
        self,
        target: Target,
        clock: Clock,
        *,
        connect_timeout_ms: int,
        most: int,
        idle_seconds: float = MAX_IDLE_SECONDS,
        answer_seconds: float = 330.0,
    ) -> None:
        # How long an answer may take to begin: the longest poll, and time to find its end.
        self.answer_seconds = answer_seconds
        self._idle_seconds = idle_seconds
        self.target = target
        self._now = clock.monotonic
        self._timeout = connect_timeout_ms / 1000
        self._most = most
        self._idle: list[Link] = []
        self._open = 0
        self._closed = False

    def __len__(self) -> int:
        return self._open

    async def take(self, *, fresh: bool = False) -> Link:
        """Return a connection: the idle one that was used last, or a new one. Raises OSError, TimeoutError.

        `fresh`: a new one. OSError also means that too many are open.
        """
        oldest = self._now() - self._idle_seconds
        while self._idle and not fresh:
            link = self._idle.pop()
            if link.open and link.idle_since > oldest:
                return link
            self._discard(link)
        self._close_old(oldest)
        if self._open >= self._most:
            raise OSError(f"{self._open} requests are under way already")
        self._open += 1
        try:
            return await self._connect()
        except BaseException:
            self._open -= 1
            raise

    async def _connect(self) -> Link:
        target = self.target
        async with asyncio.timeout(self._timeout):
            if target.unix is not None:
                reader, writer = await asyncio.open_unix_connection(target.unix)
            else:
                reader, writer = await asyncio.open_connection(target.host, target.port, ssl=target.tls)
                one: socket.socket = writer.get_extra_info("socket")
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # A gateway whose machine has lost power answers nothing: the system notices that.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return Link(reader, writer)

    def give_back(self, link: Link) -> None:
        """Keep a connection for the next request, or close it."""
        link.used = True
        if self._closed or not link.reusable or len(self._idle) >= _MAX_IDLE:
            self._discard(link)
            return
        link.idle_since = self._now()
        self._idle.append(link)

    def drop(self, link: Link) -> None:
        """Close a connection that cannot be used any more."""
        self._discard(link)

    def close(self) -> None:
        """Close the idle connections; the others close after their requests."""
        self._closed = True
        self._discard_all(self._idle)
        self._idle = []

    def _close_old(self, oldest: float) -> None:
        old = [link for link in self._idle if link.idle_since <= oldest]
        self._idle = [link for link in self._idle if link.idle_since > oldest]
        self._discard_all(old)

    def _discard_all(self, links: Iterable[Link]) -> None:
        for link in links:
            self._discard(link)

    def _discard(self, link: Link) -> None:
        self._open -= 1
        link.abort()


def _text(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
