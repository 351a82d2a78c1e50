"""One small record after the other over TCP, in a process of its own: what other work does to its latency."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection as Pipe

from bench.load import Connection, batch_of, produce_frame
from tests.broker_process import BrokerProcess


def _round_trips(pipe: Pipe, address: tuple[str, int]) -> None:
    """The child process: produce until told to stop; when each began, and its time."""
    connection = Connection(address)
    frame = produce_frame("bench", batch_of(170, 1))
    times = []
    while not pipe.poll():
        start = time.perf_counter()
        connection.socket.sendall(frame)
        connection.receive()
        times.append((start, time.perf_counter() - start))
        time.sleep(0.0005)
    pipe.send(times)


class Bystander:
    """Produces to `bench` over TCP, so that the work of a load here does not count as the server's."""

    def __init__(self, server: BrokerProcess) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(
            target=_round_trips, args=(theirs, server.kafka_address), daemon=True
        )
        self._process.start()

    def sorted_ms(self, begin: float, end: float) -> list[float]:
        """Stop; the times in ms of those that began between two moments of `time.perf_counter`, least first."""
        self._pipe.send("stop")
        rounds = self._pipe.recv()
        self._process.join()
        return sorted(took * 1000 for start, took in rounds if begin <= start <= end)


def percentile(ordered: list[float], percent: int) -> float:
    """A percentile of numbers in order."""
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
