"""A server with a Kafka 0.7 door for each message format, in the tests' own process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from core.config import Config, Endpoint
from core.server import Server

DOORS = tuple(Endpoint("kafka07", "127.0.0.1", 0, (("magic", magic),)) for magic in "01")
Serve = Callable[..., Awaitable[Server]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts a server over one and the same directory, with other settings if asked to; the last one is stopped."""
    running: list[Server] = []

    async def start(**settings: Any) -> Server:
        if running:
            await running.pop().stop()
        server = Server(Config(data_dir=tmp_path / "data", listeners=DOORS, **settings))
        await server.start()
        running.append(server)
        return server

    yield start
    if running:
        await running.pop().stop()


def port(server: Server, magic: int = 1) -> int:
    """Where the door of a magic listens."""
    return server.endpoints[magic].port
