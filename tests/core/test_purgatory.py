"""core.purgatory: each wait ends once, by its event, its deadline, its caller or the drain."""

from __future__ import annotations

import asyncio

import pytest

from core.errors import BrokerError, ErrorCode
from core.purgatory import WAKE_SLICE, Purgatory


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_event_completes_a_wait_whose_check_holds_and_no_other() -> None:
    purgatory, ready = Purgatory(10), {"a": False}
    first = asyncio.create_task(purgatory.wait(["a", "b"], 60, lambda: ready["a"]))
    other = asyncio.create_task(purgatory.wait(["c"], 60, lambda: True))
    await settle()
    purgatory.notify("a")
    await settle()
    assert not first.done()
    ready["a"] = True
    purgatory.notify("b")
    await settle()
    assert first.done() and await first is True
    assert not other.done() and len(purgatory) == 1
    other.cancel()
    await settle()
    assert len(purgatory) == 0 and not purgatory._waits


async def test_a_deadline_ends_a_wait_with_false() -> None:
    purgatory = Purgatory(10)
    assert await purgatory.wait(["a"], 0.001, lambda: True) is False
    assert await purgatory.wait(["a"], 0, lambda: True) is False
    assert len(purgatory) == 0 and not purgatory._waits


async def test_a_drain_answers_all_and_lets_no_request_wait_again() -> None:
    purgatory = Purgatory(10)
    waits = [asyncio.create_task(purgatory.wait([i], 60, lambda: True)) for i in range(5)]
    await settle()
    purgatory.drain()
    assert await asyncio.gather(*waits) == [False] * 5
    assert await purgatory.wait(["a"], 60, lambda: True) is False


async def test_one_wait_too_many_is_refused() -> None:
    purgatory = Purgatory(1)
    task = asyncio.create_task(purgatory.wait(["a"], 60, lambda: True))
    await settle()
    with pytest.raises(BrokerError) as refused:
        await purgatory.wait(["a"], 60, lambda: True)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    task.cancel()
    await settle()


async def test_thousands_are_woken_in_slices() -> None:
    purgatory, turns = Purgatory(10_000), 0
    waits = [asyncio.create_task(purgatory.wait(["a"], 60, lambda: True)) for _ in range(WAKE_SLICE * 5)]
    await settle()
    purgatory.notify("a")
    while not all(w.done() for w in waits):
        await asyncio.sleep(0)
        turns += 1
    assert 5 <= turns <= 12
