"""The line protocol: what a PRODUCE and a CONSUME cost."""

from __future__ import annotations

import socket

from bench import floors
from bench.case import Figure, case, least_of
from bench.load import WINDOW
from bench.server import CORES, broker, measured_cpu
from tests.broker_process import BrokerProcess

MICRO = 1e6


def _lines(server: BrokerProcess, line: bytes, count: int, window: int, repeats: int) -> list[float]:
    """Processor µs for each line, `window` of them on their way at a time; one sample per repeat."""
    connection = socket.create_connection(server.line_address, timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    samples = []
    with CORES.together(server.pid):
        for _ in range(repeats):
            with measured_cpu(server) as used:
                sent = answered = 0
                while answered < count:
                    while sent < count and sent - answered < window:
                        connection.sendall(line)
                        sent += 1
                    answered += connection.recv(65_536).count(b"\n")
            samples.append(used[0] / count * MICRO)
    connection.close()
    return samples


@case
def text_produce(repeats: int) -> list[Figure]:
    """PRODUCE of a message of 200 B by the line protocol, acks=1, five lines on their way, and one."""
    line = b"V1|42|PRODUCE|bench user-17:" + b"x" * 200 + b"\n"
    with broker("--listener", "text://127.0.0.1:0") as server:
        _lines(server, line, 100, 1, 1)
        five = _lines(server, line, 3000, WINDOW, repeats)
        one = _lines(server, line, 3000, 1, repeats)
    return [
        least_of("text PRODUCE, 200 B", five, "µs/line", 60, floors.echo_us(len(line), WINDOW)),
        least_of("text PRODUCE, 200 B, one at a time", one, "µs/line", floor=floors.echo_us(len(line))),
    ]
