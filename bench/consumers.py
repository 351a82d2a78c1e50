"""Managed consumers: from an append to the answer of a poll that waits, and what a poll costs."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from bench import floors
from bench.case import Figure, case, least_of
from bench.groups import broker_without_delay
from bench.http import Http, post
from bench.load import Connection, batch_of, produce_frame
from bench.server import measured_cpu

MICRO = 1e6
POLLS = 200
_GROUP = "/api/v1/groups/bench/consumers"


def _poll(ack: str | None, wait_ms: int, limit: int = 100) -> bytes:
    return post(f"{_GROUP}/c:poll", {"ack": ack, "wait_ms": wait_ms, "limit": limit})


def _answer(http: Http, request: bytes) -> dict[str, Any]:
    status, body = http.call(request)
    if status not in (200, 201):
        raise RuntimeError(f"answered {status}: {body!r}")
    answer: dict[str, Any] = json.loads(body)
    return answer


@case
def managed_poll(repeats: int) -> list[Figure]:
    """A managed consumer's poll: from the append to the answer; processor time of poll and ack together."""
    waits, costs = [], []
    with broker_without_delay() as server:
        connection, http = Connection(server.kafka_address), Http(server)
        connection.create_topic("bench", 4)
        frame = produce_frame("bench", batch_of(200, 1))
        _answer(http, post(_GROUP, {"name": "c", "topics": ["bench"]}))
        ack = _answer(http, _poll(None, 1000))["ack"]
        for _ in range(POLLS):
            http.socket.sendall(_poll(ack, 10_000))
            time.sleep(0.005)
            start = time.perf_counter()
            connection.socket.sendall(frame)
            _, body = http.answer()
            waits.append((time.perf_counter() - start) * 1000)
            connection.receive()
            ack = json.loads(body)["ack"]
        ten = produce_frame("bench", batch_of(2000, 10))
        connection.socket.sendall(ten)
        answer_size = 4 + len(connection.receive())
        for _ in range(repeats):
            connection.stream([ten] * POLLS, answer_size)
            with measured_cpu(server) as used:
                for _ in range(POLLS):
                    ack = _answer(http, _poll(ack, 0, 10))["ack"]
            costs.append(used[0] / POLLS * MICRO)
        connection.close()
        http.close()
    median = statistics.median(waits)
    return [
        Figure("managed poll: append to answer, p50", median, "ms", 10, floors.echo_ms(), waits),
        Figure("  p99", statistics.quantiles(waits, n=100)[98], "ms", samples=waits),
        least_of("  poll of 10 records with its ack, CPU", costs, "µs", floor=floors.echo_us(len(body))),
    ]
