"""A request and an answer of the lean routes, with as little code between the socket and the broker as possible.

A lean route is a plain function from a `Request` to an `Answer`. Query values and bodies are checked here, so that
every refusal names the parameter and its bounds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote_to_bytes

from app.errors import Problem, field_error
from core.config import Config

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# The ASGI extension for whole bodies in one call: a `Direct`.
DIRECT = "sluice.direct"
JSON_MEDIA_TYPE = b"application/json"
_NOTHING: Mapping[str, Any] = {}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Parameters of one query: more than any route has, and few enough to parse quickly.
_MAX_PARAMETERS = 64
# The longest query, in bytes, whose parameters are remembered.
_SHORT_QUERY = 64
_INTEGER = re.compile(r"-?[0-9]{1,19}")


class ClientGoneError(Exception):
    """The client has closed its connection; no answer can be sent."""


class Answer(NamedTuple):
    """An answer: its status, body and media type, and more header lines."""

    status: int
    body: bytes
    media_type: bytes = JSON_MEDIA_TYPE
    headers: tuple[tuple[bytes, bytes], ...] = ()


Write = Callable[[bytes], Awaitable[None]]
"""Sends a piece of a body; returns when the client can take another one."""


class Direct(Protocol):
    """A faster way than ASGI's messages, for bodies and answers that need no wait: see `app.http.exchange`."""

    def whole_body(self) -> bytes | None:
        """Return the request's body; None if it is incomplete and must be received."""
        ...

    def answer(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer. Return False, with nothing sent, if it must be sent by messages."""
        ...


class Streamed(NamedTuple):
    """An answer with a body of unknown length: `run` writes it piece by piece and returns at its end.

    `run` may read the request's body meanwhile. It must end when the client has
    disconnected, and when the broker drains.
    """

    status: int
    media_type: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    run: Callable[[Write], Awaitable[None]]


class InFlight:
    """The bytes of request bodies that are in memory now, over all connections, with one limit."""

    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._limit - self._left

    def take(self, count: int) -> None:
        """Account for more bytes, or refuse with 503."""
        if count > self._left:
            raise Problem("not-ready", "Too many request bodies are under way; try again in a moment.")
        self._left -= count

    def give_back(self, count: int) -> None:
        """Take note that the bytes were handled."""
        self._left += count


class Request:
    """One HTTP request. `headers` has the last line of each name, in lower case."""

    held = 0
    # Bytes of the body that have been read, and the template of the route that took the request.
    received = 0
    route = "none"
    body_was_read = False
    _query: Mapping[str, str] | None = None

    def __init__(
        self, scope: Scope, receive: Receive, headers: dict[bytes, bytes], config: Config, in_flight: InFlight
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.headers = headers
        self._config = config
        self._in_flight = in_flight

    # --- query ---------------------------------------------------------------------------------------------

    def query(self, known: tuple[str, ...]) -> Mapping[str, str]:
        """Return the query parameters. Raises Problem for unknown and for repeated ones."""
        if self._query is None:
            text = self.scope["query_string"]
            if not text:
                self._query = {}
            else:
                parse = _parse_short_query if len(text) <= _SHORT_QUERY else parse_query
                self._query = parse(text, known)
        return self._query

    # --- body ----------------------------------------------------------------------------------------------

    def media_type(self) -> tuple[bytes, bytes]:
        """Return the body's media type in lower case, and its parameters (charset)."""
        essence, _, parameters = self.headers.get(b"content-type", b"").partition(b";")
        return essence.strip().lower(), parameters

    async def body(self) -> bytes:
        """Return the whole body. A body above `http_max_body_bytes` is refused while it is read.

        Raises Problem (408, 413, 415) and ClientGoneError.
        """
        self.check_plain()
        limit = self._config.http_max_body_bytes
        length = self.headers.get(b"content-length")
        # httptools has checked that they are digits. More than 18 of them are above every limit.
        if length is not None and (len(length) > 18 or int(length) > limit):
            raise self._too_large(limit)
        self.body_was_read = True
        direct: Direct | None = self.scope.get("extensions", _NOTHING).get(DIRECT)
        if direct is not None and (whole := direct.whole_body()) is not None:
            self._hold(len(whole), limit)
            return whole
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        first: bytes = message.get("body", b"")
        self._hold(len(first), limit)
        if not message.get("more_body", False):
            return first
        parts = [first]
        try:
            async with asyncio.timeout(self._config.frame_timeout_ms / 1000):
                while message.get("more_body", False):
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    part = message.get("body", b"")
                    self._hold(len(part), limit)
                    parts.append(part)
        except TimeoutError:
            seconds = self._config.frame_timeout_ms // 1000
            raise Problem(
                "request-timeout",
                f"The body was not complete after {seconds} s.",
                headers={"connection": "close"},
            ) from None
        return b"".join(parts)

    def check_plain(self) -> None:
        """Raise Problem (415) for a compressed body."""
        if b"content-encoding" in self.headers and self.headers[b"content-encoding"].lower() != b"identity":
            raise Problem(
                "unsupported-media-type",
                "A compressed body (Content-Encoding) is not supported; send it plain.",
            )

    def hold_now(self, count: int) -> None:
        """Account for `count` bytes of a body that is read piece by piece, instead of those held before."""
        self._in_flight.take(count)
        self._in_flight.give_back(self.held)
        self.held = count
        self.received += count

    def _hold(self, count: int, limit: int) -> None:
        self._in_flight.take(count)
        self.held += count
        self.received += count
        if self.held > limit:
            raise self._too_large(limit)

    @staticmethod
    def _too_large(limit: int) -> Problem:
        return Problem(
            "payload-too-large",
            f"The body has more than {limit} bytes; send less in one request.",
            headers={"connection": "close"},
            extra={"limit": limit, "unit": "bytes"},
        )

    def release(self) -> None:
        """Take note that the body was handled: its bytes no longer count."""
        if self.held:
            self._in_flight.give_back(self.held)
            self.held = 0


def invalid_parameter(name: str, detail: str) -> Problem:
    """Return the error for a query or path parameter."""
    return Problem("invalid-request", detail, errors=[field_error(detail, parameter=name)])


def parse_query(text: bytes, known: Iterable[str]) -> Mapping[str, str]:
    """Return the parameters of a query string. Raises Problem for unknown and for repeated ones.

    A known name that ends with a star matches all names with that beginning.
    """
    try:
        pairs = parse_qsl(
            text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS
        )
    except (UnicodeDecodeError, ValueError):
        raise Problem(
            "malformed-request", "The query string cannot be read: it must be percent-encoded UTF-8."
        ) from None
    query: dict[str, str] = {}
    names = tuple(known)
    for name, value in pairs:
        if name not in names and not any(n[-1] == "*" and name.startswith(n[:-1]) for n in names):
            takes = ", ".join(names) or "none"
            raise invalid_parameter(
                name[:60], f"There is no parameter {name[:60]!r} here; known are: {takes}."
            )
        if name in query:
            raise invalid_parameter(name, f"The parameter {name!r} is given more than once.")
        query[name] = value
    return query


# Clients repeat the same query (`acks=1`), and to parse one takes 5 µs or more.
_parse_short_query = lru_cache(maxsize=512)(parse_query)


def whole_number(name: str, text: str, low: int, high: int) -> int:
    """Return a parameter as a whole number between two bounds. Raises Problem."""
    if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
        raise invalid_parameter(
            name, f"{name} must be a whole number from {low} to {high}, not {text[:40]!r}."
        )
    return int(text)


def decode_path(scope: Scope) -> str:
    """Return the path with its percent-escapes decoded, without a trailing slash.

    Raises Problem for escapes that are not UTF-8 and for control characters.
    """
    raw = scope.get("raw_path") or scope["path"].encode()
    if b"%" in raw:
        try:
            path = unquote_to_bytes(raw.partition(b"?")[0]).decode()
        except UnicodeDecodeError:
            raise Problem("malformed-request", "The path is not percent-encoded UTF-8.") from None
    else:
        path = scope["path"]
    if _CONTROL.search(path):
        raise Problem("malformed-request", "The path holds control characters.")
    return path.rstrip("/") or "/" if path.endswith("/") else path
