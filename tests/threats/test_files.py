"""What is written to disk: modes, names from clients, what is kept of credentials, and no secrets in arguments."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import pytest

from app.__main__ import main
from core.config import Config
from core.errors import BrokerError
from core.listeners.connection import RefusedError
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_process import ROOT

from .conftest import ADMIN, PASSWORD, World

HOSTILE = (
    "..", ".", "../x", "../../../etc/passwd", "/etc/passwd", "a/../../b", "%2e%2e", "%2e%2e%2fx", "..%2fx", "a\0b",
    "%00", "a\nb", "a\\..\\b", "x" * 300, "~", "~root", "$(id)", "\u202e", "con", "-rf", " ", "",
    "__cluster_metadata-0",
)  # fmt: skip


@pytest.fixture
async def open_umask(tmp_path: Path) -> AsyncIterator[World]:
    """A world whose process takes no permission away."""
    before = os.umask(0)
    made = World(tmp_path / "data")
    try:
        async with made.app.lifespan():
            await made.add(ADMIN)
            yield made
            await made.client.aclose()
    finally:
        os.umask(before)


async def test_each_file_is_its_owners_alone(open_umask: World) -> None:
    world = open_umask
    for topic in ("one", "two"):
        records = {"records": [{"key": "k", "value": "v" * 1000} for _ in range(50)]}
        written = await world.http(ADMIN, "POST", f"/api/v1/topics/{topic}/records", records)
        assert written.status_code == 200, written.text
    offsets = {"offsets": [{"topic": "one", "partition": 0, "next_offset": 1}]}
    await world.http(ADMIN, "PATCH", "/api/v1/groups/g/offsets", offsets)
    await world.broker.close()
    directory = world.broker.config.data_dir
    modes = {path: path.stat().st_mode & 0o777 for path in (directory, *directory.rglob("*"))}
    assert len(modes) > 10
    wrong = {str(path): oct(mode) for path, mode in modes.items() if mode & 0o077}
    assert wrong == {}


_opened: list[str] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event in (
        "open",
        "os.mkdir",
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.symlink",
    ):
        _opened.append(f"{event} {arguments[0]!r}" if not isinstance(arguments[0], int) else "")


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The paths that this process opens, makes, moves and deletes; Python tells them to an audit hook."""
    global _opened
    sys.addaudithook(_audit)
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


async def test_hostile_names_open_no_other_file(world: World) -> None:
    await world.broker.topics.create("t")
    # What is loaded by the first request of each kind is no matter of names.
    await offer(world, "harmless")
    topics = {topic.name for topic in world.broker.topics.list()}
    outside = snapshot(world.broker.config.data_dir.parent)
    with opened_files() as opened:
        for name in HOSTILE:
            await offer(world, name)
    directory = str(world.broker.config.data_dir)
    new = {topic.name for topic in world.broker.topics.list()} - topics
    assert not new & (set(HOSTILE) - {"con", "-rf", "__cluster_metadata-0"}), new
    strange = [one for one in opened if one and directory not in one and not is_of_python(one)]
    assert strange == []
    assert [one for one in opened if "/../" in one or "%2" in one or "\\x00" in one] == []
    assert snapshot(world.broker.config.data_dir.parent) == outside
    assert (world.broker.config.data_dir / "metadata.db").is_file()


def is_of_python(event: str) -> bool:
    """Whether a module of the program was loaded, or one of its pages."""
    return any(
        part in event
        for part in (".py", ".so", "site-packages", f"{ROOT}/app/console/page/", f"{ROOT}/app/docs/page/")
    )


def snapshot(directory: Path) -> set[str]:
    """The names in a directory, and not below it."""
    return {path.name for path in directory.iterdir()}


async def offer(world: World, name: str) -> None:
    """Use a name for everything that has names, over HTTP, REST Proxy v2 and the Kafka port."""
    for raw in {quote(name, safe=""), quote(name, safe="/%~$()")}:
        for method, path in (
            ("PUT", "/api/v1/topics/{}"), ("GET", "/api/v1/topics/{}"), ("POST", "/api/v1/topics/{}/records"),
            ("GET", "/api/v1/topics/{}/partitions/0/records/0"), ("PATCH", "/api/v1/groups/{}/offsets"),
            ("POST", "/api/v1/groups/g/consumers/{}:poll"), ("GET", "/topics/{}"), ("POST", "/consumers/{}"),
            ("GET", "/console/{}"), ("GET", "/docs/{}"), ("GET", "/problems/{}"), ("GET", "/{}"),
        ):  # fmt: skip
            body = {"records": [{"value": "v"}]} if path.endswith("records") else {}
            answer = await world.http(ADMIN, method, path.format(raw), body)
            assert answer.status_code < 500, (method, path, name)
    client = await world.kafka(ADMIN)
    with suppress(RefusedError):
        await client.newest(3, MetadataRequest([MetadataRequestTopic(name=name)], True))
    with suppress(BrokerError):
        await world.broker.topics.create(name)
    with suppress(BrokerError):
        await world.broker.users.create(name, None)


async def test_what_is_kept_of_credentials(world: World) -> None:
    """A salt of each user and mechanism, keys of a hash, many rounds; of a token its digest."""
    assert Config().scram_iterations == 16_384
    await world.add("alice")
    token = world.tokens["alice"]
    await world.broker.close()
    database = sqlite3.connect(world.broker.config.data_dir / "metadata.db")
    tables = ("users", "scram_credentials", "tokens")
    rows = [str(row) for table in tables for row in database.execute(f"SELECT * FROM {table}")]
    database.close()
    assert rows
    assert not [row for row in rows if PASSWORD in row or token[17:] in row]


SECRETS = ("password", "token", "secret", "credential")


def test_no_option_takes_a_secret() -> None:
    """Other users of a machine see the arguments of a process: passwords and tokens come from files and prompts."""
    found = []
    waiting: list[tuple[str, click.Command]] = [("sluice", main)]
    while waiting:
        path, command = waiting.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                waiting.append((f"{path} {name}", child))
        for parameter in command.params:
            for word in parameter.opts:
                secret = word.startswith("-") and any(part in word for part in SECRETS)
                flag = isinstance(parameter, click.Option) and parameter.is_flag
                if secret and not flag and not word.endswith("-file"):
                    found.append(f"{path} {word}")
    assert found == []
