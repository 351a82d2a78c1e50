"""Streams over real sockets: what only the HTTP server and the kernel can show."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.app.http.test_protocol import running
from tests.app.native.streams.asgi_stream import Event, EventParser

pytestmark = pytest.mark.asyncio(loop_scope="module")
T = "/api/v1/topics/t"
PIECES = {"stream_piece_bytes": 16_384, "stream_comment_ms": 200}


@asynccontextmanager
async def client(port: int) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as http:
        yield http


async def events(http: httpx.AsyncClient, query: str = "", **headers: str) -> AsyncIterator[Event]:
    """The events of a stream until it ends, as a browser gets them."""
    parser = EventParser()
    headers["accept"] = "text/event-stream"
    async with http.stream("GET", f"{T}/records{query}", headers=headers) as answer:
        assert answer.status_code == 200
        async for piece in answer.aiter_bytes():
            for event in parser.feed(piece):
                yield event


async def produce(http: httpx.AsyncClient, count: int, size: int = 20) -> None:
    records = [{"value": "x" * size} for _ in range(count)]
    assert (await http.post(f"{T}/records?acks=1", json={"records": records})).status_code == 200


async def test_events_come_one_by_one_while_the_stream_is_open(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as port, client(port) as http:
        await produce(http, 1)
        stream = events(http)
        seen = []
        async with asyncio.timeout(10):
            async for event in stream:
                seen.append((event.type, json.loads(event.data).get("offset")))
                if len(seen) in (2, 3):
                    await produce(http, 1)
                if len(seen) == 4:
                    break
        await stream.aclose()  # type: ignore[attr-defined]
        assert seen == [("record", 0), ("caught_up", None), ("record", 1), ("record", 2)]


async def test_a_stop_of_the_server_ends_streams_with_bye_at_once(tmp_path: Path) -> None:
    seen: list[str] = []

    async def listen(http: httpx.AsyncClient) -> None:
        async for event in events(http):
            seen.append(event.type)

    async with AsyncExitStack() as afterwards:
        async with running(tmp_path / "data") as port:
            http = await afterwards.enter_async_context(client(port))
            await produce(http, 2)
            task = asyncio.create_task(listen(http))
            while "caught_up" not in seen:
                await asyncio.sleep(0.005)
            begin = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begin < 3
        await asyncio.wait_for(task, 60)
    assert seen == ["record", "record", "caught_up", "bye"]


async def test_a_reader_that_is_slow_gets_everything_and_little_is_held_for_it(tmp_path: Path) -> None:
    async with running(tmp_path / "data", **PIECES) as port, client(port) as http:
        await http.put(T, json={})
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, ("127.0.0.1", port))
        await loop.sock_sendall(
            slow, f"GET {T}/records HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        await asyncio.sleep(0.05)
        for _ in range(16):
            await produce(http, 200, 2_000)
        # The log is the buffer: the socket's own fill up, one piece waits, and no more is read from the log.
        await asyncio.sleep(0.2)
        got = b""
        async with asyncio.timeout(20):
            while got.count(b"event: record") < 3_200 or not got.endswith(b"\r\n"):
                got += await loop.sock_recv(slow, 1 << 20)
        slow.close()
        # Chunk sizes stand between; the numbers are in order and complete.
        offsets = [int(part.split(b",")[0]) for part in got.split(b'"offset":')[1:]]
        assert offsets == list(range(3_200))


async def test_a_reader_that_takes_nothing_at_all_is_closed(tmp_path: Path) -> None:
    changes = {**PIECES, "write_timeout_ms": 200}
    async with running(tmp_path / "data", **changes) as port, client(port) as http:
        await http.put(T, json={})
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        raw = writer.get_extra_info("socket")
        assert raw is not None
        writer.write(
            f"GET {T}/records HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        await asyncio.sleep(0.05)
        writer.transport.pause_reading()
        # More than the kernel's buffers on both sides take (6 MB at most by default for the receiver).
        for _ in range(40):
            await produce(http, 100, 4_000)
        await asyncio.sleep(0.8)
        writer.transport.resume_reading()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            async with asyncio.timeout(10):
                await reader.readexactly(100_000_000)
        writer.close()


async def test_a_listener_continues_where_it_was_after_a_restart(tmp_path: Path) -> None:
    got: list[int] = []
    last_id = ""
    for cut in (7, 12, 40):
        async with running(tmp_path / "data") as port, client(port) as http:
            await produce(http, 10)
            stream = events(http, **({"last-event-id": last_id} if last_id else {}))
            async with asyncio.timeout(10):
                async for event in stream:
                    last_id = event.id
                    if event.type == "record":
                        got.append(json.loads(event.data)["offset"])
                    if len(got) == cut or (event.type == "caught_up" and len(got) == 30):
                        break
            await stream.aclose()  # type: ignore[attr-defined]
    assert got == list(range(30))
