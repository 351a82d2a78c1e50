"""The listener of the line protocol: one session per connection.

    line → command → the broker → payload → line

A session keeps no state between two lines, so a script may send each line over a connection of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from types import CoroutineType
from typing import Any

from core.broker.broker import Broker
from core.config import Endpoint
from core.errors import BrokerError
from core.line_protocol import codec
from core.line_protocol.answer_errors import code_of, refusal
from core.listeners.connection import Answer, RefusedError
from core.security.audit import SOURCE, Source
from core.security.principal import ANONYMOUS, Caller, Principal

# A web page can make a browser send a request to any port, with a body of its choice; no line of it may be executed.
_HTTP = re.compile(rb"[A-Z]+ [^ ]+ HTTP/[0-9]|host:", re.IGNORECASE)
# The name under which lines without a known command are counted: the client chooses their words.
UNREADABLE = "unreadable"
_SOURCE = Source("text")


class LineListener:
    """Keep what all connections of one listener share. `handlers` are the commands served, by name."""

    def __init__(self, broker: Broker, handlers: Mapping[str, Handler]) -> None:
        self.broker = broker
        self.handlers = handlers
        self.lines = broker.counters.lines
        self.errors = broker.counters.line_errors
        self.now = broker.clock.monotonic

    def bound(self, endpoint: Endpoint) -> None:
        """See `Listener.bound`."""

    def session(self) -> LineSession:
        """See `Listener.session`."""
        return LineSession(self)


class LineSession:
    """One connection, and its line under way (at most one)."""

    def __init__(self, listener: LineListener) -> None:
        self.listener = listener
        self.peer_host = ""
        self.broker = listener.broker.guards.of(Caller(ANONYMOUS))
        # Of the line under way: when it arrived, and its size in bytes.
        self._started = 0.0
        self._received = 0
        # See `Session.mute_ms`.
        self.mute_ms = 0

    def connected(self, peer_host: str, local_host: str, principal: Principal = ANONYMOUS) -> None:
        """See `Session.connected`."""
        self.peer_host = peer_host
        self.broker = self.listener.broker.guards.of(Caller(principal, peer_host))

    def close(self) -> None:
        """See `Session.close`."""

    def handle(self, frame: memoryview) -> Answer | Coroutine[Any, Any, Answer]:
        """See `Session.handle`. `frame` is a line without its end."""
        SOURCE.set(_SOURCE)
        self._received = len(frame) + 1
        self._started = self.listener.now()
        try:
            request = codec.parse(bytes(frame))
        except codec.LineError as error:
            if _HTTP.match(frame):
                raise RefusedError("it speaks HTTP, and this port does not") from None
            line = codec.refused(error.correlation_id, error.code, error.message)
            return self._answer(UNREADABLE, line, error.code)
        try:
            payload = self.listener.handlers[request.name](self, request.command)
        except BrokerError as error:
            return self._refuse(request, error)
        if type(payload) is CoroutineType:
            return self._later(request, payload)
        return self._answer(request.name, codec.ok(request.correlation_id, str(payload)))

    def unreadable(self, reason: str) -> Answer:
        """Return the answer to a line that `handle` cannot take: too long, or without its end."""
        self._received, self._started = 0, self.listener.now()
        line = codec.refused(codec.NO_ID, codec.BAD_REQUEST, reason)
        return self._answer(UNREADABLE, line, codec.BAD_REQUEST)

    async def _later(self, request: codec.Request, payload: Coroutine[Any, Any, str]) -> Answer:
        try:
            return self._answer(request.name, codec.ok(request.correlation_id, await payload))
        except BrokerError as error:
            return self._refuse(request, error)

    def _refuse(self, request: codec.Request, error: BrokerError) -> Answer:
        return self._answer(request.name, refusal(request.correlation_id, error), code_of(error))

    def _answer(self, name: str, line: bytes, code: str = "") -> Answer:
        listener = self.listener
        if code:
            listener.errors[name, code] += 1
        listener.lines[name].note(listener.now() - self._started, self._received, len(line))
        return [line]


# Serves one command: returns the payload of its answer, or a coroutine of it; raises BrokerError.
Handler = Callable[[LineSession, Any], str | Coroutine[Any, Any, str]]
