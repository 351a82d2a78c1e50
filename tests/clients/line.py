"""A client of the line protocol: lines out, lines in, over a plain socket."""

from __future__ import annotations

import re
import socket
import ssl
from typing import NamedTuple
from urllib.parse import unquote_to_bytes


class Answer(NamedTuple):
    """The line of an answer in parts; `code` is empty when all went well, `payload` is the message when not."""

    correlation_id: str
    code: str
    payload: str

    def __getitem__(self, name: str) -> str:  # type: ignore[override]
        """A field of the payload, such as `hw`."""
        found = re.search(rf"(?:^| ){name}=(.*?)(?= [a-z_]+=|$)", self.payload)
        assert found, f"no {name}= in {self.payload!r}"
        return found[1]

    def number(self, name: str) -> int:
        """A field of the payload that is a number."""
        return int(self[name])

    def numbers(self, name: str) -> list[int]:
        """A field of the payload that is a list in brackets."""
        return [int(number) for number in re.findall(r"-?\d+", self[name])]

    def messages(self) -> list[tuple[int, bytes]]:
        """Offsets and values of a CONSUME."""
        pairs = [one.partition(":") for one in self["messages"].split(",") if one]
        return [(int(offset), unquote_to_bytes(value)) for offset, _, value in pairs]


def read_answer(line: bytes) -> Answer:
    """The parts of an answer's line."""
    assert line.endswith(b"\n"), line
    version, correlation_id, outcome, *rest = line[:-1].decode().split("|")
    assert version == "V1" and outcome in ("OK", "ERR"), line
    if outcome == "OK":
        assert len(rest) <= 1, line
        return Answer(correlation_id, "", rest[0] if rest else "")
    code, message = rest
    return Answer(correlation_id, code, message)


class LineConnection:
    """One connection. `ask` says one command and gives its answer."""

    def __init__(
        self, address: tuple[str, int], timeout: float = 60, context: ssl.SSLContext | None = None
    ) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=address[0])
        self._file = self.socket.makefile("rb")
        self._count = 0

    def __enter__(self) -> LineConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Bytes as they are."""
        self.socket.sendall(data)

    def line(self) -> bytes:
        """The next line of the broker; empty when it has closed the connection."""
        return self._file.readline()

    def ask(self, command: str, args: bytes | str = b"") -> Answer:
        """One command and its answer."""
        self._count += 1
        args = args.encode() if isinstance(args, str) else args
        self.send(b"V1|%d|%b|%b\n" % (self._count, command.encode(), args))
        answer = read_answer(self.line())
        assert answer.correlation_id == str(self._count)
        return answer


def say(address: tuple[str, int], data: bytes) -> bytes:
    """All that comes back for these bytes when they are all there is."""
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))
