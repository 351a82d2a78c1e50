"""Records over HTTP: the lean routes, one keep-alive connection, requests encoded beforehand."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence

from bench.case import Figure, case, least_of
from bench.load import Connection
from bench.server import CORES, broker, measured_cpu
from tests.broker_process import BrokerProcess

MICRO = 1e6
VALUE = "v" * 200


def post(path: str, body: object) -> bytes:
    """A POST of JSON as bytes."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(data) + data


def get(path: str) -> bytes:
    """A GET as bytes."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n\r\n".encode()


class Http:
    """One keep-alive connection to the HTTP door."""

    def __init__(self, server: BrokerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.ports["http"]), timeout=60)
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


def _per_request(server: BrokerProcess, request: bytes, count: int, repeats: int) -> list[float]:
    connection = Http(server)
    status, body = connection.call(request)
    if status != 200:
        raise RuntimeError(f"{request[:60]!r}: {status} {body[:500]!r}")
    samples = []
    with CORES.together(server.pid):
        for _ in range(repeats):
            with measured_cpu(server) as used:
                for _ in range(count):
                    connection.call(request)
            samples.append(used[0] / count * MICRO)
    connection.close()
    return samples


def _topic(server: BrokerProcess) -> None:
    connection = Connection(server.kafka_address)
    connection.create_topic("bench")
    connection.close()


def _records(count: int) -> Sequence[dict[str, str]]:
    return [{"key": f"key-{number}", "value": VALUE} for number in range(count)]


@case
def http_post_1(repeats: int) -> list[Figure]:
    """POST of one keyed record of 200 B, acks=1."""
    with broker() as server:
        _topic(server)
        request = post("/api/v1/topics/bench/records?acks=1", {"records": _records(1)})
        samples = _per_request(server, request, 2000, repeats)
    return [least_of("HTTP: POST one record", samples, "µs/request", 60)]


@case
def http_post_100(repeats: int) -> list[Figure]:
    """POST of 100 keyed records of 200 B, acks=1."""
    with broker() as server:
        _topic(server)
        request = post("/api/v1/topics/bench/records?acks=1", {"records": _records(100)})
        samples = _per_request(server, request, 500, repeats)
    return [least_of("HTTP: POST 100 records", samples, "µs/request", 180)]


@case
def http_get_100(repeats: int) -> list[Figure]:
    """GET of 100 records of 200 B as JSON."""
    with broker() as server:
        _topic(server)
        connection = Http(server)
        connection.call(post("/api/v1/topics/bench/records?acks=1", {"records": _records(100)}))
        connection.close()
        request = get("/api/v1/topics/bench/partitions/0/records?offset=0&limit=100")
        samples = _per_request(server, request, 500, repeats)
    return [least_of("HTTP: GET 100 records", samples, "µs/request")]
