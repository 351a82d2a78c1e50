"""Many HTTP clients in one process that does next to nothing with what it gets: listeners of streams, long polls."""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe

EVENT = b"event: record"


def _connect(address: tuple[str, int], request: bytes) -> socket.socket:
    connection = socket.create_connection(address, timeout=60)
    connection.sendall(request)
    return connection


def _listen(pipe: Pipe, address: tuple[str, int], request: bytes, count: int, events: int) -> None:
    """The child process: tell when all wait at the end, then when all have `events` events each."""
    selector = selectors.DefaultSelector()
    sockets = [_connect(address, request) for _ in range(count)]
    for number, one in enumerate(sockets):
        head = b""
        while b"event: caught_up" not in head:
            head += one.recv(65_536)
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ, number)
    pipe.send("ready")
    got = [0] * count
    tails = [b""] * count
    left = count * events
    while left:
        for key, _ in selector.select():
            number = key.data
            try:
                piece = tails[number] + key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
            except BlockingIOError:
                continue
            if len(piece) == len(tails[number]):
                raise ConnectionError("the broker closed a stream")
            found = piece.count(EVENT)
            # A mark that is cut in two is found with the next piece; what is kept is too short for a whole one.
            tails[number] = piece[1 - len(EVENT) :]
            got[number] += found
            left -= found
    pipe.send(got)
    pipe.recv()


@contextmanager
def listeners(
    address: tuple[str, int], request: bytes, count: int, events: int
) -> Iterator[tuple[Pipe, int]]:
    """`count` listeners that wait at the end of a topic, in another process: its pipe and its pid.

    The pipe gives a list of what each has got, once all have `events` events.
    """
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=_listen, args=(theirs, address, request, count, events), daemon=True
    )
    process.start()
    try:
        if not ours.poll(60) or ours.recv() != "ready":
            raise TimeoutError("the listeners are not ready")
        assert process.pid is not None
        yield ours, process.pid
    finally:
        process.kill()
        process.join()


class Polls:
    """Long polls that wait, one connection each."""

    def __init__(self, address: tuple[str, int], request: bytes, count: int) -> None:
        self._request = request
        self._selector = selectors.DefaultSelector()
        self.sockets = []
        for _ in range(count):
            one = _connect(address, request)
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ)
            self.sockets.append(one)

    def answered(self, timeout: float) -> int:
        """How many answers can be read within `timeout`; they are read."""
        count = 0
        for key, _ in self._selector.select(timeout):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if not connection.recv(65_536).startswith(b"HTTP/1.1 200"):
                raise ConnectionError("a poll was not answered with 200")
            count += 1
        return count

    def wait_all(self, seconds: float = 60) -> None:
        """Read one answer of every poll."""
        left, deadline = len(self.sockets), time.monotonic() + seconds
        while left:
            left -= self.answered(1.0)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} polls were not answered")

    def again(self) -> None:
        """Send every request once more."""
        for one in self.sockets:
            one.sendall(self._request)

    def close(self) -> None:
        """Close all connections."""
        for one in self.sockets:
            one.close()
