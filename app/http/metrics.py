"""Count HTTP requests by method, route and status, and write one line of the access log for each.

The keys are route templates and our own numbers, never text from a client, so their number is bounded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

from app.http.request import InFlight, Request
from app.http.waiting import Waiting
from app.logs import Visit
from core.clock import Clock
from core.config import Config
from core.counters import Handshakes, Meter, Meters

# The route of a request that no route matches, and the method of one that is not in `METHODS`.
NO_ROUTE = "none"
OTHER_METHOD = "other"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# The status of a request whose client disconnected before the answer (nginx's number).
CLIENT_GONE = 499


class Visits(Protocol):
    """The access log."""

    dropped: int

    def write(self, visit: Visit) -> None:
        """Write a line; never waits."""
        ...


class Traffic:
    """The requests of one HTTP server: counters, and the requests under way with their limits."""

    def __init__(self, config: Config, clock: Clock, visits: Visits | None = None) -> None:
        self.meters: Meters[tuple[str, str, int]] = Meters()
        # Refusals by the type of their problem, or by the v2 code: names and numbers of ours.
        self.refusals: Counter[str] = Counter()
        self.in_progress = 0
        # Open connections; the server counts them.
        self.connections = 0
        # The TLS handshakes of each socket with TLS.
        self.handshakes: list[Handshakes] = []
        self.in_flight = InFlight(config.max_inflight_bytes)
        self.waiting = Waiting(config.http_max_waiting_per_client)
        self.visits = visits
        self._clock = clock
        self.now = clock.monotonic

    def done(self, request: Request, request_id: bytes, started: float, status: int, sent: int) -> None:
        """Count a request that has ended: its start, its status, and the bytes of the answer's body."""
        seconds = self.now() - started
        scope = request.scope
        method = scope["method"]
        if method not in METHODS:
            method = OTHER_METHOD
        self.meters[method, request.route, status].note(seconds, request.received, sent)
        if self.visits is not None:
            client = scope.get("client")
            self.visits.write(
                Visit(
                    self._clock.wall_ms(),
                    request_id,
                    client[0] if client else "",
                    scope["method"],
                    scope["path"],
                    status,
                    seconds,
                    request.received,
                    sent,
                    request.headers.get(b"user-agent", b""),
                )
            )


class LoopDelay:
    """Measure how late the event loop runs its timers, by a timer of its own."""

    INTERVAL = 0.25

    def __init__(self, clock: Clock) -> None:
        self.meter = Meter()
        self._now = clock.monotonic
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, on the running loop."""
        loop = asyncio.get_running_loop()
        self._due = self._now() + self.INTERVAL
        self._timer = loop.call_later(self.INTERVAL, self._look)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.meter.note(max(0.0, self._now() - self._due))
        self.start()
