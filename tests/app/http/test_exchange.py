"""One exchange: what ASGI promises about receive and send, and running without a task until one is needed."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from app.http.exchange import Exchange, begin, in_task


class Wire:
    """A connection that keeps what is written, and its own transport."""

    def __init__(self) -> None:
        self.transport: Any = self
        self.write_paused = False
        self.written = b""
        self.closed = self.aborted = False
        self.answers = 0
        self.resumed = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def default_head(self) -> bytes:
        return b"date: now\r\n"

    def resume_reading(self) -> None:
        self.resumed += 1

    async def writable(self) -> None:
        self.write_paused = False

    def answered(self) -> None:
        self.answers += 1

    def hang_up(self) -> None:
        self.close()


def exchange_of(wire: Wire, method: str = "POST", **options: Any) -> Exchange:
    exchange = Exchange(wire, options.get("keep_alive", True))
    exchange.expects_continue = options.get("expects_continue", False)
    exchange.scope = {"method": method}
    return exchange


START = {"type": "http.response.start", "status": 200}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def send_all(exchange: Exchange, headers: list[tuple[bytes, bytes]], *bodies: dict[str, Any]) -> None:
    await exchange.send({**START, "headers": headers})
    for one in bodies:
        await exchange.send(one)


# --- the request --------------------------------------------------------------------------------------------


def test_a_body_that_is_there_is_received_without_waiting() -> None:
    exchange = exchange_of(Wire())
    exchange.add_body(b"ab")
    exchange.add_body(b"cd")
    exchange.end_body()
    with pytest.raises(StopIteration) as stop:
        exchange.receive().send(None)
    assert stop.value.value == {"type": "http.request", "body": b"abcd", "more_body": False}


@pytest.mark.asyncio
async def test_a_body_is_received_in_pieces_then_the_disconnect_alone() -> None:
    exchange = exchange_of(wire := Wire())
    first = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    assert not first.done() and wire.resumed
    exchange.add_body(b"one")
    assert (await first)["more_body"] is True
    exchange.end_body()
    assert await exchange.receive() == {"type": "http.request", "body": b"", "more_body": False}
    gone = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    assert not gone.done()
    exchange.lost()
    assert (await gone)["type"] == "http.disconnect"


@pytest.mark.asyncio
async def test_the_answer_ends_a_wait_for_the_disconnect() -> None:
    exchange = exchange_of(Wire())
    exchange.end_body()
    await exchange.receive()
    watch = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    assert exchange.answer(200, [], b"")
    assert (await watch)["type"] == "http.disconnect"


@pytest.mark.asyncio
async def test_100_continue_is_sent_when_the_body_is_asked_for_and_once() -> None:
    exchange = exchange_of(wire := Wire(), expects_continue=True)
    assert wire.written == b""
    exchange.add_body(b"x")
    await exchange.receive()
    exchange.end_body()
    await exchange.receive()
    assert wire.written == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.asyncio
async def test_no_100_continue_follows_the_answer() -> None:
    exchange = exchange_of(wire := Wire(), expects_continue=True)
    exchange.answer(413, [], b"")
    await exchange.receive()
    assert b"100 Continue" not in wire.written


# --- the answer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("keep_alive", [True, False])
def test_a_whole_answer_is_one_write(method: str, keep_alive: bool) -> None:
    exchange = exchange_of(wire := Wire(), method, keep_alive=keep_alive)
    assert exchange.answer(200, [(b"content-length", b"2")], b"hi")
    close = b"" if keep_alive else b"connection: close\r\n"
    end = b"" if method == "HEAD" else b"hi"
    head = b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: 2\r\n"
    assert wire.written == head + close + b"\r\n" + end
    assert exchange.complete and wire.answers == 1 and wire.closed is not keep_alive


def test_a_whole_answer_that_says_close_closes() -> None:
    exchange = exchange_of(wire := Wire())
    exchange.answer(408, [(b"connection", b"close"), (b"content-length", b"0")], b"")
    assert wire.closed and wire.written.count(b"connection: close") == 1


def test_a_whole_answer_waits_for_a_client_that_reads() -> None:
    exchange = exchange_of(wire := Wire())
    wire.write_paused = True
    assert not exchange.answer(200, [], b"") and wire.written == b""


def test_nothing_is_written_to_a_client_that_has_disconnected() -> None:
    exchange = exchange_of(wire := Wire())
    exchange.lost()
    assert exchange.answer(200, [], b"x") and wire.written == b""


@pytest.mark.asyncio
async def test_a_body_of_unknown_length_is_chunked() -> None:
    exchange = exchange_of(wire := Wire())
    await send_all(exchange, [], body(b"abc", more=True), body(b"", more=True), body(b"de"))
    head, _, rest = wire.written.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert rest == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    assert exchange.complete and not wire.closed


@pytest.mark.asyncio
@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_answers_without_a_body_have_no_chunks(method: str, status: int) -> None:
    exchange = exchange_of(wire := Wire(), method)
    await exchange.send({**START, "status": status, "headers": []})
    await exchange.send(body(b""))
    assert b"chunked" not in wire.written and wire.written.endswith(b"\r\n\r\n")
    assert exchange.complete


@pytest.mark.asyncio
@pytest.mark.parametrize("sent", [b"abcd", b"ab"])
async def test_a_body_that_is_not_as_long_as_announced_is_an_error(sent: bytes) -> None:
    exchange = exchange_of(Wire())
    with pytest.raises(RuntimeError, match="Content-Length"):
        await send_all(exchange, [(b"content-length", b"3")], body(sent))


@pytest.mark.asyncio
@pytest.mark.parametrize("line", [(b"x", b"a\r\nb: c"), (b"x: y\r\nz", b"a"), (b"x", b"\x00")])
async def test_a_header_line_that_would_end_early_is_not_sent(line: tuple[bytes, bytes]) -> None:
    exchange = exchange_of(wire := Wire())
    with pytest.raises(RuntimeError, match="header line"):
        await send_all(exchange, [line])
    assert wire.written == b""


@pytest.mark.asyncio
async def test_sending_waits_for_a_client_that_reads() -> None:
    exchange = exchange_of(wire := Wire())
    wire.write_paused = True
    await send_all(exchange, [(b"content-length", b"1")], body(b"x"))
    assert not wire.write_paused and wire.written.endswith(b"x")


@pytest.mark.asyncio
async def test_an_application_that_fails_or_stops_half_way_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(*_: Any) -> None:
        raise ValueError("broken")

    async def half(scope: Any, receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"content-length", b"3")]})

    for app in (fails, half):
        exchange = exchange_of(wire := Wire())
        await exchange.run(app)
        assert wire.closed
    assert "The application failed." in caplog.text


@pytest.mark.asyncio
async def test_an_exchange_that_is_cancelled_drops_its_client() -> None:
    async def waits(*_: Any) -> None:
        await asyncio.Event().wait()

    exchange = exchange_of(wire := Wire())
    task = asyncio.create_task(exchange.run(waits))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert wire.aborted


# --- without a task -----------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_what_never_waits_is_over_at_once() -> None:
    done = []

    async def work() -> None:
        done.append(asyncio.get_running_loop())

    assert begin(work()) is None and len(done) == 1


@pytest.mark.asyncio
async def test_what_waits_continues_in_a_task() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    seen: list[object] = []

    async def work() -> None:
        seen.append(asyncio.current_task() is test_task)
        seen.append(await future)
        await in_task()
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        seen.append(asyncio.current_task() is task)

    test_task = asyncio.current_task()
    rest = begin(work())
    assert rest is not None
    task = asyncio.create_task(rest)
    future.set_result(7)
    await task
    assert seen == [True, 7, True]


@pytest.mark.asyncio
@pytest.mark.parametrize("cancelled", [True, False])
async def test_what_its_task_is_thrown_reaches_the_work(cancelled: bool) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ends = []

    async def work() -> None:
        try:
            await future
        except (asyncio.CancelledError, ValueError) as error:
            ends.append(type(error))
            await asyncio.sleep(0)
            raise

    rest = begin(work())
    assert rest is not None
    task = asyncio.create_task(rest)
    await asyncio.sleep(0)
    if cancelled:
        task.cancel()
    else:
        future.set_exception(ValueError("x"))
    expected = asyncio.CancelledError if cancelled else ValueError
    with pytest.raises(expected):
        await task
    assert ends == [expected]


def test_outside_of_a_task_the_work_gets_one_when_it_asks() -> None:
    name = contextvars.ContextVar("name", default="outside")
    seen: list[object] = []

    async def work() -> None:
        name.set("inside")
        seen.append(asyncio.current_task())
        await in_task()
        seen.append(asyncio.current_task())
        seen.append(name.get())

    def start() -> None:
        context = contextvars.copy_context()
        rest = context.run(begin, work())
        assert rest is not None and name.get() == "outside"
        tasks.append(loop.create_task(rest, context=context))
        tasks[0].add_done_callback(lambda _: loop.stop())

    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.new_event_loop()
    try:
        loop.call_soon(start)
        loop.run_forever()
    finally:
        loop.close()
    assert seen == [None, tasks[0], "inside"]
