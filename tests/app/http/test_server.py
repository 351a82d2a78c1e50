"""The HTTP server's own life, and the application under uvicorn, as plain ASGI."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from app.http.metrics import Traffic
from app.http.request import Receive, Scope, Send
from app.http.server import HttpServer, bind
from core.clock import Clock
from core.config import Config, Endpoint
from core.errors import StartupError
from tests.broker_process import ROOT

LOCAL = Endpoint("http", "127.0.0.1", 0)


class Slow:
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        await self.go.wait()
        head: list[tuple[bytes, bytes]] = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"ok"})


class Running:
    """A server with such an application."""

    def __init__(self, **settings: int) -> None:
        config, clock = Config(**settings), Clock()  # type: ignore[arg-type]
        self.app, self.traffic, sockets = Slow(), Traffic(config, clock), bind([LOCAL])
        self.port = sockets[0].getsockname()[1]
        self.server = HttpServer(self.app, sockets, config, clock, self.traffic)

    async def asked(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection whose request is under way."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        before = self.app.begun
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while self.app.begun == before:
            await asyncio.sleep(0.001)
        return reader, writer


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes that arrived before the connection was closed."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_a_stop_lets_a_request_end_and_accepts_no_other() -> None:
    running = Running()
    await running.server.start()
    reader, writer = await running.asked()
    idle, other = await asyncio.open_connection("127.0.0.1", running.port)
    while running.traffic.connections < 2:
        await asyncio.sleep(0.001)
    stop = asyncio.create_task(running.server.stop())
    assert await idle.read() == b""
    with pytest.raises(ConnectionError):
        await asyncio.open_connection("127.0.0.1", running.port)
    assert not stop.done()
    running.app.go.set()
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\ndate: ") and b"\r\nconnection: close\r\n" in answer
    await stop
    assert running.traffic.connections == 0
    writer.close()
    other.close()


async def test_a_stop_cuts_off_what_does_not_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.http.server._LEAST_DRAIN_SECONDS", 0.1)
    running = Running(drain_timeout_ms=100)
    await running.server.start()
    reader, writer = await running.asked()
    begun = time.monotonic()
    await running.server.stop()
    assert time.monotonic() - begun < 5
    assert "closed 1 connections and cancelled 1 requests" in caplog.text
    assert b"HTTP" not in await ended(reader)
    writer.close()


async def test_the_date_is_that_of_the_clock_and_moves_on() -> None:
    running = Running()
    running.app.go.set()
    await running.server.start()
    dates = set()
    while len(dates) < 2:
        reader, writer = await running.asked()
        head = await reader.readuntil(b"\r\n\r\n")
        dates |= set(re.findall(rb"\r\ndate: (\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT)\r\n", head))
        writer.close()
        await asyncio.sleep(0.05)
    await running.server.stop()


async def test_a_server_that_was_not_started_stops() -> None:
    await Running().server.stop()


def test_the_first_taken_port_closes_the_others() -> None:
    (taken,) = bind([LOCAL])
    (free,) = bind([LOCAL])
    port = free.getsockname()[1]
    free.close()
    wanted = [Endpoint("http", "127.0.0.1", port), Endpoint("http", "127.0.0.1", taken.getsockname()[1])]
    with pytest.raises(StartupError, match="Cannot listen on"):
        bind(wanted)
    (again,) = bind(wanted[:1])
    again.close()
    taken.close()


def test_both_wildcards_may_have_the_same_port() -> None:
    (one,) = bind([Endpoint("http", "0.0.0.0", 0)])
    (other,) = bind([Endpoint("http", "::", one.getsockname()[1])])
    one.close()
    other.close()


# --- plain ASGI ---------------------------------------------------------------------------------------------------


def ask(url: str, data: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, data=data, timeout=30) as answer:
        body: bytes = answer.read()
        return body


@pytest.mark.slow
def test_uvicorn_serves_the_application_as_plain_asgi(tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {
        **os.environ, "SLUICE_DATA_DIR": str(tmp_path / "data"), "SLUICE_LISTENERS": "kafka://127.0.0.1:0",
    }  # fmt: skip
    command = [sys.executable, "-m", "uvicorn", "--factory", "app.main:create_app", "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 30
        while not (found := re.search(r"running on (http://[\d.:]+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        records = f"{found[1]}/api/v1/topics/t"
        assert json.loads(ask(f"{records}/records", b"Hello"))["records"][0]["offset"] == 0
        assert json.loads(ask(f"{records}/partitions/0/records"))["records"][0]["value"] == "Hello"
        assert json.loads(ask(records))["name"] == "t"
        process.terminate()
        assert process.wait(20) in (0, -15)
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


async def test_a_server_that_lingers_answers_once_more_on_each_connection() -> None:
    running = Running()
    await running.server.start()
    running.app.go.set()
    busy, idle = await running.asked(), await running.asked()
    for reader, _ in (busy, idle):
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK\r\n")
    running.app.go.clear()
    busy[1].write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while running.app.begun < 3:
        await asyncio.sleep(0.001)
    lingering = asyncio.create_task(running.server.linger(60))
    await asyncio.sleep(0)
    idle[1].write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    running.app.go.set()
    for reader, _ in (busy, idle):
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"\r\nconnection: close\r\n" in answer
    await lingering
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", running.port)
    await running.server.stop()
    for _, writer in (busy, idle):
        writer.close()


async def test_a_server_accepts_for_another_worker_until_it_is_told_to_stop() -> None:
    running = Running()
    await running.server.start()
    running.app.go.set()
    (other,) = bind([LOCAL])
    port = other.getsockname()[1]
    await running.server.adopt(7, [other.dup()])
    own_port, running.port = running.port, port
    _, writer = await running.asked()
    writer.close()
    running.server.release(7)
    running.server.release(7)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    # The socket still listens; the worker that has it will accept.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await reader.read(1)
    writer.close()
    other.close()
    running.port = own_port
    _, writer = await running.asked()
    writer.close()
    await running.server.stop()
    (late,) = bind([LOCAL])
    await running.server.linger(0)
    await running.server.adopt(8, [late])
    assert late.fileno() == -1
