"""An endpoint for tests: an HTTP server that answers as each test wants, also against every rule."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import NamedTuple


class Got(NamedTuple):
    """A request as the endpoint got it; `headers` have names in lower case."""

    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Got, asyncio.StreamWriter], Awaitable[None]]


def status(code: int, *headers: str) -> Answer:
    """Answer with a status and header lines."""

    async def answer(_: Got, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {code} X", "content-length: 0", *headers, "\r\n"]
        writer.write("\r\n".join(lines).encode())

    return answer


def raw(data: bytes, *, close: bool = True) -> Answer:
    """Answer with these bytes, and close the connection."""

    async def answer(_: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if close:
            writer.close()

    return answer


async def silence(_: Got, writer: asyncio.StreamWriter) -> None:
    """Answer nothing."""
    await asyncio.sleep(100_000)


class Endpoint:
    """The server. `answer` may be replaced at any time; `got` has the requests."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer: Answer = answer or status(200)
        self.got: list[Got] = []
        self.connections = 0
        self.running = self.most = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Endpoint:
        await self.start()
        return self

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a port of the system's choice."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Return a URL of the endpoint."""
        return f"http://127.0.0.1:{self.port}/hook?token=planted-secret"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while not writer.is_closing():
                got = await self._request(reader)
                self.got.append(got)
                self.running += 1
                self.most = max(self.most, self.running)
                try:
                    await self.answer(got, writer)
                    await writer.drain()
                finally:
                    self.running -= 1
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _request(self, reader: asyncio.StreamReader) -> Got:
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        return Got(line, headers, body)


class Names:
    """A network in which names have the addresses that a test gives them; connections are real."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.names = names
        self.connected: list[tuple[str, int, str]] = []
        self.resolved: list[str] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """See `Network.resolve`."""
        self.resolved.append(host)
        found = self.names.get(host.replace(".", "_"))
        if found is None and not host[0].isdigit() and ":" not in host:
            raise OSError("unknown name")
        return [host] if found is None else found

    async def connect(
        self, address: str, port: int, tls: ssl.SSLContext | None, name: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """See `Network.connect`."""
        self.connected.append((address, port, name))
        if tls is None:
            return await asyncio.open_connection(address, port)
        return await asyncio.open_connection(address, port, ssl=tls, server_hostname=name)
