"""Time and chance: real ones that behave, and manual ones that repeat."""

from __future__ import annotations

import asyncio
import time

from core.clock import SLICE_SECONDS, Clock, ManualClock, TimeSlice


def test_real_time_is_the_machines() -> None:
    clock = Clock()
    before = time.monotonic()
    assert before <= clock.monotonic() <= time.monotonic()
    assert abs(clock.wall_ms() - time.time() * 1000) < 1000


def test_a_manual_clock_stands_still_until_it_is_told() -> None:
    clock = ManualClock(start_ms=5_000)
    start = clock.monotonic()
    assert (clock.monotonic(), clock.wall_ms()) == (start, 5_000)
    clock.advance(1.5)
    assert (clock.monotonic(), clock.wall_ms()) == (start + 1.5, 6_500)


def test_a_jump_of_the_wall_clock_moves_no_deadline() -> None:
    clock = ManualClock(start_ms=5_000)
    start = clock.monotonic()
    clock.jump_wall(-3600)
    assert clock.monotonic() == start
    assert clock.wall_ms() == 5_000 - 3_600_000


def test_one_seed_gives_one_run() -> None:
    first, second = ManualClock(seed=7), ManualClock(seed=7)
    drawn = [[clock.uuid4(), clock.random(), clock.randrange(1000)] for clock in (first, second)]
    assert drawn[0] == drawn[1]
    assert drawn[0][0].version == 4
    assert ManualClock(seed=8).uuid4() != drawn[0][0]


def test_unseeded_ids_differ() -> None:
    clock = Clock()
    assert len({clock.uuid4() for _ in range(100)} | {Clock().uuid4() for _ in range(100)}) == 200


async def test_other_tasks_run_once_a_time_slice_is_over() -> None:
    clock, turns = ManualClock(), 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    time_slice = TimeSlice(clock)
    asyncio.get_running_loop().call_soon(turn)
    for _ in range(100):
        await time_slice.give_way()
    assert turns == 0
    for expected in (1, 2, 3):
        clock.advance(SLICE_SECONDS)
        await time_slice.give_way()
        await time_slice.give_way()
        assert turns == expected
