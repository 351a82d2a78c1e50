"""What the machine can do at all: the same bytes through the same kind of loop without a broker.

`python -m bench.yardstick echo|sink|append|send|read` is the child process: an echo; a server that reads frames and
answers 100 bytes to each; one that also appends them to a file, as `dd` would; one that answers each with a piece
of a file; one that reads the piece first, as a server with TLS has to. A certificate and a key after it give it TLS.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvloop

from bench.case import Figure, case, least_of
from bench.server import CORES, cpu_ns, touch_memory

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


class Append(Sink):
    """A sink that writes what comes to the end of a file."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open a file of its own, which is deleted with the connection."""
        super().connection_made(transport)
        self.file = tempfile.TemporaryFile(prefix="sluice-bench-", buffering=0)  # noqa: SIM115

    def buffer_updated(self, nbytes: int) -> None:
        """Write, then answer."""
        self.file.write(memoryview(self.buffer)[:nbytes])
        super().buffer_updated(nbytes)


class Send(Echo):
    """Answers each frame with as many bytes of a file as the frame asks for."""

    PIECES = 100

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the size."""
        super().connection_made(transport)
        self.file = tempfile.TemporaryFile(prefix="sluice-bench-")  # noqa: SIM115
        self.number = 0

    def buffer_updated(self, nbytes: int) -> None:
        """One piece of the file after the other, as the socket takes them."""
        for position in range(0, nbytes, 4):
            (size,) = struct.unpack_from(">i", self.buffer, position)
            if not self.number:
                self.file.write(b"x" * (size * self.PIECES))
                self.file.flush()
            at = self.number % self.PIECES * size
            self.number += 1
            self._send(at, at + size)

    def _send(self, position: int, end: int) -> None:
        target = self.transport.get_extra_info("socket").fileno()
        try:
            while position < end and not self.transport.get_write_buffer_size():
                position += os.sendfile(target, self.file.fileno(), position, end - position)
        except BlockingIOError:
            pass
        if position < end:
            self.transport.write(os.pread(self.file.fileno(), end - position, position))


class Read(Send):
    """Answers as `Send` does, by reading the file."""

    CHUNK = 256 * 1024

    def _send(self, position: int, end: int) -> None:
        while position < end:
            piece = os.pread(self.file.fileno(), min(self.CHUNK, end - position), position)
            self.transport.write(piece)
            position += len(piece)


@contextmanager
def _child(kind: str, *pair: str) -> Iterator[tuple[int, tuple[str, int]]]:
    command = [sys.executable, "-m", "bench.yardstick", kind, *pair]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.pid, ("127.0.0.1", int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def tls_server(kind: str, certificate: str, key: str) -> Iterator[tuple[int, tuple[str, int]]]:
    """A server of that kind with TLS; gives its pid and address."""
    with _child(kind, certificate, key) as found:
        yield found


@contextmanager
def echo_server() -> Iterator[tuple[int, tuple[str, int]]]:
    """An echo server in a process of its own; gives its pid and address."""
    with _child("echo") as found:
        yield found


def append_us(size: int, answer_size: int, count: int) -> float:
    """Processor µs that a bare loop uses to take a frame of `size` bytes, append it to a file and answer."""
    frame = struct.pack(">i", size) + b"\0" * size
    return _least("append", [frame] * count, answer_size, touched=2 * size * count)


def send_us(size: int, count: int) -> float:
    """Processor µs that a bare loop uses to send `size` bytes of a file, two requests on their way."""
    return _least("send", [struct.pack(">i", size)] * count, size, window=2)


def _least(kind: str, frames: list[bytes], answer_size: int, *, touched: int = 0, window: int = 5) -> float:
    from bench.load import Connection

    samples = []
    with _child(kind) as (pid, address):
        connection = Connection(address)
        connection.stream(frames[:1], answer_size)
        for _ in range(4):
            with CORES.together(pid):
                if touched:
                    touch_memory(touched, len(frames[0]))
                before = cpu_ns(pid)
                connection.stream(frames, answer_size, window)
                samples.append((cpu_ns(pid) - before) / len(frames) / 1000)
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


async def _serve(kind: str, *pair: str) -> None:
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    context = None
    if pair:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
    kinds = {"echo": Echo, "sink": Sink, "append": Append, "send": Send, "read": Read}
    await loop.create_server(kinds[kind], sock=listener, ssl=context)
    print(listener.getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(*sys.argv[1:]))
