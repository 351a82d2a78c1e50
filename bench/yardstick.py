"""What the machine can do at all: the same bytes through the same kind of loop with no broker behind it.

`python -m bench.yardstick echo|sink` is the child process: an echo, or a server that reads frames and answers
100 bytes to each.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvloop

from bench.case import Figure, case, least_of
from bench.server import CORES, cpu_ns

ANSWER = b"\0" * 100


class Echo(asyncio.BufferedProtocol):
    """Sends back what comes."""

    buffer = bytearray(1 << 20)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        """One buffer for all connections."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Send it back."""
        self.transport.write(bytes(memoryview(self.buffer)[:nbytes]))


class Sink(Echo):
    """Answers 100 bytes to every frame, however long; the frame itself is not looked at."""

    left = 0

    def buffer_updated(self, nbytes: int) -> None:
        """Count frames by the size in front of each."""
        position, answers = 0, 0
        while position < nbytes:
            if not self.left:
                self.left = struct.unpack_from(">i", self.buffer, position)[0] + 4
            step = min(self.left, nbytes - position)
            self.left -= step
            position += step
            answers += not self.left
        if answers:
            self.transport.write(ANSWER * answers)


@contextmanager
def _child(kind: str) -> Iterator[tuple[int, tuple[str, int]]]:
    process = subprocess.Popen([sys.executable, "-m", "bench.yardstick", kind], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.pid, ("127.0.0.1", int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def echo_server() -> Iterator[tuple[int, tuple[str, int]]]:
    """An echo server in a process of its own; gives its pid and address."""
    with _child("echo") as found:
        yield found


def sink_us(size: int, answer_size: int, count: int) -> float:
    """Processor µs that the bare sink uses for one frame of `size` bytes: what no broker can go below."""
    from bench.load import Connection

    frame = struct.pack(">i", size) + b"\0" * size
    samples = []
    with _child("sink") as (pid, address):
        connection = Connection(address)
        for _ in range(4):
            with CORES.together(pid):
                before = cpu_ns(pid)
                connection.stream([frame] * count, answer_size)
                samples.append((cpu_ns(pid) - before) / count / 1000)
        connection.close()
    return min(samples)


@case
def machine(repeats: int) -> list[Figure]:
    """What this machine does with plain bytes, to compare runs on different machines by."""
    import crc32c

    data, other = bytearray(1 << 20), bytearray(1 << 20)
    copies, checks = [], []
    for _ in range(repeats * 20):
        start = time.perf_counter_ns()
        other[:] = data
        copies.append((time.perf_counter_ns() - start) / 1000)
        start = time.perf_counter_ns()
        crc32c.crc32c(data)
        checks.append((time.perf_counter_ns() - start) / 1000)
    return [least_of("copy 1 MB", copies, "µs"), least_of("crc32c of 1 MB", checks, "µs")]


async def _serve(kind: str) -> None:
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    await loop.create_server({"echo": Echo, "sink": Sink}[kind], sock=listener)
    print(listener.getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1]))
