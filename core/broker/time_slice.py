"""Long work on the event loop, cut into slices between which everybody else gets a turn."""

from __future__ import annotations

import asyncio

from core.clock import Clock

# A slice takes so many seconds: that is what others wait for it.
SLICE_SECONDS = 0.003


class Breath:
    """Taken between two pieces of work; it lets others run once a slice is over."""

    __slots__ = ("_end", "_now")

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._end = self._now() + SLICE_SECONDS

    async def take(self) -> None:
        """Wait for a turn of the event loop, if this slice is over."""
        if self._now() >= self._end:
            await asyncio.sleep(0)
            self._end = self._now() + SLICE_SECONDS
