"""The circuit breaker of a webhook. Pure: no I/O, and times are arguments (monotonic seconds).

It opens after failures in a row, or if half of the last requests failed. While it is open the webhook leases nothing,
so no delivery is counted because an endpoint is down. Then one record is tried (half-open): a success closes it, a
failure opens it for twice as long.
"""

from __future__ import annotations

from collections import deque

from core.vocabulary.webhooks import Circuit

# Failures in a row that open it, and the window of the share.
IN_A_ROW = 10
WINDOW = 20
FIRST_SECONDS, MAX_SECONDS = 5.0, 600.0


class Breaker:
    """Decides how many records may be leased for an endpoint."""

    def __init__(self) -> None:
        self.circuit = Circuit.CLOSED
        self._in_a_row = 0
        self._last: deque[bool] = deque(maxlen=WINDOW)
        self._openings = 0
        self._until = 0.0
        self._probing = False

    def capacity(self, now: float) -> int | None:
        """Return how many records may be leased: None is without a limit, 0 is none until `wait` is over."""
        if self.circuit is Circuit.CLOSED:
            return None
        if self.circuit is Circuit.OPEN:
            if now < self._until:
                return 0
            self.circuit = Circuit.HALF_OPEN
            self._probing = False
        return 0 if self._probing else 1

    def wait(self, now: float) -> float:
        """Return the seconds until an open breaker tries again; 0 if it is not open."""
        return max(0.0, self._until - now) if self.circuit is Circuit.OPEN else 0.0

    def sent(self) -> None:
        """Take note of a request that begins."""
        if self.circuit is Circuit.HALF_OPEN:
            self._probing = True

    def unsent(self) -> None:
        """Take note that a request ended without an answer that says anything about the endpoint."""
        self._probing = False

    def succeeded(self) -> None:
        """Take note of a success: the endpoint works."""
        if self.circuit is not Circuit.CLOSED:
            self._last.clear()
            self.circuit = Circuit.CLOSED
        self._in_a_row = self._openings = 0
        self._probing = False
        self._last.append(True)

    def failed(self, now: float) -> None:
        """Take note of a failure of the endpoint."""
        self._in_a_row += 1
        self._last.append(False)
        too_many = self._in_a_row >= IN_A_ROW or self._half_failed()
        if self.circuit is Circuit.HALF_OPEN or (self.circuit is Circuit.CLOSED and too_many):
            self._open(now)
        # Open: a request that began before has ended. It does not lengthen the pause.

    def _half_failed(self) -> bool:
        return len(self._last) == WINDOW and 2 * self._last.count(False) >= WINDOW

    def _open(self, now: float) -> None:
        self.circuit = Circuit.OPEN
        self._probing = False
        self._until = now + min(MAX_SECONDS, FIRST_SECONDS * 2.0 ** min(self._openings, 30))
        self._openings += 1
