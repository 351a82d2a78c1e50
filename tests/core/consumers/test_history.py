"""Random lives of a group: consumers come, poll, acknowledge, crash and go; a binary member joins and leaves; the
broker is killed. Whatever the order, every record is delivered, and none again once its acknowledgement was answered.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import BrokerError, ErrorCode
from core.vocabulary.consumers import Batch
from tests.core.consumers.consumer_world import G, OtherMember, World, in_virtual_time, offsets

PARTITIONS = 3
NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
actions = st.one_of(
    st.tuples(st.just("create"), names, st.sampled_from(["range", "sticky", ""])),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("poll"), names, st.integers(1, 7), st.booleans()),
    st.tuples(st.just("poll"), names, st.integers(1, 7), st.booleans()),
    st.tuples(st.just("ack"), names),
    st.tuples(st.just("wait"), names, st.integers(1, 7)),
    st.tuples(st.just("give up"), names),
    st.tuples(st.just("produce"), st.integers(0, PARTITIONS - 1), st.integers(1, 5)),
    st.tuples(st.just("other joins")),
    st.tuples(st.just("other leaves")),
    st.tuples(st.just("other dies")),
    st.tuples(st.just("let time pass"), st.sampled_from([0.01, 0.5, 1.2, 4.0, 40.0])),
    st.tuples(st.just("kill")),
    st.tuples(st.just("restart")),
)
# The errors that a client may get when its consumer is deleted, or its batch has moved.
MAY_BE = {ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.INVALID_RECORD_STATE, ErrorCode.DUPLICATE_RESOURCE}


class History:
    """Plays actions and holds the promises after each."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.delivered: set[tuple[int, int]] = set()
        # Below these offsets everything was acknowledged, and the acknowledgement answered.
        self.acknowledged = dict.fromkeys(range(PARTITIONS), 0)
        self.tokens: dict[str, str | None] = {}
        self.waiting: dict[str, asyncio.Task[None]] = {}
        self.other: OtherMember | None = None
        self.other_stays: asyncio.Task[None] | None = None

    async def play(self, action: tuple[Any, ...]) -> None:
        verb, *rest = action
        try:
            await getattr(self, verb.replace(" ", "_"))(*rest)
        except BrokerError as error:
            assert error.code in MAY_BE, error
        self.check()

    def check(self) -> None:
        """No two consumers of one generation own a partition; commits never go back."""
        owners: set[tuple[int, int]] = set()
        for info in self.world.consumers.of_group(G):
            mine = {(info.generation, one.partition) for one in info.partitions}
            assert not owners & mine
            owners |= mine
        committed = self.world.committed()
        for partition, offset in self.acknowledged.items():
            assert committed.get(partition, 0) >= offset
            self.acknowledged[partition] = committed.get(partition, 0)

    # --- consumers -----------------------------------------------------------------------------------------

    async def create(self, name: str, assignor: str) -> None:
        await self.world.create(name, assignor=assignor, start="earliest")
        self.tokens[name] = None

    async def delete(self, name: str) -> None:
        await self.world.consumers.delete(G, name)

    async def poll(self, name: str, limit: int, with_ack: bool, wait_ms: int = 50) -> None:
        acknowledged = dict(self.acknowledged)
        token = self.tokens.get(name) if with_ack else None
        batch: Batch = await self.world.poll(name, ack=token, limit=limit, wait_ms=wait_ms)
        for partition, found in offsets(batch).items():
            assert min(found) >= acknowledged[partition], "an acknowledged record was delivered again"
            self.delivered |= {(partition, offset) for offset in found}
        self.tokens[name] = batch.token

    async def ack(self, name: str) -> None:
        token = self.tokens.get(name)
        if token is not None:
            done = await self.world.consumers.ack(G, name, token)
            for one in done.committed:
                assert self.world.committed()[one.partition] >= one.next_offset

    async def wait(self, name: str, limit: int) -> None:
        if name not in self.waiting or self.waiting[name].done():
            self.waiting[name] = asyncio.create_task(self.quietly(name, limit))
            await asyncio.sleep(0)

    async def quietly(self, name: str, limit: int) -> None:
        try:
            await self.poll(name, limit, False, wait_ms=20_000)
        except BrokerError as error:
            assert error.code in MAY_BE, error

    async def give_up(self, name: str) -> None:
        if name in self.waiting:
            self.waiting.pop(name).cancel()

    # --- the rest of the world -----------------------------------------------------------------------------

    async def produce(self, partition: int, count: int) -> None:
        await self.world.produce(count, partition=partition)

    async def other_joins(self) -> None:
        if self.other is None:
            self.other = await self.world.other_member(session_timeout_ms=6_000, rebalance_timeout_ms=6_000)
            await self.other.join()
            self.other_stays = asyncio.create_task(self.other.stay())

    async def other_leaves(self) -> None:
        if self.other is not None:
            await self.other_dies(leave=True)

    async def other_dies(self, leave: bool = False) -> None:
        if self.other is not None and self.other_stays is not None:
            self.other_stays.cancel()
            await asyncio.gather(self.other_stays, return_exceptions=True)
            if leave:
                await self.other.leave()
            self.other = None

    async def let_time_pass(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def kill(self) -> None:
        await self.give_everything_up()
        await self.world.kill()

    async def restart(self) -> None:
        await self.give_everything_up()
        await self.world.restart()

    async def give_everything_up(self) -> None:
        await self.other_dies()
        for task in self.waiting.values():
            task.cancel()
        await asyncio.gather(*self.waiting.values(), return_exceptions=True)
        self.waiting.clear()

    async def end(self) -> None:
        """One last consumer, if there is none, reads what is left; then nothing is left."""
        for task in self.waiting.values():
            await task
        await self.other_leaves()
        if not self.world.consumers.of_group(G):
            await self.create("a", "")
        for _ in range(60):
            for info in self.world.consumers.of_group(G):
                # Without a token first: no client knows a batch that was on its way at a kill.
                await self.poll(info.name, 100, False, wait_ms=5_000)
                await self.poll(info.name, 100, True, wait_ms=100)
                self.check()
            if self.acknowledged == self.ends():
                break
        assert self.acknowledged == self.ends()
        assert self.delivered == {(p, o) for p, end in self.ends().items() for o in range(end)}

    def ends(self) -> dict[int, int]:
        bounds = self.world.broker.partitions.bounds("t", range(PARTITIONS))
        return {partition: one.high_watermark for partition, one in enumerate(bounds)}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(actions, min_size=4, max_size=25))
def test_every_record_is_delivered_and_none_again_once_it_is_acknowledged(
    script: list[tuple[Any, ...]],
) -> None:
    async def scenario(world: World) -> None:
        await world.topic(partitions=PARTITIONS, records=3)
        history = History(world)
        for action in script:
            await history.play(action)
        await history.end()

    with tempfile.TemporaryDirectory() as directory:
        in_virtual_time(Path(directory), scenario)
