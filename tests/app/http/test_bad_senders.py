"""Senders that mean harm or have a bad line, on both surfaces: bodies without end, bytes that trickle."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.app.http.test_protocol import running, talk

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMIT = 100_000
TIMEOUT_MS = 150
GIGABYTE = 2**30
V2 = "application/vnd.kafka.json.v2+json"
PLACES = {
    "records": ("POST /api/v1/topics/t/records", "application/json"),
    "raw records": ("POST /api/v1/topics/t/records", "application/octet-stream"),
    "control": ("PUT /api/v1/topics/t", "application/json"),
    "v2 records": ("POST /topics/t", V2),
    "v2 control": ("POST /consumers/g", V2),
}
each_place = pytest.mark.parametrize("place", list(PLACES))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    limits = {
        "http_max_body_bytes": LIMIT,
        "frame_timeout_ms": TIMEOUT_MS,
        "first_request_timeout_ms": TIMEOUT_MS,
    }
    data_dir: Path = tmp_path_factory.mktemp("broker") / "data"
    async with running(data_dir, **limits) as number:
        yield number


def head(place: str, *lines: str) -> bytes:
    """A request up to its body."""
    line, media_type = PLACES[place]
    return "\r\n".join(
        [f"{line} HTTP/1.1", "Host: localhost", f"Content-Type: {media_type}", *lines, "", ""]
    ).encode()


def refused(answer: bytes, place: str, status: int) -> None:
    """One refusal, in the shape of the surface, and the connection closed after it."""
    begin, _, body = answer.partition(b"\r\n\r\n")
    assert begin.startswith(b"HTTP/1.1 %d " % status), answer[:300]
    assert b"connection: close" in begin.lower()
    told = json.loads(body)
    assert (told["error_code"] if place.startswith("v2") else told["status"]) == status


@each_place
async def test_a_gigabyte_that_is_announced_is_refused_before_it_comes(port: int, place: str) -> None:
    refused(await talk(port, head(place, f"Content-Length: {GIGABYTE}") + b"["), place, 413)


@each_place
async def test_a_gigabyte_that_is_not_announced_is_refused_at_the_limit(port: int, place: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head(place, "Transfer-Encoding: chunked"))
    sent = 0
    answer = asyncio.ensure_future(reader.read())
    chunk = b"2000\r\n" + b"[" * 0x2000 + b"\r\n"
    while sent < GIGABYTE and not answer.done():
        try:
            writer.write(chunk)
            await writer.drain()
        except ConnectionError:
            break
        sent += 0x2000
        await asyncio.sleep(0)
    refused(await answer, place, 413)
    # What the sockets hold between the two comes on top.
    assert sent < LIMIT + 2**24
    writer.close()


@each_place
async def test_a_body_that_trickles_is_refused_when_its_time_is_over(port: int, place: str) -> None:
    answer = await trickle(port, head(place, "Content-Length: 1000"), b'{"records":[' + b" " * 900)
    refused(answer, place, 408)


async def test_header_lines_that_trickle_are_refused_when_their_time_is_over(port: int) -> None:
    # Which surface was meant is not known before the header lines are complete.
    answer = await trickle(port, b"", head("control") * 10)
    refused(answer, "control", 408)
    answer = await trickle(port, b"GET /topics HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n" * 1000)
    refused(answer, "control", 408)


async def trickle(port: int, at_once: bytes, slowly: bytes) -> bytes:
    """Send something at once, and something byte by byte until the server answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(at_once)
    answer = asyncio.ensure_future(reader.read())
    for byte in slowly:
        if answer.done():
            break
        try:
            writer.write(bytes([byte]))
            await writer.drain()
        except ConnectionError:
            break
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        got = await answer
    writer.close()
    return got
