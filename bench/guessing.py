"""What wrong passwords cost the clients that have right ones."""

from __future__ import annotations

import asyncio
import base64
import tempfile
import time
from pathlib import Path

import httpx

from bench.bystander import Bystander, percentile
from bench.case import Figure, case, median_of
from bench.load import Connection
from tests.broker_process import BrokerProcess

PER_SECOND = 1_000
SECONDS = 5.0
# The guesser's connections. It sends on time, whether it has its answers or not, as far as these suffice.
CONNECTIONS = 32
TARGET = 2.0
_LISTENER = "http?auth=basic"


@case
def wrong_passwords(repeats: int) -> list[Figure]:
    """The p99 of a client that writes, while another one tries 1,000 wrong passwords a second.

    They come evenly, or in bursts of all connections at once.
    """
    times: list[float] = []
    in_bursts: list[float] = []
    harmless: list[float] = []
    sent: list[float] = []
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        options = ["--super-user", "User:ANONYMOUS"]
        process = BrokerProcess(Path(name) / "data", options=options, schemes=(_LISTENER,))
        try:
            process.start()
            connection = Connection(process.kafka_address)
            connection.create_topic("bench")
            connection.close()
            user = {"name": "alice", "password": "a right password"}
            httpx.post(f"{process.http}/api/v1/users", json=user, trust_env=False).raise_for_status()
            for _ in range(max(1, repeats // 3)):
                quiet, _ = _p99(process, 0)
                guessed, rate = _p99(process, PER_SECOND)
                times.append(guessed / quiet)
                sent.append(rate)
                in_bursts.append(_p99(process, PER_SECOND, bursts=True)[0] / quiet)
                harmless.append(_p99(process, PER_SECOND, path="/livez")[0] / quiet)
        finally:
            process.kill()
    return [
        median_of("p99 of a client beside a guesser, over without", times, "times", TARGET),
        median_of("the same, beside as many requests that no login is looked at for", harmless, "times"),
        median_of("the same, in bursts of 32", in_bursts, "times"),
        median_of("wrong passwords", sent, "1/s"),
    ]


def _p99(
    process: BrokerProcess, per_second: int, *, bursts: bool = False, path: str = "/topics"
) -> tuple[float, float]:
    """Return the p99 in ms of writes of another process, and how many guesses a second were answered."""
    bystander = Bystander(process)
    begin = time.perf_counter()
    answered = asyncio.run(_guess(process.ports[_LISTENER], per_second, bursts, path)) if per_second else 0
    if not per_second:
        time.sleep(SECONDS)
    end = time.perf_counter()
    return percentile(bystander.sorted_ms(begin, end), 99), answered / (end - begin)


async def _guess(port: int, per_second: int, bursts: bool, path: str) -> int:
    answered = 0
    begin = time.perf_counter() + 0.1
    end = begin + SECONDS

    async def one(number: int) -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        due = begin if bursts else begin + number / per_second
        while (now := time.perf_counter()) < end:
            if now < due:
                await asyncio.sleep(due - now)
            due += CONNECTIONS / per_second
            login = base64.b64encode(f"alice:wrong {number} {answered}".encode())
            writer.write(
                b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Basic %b\r\n\r\n"
                % (path.encode(), login)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            refused = (b"HTTP/1.1 401", b"HTTP/1.1 429", b"HTTP/1.1 503")
            assert head.startswith(refused if path == "/topics" else b"HTTP/1.1 200"), head
            size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(size.partition(b":")[2]))
            answered += 1
        writer.close()

    await asyncio.gather(*[one(number) for number in range(CONNECTIONS)])
    return answered
