"""Real clients: librdkafka at full speed with acks=1 and acks=all, and one record alone beside one fdatasync.

The bench's own loops send the same bytes again and again over one connection. A real client mixes partitions, waits
for answers in its own rhythm, and shares the machine. What counts is the ratio of `acks=all` to `acks=1`, measured
in turn: both suffer from the same neighbors.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from subprocess import run
from typing import Protocol

from bench.case import Figure, case, median_of
from bench.load import Connection, batch_of, produce_frame
from bench.server import Running, broker, measured_cpu

SECONDS = 4.0
PARTITIONS = 6
BATCH, RECORD = 16_384, 1000
MICRO = 1e6
# Cost of acks=all in that of acks=1, and the rate, in ratios; p50 of one record beyond one fdatasync, in µs.
MOST_CPU, LEAST_RATE, MOST_BEYOND = 1.6, 0.7, 150.0


class Loaded(Running, Protocol):
    """A Kafka broker on this machine, whosever it is."""

    @property
    def kafka(self) -> str:
        """Its bootstrap server, `host:port`."""
        ...


def produce(bootstrap: str, topic: str, acks: str, seconds: float) -> None:
    """The child process: produce for a while with librdkafka; print the acknowledged bytes and the seconds."""
    from confluent_kafka import KafkaError, Message, Producer

    acknowledged = 0

    def delivered(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged
        if error is not None:
            raise RuntimeError(f"a record was not acknowledged: {error}")
        acknowledged += 1

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "batch.size": BATCH,
            "linger.ms": 5,
            "queue.buffering.max.messages": 20_000,
        }
    )
    value = b"x" * RECORD
    start = time.monotonic()
    number = 0
    while time.monotonic() - start < seconds:
        try:
            for _ in range(200):
                producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=delivered)
                number += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.005)
    producer.flush(60)
    print(acknowledged * RECORD, time.monotonic() - start)


def turn(server: Loaded, topic: str, acks: str, seconds: float = SECONDS) -> tuple[float, float]:
    """(processor µs of the broker for each MB, MB/s) of one turn of the client."""
    command = [sys.executable, "-m", "bench.clients", server.kafka, topic, acks, str(seconds)]
    with measured_cpu(server) as used:
        done = run(command, capture_output=True, text=True, check=True, timeout=60 + 20 * seconds)
    size, took = map(float, done.stdout.split())
    return used[0] / (size / 1e6) * MICRO, size / 1e6 / took


@case
def librdkafka(repeats: int) -> list[Figure]:
    """librdkafka, 6 partitions, 16 KB batches of 1 KB records: acks=1 and acks=all in turn."""
    cpu: dict[str, list[float]] = {"1": [], "all": []}
    rate: dict[str, list[float]] = {"1": [], "all": []}
    with broker() as server:
        connection = Connection(server.kafka_address)
        connection.create_topic("bench", PARTITIONS)
        connection.close()
        for _ in range(repeats):
            for acks in ("1", "all"):
                micro, megabytes = turn(server, "bench", acks)
                cpu[acks].append(micro)
                rate[acks].append(megabytes)
    dearer = [both / one for one, both in zip(cpu["1"], cpu["all"], strict=True)]
    slower = [one / both for one, both in zip(rate["1"], rate["all"], strict=True)]
    return [
        median_of("librdkafka, acks=1", cpu["1"], "µs/MB"),
        median_of("librdkafka, acks=all", cpu["all"], "µs/MB"),
        median_of("librdkafka, acks=1, rate", rate["1"], "MB/s"),
        median_of("librdkafka, acks=all, rate", rate["all"], "MB/s"),
        median_of("librdkafka, acks=all, processor time in that of acks=1", dearer, "x", MOST_CPU),
        median_of("librdkafka, acks=1, rate in that of acks=all", slower, "x", 1 / LEAST_RATE),
    ]


def fdatasync_us(directory: str, count: int) -> float:
    """The median time in µs of a write of one small batch and its fdatasync, on the disk of `directory`."""
    data = batch_of(170, 1)
    times = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(count):
            start = time.perf_counter_ns()
            file.write(data)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(times)


def answer_us(connection: Connection, request: bytes, count: int) -> float:
    """The median time in µs from a framed request to its whole answer, one at a time."""
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        connection.socket.sendall(request)
        connection.receive()
        times.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(times)


@case
def alone(repeats: int) -> list[Figure]:
    """One record of 100 B with acks=all, one at a time: p50, and what it takes beyond one fdatasync, turn by turn."""
    count = 300
    request = produce_frame("bench", batch_of(170, 1), acks=-1)
    ours, floor = [], []
    with broker() as server:
        connection = Connection(server.kafka_address)
        connection.create_topic("bench")
        for _ in range(repeats):
            ours.append(answer_us(connection, request, count))
            floor.append(fdatasync_us(str(server.data_dir), count))
        connection.close()
    beyond = [one - least for one, least in zip(ours, floor, strict=True)]
    return [
        median_of("acks=all, one record alone, p50", ours, "µs", floor=statistics.median(floor)),
        median_of("acks=all, one record alone, p50 beyond one fdatasync", beyond, "µs", MOST_BEYOND),
    ]


if __name__ == "__main__":
    produce(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
