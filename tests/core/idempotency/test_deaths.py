"""core.idempotency.keys when the process dies: before and after every step, once and again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.types import TopicPartition
from tests.core.idempotency.keyed_writes import RECORDS, SMALL, assert_once, send, stored


class Death(BaseException):
    """The process dies here."""


class Mortal:
    """Lets a broker die before or after one of its steps: a job of the store, an append, a wait for the disk.

    `image` is what the disk holds then.
    """

    def __init__(self, broker: Broker, at: int, after: bool, image: Path) -> None:
        self.broker, self.at, self.after, self.image = broker, at, after, image
        self.steps = 0
        for owner, name in ((broker.store, "read"), (broker.store, "submit"), (broker.partitions, "append")):
            setattr(owner, name, self._step(getattr(owner, name)))
        broker.partitions.durable = self._wait(broker.partitions.durable)  # type: ignore[method-assign]

    def _now(self) -> bool:
        self.steps += 1
        return self.steps - 1 == self.at

    def _step(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **named: Any) -> Any:
            if not self._now():
                return real(*args, **named)
            if not self.after:
                return self._die()
            done = real(*args, **named)
            return asyncio.ensure_future(self._die_after(done)) if asyncio.isfuture(done) else self._die()

        return step

    def _wait(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            done = real(*args)
            return done if done is None or not self._now() else asyncio.ensure_future(self._die_after(done))

        return step

    async def _die_after(self, done: Awaitable[Any]) -> None:
        await done
        self._die()

    def _die(self) -> None:
        shutil.copytree(self.broker.config.data_dir, self.image, ignore=shutil.ignore_patterns("*-shm"))
        raise Death


async def live(image: Path, clock: ManualClock, at: int, after: bool, acks: int) -> tuple[Path | None, int]:
    """Send the request to a broker that dies at a step; what its disk holds then, None if it lived."""
    broker = Broker(Config(data_dir=image), clock)
    await broker.open()
    mortal = Mortal(broker, at, after, image.with_name(f"{image.name}-{at}{'ab'[after]}"))
    died = False
    try:
        await send(broker, acks=acks)
        # What is still under way is done, and dies as well.
        await asyncio.sleep(0.02)
    except Death:
        died = True
    if not mortal.image.exists():
        assert not died
    await broker.close()
    return (mortal.image if mortal.image.exists() else None), mortal.steps


async def prepared(root: Path, clock: ManualClock) -> Path:
    (root / "b").mkdir()
    broker = Broker(Config(data_dir=root / "b"), clock)
    await broker.open()
    await broker.topics.create("t", partitions=3, configs=SMALL)
    await broker.close()
    return root / "b"


async def check_after_death(image: Path, clock: ManualClock, acks: int) -> None:
    broker = Broker(Config(data_dir=image), clock)
    await broker.open()
    try:
        clock.advance(60)
        answer = await send(broker, acks=acks)
        await assert_once(broker, answer)
        again = await send(broker, acks=acks)
        assert again.replayed and again.answer == answer.answer
        await assert_once(broker, again)
    finally:
        await broker.close()


async def copy_of(image: Path, name: str) -> Path:
    return Path(shutil.copytree(image, image.with_name(name)))


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("after", [False, True])
async def test_a_repetition_after_any_death_writes_once(
    tmp_path: Path, clock: ManualClock, after: bool, acks: int
) -> None:
    start = await prepared(tmp_path, clock)
    for at in count():
        image, steps = await live(await copy_of(start, f"n{at}"), clock, at, after, acks)
        if image is None:
            assert at == steps
            break
        await check_after_death(image, clock, acks)
    # One bind, some appends in each of three partitions, and the answer.
    assert steps >= 6


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(deaths=st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=4))
def test_a_repetition_after_many_deaths_writes_once(
    tmp_path_factory: pytest.TempPathFactory, deaths: list[tuple[int, bool]]
) -> None:
    async def history() -> None:
        root, clock = tmp_path_factory.mktemp("deaths"), ManualClock()
        image = await prepared(root, clock)
        for number, (at, after) in enumerate(deaths):
            left, _ = await live(await copy_of(image, f"n{number}"), clock, at, after, acks=-1)
            image = image.with_name(f"n{number}") if left is None else left
        await check_after_death(image, clock, acks=-1)

    asyncio.run(history())


async def test_what_a_start_finds_is_known_when_the_log_has_forgotten_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    start = await prepared(tmp_path, clock)
    image, steps = await live(await copy_of(start, "all"), clock, -1, False, -1)
    image, _ = await live(await copy_of(start, "n"), clock, steps - 1, False, -1)
    assert image is not None
    broker = Broker(Config(data_dir=image), clock)
    await broker.open()
    for partition in range(3):
        broker.partitions.log(TopicPartition("t", partition)).producers.clear()
    answer = await send(broker)
    assert answer.replayed
    await assert_once(broker, answer)
    await broker.close()


async def test_producer_ids_of_unfinished_writes_are_not_lent_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    start = await prepared(tmp_path, clock)
    image, _ = await live(start, clock, 1, False, -1)
    assert image is not None
    broker = Broker(replace(Config(), data_dir=image), clock)
    await broker.open()
    for n in range(30):
        await send(broker, key=f"other-{n}")
    before = len(await stored(broker))
    assert not (await send(broker)).replayed
    assert len(await stored(broker)) == before + len(RECORDS)
    await broker.close()
