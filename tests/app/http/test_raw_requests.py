"""Request smuggling: raw bytes into the protocol, whole and in pieces; nothing of a body runs as a request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any

import pytest

from app.http.exchange import ASGIApp
from app.http.metrics import Traffic
from app.http.protocol import HttpProtocol, Shared
from app.http.request import Receive, Scope, Send
from core.clock import Clock
from core.config import Config
from tests.app.http.raw_requests import CASES, CHUNKED, VICTIM, Ran, Raw, get, head

# Turns of the loop in which an application that waits has answered.
_TURNS = 4
_ANSWER = re.compile(rb"HTTP/1\.1 (\d+)[^\r]*\r\n(?:.+\r\n)*?content-length: (\d+)\r\n(?:.+\r\n)*\r\n")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.over = self.paused = False

    def write(self, data: Any) -> None:
        assert not self.over, f"written after the end: {bytes(data)!r}"
        self.written += data

    def close(self) -> None:
        self.over = True

    abort = write_eof = close

    def is_closing(self) -> bool:
        return self.over

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Recorder:
    """An application that answers 200 and keeps which requests it got, and their header lines."""

    def __init__(self, turns: int) -> None:
        self.ran: list[Ran] = []
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self._turns = turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        self.ran.append(Ran(scope["method"], scope["path"], body))
        self.headers.append(list(scope["headers"]))
        for _ in range(self._turns):
            await asyncio.sleep(0)
        head: list[tuple[bytes, bytes]] = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"ok"})


class Connected:
    """A connection over such a transport to such an application."""

    def __init__(self, turns: int = 0, config: Config | None = None, app: ASGIApp | None = None) -> None:
        self.app, self.wire, config, clock = Recorder(turns), Wire(), config or Config(), Clock()
        traffic, loop = Traffic(config, clock), asyncio.get_running_loop()
        self.shared = Shared(app or self.app, config, clock, traffic, loop)
        self.protocol = HttpProtocol(self.shared)
        self.protocol.connection_made(self.wire)

    async def feed(self, pieces: Iterable[bytes]) -> None:
        """Hand the pieces over, as a socket would: none while reading is paused, none after the end."""
        for piece in pieces:
            while self.wire.paused:
                await asyncio.sleep(0)
            if not self.wire.over:
                self.protocol.data_received(piece)
            await asyncio.sleep(0)
        while self.shared.tasks and not all(task.done() for task in self.shared.tasks):
            before = [*self.app.ran], self.wire.written
            for _ in range(_TURNS + 2):
                await asyncio.sleep(0)
            if before == ([*self.app.ran], self.wire.written):
                break  # it waits for a body that does not come

    def end(self) -> None:
        """The client has disconnected."""
        self.protocol.connection_lost(None)

    @property
    def statuses(self) -> tuple[int, ...]:
        """The answers, each of them whole and nothing between them."""
        left, found = self.wire.written.replace(_CONTINUE, b""), []
        while left:
            answer = _ANSWER.match(left)
            assert answer, f"no answer: {left!r}"
            found.append(int(answer[1]))
            left = left[answer.end() + int(answer[2]) :]
        return tuple(found)


def ways(data: bytes) -> Iterable[list[bytes]]:
    """A connection's bytes whole, byte by byte, and in two at each byte."""
    yield [data]
    yield [data[i : i + 1] for i in range(len(data))]
    for i in range(1, len(data)):
        yield [data[:i], data[i:]]


def test_the_table_is_as_long_as_it_says() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("turns", [0, _TURNS], ids=["at once", "later"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_only_requests_run_and_each_with_its_body(case: Raw, turns: int) -> None:
    for pieces in ways(case.data):
        one = Connected(turns)
        await one.feed(pieces)
        got = tuple(one.app.ran), one.statuses, one.wire.over
        assert got == (case.ran, case.statuses, case.closed), pieces
        one.end()


async def test_trailers_are_no_header_lines_and_not_without_end() -> None:
    start = head(b"POST /a HTTP/1.1", b"Transfer-Encoding: chunked")
    for pieces in ways(start + CHUNKED[:-2] + b"Host: evil\r\nOrigin: http://evil\r\n\r\n"):
        one = Connected()
        await one.feed(pieces)
        assert one.app.headers == [[(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]]
    config = Config(http_max_header_bytes=1000)
    for endless in (b"X: y\r\n" * 100, b"X" * 600, b"X: " + b"y" * 600):
        one = Connected(config=config)
        await one.feed([start, CHUNKED[:-2], endless, endless, endless])
        assert (one.app.ran, one.statuses, one.wire.over) == ([], (431,), True)


async def test_chunk_extensions_are_bounded_and_small_chunks_are_not() -> None:
    start = head(b"POST /a HTTP/1.1", b"Transfer-Encoding: chunked")
    config = Config(http_max_header_bytes=1000)
    one = Connected(config=config)
    await one.feed([start, *[b"1;%b\r\nx\r\n" % (b"e" * 100)] * 20])
    assert (one.app.ran, one.statuses, one.wire.over) == ([], (431,), True)
    one = Connected(config=config)
    await one.feed([start, *[b"1\r\nx\r\n"] * 1000, b"0\r\n\r\n" + get(b"/next")])
    assert one.app.ran == [Ran("POST", "/a", b"x" * 1000), Ran("GET", "/next")]


async def test_a_refusal_waits_for_the_answers_before_it_and_nothing_runs_after_it() -> None:
    bad = get(b"/a", host=None)
    for pieces in ways(get(b"/next") + get(b"/next") + bad + VICTIM):
        one = Connected(turns=_TURNS)
        await one.feed(pieces)
        assert [run.path for run in one.app.ran] == ["/next", "/next"]
        assert (one.statuses, one.wire.over) == ((200, 200, 400), True)


async def test_an_answered_request_gets_no_second_answer_when_its_body_breaks() -> None:
    async def early(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    one = Connected(app=early)
    await one.feed([head(b"POST /a HTTP/1.1", b"Transfer-Encoding: chunked"), b"1\r\nx\r\n"])
    assert (one.statuses, one.wire.over) == ((404,), False)
    await one.feed([b"zz\r\n" + VICTIM])
    assert (one.statuses, one.wire.over) == ((404,), True)


async def test_a_client_that_was_not_told_to_continue_is_not_asked_again() -> None:
    """Its next bytes may be the body or another request: only the end of the connection is safe."""

    async def early(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    one = Connected(app=early)
    await one.feed([head(b"POST /a HTTP/1.1", b"Expect: 100-continue", b"Content-Length: 9"), VICTIM])
    assert (one.statuses, one.wire.over) == ((404,), True)
    assert b"connection: close\r\n" in one.wire.written
