"""Records over the Kafka listener: produce, fetch, and the way there and back."""

from __future__ import annotations

import socket
import statistics
import time
from contextlib import nullcontext

from bench import yardstick
from bench.case import Figure, case_for_any, least_of, median_of
from bench.load import Connection, batch_of, fetch_frame, produce_frame, produced_offset
from bench.peer import Target, target
from bench.server import CORES, touch_memory

MICRO = 1e6
MIB = 1024 * 1024


def _produce(server: Target, size: int, records: int, count: int, repeats: int) -> list[float]:
    """Processor µs per request, one sample per repeat."""
    server.create_topic()
    connection = server.connect()
    request = produce_frame(server.topic, batch_of(size, records))
    connection.socket.sendall(request)
    answer_size = 4 + len(connection.receive())
    samples = []
    with server.together():
        for _ in range(repeats):
            touch_memory(2 * size * count, size)
            with server.measured() as used:
                connection.stream([request] * count, answer_size)
            samples.append(used[0] / count * MICRO)
    connection.close()
    return samples


@case_for_any("kafka")
def produce_16k(repeats: int) -> list[Figure]:
    """Produce, one partition, 16 KB batches of 1 KB records, acks=1, five requests on their way."""
    return _produced("16 KB", 16_384, 16, 3000, repeats, goal=40)


@case_for_any("kafka")
def produce_1m(repeats: int) -> list[Figure]:
    """Produce, one partition, 1 MB batches of 1 KB records, acks=1, five requests on their way."""
    return _produced("1 MB", 1_000_000, 1000, 60, repeats, goal=700)


def _produced(label: str, size: int, records: int, count: int, repeats: int, *, goal: float) -> list[Figure]:
    with target() as server:
        samples = _produce(server, size, records, count, repeats)
    floor = yardstick.append_us(size, 100, count)
    what = server.named(f"produce, {label} batch")
    return [least_of(what, samples, "µs/request", server.target(goal), floor=floor)]


@case_for_any("kafka")
def fetch(repeats: int) -> list[Figure]:
    """Fetch from the page cache, one partition, about 1 MB an answer, two requests on their way."""
    batches, count = 100, 100
    with target() as server:
        server.create_topic()
        connection = server.connect()
        data = batch_of(1_000_000, 1000)
        for number in range(batches):
            connection.socket.sendall(produce_frame(server.topic, data))
            answer = connection.receive()
            if not number:
                first = produced_offset(answer)
        requests = [fetch_frame(server.topic, first + 1000 * number, MIB) for number in range(count)]
        connection.socket.sendall(requests[0])
        answer_size = 4 + len(connection.receive())
        if answer_size < len(data):
            raise RuntimeError(f"a fetch answered {answer_size} bytes, a batch has {len(data)}")
        samples = []
        with server.together():
            for _ in range(repeats):
                with server.measured() as used:
                    connection.stream(requests, answer_size, window=2)
                samples.append(used[0] / (count * answer_size / MIB) * MICRO)
        connection.close()
    floor = yardstick.send_us(len(data), count) / (len(data) / MIB)
    what = server.named("fetch from page cache")
    return [least_of(what, samples, "µs/MB", server.target(220), floor=floor)]


def _round_trips(connection: socket.socket, request: bytes, answer_size: int, count: int) -> float:
    """The median time of one request and its answer, one after the other, in µs."""
    buffer = bytearray(65_536)
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        connection.sendall(request)
        left = answer_size
        while left:
            left -= connection.recv_into(buffer, left)
        times.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(times)


@case_for_any("kafka")
def round_trip(repeats: int) -> list[Figure]:
    """One record of 100 B, acks=1, one at a time: p50, against an echo on the same kind of loop, turn by turn."""
    ours, echoes = [], []
    with target() as server, yardstick.echo_server() as (echo_pid, echo_address):
        server.create_topic()
        request = produce_frame(server.topic, batch_of(170, 1))
        # Where one of both cannot be kept on a core, neither is.
        with nullcontext() if server.pid is None else CORES.apart(server.pid, echo_pid):
            connection = server.connect()
            connection.socket.sendall(request)
            answer_size = 4 + len(connection.receive())
            echo = Connection(echo_address)
            for repeat in range(repeats + 1):
                one = _round_trips(connection.socket, request, answer_size, 1000)
                other = _round_trips(echo.socket, request, len(request), 1000)
                if repeat:
                    ours.append(one)
                    echoes.append(other)
            echo.close()
            connection.close()
    ratios = [one / other for one, other in zip(ours, echoes, strict=True)]
    return [
        median_of("one record, round trip p50, in echoes", ratios, "x", server.target(2)),
        median_of("one record, round trip p50", ours, "µs", floor=statistics.median(echoes)),
    ]
