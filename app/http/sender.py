"""Write the answers of the application: whole ones in one write, streams piece by piece, FastAPI's messages as sent.

Every answer gets the same lines: the request id, `X-Content-Type-Options: nosniff`, a policy that lets a browser do
nothing with it, and those of CORS. The answer to a client with a name is kept in no cache, because another user may
use the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from app.http.exchange import in_task
from app.http.metrics import CLIENT_GONE
from app.http.request import DIRECT, Answer, Direct, Message, Send, Streamed

# RFC 9110, section 8.6: no Content-Length with 204; with 304 it would be that of the body that is not sent.
_WITHOUT_BODY = frozenset({204, 304})
_NOSNIFF = (b"x-content-type-options", b"nosniff")
# Console and documentation have policies of their own.
_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_SAFE = (_NOSNIFF, _POLICY)
_NOT_STORED = (b"cache-control", b"no-store")
Headers = list[tuple[bytes, bytes]]
MoreLines = Callable[[list[tuple[bytes, bytes]]], Iterable[tuple[bytes, bytes]]]
"""Header lines that depend on the other ones: those of CORS."""


class Sender:
    """Sends the answer to one request."""

    __slots__ = (
        "_direct",
        "_more",
        "_request_id",
        "_send",
        "private",
        "relayed",
        "sent",
        "started",
        "status",
    )

    def __init__(
        self, send: Send, request_id: bytes, extensions: Mapping[str, Any] | None, more: MoreLines | None
    ) -> None:
        self._send = send
        self._direct: Direct | None = extensions.get(DIRECT) if extensions else None
        self._request_id = request_id
        self._more = more
        self.started = False
        # Whether the answer is for the client of this request alone.
        self.private = False
        # Whether another gateway has made the answer, with these lines.
        self.relayed = False
        # For the counters: the status, and the bytes of the body.
        self.status = CLIENT_GONE
        self.sent = 0

    def answer_at_once(self, answer: Answer) -> bool:
        """Send a whole answer without a wait. Return False, with nothing sent, if that is not possible."""
        if self._direct is None or not self._direct.answer(answer.status, self._head(answer), answer.body):
            return False
        self.started = True
        return True

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer by ASGI's messages."""
        self.started = True
        await self._send(
            {"type": "http.response.start", "status": answer.status, "headers": self._head(answer)}
        )
        await self._send({"type": "http.response.body", "body": answer.body})

    def _head(self, answer: Answer) -> list[tuple[bytes, bytes]]:
        self.status = answer.status
        self.sent = len(answer.body)
        headers = [(b"x-request-id", self._request_id), *(() if self.relayed else _SAFE), *answer.headers]
        if self.private:
            headers = _not_stored(headers)
        if self._more is not None:
            headers += self._more(headers)
        if answer.status not in _WITHOUT_BODY:
            headers.append((b"content-type", answer.media_type))
            headers.append((b"content-length", b"%d" % len(answer.body)))
        return headers

    async def stream(self, answer: Streamed, method: str) -> None:
        """Send an answer piece by piece, as it is produced."""
        await in_task()
        self.started = True
        self.status = answer.status
        headers = [(b"content-type", answer.media_type), (b"x-request-id", self._request_id)]
        headers += answer.headers if self.relayed else (*_SAFE, *answer.headers)
        if self.private:
            headers = _not_stored(headers)
        if self._more is not None:
            headers += self._more(headers)
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if method != "HEAD":
            await answer.run(self._write)
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, piece: bytes) -> None:
        self.sent += len(piece)
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def send(self, message: Message) -> None:
        """Forward a message of FastAPI, with our lines added to its headers."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._request_id), _NOSNIFF]
            if all(name.lower() != _POLICY[0] for name, _ in headers):
                headers.append(_POLICY)
            if self.private:
                headers = _not_stored(headers)
            message["headers"] = headers if self._more is None else [*headers, *self._more(headers)]
        else:
            self.sent += len(message.get("body", b""))
        await self._send(message)


def _not_stored(headers: Headers) -> Headers:
    return [*(line for line in headers if line[0].lower() != _NOT_STORED[0]), _NOT_STORED]
