"""How HTTP scales with workers: the same load on one and on two workers over the same cluster, in turn.

The clients are one process that sends prepared requests over 32 connections and counts the answers. On two cores the
clients and the cluster share the cores with the workers, so the ratio is a lower bound of what more cores give.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import selectors
import socket
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.case import Figure, case
from bench.http import _records, get, post
from tests.broker_process import BrokerProcess

CONNECTIONS = 32
SECONDS = 3.0
_START_SECONDS = 60.0
# Two workers on two cores are 1.8 times as fast as one.
TARGET = 1 / 1.8
_LENGTH = re.compile(rb"content-length: (\d+)")
_PATH = "/api/v1/topics/workers/partitions/0/records?offset=0&limit=100"


@case
def workers(repeats: int) -> list[Figure]:
    """Reads of 100 records per second, and writes of one: one worker, two workers, and the ratio of the times."""
    figures = []
    requests = {
        "GET of 100 records": get(_PATH),
        "POST of 1 record": post("/api/v1/topics/written/records?acks=1", {"records": _records(1)}),
    }
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name, _cluster(Path(name)) as cluster:
        rates: dict[tuple[str, int], list[float]] = {}
        for turn in range(repeats):
            for number in (1, 2):
                with _gateway(Path(name) / f"{turn}-{number}", cluster, number) as port:
                    for what, request in requests.items():
                        rates.setdefault((what, number), []).append(_rate(port, request))
        for what in requests:
            one, two = rates[what, 1], rates[what, 2]
            figures.append(Figure(f"{what}, one worker", max(one), "requests/s", samples=one))
            figures.append(Figure(f"{what}, two workers", max(two), "requests/s", samples=two))
            ratio = max(one) / max(two)
            figures.append(Figure(f"{what}, time of two workers over that of one", ratio, "times", TARGET))
    return figures


def _ask_without_pause(port: int, request: bytes, answered: Any) -> None:
    """The child process: each connection sends the request again as soon as it has its answer."""
    selector = selectors.DefaultSelector()
    for _ in range(CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, bytearray())
        connection.sendall(request)
    while True:
        for key, _ in selector.select():
            one, buffer = key.fileobj, key.data
            assert isinstance(one, socket.socket)
            buffer += one.recv(65_536)
            head, end, body = buffer.partition(b"\r\n\r\n")
            if not end or len(body) < int(_LENGTH.search(head)[1]):  # type: ignore[index]
                continue
            if not head.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(f"not 200: {buffer[:400]!r}")
            buffer.clear()
            answered.value += 1
            one.sendall(request)


def _rate(port: int, request: bytes) -> float:
    answered = multiprocessing.Value("q", 0, lock=False)
    client = multiprocessing.Process(target=_ask_without_pause, args=(port, request, answered), daemon=True)
    client.start()
    try:
        time.sleep(1.0)
        begin, before = time.perf_counter(), answered.value
        time.sleep(SECONDS)
        if not client.is_alive():
            raise ConnectionError("the clients have stopped")
        return float((answered.value - before) / (time.perf_counter() - begin))
    finally:
        client.kill()
        client.join()


@contextmanager
def _cluster(directory: Path) -> Iterator[BrokerProcess]:
    cluster = BrokerProcess(directory / "cluster").start()
    try:
        body = json.dumps({"records": _records(100)}).encode()
        headers = {"Content-Type": "application/json"}
        url = f"{cluster.http}/api/v1/topics/workers/records"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            answer.read()
        yield cluster
    finally:
        cluster.kill()


@contextmanager
def _gateway(directory: Path, cluster: BrokerProcess, number: int) -> Iterator[int]:
    """Run gateways over the cluster and return their port when all of them answer."""
    options = ["--upstream", cluster.kafka, "--workers", str(number)]
    process = BrokerProcess(directory, options=options)
    process.ports = {"http": 0}
    process.start()
    try:
        deadline = time.monotonic() + _START_SECONDS
        while number > 1 and time.monotonic() < deadline:
            with urllib.request.urlopen(f"{process.http}/metrics", timeout=30) as answer:
                if len(re.findall(r'sluice_worker_up\{worker="\d"\} 1', answer.read().decode())) == number:
                    break
            time.sleep(0.05)
        yield process.ports["http"]
    finally:
        process.stop()
