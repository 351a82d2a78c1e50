"""Accepting with TLS: silent, failing and many handshakes; plain text on a TLS port, and TLS on a plain one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
import uvloop

from core.clock import Clock
from core.config import Config, TlsSettings
from core.listeners.tls import TlsServer
from core.security.addresses import Addresses
from core.security.quotas import QuotaTable
from core.security.tls import ServerCertificate
from tests.tls import Certificate, make_certificate

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
pytestmark = pytest.mark.client("openssl")


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@contextlib.asynccontextmanager
async def serving(certificate: Certificate, **settings: Any) -> AsyncIterator[tuple[TlsServer, int]]:
    of_clients = {name: settings.pop(name) for name in ("client_auth", "client_ca") if name in settings}
    pair = TlsSettings("default", certificate.file, certificate.key, **of_clients)
    served = ServerCertificate(pair, Config(), Clock())
    served.load()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    answer = settings.pop("plain_answer", b"")
    addresses = settings.pop("addresses", None)
    server = TlsServer(listening, served, Echo, Config(**settings), addresses, plain_answer=answer)
    server.start()
    port = listening.getsockname()[1]
    try:
        yield server, port
    finally:
        server.close()


def run(loop: str, work: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(work(), 60))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def echoed(port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(b"hello")
        return await reader.readexactly(5)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_is_served_after_its_handshake(certificate: Certificate, loop: str) -> None:
    async def work() -> None:
        async with serving(certificate) as (server, port):
            assert await echoed(port, certificate.client()) == b"hello"
            assert (server.handshakes.completed, server.handshakes.failed) == (1, 0)
            await until(lambda: server.handshakes.under_way == 0)

    run(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_silent_clients_are_bounded_and_honest_ones_served(
    certificate: Certificate, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(certificate, tls_max_handshakes=5) as (server, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
            for _, writer in silent[::2]:
                writer.write(b"\x16\x03\x01")  # the half of a handshake
            await until(lambda: server.handshakes.failed == 25)
            assert server.handshakes.under_way == 5
            # The oldest are closed, the youngest are not.
            assert await silent[0][0].read() == b""
            assert await echoed(port, certificate.client()) == b"hello"
            for _, writer in silent:
                writer.transport.abort()
            await until(lambda: server.handshakes.under_way == 0)

    run(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_clients_that_never_finish_the_handshake_count_among_those_of_their_address(
    certificate: Certificate, loop: str
) -> None:
    async def work() -> None:
        addresses = Addresses(Config(max_connections_per_ip=2), Clock(), QuotaTable())
        async with serving(certificate, addresses=addresses) as (server, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            await until(lambda: server.handshakes.under_way == 2)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            assert server.handshakes.failed == 1
            writer.transport.abort()
            for _, one in silent:
                one.transport.abort()
            await until(lambda: not server.handshakes.under_way)
            assert len(addresses) == 0
            assert await echoed(port, certificate.client()) == b"hello"

    run(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_a_handshake_has_a_deadline(
    certificate: Certificate, loop: str, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(certificate, tls_handshake_timeout_ms=100) as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            assert await reader.read() == b""
            await until(lambda: server.handshakes.under_way == 0)
            assert server.handshakes.failed == 1
            writer.transport.abort()

    run(loop, work)
    assert "127.0.0.1:" in caplog.text and "TLS handshake" in caplog.text


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_speaks_plain_text_is_told_so(
    certificate: Certificate, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(certificate, plain_answer=b"use TLS") as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.read() == b"use TLS"
            assert server.handshakes.failed == 1
            writer.transport.abort()

    run(loop, work)
    assert "the client does not speak TLS, and this listener does" in caplog.text


@pytest.mark.parametrize("loop", LOOPS)
def test_a_failed_handshake_is_one_line(
    certificate: Certificate, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(certificate) as (server, port):
            with pytest.raises(ssl.SSLError):
                await echoed(port, ssl.create_default_context())
            weak = certificate.client()
            weak.maximum_version = ssl.TLSVersion.TLSv1_2
            weak.set_ciphers("ECDHE-ECDSA-AES128-SHA256")  # no AEAD
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await echoed(port, weak)
            await until(lambda: server.handshakes.failed == 2)

    run(loop, work)
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 2
    assert "the TLS handshake failed: no shared cipher" in caplog.text


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_is_refused_gets_the_alert(
    certificate: Certificate, loop: str, version: ssl.TLSVersion
) -> None:
    """The alert says that a certificate is required; without it the network would seem to be broken."""

    def ask(port: int) -> None:
        context = certificate.client()
        context.minimum_version = context.maximum_version = version
        plain = socket.create_connection(("127.0.0.1", port), timeout=30)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
            client.sendall(b"hello")
            client.recv(5)

    async def work() -> None:
        async with serving(certificate, client_auth="required", client_ca=certificate.file) as (server, port):
            with pytest.raises(ssl.SSLError, match=r"alert (certificate required|handshake failure)"):
                await asyncio.to_thread(ask, port)
            await until(lambda: server.handshakes.under_way == 0)

    run(loop, work)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_only_connects_says_nothing_in_the_log(
    certificate: Certificate, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Load balancers look at a port in this way, every second."""

    async def work() -> None:
        async with serving(certificate) as (server, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: server.handshakes.under_way == 1)
            writer.close()
            await until(lambda: server.handshakes.under_way == 0)
            assert server.handshakes.failed == 0

    run(loop, work)
    assert not caplog.records


@pytest.mark.parametrize("loop", LOOPS)
def test_a_flood_of_failures_does_not_fill_the_log(
    certificate: Certificate, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with serving(certificate) as (server, port):
            for _ in range(200):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"plain")
                writer.close()
            await until(lambda: server.handshakes.failed == 200)

    run(loop, work)
    assert 10 <= len(caplog.records) < 200


@pytest.mark.parametrize("loop", LOOPS)
def test_a_close_ends_what_is_not_open_yet(certificate: Certificate, loop: str) -> None:
    async def work() -> None:
        async with serving(certificate) as (server, port):
            open_reader, open_writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=certificate.client()
            )
            silent, writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: server.handshakes.under_way == 1)
            server.close()
            assert await silent.read() == b""
            with pytest.raises(ConnectionError):
                await asyncio.open_connection("127.0.0.1", port)
            open_writer.write(b"still")
            assert await open_reader.readexactly(5) == b"still"
            for one in (writer, open_writer):
                one.transport.abort()

    run(loop, work)
