"""Counting at the HTTP listener: few keys, few microseconds; the delay of the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from app.http.metrics import CLIENT_GONE, LoopDelay, Traffic
from app.http.request import InFlight, Request
from app.logs import Visit
from core.clock import Clock, ManualClock
from core.config import Config


async def nothing() -> dict[str, Any]:
    return {"type": "http.disconnect"}


def request(method: str = "GET", **scope: Any) -> Request:
    usual = {"method": method, "path": "/topics", "client": ("127.0.0.1", 5)}
    return Request({**usual, **scope}, nothing, {b"user-agent": b"curl"}, Config(), InFlight(1000))


class Book:
    """Visits in a list."""

    def __init__(self) -> None:
        self.dropped = 0
        self.lines: list[Visit] = []

    def write(self, visit: Visit) -> None:
        self.lines.append(visit)


def test_a_request_counts_under_its_method_route_and_status() -> None:
    clock = ManualClock()
    traffic = Traffic(Config(), clock)
    started = traffic.now()
    clock.advance(0.25)
    one = request("POST")
    one.route, one.received = "/topics/{topic}", 7
    traffic.done(one, b"id", started, 200, 9)
    ((key, meter),) = traffic.meters.items()
    assert key == ("POST", "/topics/{topic}", 200)
    assert (meter.count, meter.seconds, meter.bytes_in, meter.bytes_out) == (1, 0.25, 7, 9)


def test_methods_of_the_clients_own_invention_are_one() -> None:
    traffic = Traffic(Config(), ManualClock())
    for n in range(10):
        traffic.done(request(f"EVIL{n}"), b"id", 0, CLIENT_GONE, 0)
    assert [*traffic.meters] == [("other", "none", 499)]


def test_the_access_log_is_told_what_the_client_sent() -> None:
    clock = ManualClock()
    book = Book()
    traffic = Traffic(Config(), clock, book)
    traffic.done(request("GET", path="/a b", client=None), b"id-7", traffic.now(), 404, 3)
    assert book.lines == [Visit(clock.wall_ms(), b"id-7", "", "GET", "/a b", 404, 0.0, 0, 3, b"curl")]


async def test_a_loop_that_is_held_up_shows_a_delay() -> None:
    delay = LoopDelay(Clock())
    delay.start()
    await asyncio.sleep(LoopDelay.INTERVAL - 0.05)
    time.sleep(0.2)
    await asyncio.sleep(0.05)
    assert delay.meter.count == 1 and delay.meter.seconds > 0.1
    delay.stop()
    await asyncio.sleep(LoopDelay.INTERVAL + 0.05)
    assert delay.meter.count == 1
