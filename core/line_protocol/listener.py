"""The door of the line protocol: one session per connection.

    line → command → the broker → payload → line

A connection remembers nothing between two lines, so a script may say each on a connection of its own.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine
from types import CoroutineType
from typing import Any

from core.config import Endpoint
from core.errors import BrokerError
from core.facade import Facade
from core.line_protocol import codec as text
from core.line_protocol.answer_errors import code_of, refusal
from core.line_protocol.dispatch import HANDLERS
from core.listeners.connection import Answer, RefusedError

# A web page can make a browser send a request to any port, with a body of its choice; none of its lines may count.
_HTTP = re.compile(rb"[A-Z]+ [^ ]+ HTTP/[0-9]|host:", re.IGNORECASE)
# What lines without a command that there is are counted under: their words are the client's invention.
UNREADABLE = "unreadable"


class TextDoor:
    """What all connections of one listener share."""

    def __init__(self, broker: Facade) -> None:
        self.broker = broker
        self.lines = broker.counters.lines
        self.errors = broker.counters.line_errors
        self.now = broker.clock.monotonic

    def bound(self, endpoint: Endpoint) -> None:
        """See `Door.bound`."""

    def session(self) -> TextSession:
        """See `Door.session`."""
        return TextSession(self)


class TextSession:
    """One connection, and the line that it has under way (there is only one at a time)."""

    def __init__(self, door: TextDoor) -> None:
        self.door = door
        self.broker = door.broker
        self.peer_host = ""
        # Of the line under way: when it came, and its size in bytes.
        self._started = 0.0
        self._received = 0

    def connected(self, peer_host: str, local_host: str) -> None:
        """See `Session.connected`."""
        self.peer_host = peer_host

    def close(self) -> None:
        """See `Session.close`."""

    def handle(self, frame: memoryview) -> Answer | Coroutine[Any, Any, Answer]:
        """See `Session.handle`."""
        self._received = len(frame) + 1
        self._started = self.door.now()
        try:
            request = text.parse(bytes(frame))
        except text.LineError as error:
            if _HTTP.match(frame):
                raise RefusedError("it speaks HTTP, and this port does not") from None
            line = text.refused(error.correlation_id, error.code, error.message)
            return self._answer(UNREADABLE, line, error.code)
        try:
            payload = HANDLERS[request.name](self, request.command)
        except BrokerError as error:
            return self._refuse(request, error)
        if type(payload) is CoroutineType:
            return self._later(request, payload)
        return self._answer(request.name, text.ok(request.correlation_id, str(payload)))

    def unreadable(self, reason: str) -> Answer:
        """See `LineSession.unreadable`."""
        self._received, self._started = 0, self.door.now()
        return self._answer(UNREADABLE, text.refused(text.NOBODY, text.BAD_REQUEST, reason), text.BAD_REQUEST)

    async def _later(self, request: text.Request, payload: Coroutine[Any, Any, str]) -> Answer:
        try:
            return self._answer(request.name, text.ok(request.correlation_id, await payload))
        except BrokerError as error:
            return self._refuse(request, error)

    def _refuse(self, request: text.Request, error: BrokerError) -> Answer:
        return self._answer(request.name, refusal(request.correlation_id, error), code_of(error))

    def _answer(self, name: str, line: bytes, code: str = "") -> Answer:
        door = self.door
        if code:
            door.errors[name, code] += 1
        door.lines[name].note(door.now() - self._started, self._received, len(line))
        return [line]
