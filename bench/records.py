"""Records over the Kafka door: produce, fetch, and the way there and back."""

from __future__ import annotations

import socket
import statistics
import time

from bench import yardstick
from bench.case import Figure, case, least_of, median_of
from bench.load import Connection, batch_of, fetch_frame, produce_frame
from bench.server import CORES, broker, measured_cpu, touch_memory
from tests.broker_process import BrokerProcess

MICRO = 1e6
MIB = 1024 * 1024


def _produce(server: BrokerProcess, size: int, records: int, count: int, repeats: int) -> list[float]:
    """Processor µs per request, one sample per repeat."""
    connection = Connection(server.kafka_address)
    connection.create_topic("bench")
    request = produce_frame("bench", batch_of(size, records))
    connection.socket.sendall(request)
    answer_size = 4 + len(connection.receive())
    samples = []
    with CORES.together(server.pid):
        for _ in range(repeats):
            touch_memory(2 * size * count, size)
            with measured_cpu(server) as used:
                connection.stream([request] * count, answer_size)
            samples.append(used[0] / count * MICRO)
    connection.close()
    return samples


@case
def produce_16k(repeats: int) -> list[Figure]:
    """Produce, one partition, 16 KB batches of 1 KB records, acks=1, five requests on their way."""
    with broker() as server:
        samples = _produce(server, 16_384, 16, 3000, repeats)
    floor = yardstick.sink_us(16_384, 100, 3000)
    return [least_of("produce, 16 KB batch", samples, "µs/request", 40, floor=floor)]


@case
def produce_1m(repeats: int) -> list[Figure]:
    """Produce, one partition, 1 MB batches of 1 KB records, acks=1, five requests on their way."""
    with broker() as server:
        samples = _produce(server, 1_000_000, 1000, 60, repeats)
    floor = yardstick.sink_us(1_000_000, 100, 60)
    return [least_of("produce, 1 MB batch", samples, "µs/request", 700, floor=floor)]


@case
def fetch(repeats: int) -> list[Figure]:
    """Fetch from the page cache, one partition, about 1 MB an answer, two requests on their way."""
    batches, count = 100, 100
    with broker() as server:
        connection = Connection(server.kafka_address)
        connection.create_topic("bench")
        data = batch_of(1_000_000, 1000)
        for _ in range(batches):
            connection.socket.sendall(produce_frame("bench", data))
            connection.receive()
        requests = [fetch_frame("bench", 1000 * number, MIB) for number in range(count)]
        connection.socket.sendall(requests[0])
        answer_size = 4 + len(connection.receive())
        if answer_size < len(data):
            raise RuntimeError(f"a fetch answered {answer_size} bytes, a batch has {len(data)}")
        samples = []
        with CORES.together(server.pid):
            for _ in range(repeats):
                with measured_cpu(server) as used:
                    connection.stream(requests, answer_size, window=2)
                samples.append(used[0] / (count * answer_size / MIB) * MICRO)
        connection.close()
    return [least_of("fetch from page cache", samples, "µs/MB", 220)]


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


@case
def round_trip(repeats: int) -> list[Figure]:
    """One record of 100 B, acks=1, one at a time: p50, against an echo on the same kind of loop, turn by turn."""
    request = produce_frame("bench", batch_of(170, 1))
    ours, echoes = [], []
    with (
        broker() as server,
        yardstick.echo_server() as (echo_pid, echo_address),
        CORES.apart(server.pid, echo_pid),
    ):
        connection = Connection(server.kafka_address)
        connection.create_topic("bench")
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
        median_of("one record, round trip p50, in echoes", ratios, "x", 2),
        median_of("one record, round trip p50", ours, "µs", floor=statistics.median(echoes)),
    ]
