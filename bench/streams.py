"""Many readers at once: listeners of one stream, long polls that all wake together."""

from __future__ import annotations

import time

from bench import floors
from bench.bystander import Bystander, percentile
from bench.case import Figure, case, median_of
from bench.http import get
from bench.listeners import Polls, listeners
from bench.load import Connection, batch_of, produce_frame
from bench.server import broker, measured_cpu, resident_bytes
from tests.broker_process import BrokerProcess

MICRO, KIB = 1e6, 1024
LISTENERS, RATE, SECONDS = 100, 10_000, 2
POLLS = 5_000
_STREAM = get("/api/v1/topics/bench/records?from=latest").replace(b"application/json", b"text/event-stream")
_POLL = get("/api/v1/topics/waited/records?from=latest&wait_ms=120000")


def _produce_at(connection: Connection, frame: bytes, per_second: float, count: int) -> None:
    """Send this many requests in an even rhythm, one at a time."""
    start = time.perf_counter()
    for number in range(count):
        wait = start + number / per_second - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        connection.socket.sendall(frame)
        connection.receive()


def _fan_out(server: BrokerProcess, batch: int) -> tuple[float, float]:
    """(server CPU in µs per event delivered, seconds from the last produce to the last event)."""
    connection = Connection(server.kafka_address)
    frame = produce_frame("bench", batch_of(61 + batch * 210, batch))
    total = RATE * SECONDS
    address = ("127.0.0.1", server.ports["http"])
    with listeners(address, _STREAM, LISTENERS, total) as (pipe, _), measured_cpu(server) as used:
        _produce_at(connection, frame, RATE / batch, total // batch)
        written = time.perf_counter()
        if not pipe.poll(120):
            raise TimeoutError("the listeners have not got all events")
        late = time.perf_counter() - written
        if (got := pipe.recv()) != [total] * LISTENERS:
            raise RuntimeError(f"listeners got {sorted(got)[:3]} … instead of {total} events")
    connection.close()
    return used[0] / (total * LISTENERS) * MICRO, late


@case
def sse(repeats: int) -> list[Figure]:
    """SSE: one producer at 10,000 records/s of 200 B, 100 listeners, each gets every record."""
    figures = []
    for batch in (100, 10):
        samples, lags = [], []
        with broker() as server:
            connection = Connection(server.kafka_address)
            connection.create_topic("bench")
            connection.close()
            for _ in range(max(1, repeats // 2)):
                cost, lag = _fan_out(server, batch)
                samples.append(cost)
                lags.append(lag * 1000)
        what = f"SSE: 100 listeners, 10,000 records/s in batches of {batch}"
        figures.append(median_of(what, samples, "µs/event", 15, floors.echo_us(210 * batch) / batch))
        figures.append(median_of("  the last event after the last produce", lags, "ms"))
    return figures


@case
def long_polls(repeats: int) -> list[Figure]:
    """5,000 long polls that wait: memory of each; and what waking all does to a TCP produce."""
    with broker() as server:
        connection = Connection(server.kafka_address)
        connection.create_topic("bench")
        connection.create_topic("waited")
        wake = produce_frame("waited", batch_of(300, 1))
        before = resident_bytes(server.pid)
        polls = Polls(("127.0.0.1", server.ports["http"]), _POLL, POLLS)
        time.sleep(1)
        each = (resident_bytes(server.pid) - before) / POLLS / KIB
        figures = [Figure(f"HTTP: {POLLS} long polls that wait", each, "KiB each", 30)]
        slow, cost, took = [], [], []
        for _ in range(repeats):
            bystander = Bystander(server)
            time.sleep(0.3)
            with measured_cpu(server) as used:
                begin = time.perf_counter()
                connection.socket.sendall(wake)
                connection.receive()
                polls.wait_all()
                end = time.perf_counter()
            slow.append(percentile(bystander.sorted_ms(begin, end), 99))
            cost.append(used[0] / POLLS * MICRO)
            took.append((end - begin) * 1000)
            polls.again()
            time.sleep(1)
        figures.append(median_of("  TCP produce p99 while all wake", slow, "ms", 20))
        figures.append(
            median_of("  server CPU for waking and answering", cost, "µs/poll", floor=floors.echo_us(500))
        )
        figures.append(median_of("  until all are answered", took, "ms"))
        polls.close()
        connection.close()
    return figures
