"""A proxy before a broker that does something to it after a number of bytes: in mid-job, every time."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from tests.broker_process import BrokerProcess

CHUNK = 16 * 1024


class Tripwire:
    """`broker` advertises this proxy, so that all of a job's connections go through it. Close it in the end."""

    def __init__(self, home: Path) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.broker = BrokerProcess(home, options=["--advertised", f"kafka://{self.address}"]).start()
        self._lock = threading.Lock()
        self._left, self._action = 0, None
        self._open: set[socket.socket] = set()
        self.tripped = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, after: int, action: Callable[[], object]) -> None:
        """Do something once this many bytes have passed, both ways counted; all connections are cut then."""
        self.tripped.clear()
        with self._lock:
            self._left, self._action = after, action

    def restart(self) -> None:
        """What most tests do to the broker: SIGKILL, and a start."""
        self.broker.kill()
        self.broker.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.broker.kafka_address, 5)
            except OSError:
                client.close()
                continue
            for one, other in ((client, server), (server, client)):
                self._open.add(one)
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if self._trips(len(data)):
                    break
                target.sendall(data)
        for one in (source, target):
            self._open.discard(one)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _trips(self, count: int) -> bool:
        with self._lock:
            if self._action is None:
                return False
            self._left -= count
            if self._left > 0:
                return False
            action, self._action = self._action, None
            for one in list(self._open):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            action()
        self.tripped.set()
        return True

    def close(self) -> None:
        """The end of both."""
        self._listener.close()
        self.broker.kill()
