"""The commands as a person runs them: in this process against a broker of its own for each test file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.commands.fake_gateway import FakeGateway
from tests.app.commands.running import Ran, Sluice, Spawn, run
from tests.broker_process import ROOT, BrokerProcess


@pytest.fixture
def sluice(broker: BrokerProcess) -> Sluice:
    """Runs a command against the broker of this test file."""

    def call(*args: str, given: bytes | str | None = None, code: int | None = 0) -> Ran:
        return run(*args, url=broker.http, given=given, code=code)

    return call


@pytest.fixture
def topic(request: pytest.FixtureRequest, sluice: Sluice) -> str:
    """A topic of this test alone, with three partitions."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:100]
    sluice("topics", "create", name, "--partitions", "3")
    return name


@pytest.fixture
def spawn(broker: BrokerProcess) -> Iterator[Spawn]:
    """Starts a command as a process of its own; what still runs at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*args: str, **options: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "SLUICE_URL": broker.http, "PYTHONUNBUFFERED": ""}
        options = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
        } | options
        process = subprocess.Popen([sys.executable, "-m", "app", *args], cwd=ROOT, env=environment, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def fake() -> Iterator[FakeGateway]:
    """A gateway that says what the test wants."""
    server = FakeGateway()
    yield server
    server.stop()
