"""NDJSON both ways in one request: answers line by line, backpressure, and every end."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.main import Application
from core.errors import BrokerError, ErrorCode
from tests.app.http.test_protocol import running
from tests.app.native.streams.asgi_stream import Stream, streaming
from tests.app.native.streams.test_events import fresh
from tests.app.native.streams.test_merged import NUMBERS, page
from tests.app.native.test_records import Check, T, make

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {
    "http_max_body_bytes": 5_000,
    "max_inflight_bytes": 20_000,
    "http_max_streams": 5,
    "idle_timeout_ms": 150,
}
NDJSON = "application/x-ndjson"


def lines(app: Application, topic: str, query: str = "acks=1", **headers: str) -> Any:
    return streaming(
        app,
        f"{T}/{topic}/records",
        query,
        accept=NDJSON,
        method="POST",
        body=None,
        content_type=NDJSON,
        **headers,
    )


def say(stream: Stream, body: bytes, more: bool = True) -> None:
    stream.sent.put_nowait({"type": "http.request", "body": body, "more_body": more})


def parsed(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.splitlines()]


async def test_a_line_is_answered_while_the_body_is_still_open(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    async with lines(app, topic) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == NDJSON
        for offset in range(3):
            say(stream, b'{"key":"k","value":%d}\n' % offset)
            (answer,) = parsed(await stream.piece() or b"")
            assert (answer["partition"], answer["offset"]) == (0, offset)
            assert answer["timestamp_ms"] > 0
            assert [r["value"] for r in (await page(http, topic))["records"]][-1] == offset
        say(stream, b"", more=False)
        assert await stream.rest() == b""


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.text(max_size=30), max_size=20),
    cuts=st.lists(st.integers(0, 900), max_size=15),
    newline_at_end=st.booleans(),
)
async def test_however_the_body_is_cut_each_line_is_one_record(
    app: Application, http: httpx.AsyncClient, values: list[str], cuts: list[int], newline_at_end: bool
) -> None:
    topic = f"cut-{next(NUMBERS)}"
    await make(http, topic)
    body = "\n".join(json.dumps({"value": value}) for value in values).encode()
    body += b"\n" if newline_at_end else b""
    places = sorted({cut for cut in cuts if cut < len(body)})
    pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    async with lines(app, topic) as stream:
        for piece in pieces:
            say(stream, piece)
        say(stream, b"", more=False)
        answers = parsed(await stream.rest())
    assert [a["offset"] for a in answers] == list(range(len(values)))
    read = (await page(http, topic, encoding="text"))["records"]
    assert [r["value"] for r in read] == values


async def test_a_bad_line_is_told_and_harms_no_other(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    body = [
        b'{"value":1}', b"", b"{not json}", b"  ", b'{"value":2,"what":3}', b'{"value":"\\ud800"}', b"\xff",
        b'{"value":3,"partition":7}', b'{"value":4}',
    ]  # fmt: skip
    async with lines(app, topic) as stream:
        say(stream, b"\n".join(body), more=False)
        answers = parsed(await stream.rest())
    assert [a["offset"] for a in answers] == [0, None, None, None, None, None, 1]
    errors = [a["error"] for a in answers if "error" in a]
    assert [e["status"] for e in errors] == [400, 422, 400, 400, 404]
    assert errors[1]["detail"].startswith("Record 2, field 'what'")
    assert {e["kafka_error"] for e in errors[:4]} == {"INVALID_RECORD"}
    assert errors[4]["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert [r["value"] for r in (await page(http, topic))["records"]] == [1, 4]


async def test_a_write_that_fails_whole_answers_each_of_its_lines(
    app: Application, http: httpx.AsyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(http, topic)

    async def produce(*_: object, **__: object) -> None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk has failed.")

    async with lines(app, topic) as stream:
        monkeypatch.setattr(app.server.broker.records, "produce", produce)
        say(stream, b'{"value":1}\n{"value":2}\nx\n')
        answers = parsed(await stream.piece() or b"")
        assert [a["error"]["status"] for a in answers] == [507, 507, 400]
        monkeypatch.undo()
        say(stream, b'{"value":3}\n', more=False)
        assert [a["offset"] for a in parsed(await stream.rest())] == [0]


async def test_without_the_header_a_body_of_lines_is_answered_whole(
    http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    body = b'{"value":1}\n{"value":2}\n'
    for accept in ("application/json", "*/*", "application/x-ndjson;q=0.1, application/json"):
        got = await http.post(url, content=body, headers={"content-type": NDJSON, "accept": accept})
        assert got.headers["content-type"] == "application/json"
        assert len(got.json()["records"]) == 2


async def test_a_client_that_does_not_read_its_answers_is_not_read_either(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    async with lines(app, topic) as stream:
        stream.room.clear()
        for i in range(50):
            say(stream, b'{"value":%d}\n' % i)
        await asyncio.sleep(0.05)
        assert stream.sent.qsize() >= 48
        assert len((await page(http, topic))["records"]) <= 2
        stream.room.set()
        say(stream, b"", more=False)
        assert len(parsed(await stream.rest())) == 50


async def test_a_line_that_is_too_long_ends_the_stream_with_its_limit(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    async with lines(app, topic) as stream:
        assert stream.headers["connection"] == "close"
        say(stream, b'{"value":1}\n{"value":"')
        for _ in range(6):
            say(stream, b"x" * 1000)
        first, problem = parsed(await stream.rest())
        assert first["offset"] == 0
        assert (problem["problem"]["status"], problem["problem"]["type"]) == (
            413,
            "/problems/payload-too-large",
        )


async def test_unfinished_lines_are_held_under_the_limit_over_all_connections(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic)
    streams = [lines(app, topic) for _ in range(5)]
    opened = [await stream.__aenter__() for stream in streams]
    for stream in opened:
        say(stream, b"x" * 4_900)
    await asyncio.sleep(0.02)
    (refusal,) = [parsed(s.pieces.get_nowait() or b"") for s in opened if s.pieces.qsize()]
    assert refusal[0]["problem"]["status"] == 503
    got = await http.post(f"{T}/{topic}/records", content=b"x" * 2_000)
    problem(got, 503, "not-ready")
    for stream in streams:
        await stream.__aexit__(None, None, None)
    assert (await http.post(f"{T}/{topic}/records", content=b"x" * 2_000)).status_code == 200


async def test_a_client_that_falls_asleep_is_let_go(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    async with lines(app, topic) as stream:
        (problem,) = parsed(await stream.rest())
        assert problem["problem"]["status"] == 408


async def test_a_client_that_disconnects_leaves_nothing(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    async with lines(app, topic) as stream:
        say(stream, b'{"value":1}\n{"value":')
        assert await stream.piece()
        await asyncio.sleep(0.01)
        assert len(app.server.broker.purgatory) == 1
    await asyncio.sleep(0)
    assert len(app.server.broker.purgatory) == 0
    # What was not a whole line was not written.
    assert len((await page(http, topic))["records"]) == 1


async def test_a_drain_ends_the_stream_and_says_so(tmp_path: Path) -> None:
    async with fresh(tmp_path) as (app, http):
        await make(http, "t")
        async with lines(app, "t") as stream:
            say(stream, b'{"value":1}\n')
            assert await stream.piece()
            app.drain()
            (bye,) = parsed(await stream.rest())
            assert bye["bye"]["retry_ms"] > 0


async def test_the_number_is_limited(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic)
    streams = [lines(app, topic) for _ in range(5)]
    for stream in streams:
        await stream.__aenter__()
    headers = {"content-type": NDJSON, "accept": NDJSON}
    problem(await http.post(f"{T}/{topic}/records", headers=headers), 429, "throttling-quota-exceeded")
    for stream in streams:
        await stream.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("topic_name", "query", "headers", "status", "kind"),
    [
        ("refused", "", {"accept": NDJSON + ";q=0"}, 406, "not-acceptable"),
        ("refused", "", {"content-encoding": "gzip"}, 415, "unsupported-media-type"),
        ("refused", "", {"content-type": NDJSON + "; charset=latin-1"}, 415, "unsupported-media-type"),
        ("refused", "", {"idempotency-key": "a"}, 422, "invalid-request"),
        ("refused", "?acks=2", {}, 422, "invalid-request"),
        ("bad name", "", {}, 422, "invalid-topic"),
    ],
)  # fmt: skip
async def test_what_cannot_begin_is_refused_with_a_status(
    http: httpx.AsyncClient,
    problem: Check,
    topic_name: str,
    query: str,
    headers: dict[str, str],
    status: int,
    kind: str,
) -> None:
    whole = {"content-type": NDJSON, "accept": NDJSON} | headers
    problem(await http.post(f"{T}/{topic_name}/records{query}", headers=whole), status, kind)


# --- over sockets -------------------------------------------------------------------------------------------


def chunks(pieces: Iterable[bytes]) -> Iterable[bytes]:
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("expect", [b"", b"Expect: 100-continue\r\n"])
async def test_it_is_full_duplex_over_a_socket(tmp_path: Path, expect: bytes) -> None:
    head = (
        f"POST {T}/t/records?acks=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {NDJSON}\r\nAccept: {NDJSON}\r\n"
        "Transfer-Encoding: chunked\r\n"
    )
    async with running(tmp_path / "data") as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head.encode() + expect + b"\r\n")
        if expect:
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        for number in range(3):
            piece = b'{"value":%d}\n' % number
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if number == 0:
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
            size = int(await reader.readuntil(b"\r\n"), 16)
            assert json.loads(await reader.readexactly(size))["offset"] == number
            await reader.readexactly(2)
        writer.write(b"0\r\n\r\n")
        assert await reader.read() == b"0\r\n\r\n"
        writer.close()


async def test_a_sender_that_never_reads_is_stopped_by_the_kernel_and_not_buffered(tmp_path: Path) -> None:
    line = b'{"value":"%b"}\n' % (b"x" * 50)
    async with running(tmp_path / "data") as port:
        sender = socket.socket()
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sender.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sender, ("127.0.0.1", port))
        head = (
            f"POST {T}/t/records?acks=0 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {NDJSON}\r\n"
            f"Accept: {NDJSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await loop.sock_sendall(sender, head.encode())
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 200_000_000:
                async with asyncio.timeout(0.5):
                    sent += await loop.sock_sendto(
                        sender, next(iter(chunks([line * 1000]))), ("127.0.0.1", port)
                    )
        assert sent < 60_000_000
        sender.close()
