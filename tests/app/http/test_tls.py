"""HTTP on a TLS transport: what is on the wire is cipher text, refusals and streams included."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import pytest

from app.http.server import HttpServer, bind
from app.main import create_app
from core.clock import Clock
from core.config import Endpoint, TlsSettings
from core.security.tls import ServerCertificate
from tests.app.conftest import config_for
from tests.tls import Certificate, make_certificate, relay_to

TOPIC = "/api/v1/topics/secret/"
# Only the record names it; no other part of the protocol does.
MARK = "this text is a secret of the record "
VALUE = MARK * 20_000


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return make_certificate(tmp_path)


async def ask(port: int, context: ssl.SSLContext, head: str, body: str = "") -> tuple[str, str]:
    """One request on a connection of its own: the head and the body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        length = (
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            if body
            else "Connection: close\r\n\r\n"
        )
        writer.write(f"{head} HTTP/1.1\r\nHost: 127.0.0.1\r\n{length}{body}".encode())
        answer = (await asyncio.wait_for(reader.read(-1), 30)).decode()
    finally:
        writer.transport.abort()
    found, _, rest = answer.partition("\r\n\r\n")
    return found, rest


@pytest.mark.client("openssl")
async def test_under_tls_the_wire_holds_no_text_of_a_record(tmp_path: Path, certificate: Certificate) -> None:
    config = config_for(tmp_path / "data")
    app = create_app(config)
    sockets = bind([Endpoint("http", "127.0.0.1", 0)])
    tls = ServerCertificate(TlsSettings("default", certificate.file, certificate.key), config, Clock())
    tls.load()
    server = HttpServer(app.http, sockets, config, Clock(), app.traffic, [tls])
    async with app.lifespan(), relay_to(sockets[0].getsockname()[1]) as relay:
        await server.start()
        try:
            client = certificate.client()
            head, _ = await ask(relay.port, client, f"POST {TOPIC}records", VALUE)
            assert " 200 " in head
            _, one = await ask(relay.port, client, f"GET {TOPIC}partitions/0/records/0")
            assert VALUE in one
            _, page = await ask(relay.port, client, f"GET {TOPIC}partitions/0/records?offset=0")
            assert json.loads(page)["records"][0]["value"] == VALUE
            head, _ = await ask(relay.port, client, "GET http://evil.example/")
            assert " 400 " in head
            for way, seen in relay.seen.items():
                assert b"secret" not in seen and b"HTTP/1.1" not in seen, way
            assert len(relay.seen["sent"]) > len(VALUE) and len(relay.seen["received"]) > 2 * len(VALUE)
        finally:
            app.drain()
            await server.stop()
