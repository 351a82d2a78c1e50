"""Long polls and other waits for an event, by key and deadline. Acknowledgements wait in the flusher and replicas.

Theory. A wait names the keys whose events may complete it, a deadline, and a `check` that says whether it is
satisfied. `notify(key)` only marks the key; the waits of all marked keys are checked once, at the end of the current
turn of the event loop. So the answer of the producer that caused the event is sent first, and ten appends in one turn
cost one check. Thousands of waits are woken in slices, so that the latency of other requests does not suffer. A wait
ends exactly once: satisfied, timed out, cancelled, or drained.

Timers come from the event loop; deadlines are therefore monotonic and a clock that jumps moves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable

from core.errors import BrokerError, ErrorCode

# Waits checked in one turn of the loop. A check takes up to 20 µs, and a woken request answers in the next turn: over
# HTTP that is 50 µs. So a slice takes 2 to 3 ms, and other requests wait for that long.
WAKE_SLICE = 40


class Wait:
    """One waiting request. `await wait.future` gives True when satisfied, False at deadline or drain."""

    __slots__ = ("_timer", "check", "future", "keys")

    def __init__(
        self, keys: tuple[Hashable, ...], check: Callable[[], bool], future: asyncio.Future[bool]
    ) -> None:
        self.keys = keys
        self.check = check
        self.future = future
        self._timer: asyncio.TimerHandle | None = None


class Purgatory:
    """The waits of one broker. `limit` bounds how many there may be."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waits: dict[Hashable, dict[Wait, None]] = {}
        self._all: dict[Wait, None] = {}
        self._marked: dict[Hashable, None] = {}
        self._to_check: dict[Wait, None] = {}
        self._scheduled = False
        self._drained = False

    def __len__(self) -> int:
        return len(self._all)

    async def wait(self, keys: Iterable[Hashable], timeout: float, check: Callable[[], bool]) -> bool:
        """Wait until `check()` holds after an event on one of `keys`, at most `timeout` seconds.

        True when satisfied, False at the deadline or when the broker drains. Cancelling the caller removes
        the wait. Raises THROTTLING_QUOTA_EXCEEDED when too many wait already.
        """
        if timeout <= 0 or self._drained:
            return False
        if len(self._all) >= self._limit:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{self._limit} requests wait already; ask again without waiting, or later.",
                limit=self._limit,
            )
        loop = asyncio.get_running_loop()
        wait = Wait(tuple(keys), check, loop.create_future())
        wait._timer = loop.call_later(timeout, self._finish, wait, False)
        self._all[wait] = None
        for key in wait.keys:
            self._waits.setdefault(key, {})[wait] = None
        try:
            return await wait.future
        finally:
            self._remove(wait)

    def notify(self, key: Hashable) -> None:
        """Note an event of `key`. It costs one dictionary look-up if no request waits for it."""
        if key in self._waits:
            self._marked[key] = None
            self._schedule()

    def drain(self) -> None:
        """Answer every wait now, and every later one at once: the broker is stopping."""
        self._drained = True
        for wait in list(self._all):
            self._finish(wait, False)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._scheduled = False
        for key in self._marked:
            self._to_check.update(self._waits.get(key, ()))
        self._marked.clear()
        for _ in range(min(WAKE_SLICE, len(self._to_check))):
            wait = next(iter(self._to_check))
            del self._to_check[wait]
            if not wait.future.done() and wait.check():
                self._finish(wait, True)
        if self._to_check:
            self._schedule()

    def _finish(self, wait: Wait, satisfied: bool) -> None:
        if not wait.future.done():
            wait.future.set_result(satisfied)
        self._remove(wait)

    def _remove(self, wait: Wait) -> None:
        if wait not in self._all:
            return
        del self._all[wait]
        self._to_check.pop(wait, None)
        if wait._timer is not None:
            wait._timer.cancel()
        for key in wait.keys:
            waiting = self._waits.get(key)
            if waiting is not None:
                waiting.pop(wait, None)
                if not waiting:
                    del self._waits[key]
