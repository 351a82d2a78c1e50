"""What a second broker costs: the follower's processor time, and how much longer acks=all takes."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import floors
from bench.case import Figure, case, least_of
from bench.load import Connection, batch_of, produce_frame
from bench.server import CORES, broker, cpu_ns, touch_memory
from tests.broker_process import BrokerProcess
from tests.ports import free_ports

MICRO = 1e6
BATCH, RECORDS = 16_384, 16
_WAIT_SECONDS = 60.0


def _ask(server: BrokerProcess, method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(f"{server.http}/api/v1{path}", method=method)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, json.dumps(body).encode() if body else None, timeout=30) as answer:
        return json.load(answer)


def _until(holds: Any) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("the brokers did not come to be in sync")
        time.sleep(0.05)


def _role(server: BrokerProcess) -> dict[str, Any]:
    return dict(_ask(server, "GET", "/topics/bench/partitions/0/role"))


@contextmanager
def _pair() -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """A leader and a follower of the topic `bench`, in sync."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        ports = free_ports(2)
        pair = []
        for i, port in enumerate(ports):
            options = ["--broker-id", str(i + 1), "--peer", f"{2 - i}=127.0.0.1:{ports[1 - i]}"]
            process = BrokerProcess(Path(directory) / str(i), options=options)
            process.ports["kafka"] = port
            pair.append(process)
        try:
            for process in pair:
                process.spawn()
            for process in pair:
                process.wait_ready()
            _until(lambda: _ask(pair[0], "PUT", "/topics/bench", {"replication_factor": 2}))
            _until(lambda: _role(pair[1])["leader"] == 1 and len(_role(pair[0])["in_sync"]) == 2)
            yield pair[0], pair[1]
        finally:
            for process in pair:
                process.kill()


@case
def follower_16k(repeats: int) -> list[Figure]:
    """A follower of one partition at full produce speed of 16 KB batches, acks=1: its processor time a batch."""
    count = 3000
    request = produce_frame("bench", batch_of(BATCH, RECORDS))
    samples, behind = [], []
    with _pair() as (leader, follower):
        connection = Connection(leader.kafka_address)
        connection.socket.sendall(request)
        answer_size = 4 + len(connection.receive())
        for _ in range(repeats):
            with CORES.together(follower.pid):
                touch_memory(4 * BATCH * count, BATCH)
            with CORES.apart(follower.pid):
                before = cpu_ns(follower.pid)
                connection.stream([request] * count, answer_size)
                start = time.monotonic()
                end = _role(leader)["log_end_offset"]
                _until(lambda end=end: _role(follower)["log_end_offset"] == end)
            behind.append(time.monotonic() - start)
            samples.append((cpu_ns(follower.pid) - before) / 1e9 / count * MICRO)
        connection.close()
    return [
        least_of("follower, 16 KB batch", samples, "µs/batch", 40, floors.append_us(BATCH, 100, count)),
        Figure("follower, not caught up at the end of 3,000 of them", min(behind), "s", samples=behind),
    ]


def _round_trips(server: BrokerProcess, count: int) -> list[float]:
    """Milliseconds of one small record at a time with acks=all."""
    request = produce_frame("bench", batch_of(200, 1), acks=-1)
    connection = Connection(server.kafka_address)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        connection.socket.sendall(request)
        connection.receive()
        times.append((time.perf_counter() - start) * 1000)
    connection.close()
    return times


@case
def acks_all(repeats: int) -> list[Figure]:
    """One small record at a time with acks=all: what one follower adds to the median, both on this machine."""
    count = 300
    alone, followed = [], []
    with broker() as server, _pair() as (leader, _):
        connection = Connection(server.kafka_address)
        connection.create_topic("bench")
        connection.close()
        for _ in range(repeats):
            alone.append(statistics.median(_round_trips(server, count)))
            followed.append(statistics.median(_round_trips(leader, count)))
    added = [two - one for one, two in zip(alone, followed, strict=True)]
    return [
        Figure("acks=all, one record, one broker, p50", min(alone), "ms", None, floors.durable_ms(), alone),
        Figure(
            "acks=all, one record, with a follower, p50",
            min(followed),
            "ms",
            None,
            floors.durable_ms(),
            followed,
        ),
        Figure("what a follower adds, p50", statistics.median(added), "ms", 2, samples=added),
    ]
