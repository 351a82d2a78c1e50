"""TLS for tests: a certificate made on the spot, and a relay that sees what passes on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """A self-signed certificate for 127.0.0.1 and its key, as files."""

    file: Path
    key: Path

    def server(self) -> ssl.SSLContext:
        """The context of a server that shows it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context

    def client(self) -> ssl.SSLContext:
        """The context of a client that trusts it and nothing else."""
        return ssl.create_default_context(cafile=str(self.file))


def make_certificate(directory: Path) -> Certificate:
    """Make a certificate with the openssl command; it is valid for a day."""
    made = Certificate(directory / "certificate.pem", directory / "key.pem")
    name = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    command = ("openssl", "req", "-x509", *kind, *name, "-keyout", made.key, "-out", made.file)
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    return made


class Relay:
    """A TCP relay to one port: `seen` holds all that passed, each direction by itself."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.seen = {"sent": bytearray(), "received": bytearray()}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, to_writer, "sent"))
                both.create_task(self._copy(to_reader, writer, "received"))
        finally:
            for end in (writer, to_writer):
                end.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                self.seen[way] += data
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def relay_to(port: int) -> AsyncIterator[Relay]:
    """A relay before a port of this machine, as long as the block runs."""
    relay = Relay(port)
    passing: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passing.add(asyncio.create_task(relay._pass(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        for one in passing:
            one.cancel()
        await asyncio.gather(*passing, return_exceptions=True)
