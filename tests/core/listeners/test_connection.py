"""core.listeners.connection and acceptor: framing, order, bounds, deadlines, drain; over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.clock import ManualClock
from core.config import Config, Endpoint
from core.errors import StartupError
from core.listeners import acceptor
from core.listeners.acceptor import Acceptor
from core.listeners.connection import (
    RECEIVE_BUFFER_BYTES,
    Answer,
    Connection,
    Deferred,
    Limits,
    RefusedError,
)
from core.security.principal import ANONYMOUS, Principal
from core.types import FileSlice


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class EchoSession:
    """Answers each frame with itself; commands in the first byte: w waits, f sends a file, n nothing, x fails."""

    def __init__(self, listener: EchoListener) -> None:
        self.listener = listener
        self.mute_ms = 0

    def connected(self, peer_host: str, local_host: str, principal: Principal = ANONYMOUS) -> Limits | None:
        self.listener.peers.append((peer_host, local_host))
        # Of a client that has not authenticated: until the listener's time is over.
        until = self.listener.ready_by
        return None if until is None else Limits(65_536, until)

    def close(self) -> None:
        self.listener.closed += 1

    def handle(self, received: memoryview) -> Any:
        body = bytes(received)
        self.listener.seen.append(body)
        match body[:1]:
            case b"w":
                return self.wait(body)
            case b"n":
                return None
            case b"m":
                self.mute_ms = 3_600_000
            case b"d":
                return self.defer(body)
            case b"q":
                # The client hangs up in the turn in which its request comes.
                next(iter(self.listener.connections))._transport.abort()
                return self.outer(self.wait(body))
            case b"x":
                raise RefusedError("asked to")
            case b"f":
                slice_ = FileSlice(self.listener.file, 0, self.listener.file_size)
                return [struct.pack(">i", self.listener.file_size), slice_]
        return [frame(body)]

    def defer(self, body: bytes) -> Deferred:
        deferred = Deferred()
        self.listener.deferred.append((body, deferred))
        return deferred

    async def outer(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return await work

    async def wait(self, body: bytes) -> Answer:
        await self.listener.gate.wait()
        return [frame(body)]


class EchoListener:
    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.peers: list[tuple[str, str]] = []
        self.closed = 0
        self.ready_by: float | None = None
        self.gate = asyncio.Event()
        self.deferred: list[tuple[bytes, Deferred]] = []
        self.connections: set[Connection] = set()
        self.file: Any = None
        self.file_size = 0

    def bound(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def session(self) -> EchoSession:
        return EchoSession(self)


class Running:
    def __init__(self, config: Config) -> None:
        self.clock = ManualClock()
        self.listener = EchoListener()
        self.acceptor = Acceptor(Endpoint("kafka", "127.0.0.1", 0), config, self.clock, self.listener)

    async def start(self) -> None:
        self.acceptor.bind()
        await self.acceptor.start()
        self.listener.connections = self.connections

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.acceptor.endpoint.port)

    @property
    def connections(self) -> set[Connection]:
        assert self.acceptor._shared is not None
        return self.acceptor._shared.connections


CONFIG = Config(drain_timeout_ms=200, max_frame_bytes=8 * 1024 * 1024)


@pytest.fixture
async def run(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Any]]:
    monkeypatch.setattr(acceptor, "_SWEEP_SECONDS", 0.02)
    started: list[Running] = []

    async def start(**changes: Any) -> Running:
        running = Running(replace(CONFIG, **changes))
        await running.start()
        started.append(running)
        return running

    yield start
    for running in started:
        running.listener.gate.set()
        await running.acceptor.stop()


async def answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 10))
    return await asyncio.wait_for(reader.readexactly(size), 10)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen within 5 s")


@pytest.mark.parametrize("step", [1, 2, 3, 5, 1000])
async def test_frames_are_answered_in_order_however_they_arrive(run: Any, step: int) -> None:
    running = await run()
    reader, writer = await running.connect()
    bodies = [b"a", b"", b"b" * 30, b"n: no answer", b"c" * 7]
    data = b"".join(map(frame, bodies))
    for start in range(0, len(data), step):
        writer.write(data[start : start + step])
        await writer.drain()
        await asyncio.sleep(0)
    for body in bodies:
        if not body.startswith(b"n"):
            assert await answer(reader) == body
    writer.close()


@pytest.mark.parametrize("size", [4096, RECEIVE_BUFFER_BYTES - 4, RECEIVE_BUFFER_BYTES, 3_000_000])
async def test_large_frames_arrive_whole_and_give_their_memory_back(run: Any, size: int) -> None:
    running = await run()
    reader, writer = await running.connect()
    body = bytes(range(256)) * (size // 256)
    writer.write(frame(body) + frame(b"behind"))
    assert await answer(reader) == body
    assert await answer(reader) == b"behind"
    assert running.acceptor._shared.inflight == 0
    writer.close()


async def test_a_waiting_request_holds_back_the_next_ones_on_its_connection_only(run: Any) -> None:
    running = await run()
    reader, writer = await running.connect()
    other_reader, other_writer = await running.connect()
    writer.write(frame(b"w1") + frame(b"second"))
    other_writer.write(frame(b"other"))
    assert await answer(other_reader) == b"other"
    writer.write(frame(b"third"))
    await asyncio.sleep(0.05)
    assert running.listener.seen == [b"w1", b"other"]
    running.listener.gate.set()
    assert [await answer(reader) for _ in range(3)] == [b"w1", b"second", b"third"]
    writer.close()
    other_writer.close()


async def test_nothing_more_is_handled_on_a_muted_connection_until_its_time_is_over(run: Any) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(frame(b"mute") + frame(b"second"))
    assert await answer(reader) == b"mute"
    writer.write(frame(b"third"))
    other_reader, other_writer = await running.connect()
    other_writer.write(frame(b"other"))
    assert await answer(other_reader) == b"other"
    assert running.listener.seen == [b"mute", b"other"]
    (muted,) = [one for one in running.connections if one._muted is not None]
    assert 3_500 < muted._muted.when() - asyncio.get_running_loop().time() <= 3_600
    muted._unmute()
    assert [await answer(reader) for _ in range(2)] == [b"second", b"third"]
    other_writer.close()
    writer.close()


async def test_a_muted_connection_drains_at_once(run: Any) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(frame(b"mute"))
    assert await answer(reader) == b"mute"
    running.acceptor.drain()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    assert not running.connections
    writer.close()


@pytest.mark.parametrize("size", [-1, -(2**31), CONFIG.max_frame_bytes + 1, 2**31 - 1])
async def test_a_frame_size_out_of_bounds_closes_the_connection_with_one_line(
    run: Any, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(struct.pack(">i", size) + b"x" * 10)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await answer(reader)
    assert len(caplog.records) == 1 and f"a frame of {size} bytes" in caplog.text
    writer.close()


async def test_announced_bytes_cost_no_memory_before_they_arrive(run: Any) -> None:
    running = await run()
    writers = []
    for _ in range(50):
        _, writer = await running.connect()
        writer.write(struct.pack(">i", 8 * 1024 * 1024) + b"x")
        writers.append(writer)
    await until(lambda: running.acceptor._shared.inflight > 0 and len(running.connections) == 50)
    assert running.acceptor._shared.inflight <= 50 * 4096
    for writer in writers:
        writer.close()
    await until(lambda: running.acceptor._shared.inflight == 0)


async def test_frames_beyond_the_budget_wait_until_others_are_done(run: Any) -> None:
    running = await run(max_inflight_bytes=1_000_000)
    pairs = [await running.connect() for _ in range(4)]
    body = b"z" * 3_000_000
    for _, writer in pairs:
        writer.write(frame(body)[:-1])
    await until(lambda: running.acceptor._shared.inflight >= 1_000_000)
    await asyncio.sleep(0.05)
    # The first to finish lets the next ones continue; those that never finish end by their deadline.
    running.clock.advance(CONFIG.frame_timeout_ms / 1000 + 1)
    await until(lambda: running.acceptor._shared.inflight == 0 and not running.connections)
    for _, writer in pairs:
        writer.close()


async def test_a_client_that_never_reads_holds_one_chunk_and_blocks_no_other(
    run: Any, tmp_path: Path
) -> None:
    running = await run()
    path = tmp_path / "log"
    path.write_bytes(b"0123456789abcdef" * (4 * 1024 * 1024))
    with path.open("rb") as file:
        running.listener.file, running.listener.file_size = file, path.stat().st_size
        slow = socket.create_connection(("127.0.0.1", running.acceptor.endpoint.port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(frame(b"f"))
        await until(lambda: b"f" in running.listener.seen)
        await asyncio.sleep(0.05)
        (connection,) = running.connections
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() <= 2 * 512 * 1024
        reader, writer = await running.connect()
        writer.write(frame(b"healthy"))
        assert await answer(reader) == b"healthy"
        running.clock.advance(CONFIG.write_timeout_ms / 1000 + 1)
        await until(lambda: connection not in running.connections)
        slow.close()
        writer.close()


async def test_a_file_is_sent_whole(run: Any, tmp_path: Path) -> None:
    running = await run()
    path = tmp_path / "log"
    content = bytes(i * 7 % 251 for i in range(2_000_003))
    path.write_bytes(content)
    with path.open("rb") as file:
        running.listener.file, running.listener.file_size = file, len(content)
        reader, writer = await running.connect()
        writer.write(frame(b"f") + frame(b"behind"))
        assert await answer(reader) == content
        assert await answer(reader) == b"behind"
        writer.close()


@pytest.mark.parametrize(
    ("sent", "wait", "line"),
    [
        (b"", "first_request_timeout_ms", ""),
        (b"\x00\x00", "frame_timeout_ms", "not complete"),
        (frame(b"half a frame")[:9], "frame_timeout_ms", "not complete"),
        (frame(b"n, then idle"), "idle_timeout_ms", ""),
    ],
)
async def test_each_phase_ends_at_its_deadline(
    run: Any, sent: bytes, wait: str, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(sent)
    await until(lambda: len(running.connections) == 1)
    await asyncio.sleep(0.05)
    running.clock.advance(getattr(CONFIG, wait) / 1000 - 1)
    # Ten sweeps.
    await asyncio.sleep(0.2)
    assert len(running.connections) == 1
    running.clock.advance(2)
    assert await asyncio.wait_for(reader.read(), 60) == b""
    assert (line in caplog.text) if line else not caplog.records
    writer.close()


async def test_a_failing_handler_closes_its_connection_only(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(frame(b"x"))
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await answer(reader)
    assert "asked to" in caplog.text
    second, second_writer = await running.connect()
    second_writer.write(frame(b"good"))
    assert await answer(second) == b"good"
    writer.close()
    second_writer.close()


async def test_a_drain_answers_what_is_under_way_and_closes(run: Any) -> None:
    running = await run()
    reader, writer = await running.connect()
    idle, idle_writer = await running.connect()
    writer.write(frame(b"w"))
    await until(lambda: running.listener.seen == [b"w"] and len(running.connections) == 2)
    running.acceptor.drain()
    assert await asyncio.wait_for(idle.read(), 60) == b""
    running.listener.gate.set()
    assert await answer(reader) == b"w"
    assert await asyncio.wait_for(reader.read(), 60) == b""
    await until(lambda: running.listener.closed == 2)
    writer.close()
    idle_writer.close()


async def test_a_client_that_leaves_cancels_its_request(run: Any) -> None:
    running = await run()
    _, writer = await running.connect()
    writer.write(frame(b"w"))
    await until(lambda: running.listener.seen == [b"w"])
    writer.transport.abort()
    await until(lambda: running.listener.closed == 1 and not running.connections)


async def test_one_connection_too_many_is_closed(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    running = await run(max_connections=1)
    _, first = await running.connect()
    await until(lambda: len(running.connections) == 1)
    reader, second = await running.connect()
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await answer(reader)
    assert "refused" in caplog.text
    first.close()
    second.close()


async def test_clients_that_have_not_authenticated_share_a_budget_of_bytes(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    running = await run(unauthenticated_max_bytes=100_000)
    running.listener.ready_by = running.clock.monotonic() + 30
    half = frame(bytes(60_000))[:50_000]
    first, writer = await running.connect()
    writer.write(half)
    await until(lambda: running.acceptor._shared.unauthenticated >= 50_000)
    second, second_writer = await running.connect()
    second_writer.write(half)
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(second.read(), 10) == b""
    assert "have not authenticated have sent too much" in caplog.text
    writer.write(frame(bytes(60_000))[50_000:])
    assert len(await answer(first)) == 60_000
    await until(lambda: running.acceptor._shared.unauthenticated == 0)
    # A client that has authenticated has the budget of all.
    running.listener.ready_by = float("inf")
    others = [(await running.connect())[1] for _ in range(3)]
    for one in others:
        one.write(half)
    await until(lambda: running.acceptor._shared.inflight >= 150_000)
    assert running.acceptor._shared.unauthenticated == 0
    for one in (*others, second_writer, writer):
        one.close()


async def test_an_address_has_a_number_of_connections_at_most(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    running = await run(max_connections_per_ip=2)
    first, writer = await running.connect()
    second, second_writer = await running.connect()
    for reader, one in ((first, writer), (second, second_writer)):
        one.write(frame(b"open"))
        assert await answer(reader) == b"open"
    for _ in range(3):
        refused, refused_writer = await running.connect()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(refused.read(), 10) == b""
        refused_writer.close()
    assert "2 connections are open from this address" in caplog.text
    writer.close()
    await until(lambda: len(running.connections) == 1)
    again, again_writer = await running.connect()
    again_writer.write(frame(b"again"))
    assert await answer(again) == b"again"
    second_writer.close()
    again_writer.close()
    await until(lambda: not running.connections)
    assert len(running.acceptor._shared.addresses) == 0


async def test_a_taken_port_is_one_clear_line(run: Any) -> None:
    running = await run()
    again = Acceptor(running.acceptor.endpoint, CONFIG, running.clock, EchoListener())
    with pytest.raises(StartupError, match="the port is taken"):
        again.bind()


# --- deferred answers ------------------------------------------------------------------------------------------


async def deferred(running: Running, count: int) -> list[tuple[bytes, Deferred]]:
    await until(lambda: len(running.listener.deferred) >= count)
    return running.listener.deferred


def finish(one: tuple[bytes, Deferred]) -> None:
    one[1].finish([frame(one[0])])


async def test_requests_begin_while_answers_are_deferred_and_answers_leave_in_order(run: Any) -> None:
    running = await run()
    reader, writer = await running.connect()
    bodies = [b"d1", b"d2", b"plain", b"d3", b"w", b"last"]
    writer.write(b"".join(map(frame, bodies)))
    first, second = await deferred(running, 2)
    # A complete answer waits for the two, and only then does the next request begin.
    await asyncio.sleep(0.02)
    assert running.listener.seen == [b"d1", b"d2", b"plain"]
    finish(second)
    await asyncio.sleep(0.02)
    assert not reader._buffer  # type: ignore[attr-defined]
    finish(first)
    assert [await answer(reader) for _ in range(3)] == [b"d1", b"d2", b"plain"]
    third = (await deferred(running, 3))[2]
    await until(lambda: b"w" in running.listener.seen)
    running.listener.gate.set()
    await asyncio.sleep(0.02)
    assert not reader._buffer  # type: ignore[attr-defined]
    finish(third)
    assert [await answer(reader) for _ in range(3)] == [b"d3", b"w", b"last"]
    writer.close()


@pytest.mark.parametrize("step", [3, 100_000])
async def test_the_number_of_deferred_answers_is_limited(run: Any, step: int) -> None:
    running = await run()
    reader, writer = await running.connect()
    bodies = [b"d%d" % number for number in range(500)]
    data = b"".join(map(frame, bodies))

    async def send() -> None:
        for start in range(0, len(data), step):
            writer.write(data[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)

    sending = asyncio.ensure_future(send())
    answered = 0
    while answered < len(bodies):
        waiting = (await deferred(running, min(answered + 128, len(bodies))))[answered:]
        await asyncio.sleep(0.01)
        # A frame that was arriving when the limit was reached is the one more.
        assert len(running.listener.deferred) - answered <= 129
        for one in waiting:
            finish(one)
        for body, _ in waiting:
            assert await answer(reader) == body
        answered += len(waiting)
    await sending
    writer.close()


async def test_a_connection_that_waits_for_deferred_answers_is_not_idle_and_drains(run: Any) -> None:
    running = await run(drain_timeout_ms=10_000)
    reader, writer = await running.connect()
    writer.write(frame(b"d1") + frame(b"d2"))
    first, second = await deferred(running, 2)
    running.clock.advance(100_000)
    running.acceptor._sweep()
    stopping = asyncio.ensure_future(running.acceptor.stop())
    await asyncio.sleep(0.02)
    assert running.connections
    finish(first)
    finish(second)
    assert [await answer(reader) for _ in range(2)] == [b"d1", b"d2"]
    assert await reader.read() == b""
    await stopping
    writer.close()


async def test_deferred_answers_of_a_client_that_has_disconnected_are_dropped(run: Any) -> None:
    running = await run()
    _, writer = await running.connect()
    writer.write(frame(b"d1"))
    (one,) = await deferred(running, 1)
    writer.transport.abort()
    await until(lambda: not running.connections)
    finish(one)
    await asyncio.sleep(0)


async def test_a_deferred_answer_that_fails_closes_the_connection(run: Any) -> None:
    running = await run()
    reader, writer = await running.connect()
    writer.write(frame(b"d1"))
    (one,) = await deferred(running, 1)
    one[1].fail(ValueError("no"))
    assert await reader.read() == b""
    writer.close()


async def test_a_client_that_hangs_up_as_its_request_begins_leaves_no_coroutine(run: Any) -> None:
    running = await run()
    _, writer = await running.connect()
    writer.write(frame(b"q"))
    await until(lambda: running.listener.closed == 1)
    gc.collect()
    await asyncio.sleep(0.01)
    gc.collect()
    writer.close()
