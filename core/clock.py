"""The only time and the only randomness in core.

Every deadline, timestamp, id and random choice uses a `Clock`. So a test can pass a `ManualClock`, run hours in
microseconds, and repeat the same run.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
import uuid
from datetime import UTC, datetime


def datetime_of(ms: int) -> datetime:
    """Return the date and time in UTC of milliseconds since the Unix epoch."""
    return datetime.fromtimestamp(ms / 1000, UTC)


class Clock:
    """Real time. `monotonic()` drives every deadline; `wall_ms()` is only ever written into data."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start. Changes of the wall clock do not affect it."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump either way."""
        return time.time_ns() // 1_000_000

    def uuid4(self) -> uuid.UUID:
        """A random version-4 UUID."""
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def random(self) -> float:
        """A float in [0, 1)."""
        return self._random.random()

    def randrange(self, stop: int) -> int:
        """An int in [0, stop)."""
        return self._random.randrange(stop)

    def secret_bytes(self, count: int) -> bytes:
        """Return random bytes that cannot be guessed, from the operating system: salts, nonces, tokens."""
        return secrets.token_bytes(count)


class ManualClock(Clock):
    """Time that moves only when told. For tests and the simulation.

    `advance` moves both clocks; `jump_wall` moves the wall clock alone, as a step of NTP would.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000, seed: int = 0) -> None:
        super().__init__(seed)
        # Of its own, so that a secret more does not change every choice after it.
        self._secrets = random.Random(seed)
        self._now = 1000.0
        self._wall_ms = float(start_ms)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._now

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return int(self._wall_ms)

    def secret_bytes(self, count: int) -> bytes:
        """See `Clock.secret_bytes`; here they are the same in each run."""
        return self._secrets.randbytes(count)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        self._now += seconds
        self._wall_ms += seconds * 1000

    def jump_wall(self, seconds: float) -> None:
        """Step the wall clock only; deadlines must not notice."""
        self._wall_ms += seconds * 1000


# Seconds of a slice: other requests wait for so long.
SLICE_SECONDS = 0.003


class TimeSlice:
    """Long work on the event loop, cut into slices between which other tasks get a turn."""

    __slots__ = ("_end", "_now")

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._end = self._now() + SLICE_SECONDS

    async def give_way(self) -> None:
        """Let other tasks run if this slice is over. Call it between two pieces of work."""
        if self._now() >= self._end:
            await asyncio.sleep(0)
            self._end = self._now() + SLICE_SECONDS
