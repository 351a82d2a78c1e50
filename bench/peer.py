"""The server that the client side loads: one of ours, or any other Kafka broker or REST proxy at a given address.

`python -m bench --kafka HOST:PORT --rest URL [--pid PID] [--topic NAME] produce_16k round_trip rest_post` sends the
same bytes in the same rhythm to another server. Its processor time is measured if it runs on this machine and its
process is named; otherwise the table has wall time, and says so. Such a server must know Produce v9, Fetch v12 and
CreateTopics v7 (Kafka 2.8 or newer), and the REST Proxy v2 surface.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bench.load import Connection
from bench.server import CORES, broker, cpu_ns

DELETE_TOPICS, DELETE_TOPICS_VERSION = 20, 4


@dataclass(frozen=True)
class Target:
    """A server under load. `pid` is None where its process is not on this machine, or not named."""

    kafka: tuple[str, int] | None
    rest: tuple[str, int] | None
    pid: int | None
    topic: str = "bench"
    rest_prefix: str = ""
    ours: bool = False
    topic_exists: bool = False

    def connect(self) -> Connection:
        """A connection to its Kafka listener."""
        if self.kafka is None:
            raise SystemExit("This case needs --kafka HOST:PORT.")
        return Connection(self.kafka)

    @property
    def rest_address(self) -> tuple[str, int]:
        """Where its HTTP listener is."""
        if self.rest is None:
            raise SystemExit("This case needs --rest URL.")
        return self.rest

    def create_topic(self) -> None:
        """Create the topic of the case, unless `--topic` names one."""
        if not self.topic_exists and self.kafka is not None:
            connection = self.connect()
            connection.create_topic(self.topic)
            connection.close()

    def together(self) -> Any:
        """`Cores.together` with its process, where that is known."""
        return CORES.together(self.pid) if self.pid is not None else nullcontext()

    @contextmanager
    def measured(self) -> Iterator[list[float]]:
        """Collects the seconds that it uses inside the block: of the processor, or of the wall."""
        used: list[float] = []
        before = self._now_ns()
        yield used
        used.append((self._now_ns() - before) / 1e9)

    def _now_ns(self) -> int:
        return time.perf_counter_ns() if self.pid is None else cpu_ns(self.pid)

    def named(self, what: str) -> str:
        """What a figure is of: with wall time, it says so."""
        return what if self.pid is not None else f"{what}, wall time"

    def target(self, limit: float) -> float | None:
        """Our limits are for us."""
        return limit if self.ours else None


_chosen: list[Target] = []


def choose(kafka: str | None, rest: str | None, pid: int | None, topic: str | None) -> None:
    """Load another server from now on. `kafka` is HOST:PORT, `rest` a URL."""
    address = None
    if kafka is not None:
        host, _, port = kafka.rpartition(":")
        address = (host, int(port))
    url = urlsplit(rest or "")
    http = (url.hostname, url.port or 80) if url.hostname else None
    # A name of its own for each run, or records of an earlier one would be read.
    name = topic or f"bench-{os.getpid()}-{time.time_ns() % 10**9}"
    _chosen.append(Target(address, http, pid, name, url.path.rstrip("/"), topic_exists=topic is not None))


@contextmanager
def target() -> Iterator[Target]:
    """The server under load: the one that was chosen, else a new broker of ours over an empty directory."""
    if not _chosen:
        with broker() as server:
            yield Target(server.kafka_address, ("127.0.0.1", server.ports["http"]), server.pid, ours=True)
        return
    yield _chosen[-1]


def clean_up() -> None:
    """Delete the topic that this run has created on the other server."""
    from core.protocol.messages.delete_topics import DeleteTopicsRequest

    for one in _chosen:
        if one.kafka is not None and not one.topic_exists:
            connection = one.connect()
            request = DeleteTopicsRequest(topic_names=[one.topic], timeout_ms=30_000)
            connection.call(DELETE_TOPICS, DELETE_TOPICS_VERSION, request)
            connection.close()
