"""What followers learn at once, not when their fetch has waited its time: the high watermark, and new topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import NoReturn, cast

import pytest

from core.broker.broker import Broker
from core.clock import Clock
from core.config import Peer
from core.replication.copies import Copy
from core.replication.follower import Follower, Keeper
from core.vocabulary.replicas import METADATA
from core.vocabulary.topic import TopicInfo
from tests.core.replication.brokers import Brokers, until
from tests.core.replication.test_cluster_roles import ends, write

# A fetch without news waits longer than any test here may take.
WAIT_MS = 60_000
SECONDS = 20.0


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[Brokers]:
    brokers = Brokers(tmp_path, 3, replica_lag_time_max_ms=120_000)
    async with brokers:
        await brokers.create("t")
        for number in brokers.ports:
            # From now on: the brokers had to find each other first.
            object.__setattr__(brokers[number].config, "replica_fetch_wait_ms", WAIT_MS)
        await asyncio.sleep(0.2)
        yield brokers


async def test_followers_learn_the_high_watermark_at_once(three: Brokers) -> None:
    for number in range(1, 4):
        await write(three[1], b"%d" % number)
        await everywhere(three, partial(has_committed, number))


async def test_a_new_topic_is_known_everywhere_and_its_first_record_is_acknowledged(three: Brokers) -> None:
    for number in range(3):
        name = f"new-{number}"
        info = await three[1].topics.create(name, replication_factor=3)
        await everywhere(three, partial(knows, info))
        async with asyncio.timeout(SECONDS):
            await write(three[1], b"first", topic=name)
    end = three[1].partitions.info(METADATA).offsets.high_watermark
    await until(lambda: {three[n].partitions.info(METADATA).offsets.high_watermark for n in (2, 3)} == {end})


async def everywhere(brokers: Brokers, holds: Callable[[Broker], bool]) -> None:
    for follower in (2, 3):
        await until(partial(holds, brokers[follower]), f"{holds} on broker {follower}", SECONDS)


def has_committed(end: int, broker: Broker) -> bool:
    return ends(broker) == (end, end)


def knows(topic: TopicInfo, broker: Broker) -> bool:
    return topic in broker.topics.list()


async def test_news_in_the_moment_of_the_end_do_not_keep_a_follower_alive(tmp_path: Path) -> None:
    config = Brokers(tmp_path, 1).config(1)
    follower = Follower(Peer(2, "127.0.0.1", 1), config, Clock(), cast(Keeper, Idle()))
    running = asyncio.create_task(follower.run())
    await asyncio.sleep(0.01)
    follower.wake()
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=1.0)
    running.cancel()
    assert done, "it runs although it was cancelled"


class Idle:
    """What follows nothing."""

    def followed(self, leader: int) -> list[Copy]:
        return []

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} is not for one that follows nothing")
