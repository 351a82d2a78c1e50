"""Records over HTTP: the lean routes, one keep-alive connection, requests encoded beforehand."""

from __future__ import annotations

import json
import multiprocessing
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import Any

from bench.bystander import Bystander, percentile
from bench.case import Figure, case, case_for_any, least_of, median_of
from bench.http_yardstick import Stack, http_stack
from bench.load import Connection
from bench.peer import target
from bench.server import CORES, broker, measured_cpu, touch_memory
from tests.broker_process import BrokerProcess

MICRO = 1e6
CLIENTS = 8
VALUE = "v" * 200


def post(path: str, body: object, media_type: str = "application/json") -> bytes:
    """A POST of JSON as bytes."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media_type}\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data


def get(path: str) -> bytes:
    """A GET as bytes."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n".encode()


class Http:
    """One keep-alive connection to the HTTP listener."""

    def __init__(self, server: BrokerProcess | Stack | tuple[str, int]) -> None:
        address = server if isinstance(server, tuple) else ("127.0.0.1", server.ports["http"])
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def call(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; status and body of its answer."""
        self.socket.sendall(request)
        return self.answer()

    def answer(self) -> tuple[int, bytes]:
        """Status and body of the answer to a request that was sent before."""
        data = self.socket.recv(262_144)
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more()
        head = data[:end].lower()
        at = head.find(b"content-length:")
        size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        while len(data) < end + 4 + size:
            data += self._more()
        return int(head[9:12]), data[end + 4 :]

    def _more(self) -> bytes:
        piece = self.socket.recv(262_144)
        if not piece:
            raise ConnectionError("the broker closed the connection")
        return piece


def _served(server: BrokerProcess | Stack, request: bytes) -> Http:
    """A connection on which the request has been answered well once."""
    connection = Http(server)
    status, body = connection.call(request)
    if status != 200:
        raise RuntimeError(f"{request[:60]!r}: {status} {body[:500]!r}")
    return connection


def _per_request(
    servers: Sequence[tuple[BrokerProcess | Stack, bytes]], count: int, repeats: int
) -> list[list[float]]:
    """Processor µs per request of each server, turn by turn: what is slow for one is slow for the others."""
    connections = [_served(server, request) for server, request in servers]
    samples: list[list[float]] = [[] for _ in servers]
    with CORES.together(*(server.pid for server, _ in servers)):
        for _ in range(repeats):
            for (server, request), connection, taken in zip(servers, connections, samples, strict=True):
                touch_memory(2 * count * len(request), len(request))
                with measured_cpu(server) as used:
                    for _ in range(count):
                        connection.call(request)
                taken.append(used[0] / count * MICRO)
    for connection in connections:
        connection.close()
    return samples


def _topic(server: BrokerProcess) -> None:
    connection = Connection(server.kafka_address)
    connection.create_topic("bench")
    connection.close()


def _records(count: int) -> Sequence[dict[str, str]]:
    return [{"key": f"key-{number}", "value": VALUE} for number in range(count)]


def _post_beside(records: int, count: int, repeats: int, target: float) -> list[Figure]:
    """POST of this many records, beside the same work in FastAPI and pydantic, and beside uvicorn alone."""
    body = {"records": _records(records)}
    request = post("/api/v1/topics/bench/records?acks=1", body)
    with broker() as server, http_stack("fastapi") as usual, http_stack("bare") as bare:
        _topic(server)
        turns: list[tuple[BrokerProcess | Stack, bytes]] = [
            (server, request),
            (usual, post("/topics/bench/records?acks=1", body)),
            (bare, request),
        ]
        ours, theirs, least = _per_request(turns, count, repeats)
    what = "one record" if records == 1 else f"{records} records"
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return [
        least_of(f"HTTP: POST {what}", ours, "µs/request", target, floor=min(least)),
        least_of("  the same in FastAPI and pydantic", theirs, "µs/request"),
        median_of("  ours in those", ratios, "x"),
    ]


@case
def http_post_1(repeats: int) -> list[Figure]:
    """POST of one keyed record of 200 B, acks=1, beside FastAPI and pydantic in the same run."""
    return _post_beside(1, 2000, repeats, 60)


@case
def http_post_100(repeats: int) -> list[Figure]:
    """POST of 100 keyed records of 200 B, acks=1, beside FastAPI and pydantic in the same run."""
    return _post_beside(100, 500, repeats, 180)


@case
def http_transaction(repeats: int) -> list[Figure]:
    """POST /transactions of 10 records of 200 B in two topics, one at a time, with and without an offset."""
    records: dict[str, object] = {topic: _records(5) for topic in ("bench", "other")}
    offset = {"group": "bench", "topic": "bench", "partition": 0, "offset": 1}
    with broker() as server:
        connection = Connection(server.kafka_address)
        for topic in records:
            connection.create_topic(topic)
        connection.close()
        bodies = {"": {"records": records}, " and an offset": {"records": records, "offsets": [offset]}}
        turns = [(server, post("/api/v1/transactions", body)) for body in bodies.values()]
        samples = _per_request(turns, 500, repeats)
    return [
        least_of(f"HTTP: a transaction of 10 records in 2 topics{what}", taken, "µs/request", 250)
        for what, taken in zip(bodies, samples, strict=True)
    ]


@case
def http_get_100(repeats: int) -> list[Figure]:
    """GET of 100 records of 200 B as JSON."""
    with broker() as server:
        _topic(server)
        _served(server, post("/api/v1/topics/bench/records?acks=1", {"records": _records(100)})).close()
        request = get("/api/v1/topics/bench/partitions/0/records?offset=0&limit=100")
        with http_stack("bare") as bare:
            samples, least = _per_request([(server, request), (bare, request)], 500, repeats)
    return [least_of("HTTP: GET 100 records", samples, "µs/request", 250, floor=min(least))]


@case_for_any("rest")
def rest_post(repeats: int) -> list[Figure]:
    """POST of 1 and of 100 records of 200 B over the REST Proxy v2 surface, beside uvicorn alone."""
    figures = []
    with target() as server, http_stack("bare") as bare:
        server.create_topic()
        for records, count in ((1, 1000), (100, 300)):
            path = f"{server.rest_prefix}/topics/{server.topic}"
            request = post(path, {"records": _records(records)}, "application/vnd.kafka.json.v2+json")
            connection, least = Http(server.rest_address), _served(bare, request)
            status, body = connection.call(request)
            if status != 200 or b'"offset":' not in body:
                raise RuntimeError(f"POST {path}: {status} {body[:500]!r}")
            ours, floors = [], []
            with server.together():
                for _ in range(repeats):
                    touch_memory(2 * count * len(request), len(request))
                    with server.measured() as used:
                        for _ in range(count):
                            connection.call(request)
                    ours.append(used[0] / count * MICRO)
                    before = time.perf_counter_ns()
                    with measured_cpu(bare) as used:
                        for _ in range(count):
                            least.call(request)
                    wall = (time.perf_counter_ns() - before) / 1e9
                    floors.append((wall if server.pid is None else used[0]) / count * MICRO)
            connection.close()
            least.close()
            what = server.named(f"REST Proxy v2: POST {records} record{'s' * (records > 1)}")
            figures.append(least_of(what, ours, "µs/request", floor=min(floors)))
    return figures


def _post_without_pause(port: int, request: bytes, clients: int, ready: Event, answered: Any) -> None:
    """The child process: `count` clients, each of which posts again as soon as it has its answer."""
    selector = selectors.DefaultSelector()
    for _ in range(clients):
        connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ)
        connection.sendall(request)
    ready.set()
    while True:
        for key, _ in selector.select():
            one = key.fileobj
            assert isinstance(one, socket.socket)
            # An answer is one write of a few KB, and nothing else comes.
            if not one.recv(65_536).startswith(b"HTTP/1.1 200"):
                raise ConnectionError("a POST was not answered with 200")
            answered.value += 1
            one.sendall(request)


@contextmanager
def posting(port: int, request: bytes, clients: int) -> Iterator[Any]:
    """Clients in another process that ask without pause, each for an answer of a few KB; the count of answers."""
    ready, answered = multiprocessing.Event(), multiprocessing.Value("q", 0, lock=False)
    process = multiprocessing.Process(
        target=_post_without_pause, args=(port, request, clients, ready, answered), daemon=True
    )
    process.start()
    try:
        if not ready.wait(60):
            raise TimeoutError("the posting clients are not ready")
        yield answered
    finally:
        process.kill()
        process.join()


@case
def tcp_beside_posts(repeats: int) -> list[Figure]:
    """TCP produce while 8 clients POST 100 records each without pause."""
    request = post("/api/v1/topics/posted/records?acks=1", {"records": _records(100)})
    p50, p99, rates = [], [], []
    with broker() as server, CORES.apart(server.pid):
        connection = Connection(server.kafka_address)
        connection.create_topic("bench")
        connection.create_topic("posted", segment_bytes=str(64 * 1024 * 1024), retention_bytes="1")
        connection.close()
        with posting(server.ports["http"], request, CLIENTS) as answered:
            for _ in range(repeats):
                bystander = Bystander(server)
                time.sleep(0.5)
                begin, before = time.perf_counter(), answered.value
                time.sleep(1.5)
                end, after = time.perf_counter(), answered.value
                times = bystander.sorted_ms(begin, end)
                p50.append(percentile(times, 50))
                p99.append(percentile(times, 99))
                rates.append((after - before) / (end - begin))
    return [
        median_of(f"TCP produce p99 beside {CLIENTS} clients that POST 100 records", p99, "ms", 3),
        median_of("  p50", p50, "ms"),
        median_of("  POSTs answered meanwhile", rates, "/s"),
    ]
