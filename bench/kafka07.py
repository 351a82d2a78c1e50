"""Kafka 0.7: opening a view of a log, and the first fetches from it."""

from __future__ import annotations

import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import floors
from bench.case import Figure, case, least_of
from bench.load import Connection, batch_of, produce_frame
from bench.server import CORES, measured_cpu, resident_bytes
from core.vocabulary.partition import LATEST
from tests.broker_process import BrokerProcess

MICRO = 1e6
MIB = 1024 * 1024


class OldClient:
    """One socket to the 0.7 listener: answers are counted, not read."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=300)

    def ask(self, kind: int, first: int, second: int) -> bytes:
        """FETCH or OFFSETS on partition 0 of `bench`; the answer after its size and error code."""
        body = struct.pack(">hh5siqi", kind, 5, b"bench", 0, first, second)
        self.socket.sendall(struct.pack(">i", len(body)) + body)
        size = struct.unpack(">i", self._exactly(4))[0]
        answer = self._exactly(size)
        if answer[:2] != b"\0\0":
            raise RuntimeError(f"error {answer[:2].hex()}")
        return answer[2:]

    def fetch(self, address: int, size: int) -> bytes:
        """The chunk at a byte address."""
        return self.ask(1, address, size)

    def end(self) -> int:
        """Return the address after the last message; the broker must have measured the whole log for it."""
        return int(struct.unpack(">iq", self.ask(4, LATEST, 1))[1])

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self.socket.recv(size - len(data))
        return bytes(data)


@contextmanager
def _written(megabytes: int, size: int) -> Iterator[BrokerProcess]:
    """A broker with a 0.7 listener and a topic of this many megabytes on the disk, in batches of 16 KB."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as directory:
        process = BrokerProcess(Path(directory) / "data", schemes=["kafka07?magic=1"]).start()
        try:
            connection = Connection(process.kafka_address)
            connection.create_topic("bench")
            request = produce_frame("bench", batch_of(16_384, 16_384 // size))
            window, left = 16, megabytes * MIB // len(request)
            while left > 0:
                connection.socket.sendall(request * min(window, left))
                for _ in range(min(window, left)):
                    connection.receive()
                left -= window
            connection.close()
            yield process
        finally:
            process.kill()


def _fetches(size: int, repeats: int) -> list[float]:
    """Return the processor µs of each first fetch of 1 MB."""
    samples = []
    with _written(8 + 2 * repeats, size) as server, CORES.together(server.pid):
        client, address = OldClient(server.kafka07_address(1)), 0
        address += len(client.fetch(0, MIB))  # the modules that this listener needs
        for _ in range(repeats):
            with measured_cpu(server) as used:
                address += len(client.fetch(address, MIB))
            samples.append(used[0] * MICRO)
    return samples


@case
def kafka07_fetch(repeats: int) -> list[Figure]:
    """A 0.7 fetch of 1 MB, the first time: read, measured and written as 0.7 would have it."""
    return [
        least_of(
            "0.7 fetch of 1 MB, the first, 1 KB records",
            _fetches(1024, repeats),
            "µs",
            8000,
            floors.send_us(MIB, 20),
        ),
        least_of(
            "0.7 fetch of 1 MB, the first, 160 B records",
            _fetches(160, repeats),
            "µs",
            8000,
            floors.send_us(MIB, 20),
        ),
    ]


@case
def kafka07_view(repeats: int) -> list[Figure]:
    """Opening a 0.7 view of a whole log, one pass: SLUICE_BENCH_LOG_MB of it (256), and the memory it takes."""
    megabytes = int(os.environ.get("SLUICE_BENCH_LOG_MB", "256"))
    samples, grown = [], []
    for _ in range(min(repeats, 3)):
        with _written(megabytes, 1024) as server, CORES.together(server.pid):
            client = OldClient(server.kafka07_address(1))
            client.fetch(0, 1000)
            before = resident_bytes(server.pid)
            with measured_cpu(server) as used:
                client.end()
            samples.append(used[0] / megabytes * MICRO)
            grown.append((resident_bytes(server.pid) - before) / MIB)
    return [
        # 200 MB/s.
        least_of("0.7 view of a log, 1 KB records", samples, "µs/MB", 5000, floors.copy_us(MIB)),
        least_of("0.7 view of a log, resident memory more", grown, "MiB", 32),
    ]
