"""core.line_protocol.connection: lines, however they arrive; too long ones, half-closed sides, deadlines, turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from core.clock import ManualClock
from core.config import Config, Endpoint
from core.line_protocol.connection import LineConnection
from core.listeners import acceptor
from core.listeners.acceptor import Acceptor
from core.listeners.connection import Answer
from core.security.principal import ANONYMOUS, Principal


class EchoSession:
    """Answers each line with itself; one that begins with w waits for the gate."""

    def __init__(self, listener: EchoListener) -> None:
        self.listener = listener

    mute_ms = 0

    def connected(self, peer_host: str, local_host: str, principal: Principal = ANONYMOUS) -> None: ...

    def close(self) -> None:
        self.listener.closed += 1

    def unreadable(self, reason: str) -> Answer:
        return [f"! {reason}\n".encode()]

    def handle(self, frame: memoryview) -> Any:
        line = bytes(frame)
        self.listener.seen.append(line)
        return self.wait(line) if line[:1] == b"w" else [b"<%b>\n" % line]

    async def wait(self, line: bytes) -> Answer:
        await self.listener.gate.wait()
        return [b"<%b>\n" % line]


class EchoListener:
    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.closed = 0
        self.gate = asyncio.Event()

    def bound(self, endpoint: Endpoint) -> None: ...

    def session(self) -> EchoSession:
        return EchoSession(self)


class Running:
    def __init__(self, config: Config) -> None:
        self.clock = ManualClock()
        self.listener = EchoListener()
        endpoint = Endpoint("text", "127.0.0.1", 0)
        self.acceptor = Acceptor(endpoint, config, self.clock, self.listener, LineConnection)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.acceptor.endpoint.port)

    async def say(self, *pieces: bytes) -> bytes:
        """What comes back for these bytes until the broker closes, when they are all there is."""
        reader, writer = await self.connect()
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer


LIMIT = 20_000
CONFIG = Config(drain_timeout_ms=200, text_max_line_bytes=LIMIT)
Run = Callable[..., Any]


@pytest.fixture
async def run(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    monkeypatch.setattr(acceptor, "_SWEEP_SECONDS", 0.02)
    started: list[Running] = []

    async def start(**changes: Any) -> Running:
        running = Running(replace(CONFIG, **changes))
        running.acceptor.bind()
        await running.acceptor.start()
        started.append(running)
        return running

    yield start
    for running in started:
        running.listener.gate.set()
        await running.acceptor.stop()
        assert running.acceptor.load.inflight_bytes == 0


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen within 5 s")


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100_000])
async def test_lines_are_answered_in_order_however_they_arrive(run: Run, step: int) -> None:
    running = await run()
    data = b"a\nbb\r\n\r\n\nc\rd\n" + b"e" * 50 + b"\n"
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    assert await running.say(*pieces) == b"<a>\n<bb>\n<>\n<>\n<c\rd>\n<" + b"e" * 50 + b">\n"


@pytest.mark.parametrize("length", [4_095, 4_096, LIMIT - 1, LIMIT])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
async def test_a_line_up_to_the_limit_is_read(run: Run, length: int, end: bytes) -> None:
    running = await run()
    line = b"x" * length
    assert await running.say(line + end + b"next\n") == b"<" + line + b">\n<next>\n"
    assert await running.say(line[:100], line[100:] + end, b"next\n") == b"<" + line + b">\n<next>\n"


@pytest.mark.parametrize("length", [LIMIT + 1, LIMIT + 3, 10 * LIMIT, 1_000_000])
@pytest.mark.parametrize("cut", [0, 1, 5_000, LIMIT, LIMIT + 1])
async def test_a_line_beyond_the_limit_is_refused_once_and_skipped(run: Run, length: int, cut: int) -> None:
    running = await run()
    line = b"x" * length
    answer = await running.say(b"before\n" + line[:cut], line[cut:] + b"\nafter\n")
    assert answer == b"<before>\n! the line is longer than 20000 bytes\n<after>\n"
    assert running.listener.seen == [b"before", b"after"]


async def test_a_line_that_the_end_of_the_input_cuts_is_refused_and_not_executed(run: Run) -> None:
    running = await run()
    refusal = b"! the input ended within a line; a line ends with LF\n"
    assert await running.say(b"full\ncut") == b"<full>\n" + refusal
    assert await running.say(b"full\n", b"cut") == b"<full>\n" + refusal
    assert await running.say(b"") == b""
    assert b"cut" not in running.listener.seen


async def test_a_side_that_was_shut_down_still_gets_what_takes_time(run: Run) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(b"w1\nsecond\nw3\nlast")
    writer.write_eof()
    await until(lambda: running.listener.seen == [b"w1"])
    await asyncio.sleep(0.05)
    assert running.acceptor.load.connections == 1
    running.listener.gate.set()
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer.startswith(b"<w1>\n<second>\n<w3>\n! the input ended")
    await until(lambda: running.listener.closed == 1)
    writer.close()


async def test_a_waiting_line_holds_back_the_next_ones_on_its_connection_only(run: Run) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(b"w1\nsecond\n")
    assert await running.say(b"other\n") == b"<other>\n"
    writer.write(b"third\n")
    await asyncio.sleep(0.05)
    assert running.listener.seen == [b"w1", b"other"]
    running.listener.gate.set()
    assert [await reader.readline() for _ in range(3)] == [b"<w1>\n", b"<second>\n", b"<third>\n"]
    writer.close()


async def test_a_hundred_thousand_lines_are_no_reason_for_others_to_wait(run: Run) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(b"\n" * 100_000 + b"end\n")
    writer.write_eof()
    reading = asyncio.ensure_future(reader.read())
    assert await running.say(b"other\n") == b"<other>\n"
    assert len(running.listener.seen) < 50_000
    assert await asyncio.wait_for(reading, 20) == b"<>\n" * 100_000 + b"<end>\n"
    writer.close()


async def test_a_client_that_never_reads_is_not_read_either(run: Run) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    line = b"y" * 10_000 + b"\n"

    async def flood() -> None:
        for _ in range(5_000):
            writer.write(line)
            await writer.drain()

    flooding = asyncio.ensure_future(flood())
    await asyncio.sleep(0.3)
    seen = len(running.listener.seen)
    await asyncio.sleep(0.1)
    assert len(running.listener.seen) == seen < 4_000
    running.clock.advance(CONFIG.write_timeout_ms / 1000 + 1)
    await until(lambda: running.acceptor.load.connections == 0)
    flooding.cancel()
    writer.transport.abort()
    del reader


@pytest.mark.parametrize(
    ("sent", "wait", "line"),
    [
        (b"", "first_request_timeout_ms", ""),
        (b"half", "frame_timeout_ms", "not complete"),
        (b"x" * (LIMIT + 2), "frame_timeout_ms", "had no end"),
        (b"full\n", "idle_timeout_ms", ""),
    ],
)
async def test_each_phase_ends_at_its_deadline(
    run: Run, sent: bytes, wait: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(sent)
    await until(lambda: running.acceptor.load.connections == 1)
    await asyncio.sleep(0.05)
    running.clock.advance(getattr(CONFIG, wait) / 1000 - 1)
    # Ten sweeps.
    await asyncio.sleep(0.2)
    assert running.acceptor.load.connections == 1
    running.clock.advance(2)
    try:
        await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        assert line
    await until(lambda: running.acceptor.load.connections == 0)
    assert (line in caplog.text) if line else not caplog.records
    writer.close()


async def test_bytes_that_are_half_a_line_count_against_the_budget_of_all(run: Run) -> None:
    running = await run(max_inflight_bytes=50_000)
    pairs = [await running.connect() for _ in range(20)]
    for _, writer in pairs:
        writer.write(b"x" * 5_000)
    await until(lambda: running.acceptor.load.inflight_bytes >= 50_000)
    for _, writer in pairs:
        writer.write(b"x" * 14_000)
    await asyncio.sleep(0.1)
    assert running.acceptor.load.inflight_bytes < 20 * LIMIT + 50_000
    running.clock.advance(CONFIG.frame_timeout_ms / 1000 + 1)
    await until(lambda: running.acceptor.load.connections == 0)
    assert running.acceptor.load.inflight_bytes == 0
    for _, writer in pairs:
        writer.close()


async def test_a_drain_answers_what_is_under_way_and_closes(run: Run) -> None:
    running = await run()
    reader, writer = await running.connect()
    idle, idle_writer = await running.connect()
    writer.write(b"w\n")
    await until(lambda: running.listener.seen == [b"w"] and running.acceptor.load.connections == 2)
    running.acceptor.drain()
    assert await asyncio.wait_for(idle.read(), 60) == b""
    running.listener.gate.set()
    assert await asyncio.wait_for(reader.read(), 60) == b"<w>\n"
    writer.close()
    idle_writer.close()
