"""core.server: one owner per directory, clear refusals, ports given back."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from core.config import Config, Endpoint
from core.errors import StartupError
from core.server import Server


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path / "data", listeners=(Endpoint("kafka", "127.0.0.1", 0),))


async def test_it_listens_where_it_says_and_leaves_a_clean_directory(config: Config) -> None:
    server = Server(config)
    await server.start()
    (endpoint,) = server.endpoints
    assert endpoint.port > 0
    _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    await server.stop()
    writer.close()
    assert (config.data_dir / ".kafka_cleanshutdown").exists()
    assert config.data_dir.stat().st_mode & 0o777 == 0o700
    modes = {p.name: p.stat().st_mode & 0o777 for p in config.data_dir.iterdir() if p.is_file()}
    assert set(modes.values()) == {0o600}, modes


async def test_a_second_one_on_the_same_directory_is_refused_with_the_pid(config: Config) -> None:
    first = Server(config)
    await first.start()
    with pytest.raises(StartupError, match=f"in use by the process with pid {os.getpid()}"):
        await Server(config).start()
    await first.stop()
    second = Server(config)
    await second.start()
    await second.stop()


async def test_a_taken_port_is_refused_and_nothing_stays_open(config: Config) -> None:
    first = Server(config)
    await first.start()
    other = replace(config, data_dir=config.data_dir.parent / "other", listeners=tuple(first.endpoints))
    with pytest.raises(StartupError, match="the port is taken"):
        await Server(other).start()
    await first.stop()
    again = Server(other)
    await again.start()
    await again.stop()


async def test_a_directory_that_cannot_be_made_is_one_line(config: Config) -> None:
    config.data_dir.write_text("a file")
    with pytest.raises(StartupError, match="cannot be written"):
        await Server(config).start()


async def test_an_unknown_scheme_is_refused(config: Config) -> None:
    with pytest.raises(StartupError, match="Unknown listener scheme"):
        await Server(replace(config, listeners=(Endpoint("gopher", "127.0.0.1", 0),))).start()
