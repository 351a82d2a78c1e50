"""An even rate: how long a task must wait before its next record, and when what waits has to go out."""

from __future__ import annotations

import time
from collections.abc import Callable

# Records are sent in this many pieces a second, or one by one if fewer records a second are wanted.
PIECES_PER_SECOND = 10


class Pace:
    """At most this many records a second, from the first on. Why in the sink: whatever slows rows down before it only
    fills Spark's batches more slowly, of 10,000 rows each, and at ten a second the first would go out after a quarter
    of an hour."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._piece = max(1, int(rate / PIECES_PER_SECOND))
        self._passed = 0
        self._began = 0.0

    def keep(self, send: Callable[[], None]) -> None:
        """Before each record: at the end of a piece send what waits, and sleep until the next one is due."""
        if not self._passed:
            self._began = time.monotonic()
        elif self._passed % self._piece == 0:
            send()
            wait = self._began + self._passed / self._rate - time.monotonic()
            if wait > 0:
                time.sleep(wait)
        self._passed += 1
