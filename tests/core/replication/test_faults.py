"""The network between two brokers is cut, silent or slow: two leaders that both believe, and what they may say.

Records that were acknowledged by acks=all, or shown to a consumer, stay, no matter which broker is promoted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from tests.core.replication.brokers import Brokers, until
from tests.core.replication.proxy import Proxy
from tests.core.replication.test_cluster_roles import content, ends, refused, write

TP = TopicPartition("t", 0)


class Net:
    """Two brokers that reach each other through proxies alone."""

    def __init__(self, brokers: Brokers, proxies: list[Proxy]) -> None:
        self.brokers = brokers
        self.proxies = proxies

    def __getitem__(self, number: int) -> Broker:
        return self.brokers[number]

    def part(self, *, silent: bool) -> None:
        for proxy in self.proxies:
            if silent:
                proxy.silent = True
            else:
                proxy.cut()

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.heal()


@pytest.fixture
async def net(tmp_path: Path) -> AsyncIterator[Net]:
    brokers = Brokers(tmp_path, replica_lag_time_max_ms=700, peer_timeout_ms=300)
    proxies = [await Proxy(brokers.ports[number]).start() for number in (1, 2)]
    brokers.routes = {(2, 1): proxies[0].port, (1, 2): proxies[1].port}
    async with brokers:
        await brokers.create("t")
        yield Net(brokers, proxies)
    for proxy in proxies:
        await proxy.stop()


def shown(broker: Broker) -> list[bytes | None]:
    """What a consumer is shown by a broker that leads."""
    return [r.value for r in broker.records.read_now(TP, 0, max_bytes=1 << 20, max_records=1000).records]


@pytest.mark.parametrize("silent", [False, True])
async def test_two_leaders_that_both_believe_commit_one_history(net: Net, silent: bool) -> None:
    await write(net[1], b"before")
    await until(lambda: ends(net[2]) == (1, 1))
    net.part(silent=silent)
    await net[2].roles.set(TP, "leader")
    assert net[1].partitions.info(TP).leads, "it was not told"
    await write(net[1], b"old leader", acks=1)
    await write(net[2], b"new leader", acks=1)
    for number in (1, 2):
        with pytest.raises(BrokerError) as caught:
            await write(net[number], b"promised", timeout_ms=200)
        assert caught.value.code in (
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        )
        assert shown(net[number]) == [b"before"], "what one of them alone has is shown to no client"
    net.heal()
    await net.brokers.in_sync(TP)
    assert not net[1].partitions.info(TP).leads
    await write(net[2], b"after")
    await until(lambda: ends(net[1]) == ends(net[2]), "the old leader to follow")
    assert content(net[1]) == content(net[2])
    assert shown(net[2])[:2] == [b"before", b"new leader"]
    assert b"old leader" not in content(net[1])


async def test_a_slow_follower_leaves_the_in_sync_set_and_comes_back(net: Net) -> None:
    net.proxies[0].delay = 1.0
    await until(lambda: (asyncio.ensure_future(_try(net[1])), net[1].partitions.info(TP).isr == (1,))[1])
    await refused(ErrorCode.NOT_ENOUGH_REPLICAS, write(net[1], b"x"))
    net.heal()
    await net.brokers.in_sync(TP)
    await write(net[1], b"again")
    await until(lambda: ends(net[1]) == ends(net[2]))
    assert content(net[1]) == content(net[2])


async def _try(broker: Broker) -> None:
    await write(broker, b"y", acks=1)


async def test_answers_that_get_lost_make_nothing_twice(net: Net) -> None:
    for number in range(5):
        await write(net[1], b"%d" % number, acks=1)
        net.part(silent=bool(number % 2))
        await asyncio.sleep(0.05)
        net.heal()
    await net.brokers.in_sync(TP)
    await write(net[1], b"last")
    await until(lambda: ends(net[1]) == ends(net[2]))
    assert shown(net[1]) == [b"0", b"1", b"2", b"3", b"4", b"last"]
    assert content(net[1]) == content(net[2])


async def test_an_old_leader_learns_the_new_one_as_soon_as_one_direction_works(net: Net) -> None:
    await write(net[1], b"a")
    net.proxies[0].cut()  # the follower does not reach the leader, but the leader the follower
    await write(net[1], b"b", acks=1)
    await net[2].roles.set(TP, "leader")
    await until(lambda: not net[1].partitions.info(TP).leads, "the old leader to learn it")
    net.heal()
    await net.brokers.in_sync(TP)
    assert shown(net[2]) == [b"a"], "what was not committed is lost"
