"""The HTTP client and endpoints that break every rule."""

from __future__ import annotations

import asyncio
import gzip
import ssl

import pytest
import trustme

from core.queues.webhooks.addresses import AllowList, Rules, parse_url
from core.queues.webhooks.http_client import MAX_IDLE_SECONDS, HttpClient, Internet, NoAnswerError
from tests.core.queues.webhooks.endpoint import Answer, Endpoint, Got, Names, raw, silence, status
from tests.virtual_time import LoopClock, run

LOOPBACK = Rules(AllowList(["127.0.0.0/8"]))


def client(
    url: str, network: Names | None = None, rules: Rules = LOOPBACK, tls: ssl.SSLContext | None = None
) -> HttpClient:
    def context() -> ssl.SSLContext:
        assert tls is not None
        return tls

    return HttpClient(parse_url(url), rules, LoopClock(), network or Names(), context, list)


async def post(to: HttpClient, body: bytes = b"{}", seconds: float = 15.0) -> int:
    return (await to.post([("x-test", "1")], body, seconds)).status


def test_a_request_as_it_arrives() -> None:
    async def work() -> None:
        async with Endpoint() as endpoint:
            to = client(endpoint.url)
            assert await post(to, b"body") == 200
            [got] = endpoint.got
            assert got.line == "POST /hook?token=planted-secret HTTP/1.1"
            assert got.headers["host"] == f"127.0.0.1:{endpoint.port}"
            assert (got.headers["x-test"], got.body) == ("1", b"body")
            to.close()

    run(work())


def test_a_connection_is_used_again_and_closed_when_it_was_idle_for_long() -> None:
    async def work() -> None:
        async with Endpoint() as endpoint:
            to = client(endpoint.url)
            for _ in range(5):
                await post(to)
            assert endpoint.connections == 1
            await asyncio.sleep(MAX_IDLE_SECONDS + 1)
            await post(to)
            assert endpoint.connections == 2
            to.close()

    run(work())


def test_a_connection_that_was_closed_while_idle_costs_no_attempt() -> None:
    async def work() -> None:
        async with Endpoint(raw(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")) as endpoint:
            to = client(endpoint.url)
            for _ in range(3):
                assert await post(to) == 200
            assert len(endpoint.got) == 3
            to.close()

    run(work())


async def _drip(_: Got, writer: asyncio.StreamWriter) -> None:
    for one in b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n" * 100:
        writer.write(bytes([one]))
        await asyncio.sleep(1)


async def _endless_headers(_: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x-more: " + b"a" * 1000 + b"\r\n")
        await writer.drain()


async def _flood_of_interim_answers(_: Got, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await writer.drain()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (silence, "no answer within 15 s"),
        (_drip, "no answer within 15 s"),
        (_endless_headers, "header lines"),
        (_flood_of_interim_answers, "interim"),
        (raw(b""), "closed the connection"),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-"), "closed the connection"),
        (raw(b"SSH-2.0-OpenSSH_9\r\n\r\n"), "not HTTP/1.1"),
        (raw(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"), "HTTP/1.1|closed"),
        (raw(b"HTTP/1.1 20 Nope\r\n\r\n"), "not HTTP/1.1"),
    ],
)
def test_an_endpoint_that_gives_no_answer(answer: Answer, reason: str) -> None:
    async def work() -> None:
        async with Endpoint(answer) as endpoint:
            to = client(endpoint.url)
            with pytest.raises(NoAnswerError, match=reason):
                await post(to)
            to.close()

    run(work())


async def _ten_gigabytes(_: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n")
    while True:
        writer.write(b"a" * 65_536)
        await writer.drain()


async def _slow_body(_: Got, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
    for _i in range(1000):
        await asyncio.sleep(1)
        writer.write(b"a")


_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_BOMB = gzip.compress(b"\0" * 10_000_000)


@pytest.mark.parametrize(
    "answer",
    [
        _ten_gigabytes,
        _slow_body,
        raw(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort"),
        raw(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(_BOMB), _BOMB)),
        raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 X\r\n\r\n" + _OK, close=False),
        raw(_OK + b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n", close=False),
        raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", close=False),
        raw(b"HTTP/1.0 200 OK\r\n\r\nuntil the end"),
    ],
)  # fmt: skip
def test_an_answer_counts_by_its_head_whatever_follows(answer: Answer) -> None:
    async def work() -> None:
        async with Endpoint(answer) as endpoint:
            to = client(endpoint.url)
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert await post(to) == 200
            assert loop.time() - began <= 5.1
            # The next request gets its own answer, never what is left of this one.
            endpoint.answer = status(204)
            assert await post(to) == 204
            to.close()

    run(work())


@pytest.mark.parametrize("code", [204, 304, 418, 600, 999])
def test_any_status_is_an_answer(code: int) -> None:
    async def work() -> None:
        async with Endpoint(
            status(code, "Retry-After: 7", "retry-after: 8", "Webhook-Delivery: abort-message")
        ) as endpoint:
            to = client(endpoint.url)
            answer = await to.post([], b"", 15.0)
            assert answer == (code, {"retry-after": "7", "webhook-delivery": "abort-message"})
            to.close()

    run(work())


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def work() -> None:
        async with Endpoint(status(307, "location: http://169.254.169.254/latest/meta-data")) as endpoint:
            network = Names()
            to = client(endpoint.url, network)
            assert await post(to) == 307
            assert [one[0] for one in network.connected] == ["127.0.0.1"]
            to.close()

    run(work())


def test_an_endpoint_that_reads_nothing_of_a_large_body_may_answer() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(1)
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        to = client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        assert await post(to, b"a" * 50_000_000) == 413
        to.close()
        # Until the endpoint has closed its side.
        await asyncio.sleep(2)
        server.close()

    run(work())


def test_a_name_that_changes_its_address_after_the_check_changes_nothing() -> None:
    """The first look-up gives a public address, every later one a private one (rebinding)."""

    class Rebinding(Names):
        async def resolve(self, host: str, port: int) -> list[str]:
            self.resolved.append(host)
            return ["1.1.1.1"] if len(self.resolved) == 1 else ["10.0.0.1"]

        async def connect(
            self, address: str, port: int, tls: ssl.SSLContext | None, name: str
        ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            self.connected.append((address, port, name))
            raise ConnectionRefusedError(111, "Connection refused")

    async def work() -> None:
        network = Rebinding()
        to = client("https://evil.example/", network, Rules(AllowList([])), ssl.create_default_context())
        with pytest.raises(NoAnswerError, match="refused"):
            await post(to)
        # One look-up, and the connection is made to the address that was checked.
        assert (network.resolved, network.connected) == (["evil.example"], [("1.1.1.1", 443, "evil.example")])
        with pytest.raises(NoAnswerError, match="private"):
            await post(to)
        assert len(network.connected) == 1

    run(work())


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "127.1", "0177.0.0.1", "localhost"])
def test_every_way_to_write_an_address_of_this_machine_is_seen_through(host: str) -> None:
    """The system takes these for 127.0.0.1; the check is of what it returns."""

    async def work() -> None:
        public = Rules(AllowList([]))
        to = HttpClient(
            parse_url(f"https://{host}/"), public, LoopClock(), Internet(), ssl.create_default_context, list
        )
        with pytest.raises(NoAnswerError, match=r"loopback|not known"):
            await post(to)

    run(work())


def test_the_certificate_must_be_of_the_name_and_the_connection_is_to_the_checked_address() -> None:
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("hooks.example").configure_cert(server)
    context = ssl.create_default_context()
    authority.configure_trust(context)

    async def work() -> None:
        endpoint = Endpoint()
        await endpoint.start(server)
        async with asyncio.timeout(60):
            network = Names(hooks_example=["127.0.0.1"], other_example=["127.0.0.1"])
            to = client(f"https://hooks.example:{endpoint.port}/x", network, tls=context)
            assert await post(to) == 200
            assert endpoint.got[0].headers["host"] == f"hooks.example:{endpoint.port}"
            assert network.connected == [("127.0.0.1", endpoint.port, "hooks.example")]
            to.close()
            wrong = client(f"https://other.example:{endpoint.port}/x", network, tls=context)
            with pytest.raises(NoAnswerError, match="certificate is not valid"):
                await post(wrong)
            unknown = client(
                f"https://hooks.example:{endpoint.port}/x", network, tls=ssl.create_default_context()
            )
            with pytest.raises(NoAnswerError, match="certificate is not valid"):
                await post(unknown)
        await endpoint.__aexit__(None, None, None)

    run(work())


def test_a_name_that_is_not_known_and_a_port_without_a_listener() -> None:
    async def work() -> None:
        with pytest.raises(NoAnswerError, match="name is not known"):
            await post(client("http://missing.example:8080/", Names()))
        async with Endpoint() as endpoint:
            url = endpoint.url
        with pytest.raises(NoAnswerError, match=r"refused|failed"):
            await post(client(url))

    run(work())
