"""What a client gets when the owner of its request is down, dies, or does not agree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.gateways.ownership import owner_of
from app.http.server import bind
from core.config import Config, Endpoint, Gateway
from tests.app.gateways.conftest import Running, start

pytestmark = pytest.mark.asyncio(loop_scope="module")
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
GROUP = next(g for g in (f"g{n}" for n in range(100)) if owner_of(("a", "b"), f"group {g}".encode()) == "b")
KEY = next(k for k in (f"k{n}" for n in range(100)) if owner_of(("a", "b"), f"key {k}".encode()) == "b")
CONSUMERS = f"/api/v1/groups/{GROUP}/consumers"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-type: application/json\r\n\r\n{}"


class Owner:
    """The owner b, which a test plays."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.handle: Handle = self.answer
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self.handle(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def request(self, reader: asyncio.StreamReader) -> None:
        """Read one request without a body."""
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer all requests."""
        while True:
            await self.request(reader)
            writer.write(OK)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(
    tmp_path_factory: pytest.TempPathFactory, secret: Path
) -> AsyncIterator[tuple[Running, Owner]]:
    """The gateway a, and the owner b."""
    owner = Owner()
    server = await asyncio.start_server(owner, "127.0.0.1", 0)
    owner.port = server.sockets[0].getsockname()[1]
    (own,) = bind([Endpoint("http", "127.0.0.1", 0)])
    listed = (
        Gateway("a", "http", "127.0.0.1", own.getsockname()[1]),
        Gateway("b", "http", "127.0.0.1", owner.port),
    )
    config = Config(
        data_dir=tmp_path_factory.mktemp("gateway") / "a",
        listeners=(Endpoint("http", "127.0.0.1", 0),),
        gateways=listed,
        gateway_secret_file=secret,
    )
    async with AsyncExitStack() as stack:
        running = await start("a", config, own, stack)
        yield running, owner
        server.close()


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(pair: tuple[Running, Owner]) -> tuple[Running, Owner]:
    """The same without idle connections and requests of earlier tests."""
    running, owner = pair
    assert running.app.forwarding is not None
    for links in running.app.forwarding._levels[0].links.values():
        links.close()
        links._closed = False
    owner.requests.clear()
    owner.connections = 0
    owner.handle = owner.answer
    return running, owner


def refused(answer: httpx.Response, words: str) -> None:
    """Check a 503 that says what to do."""
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/owner-unavailable"), answer.text
    assert words in answer.json()["detail"]
    assert answer.json()["gateway"] == "b"
    assert int(answer.headers["retry-after"]) >= 1


async def test_requests_share_a_connection_and_carry_the_credentials(fresh: tuple[Running, Owner]) -> None:
    gateway, owner = fresh
    headers = {"authorization": "Basic YTpi", "x-request-id": "r-1", "cookie": "c=1"}
    for _ in range(3):
        assert (await gateway.http.get(f"{CONSUMERS}?limit=2", headers=headers)).json() == {}
    assert owner.connections == 1
    head = owner.requests[0].lower()
    assert head.startswith(f"get {CONSUMERS}?limit=2 http/1.1\r\n".encode())
    for line in (b"authorization: basic ytpi", b"x-request-id: r-1", b"cookie: c=1", b"sluice-hop: "):
        assert head.count(b"\r\n" + line) == 1
    assert f"\r\nhost: 127.0.0.1:{gateway.port}\r\n".encode() in head
    assert b"\r\nconnection:" not in head


async def test_an_owner_that_closes_before_it_answers_is_503(fresh: tuple[Running, Owner]) -> None:
    gateway, owner = fresh
    owner.handle = lambda reader, writer: owner.request(reader)
    answer = await gateway.http.post(f"{CONSUMERS}/c:poll", json={})
    refused(answer, "The request may have been carried out")
    v2 = await gateway.http.get(f"/consumers/{GROUP}/instances/i/records")
    assert (v2.status_code, v2.json()["error_code"]) == (503, 503), v2.text
    assert int(v2.headers["retry-after"]) >= 1


async def test_a_repeatable_request_is_sent_again_if_an_idle_connection_was_closed(
    fresh: tuple[Running, Owner],
) -> None:
    gateway, owner = fresh
    closes = True

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal closes
        await owner.request(reader)
        writer.write(OK)
        await owner.request(reader)
        if not closes:
            writer.write(OK)

    owner.handle = once
    await gateway.http.get(CONSUMERS)
    assert (await gateway.http.get(CONSUMERS)).status_code == 200
    assert owner.connections == 2
    write = {"url": "/api/v1/topics/t/records", "content": b"", "headers": {"idempotency-key": KEY}}
    assert (await gateway.http.post(**write)).status_code == 200  # type: ignore[arg-type]
    assert owner.connections == 3
    refused(await gateway.http.post(f"{CONSUMERS}/c:poll"), "may have been carried out")
    assert owner.connections == 3


async def test_an_answer_that_ends_too_early_ends_the_connection_of_the_client(
    fresh: tuple[Running, Owner],
) -> None:
    gateway, owner = fresh

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await owner.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 200000\r\n\r\nhalf")

    owner.handle = half
    with pytest.raises(httpx.RemoteProtocolError):
        await gateway.http.get(CONSUMERS)

    async def short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await owner.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 20\r\n\r\nhalf")

    owner.handle = short
    refused(await gateway.http.get(CONSUMERS), "did not answer it")
    assert gateway.app.traffic.in_progress == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
        b"HTTP/1.1 101 X\r\nupgrade: x\r\n\r\n",
    ],
)
async def test_an_owner_that_does_not_speak_http_is_503(fresh: tuple[Running, Owner], answer: bytes) -> None:
    gateway, owner = fresh

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await owner.request(reader)
        writer.write(answer)
        await reader.read()

    owner.handle = talk
    refused(await gateway.http.get(CONSUMERS), "did not answer it")


async def test_a_stream_of_the_owner_arrives_piece_by_piece(fresh: tuple[Running, Owner]) -> None:
    gateway, owner = fresh
    go = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await owner.request(reader)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n"
        )
        await go.wait()
        writer.write(b"4\r\nlast\r\n0\r\n\r\n")
        await reader.read()

    owner.handle = stream
    async with gateway.http.stream("GET", CONSUMERS) as answer:
        pieces = answer.aiter_raw()
        assert await anext(pieces) == b"first"
        go.set()
        assert [piece async for piece in pieces] == [b"last"]


async def test_gateways_with_different_lists_refuse_instead_of_forwarding_in_a_circle(
    fresh: tuple[Running, Owner],
) -> None:
    gateway, owner = fresh
    await gateway.http.get(CONSUMERS)
    lines = owner.requests[0].decode().split("\r\n")
    hop = next(line.partition(": ")[2] for line in lines if line.startswith("sluice-hop"))
    answer = await gateway.http.get(CONSUMERS, headers={"sluice-hop": hop})
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/gateways-differ")
    assert "retry-after" in answer.headers


async def test_an_owner_that_is_down_is_503_at_once_and_used_when_it_is_back(
    fresh: tuple[Running, Owner],
) -> None:
    gateway, _ = fresh
    assert gateway.app.forwarding is not None
    links = gateway.app.forwarding._levels[0].links["b"]
    (closed,) = bind([Endpoint("http", "127.0.0.1", 0)])
    here = links.target
    links.target = here._replace(port=closed.getsockname()[1])
    closed.close()
    refused(await gateway.http.get(CONSUMERS), "cannot be reached")
    links.target = here
    assert (await gateway.http.get(CONSUMERS)).status_code == 200
    assert gateway.counts()["b", "unreachable"] == 1


async def test_an_owner_that_stands_still_is_503_after_the_longest_poll(fresh: tuple[Running, Owner]) -> None:
    gateway, owner = fresh
    assert gateway.app.forwarding is not None
    links = gateway.app.forwarding._levels[0].links["b"]
    links.answer_seconds, usual = 0.05, links.answer_seconds
    assert usual > gateway.app.shared.config.max_wait_ms / 1_000

    async def still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await owner.request(reader)
        await reader.read()

    owner.handle = still
    refused(await gateway.http.get(CONSUMERS), "did not answer it")
    links.answer_seconds = usual


async def test_too_many_requests_to_one_owner_are_503(fresh: tuple[Running, Owner]) -> None:
    gateway, owner = fresh
    assert gateway.app.forwarding is not None
    links = gateway.app.forwarding._levels[0].links["b"]
    links._most, most = 1, links._most
    waits: asyncio.Event = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await owner.request(reader)
        await waits.wait()
        writer.write(OK)

    owner.handle = wait
    first: asyncio.Task[Any] = asyncio.create_task(gateway.http.get(CONSUMERS))
    while not owner.requests:
        await asyncio.sleep(0.001)
    refused(await gateway.http.get(CONSUMERS), "cannot be reached")
    waits.set()
    assert (await first).status_code == 200
    links._most = most
    assert len(links) <= 1
