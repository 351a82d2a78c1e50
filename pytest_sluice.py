"""A pytest plugin: a broker for people's own tests. `pip install 'sluice[pytest]'` brings the fixtures.

    def test_orders(sluice, sluice_topic):
        producer = Producer({"bootstrap.servers": sluice.kafka_bootstrap_servers})
        httpx.post(f"{sluice.http_url}/api/v1/topics/{sluice_topic}/records", json={"value": "hello"})

`sluice` is one broker for the whole run, `sluice_topic` an empty topic of its own for each test.
`start_sluice()` starts as many as a test wants.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

STOP_SECONDS = 20.0
_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]+")
_MAX_NAME = 200


@dataclass(frozen=True)
class Sluice:
    """A running broker: where clients reach it."""

    http_url: str
    """The base of the HTTP API, such as `http://127.0.0.1:41234`."""
    kafka_bootstrap_servers: str
    """`host:port` for Kafka clients."""
    pid: int

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """Create a topic, or confirm that it has this shape, and return its name.

        Raises RuntimeError with the broker's answer if the topic has another shape, or a name or setting is invalid.
        """
        body = {"partitions": partitions, "configs": dict(configs or {})}
        headers = {"Content-Type": "application/json"}
        url = f"{self.http_url}/api/v1/topics/{name}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="PUT")
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(f"The topic {name} was not created: {error.read().decode()}") from None
        return name


@contextlib.contextmanager
def start_sluice(options: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Iterator[Sluice]:
    """Start a broker on free ports over a directory of its own; it ends, and its data with it, when the block does.

    `options` are those of `sluice serve`, `env` is its whole environment. Raises RuntimeError if it does not start.
    """
    # -P: a package `app` or `core` in the working directory of the tests must not hide the broker's.
    command = [sys.executable, "-P", "-m", "app", "serve", "--ephemeral", *options]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=dict(env) if env else None
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"The broker did not start; exit code {process.wait(STOP_SECONDS)}.")
            told: dict[str, Any] = json.loads(line)
            yield Sluice(told["http_url"], told["kafka_bootstrap_servers"], told["pid"])
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="session")
def sluice() -> Iterator[Sluice]:
    """One broker for the whole test run; topics keep tests apart."""
    with start_sluice() as broker:
        yield broker


@pytest.fixture
def sluice_topic(sluice: Sluice, request: pytest.FixtureRequest) -> str:
    """The name of an empty topic with one partition, for this test alone."""
    name = _ILLEGAL.sub("-", request.node.name)[:_MAX_NAME]
    return sluice.create_topic(f"{name}-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def create_topic(sluice: Sluice) -> Callable[..., str]:
    """Create topics on the run's broker: `create_topic(name, partitions=1, configs=None)`."""
    return sluice.create_topic
