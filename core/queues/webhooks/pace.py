"""How many requests of a webhook run at the same time, and how many begin in a second. Pure.

Slow start: the limit begins at one, each success adds one, until `concurrency`. A failure halves it.
"""

from __future__ import annotations


class Pace:
    """The limit of requests at the same time, between 1 and `concurrency`."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.limit = 1
        # Requests that began before the last halving: their failures are of the same event.
        self._halved_at = 0
        self._begun = 0

    def began(self) -> int:
        """Take note of a request that begins; return its number for `failed`."""
        self._begun += 1
        return self._begun

    def succeeded(self) -> None:
        """Take note of a success."""
        self.limit = min(self.concurrency, self.limit + 1)

    def failed(self, number: int) -> None:
        """Take note of a failure. Requests that ran together halve the limit once."""
        if number > self._halved_at:
            self.limit = max(1, self.limit // 2)
            self._halved_at = self._begun


class Rate:
    """At most `per_second` requests begin in a second, with a burst of one second's worth (at least one request)."""

    def __init__(self, per_second: float | None, now: float) -> None:
        self._per_second = per_second
        self._burst = max(1.0, per_second or 1.0)
        # A full burst at the start would be a burst after each restart.
        self._tokens, self._at = 1.0, now

    def capacity(self, now: float) -> int | None:
        """Return how many requests may begin now; None is without a limit."""
        if self._per_second is None:
            return None
        self._refill(now)
        return int(self._tokens + 1e-9)

    def wait(self, now: float) -> float:
        """Return the seconds until one request may begin."""
        if self._per_second is None:
            return 0.0
        self._refill(now)
        return max(0.0, (1.0 - self._tokens) / self._per_second)

    def took(self, count: int) -> None:
        """Take note of requests that begin."""
        self._tokens -= count

    def _refill(self, now: float) -> None:
        if self._per_second is not None and now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
            self._at = now
