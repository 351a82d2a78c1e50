"""A client of the ASGI application that takes an answer piece by piece, as slowly as a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from app.main import Application
from tests.app.conftest import HOST


@dataclass
class Event:
    """One server-sent event, as the HTML standard parses it; `id` is the last id at that moment."""

    type: str
    data: str
    id: str

    def json(self) -> Any:
        """The data as JSON."""
        return json.loads(self.data)


@dataclass
class EventParser:
    """Section 9.2.6 of the HTML standard: bytes in, events out; `last_id` and `retry` as a browser keeps them."""

    last_id: str = ""
    retry: int | None = None
    comments: int = 0
    _rest: bytes = b""
    _type: str = ""
    _data: list[str] = field(default_factory=list)

    def feed(self, piece: bytes) -> list[Event]:
        """The events that are complete with this piece."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = []
        for raw in lines:
            line = raw.decode()
            if not line:
                if self._data:
                    events.append(Event(self._type or "message", "\n".join(self._data), self.last_id))
                self._type, self._data = "", []
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not name:
                self.comments += 1
            elif name == "id":
                self.last_id = value
            elif name == "event":
                self._type = value
            elif name == "data":
                self._data.append(value)
            elif name == "retry":
                self.retry = int(value)
        return events


class Stream:
    """One request and what has come for it. While `room` is clear, the client takes nothing."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.room = asyncio.Event()
        self.room.set()
        self.started = asyncio.Event()
        self.blocked_bytes = 0
        self.parser = EventParser()
        self._events: list[Event] = []

    async def receive(self) -> dict[str, Any]:
        """What the application receives."""
        return await self.sent.get()

    async def send(self, message: dict[str, Any]) -> None:
        """What the application sends."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.started.set()
            return
        if not self.room.is_set():
            self.blocked_bytes += len(message.get("body", b""))
        await self.room.wait()
        if message.get("body"):
            self.pieces.put_nowait(message["body"])
        if not message.get("more_body"):
            self.pieces.put_nowait(None)

    def leave(self) -> None:
        """Close the connection; as with uvicorn, what is blocked in sending returns."""
        self.sent.put_nowait({"type": "http.disconnect"})
        self.room.set()

    async def piece(self, timeout: float = 5) -> bytes | None:
        """The next piece; None at the end."""
        return await asyncio.wait_for(self.pieces.get(), timeout)

    async def event(self, timeout: float = 5) -> Event:
        """The next event."""
        async with asyncio.timeout(timeout):
            while not self._events:
                piece = await self.piece(timeout)
                assert piece is not None, "the stream has ended"
                self._events += self.parser.feed(piece)
        return self._events.pop(0)

    async def records(self, count: int) -> list[Any]:
        """The next `count` records, whatever other events come between."""
        found: list[Any] = []
        while len(found) < count:
            event = await self.event()
            if event.type == "record":
                found.append(event.json())
        return found

    async def rest(self) -> bytes:
        """All that comes until the end."""
        whole = b""
        while (piece := await self.piece()) is not None:
            whole += piece
        return whole


@asynccontextmanager
async def streaming(
    app: Application,
    path: str,
    query: str = "",
    *,
    accept: str = "text/event-stream",
    method: str = "GET",
    body: bytes | None = b"",
    wait: bool = True,
    **headers: str,
) -> AsyncIterator[Stream]:
    """A request under way, its answer started where `wait` is; the client leaves at the end of the block.

    With a `body` of None the caller sends messages itself, by `stream.sent`.
    """
    lines = {"host": HOST, "accept": accept} | {k.replace("_", "-"): v for k, v in headers.items()}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in lines.items()],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8082),
    }  # fmt: skip
    stream = Stream()
    if body is not None:
        stream.sent.put_nowait({"type": "http.request", "body": body, "more_body": False})
    task = asyncio.create_task(app(scope, stream.receive, stream.send))
    started = asyncio.create_task(stream.started.wait())
    try:
        if wait:
            await asyncio.wait({task, started}, return_when=asyncio.FIRST_COMPLETED)
        yield stream
    finally:
        started.cancel()
        stream.leave()
        await asyncio.wait_for(task, 60)
