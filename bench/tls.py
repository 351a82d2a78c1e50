"""What TLS costs on the Kafka listener, against a bare server with TLS on the same kind of loop, turn by turn."""

from __future__ import annotations

import ssl
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import yardstick
from bench.case import Figure, case, least_of
from bench.load import Connection, batch_of, fetch_frame, produce_frame, produced_offset
from bench.server import CORES, cpu_ns
from core.clock import Clock
from core.security.self_signed import ensure
from tests.broker_process import BrokerProcess

SIZE = 1_000_000
RECORDS = 1000
COUNT = 100
# Processor time over that of the bare server.
TARGET = 1.2
_LISTENER = "kafka?tls=default"
_ANSWER = 100


@case
def tls_fetch(repeats: int) -> list[Figure]:
    """Fetch over TLS from the page cache, 1 MB an answer, against a bare loop that reads a file and sends it."""

    def prepare(connection: Connection) -> tuple[list[bytes], int]:
        first = 0
        for number in range(COUNT):
            connection.socket.sendall(produce_frame("t", batch_of(SIZE, RECORDS)))
            answer = connection.receive()
            if not number:
                first = produced_offset(answer)
        requests = [fetch_frame("t", first + RECORDS * number, SIZE) for number in range(COUNT)]
        connection.socket.sendall(requests[0])
        return requests, 4 + len(connection.receive())

    ours, bare = _compare("read", prepare, lambda size: [struct.pack(">i", size)] * COUNT, repeats)
    return [
        least_of("fetch over TLS", ours, "s/GB", floor=min(bare)),
        Figure("fetch over TLS, over a bare server", min(ours) / min(bare), "times", TARGET),
    ]


@case
def tls_produce(repeats: int) -> list[Figure]:
    """Produce over TLS, 1 MB batches, acks=1, against a bare loop that appends the same bytes to a file.

    The broker also checks the records, with TLS or without: `produce_1m` says what that costs.
    """

    def prepare(connection: Connection) -> tuple[list[bytes], int]:
        request = produce_frame("t", batch_of(SIZE, RECORDS))
        connection.socket.sendall(request)
        return [request] * COUNT, 4 + len(connection.receive())

    def bare(size: int) -> list[bytes]:
        return [struct.pack(">i", SIZE) + b"\0" * SIZE] * COUNT

    ours, floor = _compare("append", prepare, bare, repeats)
    return [least_of("produce over TLS", ours, "s/GB", floor=min(floor))]


def _compare(
    kind: str,
    prepare: Callable[[Connection], tuple[list[bytes], int]],
    bare_requests: Callable[[int], list[bytes]],
    repeats: int,
) -> tuple[list[float], list[float]]:
    """Measure both servers in turn: processor seconds per GB of ours, and of the bare one."""
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        directory = Path(name)
        certificate, key = directory / "certificate.pem", directory / "key.pem"
        ensure(certificate, key, ["127.0.0.1"], Clock())
        trust = ssl.create_default_context(cafile=str(certificate))
        options = ["--tls", f"{certificate},{key}"]
        process = BrokerProcess(directory / "data", options=options, schemes=(_LISTENER,))
        try:
            process.start()
            with yardstick.tls_server(kind, str(certificate), str(key)) as (bare_pid, bare_address):
                connection = Connection(("127.0.0.1", process.ports[_LISTENER]), trust)
                connection.create_topic("t")
                requests, answer_size = prepare(connection)
                bare_size = answer_size if kind == "read" else _ANSWER
                other = Connection(bare_address, trust)
                frames = bare_requests(bare_size)
                other.stream(frames[:1], bare_size)
                for _ in range(repeats + 1):
                    ours.append(_seconds_per_gb(process.pid, connection, requests, answer_size))
                    bare.append(_seconds_per_gb(bare_pid, other, frames, bare_size))
                connection.close()
                other.close()
        finally:
            process.kill()
    return ours, bare


def _seconds_per_gb(pid: int, connection: Connection, requests: list[bytes], answer_size: int) -> float:
    with CORES.together(pid):
        before = cpu_ns(pid)
        connection.stream(requests, answer_size, window=2)
        used = cpu_ns(pid) - before
    return used / (SIZE * COUNT)
