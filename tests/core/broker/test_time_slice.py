"""core.broker.time_slice: others get a turn after each slice, and not before."""

from __future__ import annotations

import asyncio

from core.broker.time_slice import SLICE_SECONDS, Breath
from core.clock import ManualClock


async def test_others_run_once_a_slice_is_over() -> None:
    clock, turns = ManualClock(), 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    breath = Breath(clock)
    asyncio.get_running_loop().call_soon(turn)
    for _ in range(100):
        await breath.take()
    assert turns == 0
    for expected in (1, 2, 3):
        clock.advance(SLICE_SECONDS)
        await breath.take()
        await breath.take()
        assert turns == expected
