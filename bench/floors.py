"""The least that some work could cost, measured in the same run: the same bytes without a broker.

Each is measured once in a run, when a case first asks for it; cases divide what they found by it.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import time
from functools import cache

from bench.load import Connection
from bench.server import CORES, cpu_ns, resident_bytes
from bench.yardstick import append_us, echo_server, send_us

__all__ = ["append_us", "bare_memory", "bare_start", "copy_us", "durable_ms", "echo_ms", "echo_us", "send_us"]

_TURNS = 5
MIB = 1024 * 1024


@cache
def echo_us(size: int, window: int = 1) -> float:
    """Return the processor µs that a bare loop uses to send the bytes back, with several pieces under way."""
    count = max(50, min(5000, 50_000_000 // size))
    samples = []
    with echo_server() as (pid, address), CORES.together(pid):
        connection = Connection(address)
        connection.stream([bytes(size)], size)
        for _ in range(_TURNS):
            before = cpu_ns(pid)
            connection.stream([bytes(size)] * count, size, window)
            samples.append((cpu_ns(pid) - before) / count / 1000)
        connection.close()
    return min(samples)


@cache
def echo_ms() -> float:
    """Milliseconds, p50, until 200 bytes are back from an echo on another core."""
    times = []
    with echo_server() as (pid, address), CORES.apart(pid), socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(1000):
            start = time.perf_counter()
            connection.sendall(bytes(200))
            connection.recv(200)
            times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


@cache
def durable_ms() -> float:
    """Milliseconds, p50, of an append of 200 bytes to a file and fdatasync."""
    times = []
    with tempfile.TemporaryFile(prefix="sluice-bench-", buffering=0) as file:
        for _ in range(200):
            start = time.perf_counter()
            file.write(bytes(200))
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


@cache
def copy_us(size: int) -> float:
    """Return the microseconds of a copy of this many bytes in memory."""
    source, target = bytearray(size), bytearray(size)
    times = []
    for _ in range(200):
        start = time.perf_counter_ns()
        target[:] = source
        times.append((time.perf_counter_ns() - start) / 1000)
    return min(times)


def bare_start() -> float:
    """Seconds, the median, from the start of an interpreter with asyncio and uvloop to its first echo."""
    return _bare()[0]


def bare_memory() -> float:
    """MiB resident of an interpreter with asyncio and uvloop that serves an echo."""
    return _bare()[1]


@cache
def _bare() -> tuple[float, float]:
    times, sizes = [], []
    for _ in range(_TURNS):
        start = time.monotonic()
        with echo_server() as (pid, address), socket.create_connection(address) as connection:
            connection.sendall(b"x")
            connection.recv(1)
            times.append(time.monotonic() - start)
            sizes.append(resident_bytes(pid) / MIB)
    return statistics.median(times), statistics.median(sizes)
