"""Start and size: how soon it answers, how much memory and how many descriptors it takes."""

from __future__ import annotations

import socket
import tempfile
import time
from pathlib import Path

from bench import floors
from bench.case import Figure, case, least_of, median_of
from bench.http import Http, get
from bench.load import METADATA, Connection, batch_of, fetch_frame, framed, produce_frame
from bench.server import broker, cpu_ns, descriptors, measured_cpu, resident_bytes
from core.protocol.messages.create_topics import CreatableTopic
from core.protocol.messages.metadata import MetadataRequest
from tests.broker_process import BrokerProcess

MIB = 1024 * 1024
METADATA_VERSION = 12


def seconds_to_first_answer(server: BrokerProcess) -> float:
    """Start a broker; the time from the start of the process to its first answer on the Kafka port."""
    request = framed(METADATA, METADATA_VERSION, MetadataRequest(topics=[]))
    start = time.monotonic()
    server.spawn()
    while time.monotonic() - start < 60:
        try:
            if not server.ports["kafka"]:
                server.wait_ready()
            with socket.create_connection(server.kafka_address, timeout=60) as connection:
                connection.sendall(request)
                if connection.recv(1):
                    elapsed = time.monotonic() - start
                    server.wait_ready()
                    return elapsed
        except ConnectionError:
            time.sleep(0.001)
    raise TimeoutError("no answer in 60 s")


@case
def start(repeats: int) -> list[Figure]:
    """From the start of the process to the first answer: an empty directory, and after a clean stop."""
    fresh, again, work, idle, first, loaded = [], [], [], [], [], []
    for _ in range(min(repeats, 5)):
        with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
            server = BrokerProcess(Path(directory) / "data")
            fresh.append(seconds_to_first_answer(server))
            server.stop()
            again.append(seconds_to_first_answer(server))
            work.append(cpu_ns(server.pid) / 1e9)
            time.sleep(1)
            idle.append(resident_bytes(server.pid) / MIB)
            begin = time.perf_counter()
            http = Http(server)
            http.call(get("/api/v1/topics"))
            http.close()
            first.append(time.perf_counter() - begin)
            loaded.append(resident_bytes(server.pid) / MIB)
            server.kill()
    return [
        median_of("start to first answer, empty directory", fresh, "s", 1, floors.bare_start()),
        median_of("start to first answer, after a clean stop", again, "s", 1, floors.bare_start()),
        least_of("the same, processor time", work, "s"),
        median_of("resident memory, idle", idle, "MiB", 80, floors.bare_memory()),
        median_of("  after the first request for a control route", loaded, "MiB"),
        median_of("  that request, which loads them", first, "s"),
    ]


@case
def memory_2gb(repeats: int) -> list[Figure]:
    """Resident memory after 2 GB went in and 2 GB went out, in batches of 1 MB."""
    count = 2000
    with broker() as server:
        connection = Connection(server.kafka_address)
        connection.create_topic("bench", segment_bytes=str(256 * MIB))
        request = produce_frame("bench", batch_of(1_000_000, 1000))
        connection.socket.sendall(request)
        connection.stream([request] * count, 4 + len(connection.receive()))
        requests = [fetch_frame("bench", 1000 * number, MIB) for number in range(count)]
        for one in requests:
            connection.socket.sendall(one)
            connection.receive()
        connection.close()
        resident = resident_bytes(server.pid) / MIB
    return [Figure("resident memory, after 2 GB in and 2 GB out", resident, "MiB", 150, floors.bare_memory())]


@case
def topics_10k(repeats: int) -> list[Figure]:
    """1,000 topics of 10 partitions: start, memory, descriptors, and what Metadata of all of them costs."""
    starts, metadata = [], []
    with broker() as server:
        connection = Connection(server.kafka_address)
        for hundred in range(10):
            names = [f"topic-{hundred * 100 + number:04}" for number in range(100)]
            connection.create_topics([CreatableTopic(name, 10, 1, [], []) for name in names])
        connection.close()
        for _ in range(min(repeats, 5)):
            server.stop()
            starts.append(seconds_to_first_answer(server))
        resident, files = resident_bytes(server.pid) / MIB, descriptors(server.pid)
        connection = Connection(server.kafka_address)
        request = framed(METADATA, METADATA_VERSION, MetadataRequest(topics=None))
        connection.socket.sendall(request)
        answer_size = 4 + len(connection.receive())
        for _ in range(repeats):
            with measured_cpu(server) as used:
                connection.stream([request] * 20, answer_size, window=1)
            metadata.append(used[0] / 20 * 1e6)
        connection.close()
        server.kill()
        killed = seconds_to_first_answer(server)
    return [
        median_of("10,000 partitions: start after a clean stop", starts, "s", 3, floors.bare_start()),
        Figure("10,000 partitions: start after a kill", killed, "s"),
        Figure("10,000 partitions: resident memory", resident, "MiB"),
        Figure("10,000 partitions: open descriptors", files, ""),
        least_of(
            "10,000 partitions: Metadata of all", metadata, "µs/request", floor=floors.echo_us(answer_size)
        ),
    ]
