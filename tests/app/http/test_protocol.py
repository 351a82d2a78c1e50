"""The HTTP connection itself: bytes that are no HTTP, slow senders, long header lines, too many connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.http.server import HttpServer, bind
from app.main import create_app
from core.clock import Clock
from core.config import Endpoint
from tests.app.conftest import config_for

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def running(data_dir: Path, **changes: Any) -> AsyncIterator[int]:
    """A server on a port that the system chose."""
    config = config_for(data_dir, **changes)
    app = create_app(config)
    sockets = bind([Endpoint("http", "127.0.0.1", 0)])
    port = sockets[0].getsockname()[1]
    server = HttpServer(app.http, sockets, config, Clock(), app.traffic)
    async with app.lifespan():
        await server.start()
        try:
            yield port
        finally:
            app.drain()
            await server.stop()


async def talk(port: int, data: bytes, seconds: float = 5) -> bytes:
    """Send bytes; what came back until the server closed or the time was over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = b""
    try:
        async with asyncio.timeout(seconds):
            while part := await reader.read(65536):
                answer += part
    except (TimeoutError, ConnectionResetError):
        pass
    finally:
        writer.close()
    return answer


def refused(answer: bytes, status: int, kind: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"connection: close" in head
    assert json.loads(body)["type"] == f"/problems/{kind}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    async with running(tmp_path_factory.mktemp("broker") / "data") as number:
        yield number


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",  # a TLS hello
        b"\x00\x00\x00\x14\x00\x12\x00\x03\x00\x00\x00\x01",  # a Kafka client on the wrong port
        b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_and_closed(port: int, data: bytes) -> None:
    refused(await talk(port, data), 400, "malformed-request")


async def test_header_lines_are_limited(port: int) -> None:
    line = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 400_000
    refused(await talk(port, line), 431, "header-too-large")


async def test_a_request_that_comes_byte_by_byte_is_answered(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for byte in b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_requests_in_a_row_are_answered_in_order(port: int) -> None:
    one = b"POST /api/v1/topics/row/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n%d"
    data = b"".join(one % n for n in range(10, 30))
    answer = await talk(port, data, seconds=1)
    assert answer.count(b"HTTP/1.1 200") == 20
    bodies = answer.decode().split("\r\n\r\n")[1:]
    offsets = [json.JSONDecoder().raw_decode(body)[0]["records"][0]["offset"] for body in bodies]
    assert offsets == list(range(20))


async def test_a_body_that_is_announced_too_large_is_refused_before_it_comes(port: int) -> None:
    head = (
        b"POST /api/v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\nx"
    )
    refused(await talk(port, head), 413, "payload-too-large")


async def test_a_silent_connection_is_closed_and_a_slow_request_refused(tmp_path: Path) -> None:
    async with running(tmp_path / "data", first_request_timeout_ms=100, frame_timeout_ms=100) as port:
        assert await talk(port, b"") == b""
        refused(await talk(port, b"GET /livez HTTP/1.1\r\nHost"), 408, "request-timeout")
        begun = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /li"
        answer = await talk(port, begun)
        assert answer.startswith(b"HTTP/1.1 200")
        refused(answer[answer.rindex(b"HTTP/1.1") :], 408, "request-timeout")
        slow_body = b"POST /api/v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nx"
        refused(await talk(port, slow_body), 408, "request-timeout")


async def test_too_many_connections_are_refused_and_others_continue(tmp_path: Path) -> None:
    async with running(tmp_path / "data", http_max_connections=2) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await asyncio.sleep(0.05)
        refused(await talk(port, b""), 503, "not-ready")
        reader, writer = held[0]
        writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        for _, one in held:
            one.close()


async def test_a_client_that_expects_100_continue_gets_it(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"POST /api/v1/topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
        b"Expect: 100-continue\r\n\r\n"
    )
    assert (await reader.readline()).startswith(b"HTTP/1.1 100")
    writer.write(b"x")
    await reader.readline()
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


_LINE = b"%b HTTP/1.1\r\nHost: localhost\r\n%b\r\n"


async def test_requests_after_one_that_waits_are_answered_after_it(port: int) -> None:
    close = b"Connection: close\r\n"
    post = _LINE % (b"POST /api/v1/topics/waits/records", b"Content-Length: 1\r\n" + close)
    poll = b"GET /api/v1/topics/waits/partitions/0/records?offset=1&wait_ms=300"
    assert b" 200 " in await talk(port, post + b"a", seconds=10)
    answer = await talk(port, _LINE % (poll, b"") + _LINE % (b"GET /livez", close), seconds=10)
    assert answer.count(b"HTTP/1.1 200") == 2
    assert answer.index(b'"next_offset":1') < answer.rindex(b"HTTP/1.1 200")


async def test_a_body_that_comes_in_pieces_is_taken_whole(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    value = b"v" * 300_000
    writer.write(
        _LINE % (b"POST /api/v1/topics/pieces/records", b"Content-Length: %d\r\n" % (2 * len(value)))
    )
    for piece in (value, value):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0.02)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    read = await talk(
        port, _LINE % (b"GET /api/v1/topics/pieces/partitions/0/records/0", b"Connection: close\r\n")
    )
    assert value + value in read


async def test_a_request_for_another_protocol_is_answered_as_http_and_so_is_the_next(port: int) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    one = _LINE % (b"GET /livez", upgrade)
    answer = await talk(port, one + one + _LINE % (b"GET /livez", b"Connection: close\r\n"))
    assert answer.count(b"HTTP/1.1 200") == 3


async def test_an_absolute_target_means_its_path(port: int) -> None:
    answer = await talk(port, _LINE % (b"GET http://localhost/livez?", b"Connection: close\r\n"))
    assert answer.startswith(b"HTTP/1.1 200")


async def test_http_1_0_is_answered_and_closed(port: int) -> None:
    answer = await talk(port, b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200") and b"connection: close" in answer


async def test_a_connection_without_requests_is_closed_after_the_idle_time(tmp_path: Path) -> None:
    async with running(tmp_path / "data", idle_timeout_ms=200) as port:
        answer = await talk(port, _LINE % (b"GET /livez", b""), seconds=2)
        assert answer.startswith(b"HTTP/1.1 200") and b"HTTP/1.1 408" not in answer


async def test_the_unread_part_of_a_refused_body_does_not_hold_the_connection(port: int) -> None:
    refused_body = _LINE % (b"POST /nowhere", b"Content-Type: application/json\r\nContent-Length: 2\r\n")
    answer = await talk(port, refused_body + b"{}" + _LINE % (b"GET /livez", b"Connection: close\r\n"))
    assert answer.startswith(b"HTTP/1.1 404") and b"HTTP/1.1 200" in answer
