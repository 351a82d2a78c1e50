"""Connections by lane: shared, lent, idle, and attempts after a failure."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from core.client.failures import LinkLost
from core.client.links import _IDLE_ALONE, MAX_ALONE, Links
from core.client.settings import ClientSettings
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.list_groups import ListGroupsRequest
from tests.core.client.fake_cluster import FakeCluster
from tests.virtual_time import LoopClock, run


def made(fake: FakeCluster, **settings: int) -> Links:
    address = fake.brokers[1].address
    return Links(ClientSettings(bootstrap=(address,), **settings), LoopClock(), fake)  # type: ignore[arg-type]


def test_callers_share_an_attempt_and_a_link() -> None:
    async def work() -> None:
        fake = FakeCluster(1)
        links, address = made(fake), fake.brokers[1].address
        first = asyncio.ensure_future(links.get(address))
        await asyncio.sleep(0)
        first.cancel()
        found = await asyncio.gather(*(links.get(address) for _ in range(10)))
        assert len({id(one) for one in found}) == 1 and len(fake.brokers[1].connections) == 1
        assert await links.get(address, "fetch") is not found[0]
        links.close()
        with pytest.raises(BrokerError):
            await links.get(address)

    run(work())


def test_attempts_after_a_failure_wait_longer_and_longer() -> None:
    async def work() -> None:
        fake = FakeCluster(1)
        links, address = made(fake), fake.brokers[1].address
        fake.brokers[1].kill()
        loop = asyncio.get_running_loop()
        times = []
        for _ in range(8):
            with pytest.raises(LinkLost, match="No connection to the broker at broker1:9092"):
                await links.get(address)
            times.append(loop.time())
            assert links.resting(address)
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert pauses[0] < 0.2 < pauses[-1] < 1.3
        fake.brokers[1].alive = True
        assert (await links.get(address)).lost is None and not links.resting(address)
        links.close()

    run(work())


def test_a_request_that_waits_has_a_connection_of_its_own() -> None:
    async def work() -> None:
        fake = FakeCluster(1)
        links, address = made(fake), fake.brokers[1].address

        async def borrow() -> int:
            async with links.alone(address) as link:
                await asyncio.sleep(1)
                return id(link)

        assert len(set(await asyncio.gather(*(borrow() for _ in range(20))))) == 20
        assert len(fake.brokers[1].connections) == _IDLE_ALONE, "the others are closed"
        assert len(set(await asyncio.gather(*(borrow() for _ in range(5))))) == 5
        assert len(fake.brokers[1].connections) == _IDLE_ALONE
        many = [asyncio.ensure_future(borrow()) for _ in range(MAX_ALONE)]
        await asyncio.sleep(0.5)
        with pytest.raises(BrokerError) as caught:
            await borrow()
        assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        await asyncio.gather(*many)
        links.close()
        await asyncio.sleep(0)
        assert not fake.brokers[1].connections

    run(work())


def test_a_borrowed_link_with_a_request_that_was_not_answered_is_closed() -> None:
    async def work() -> None:
        fake = FakeCluster(1)
        links, address = made(fake), fake.brokers[1].address
        async with links.alone(address) as link:
            link.start(ListGroupsRequest()).cancel()
        assert link.lost is not None
        links.close()

    run(work())


def test_idle_links_and_those_to_former_brokers_are_closed() -> None:
    async def work() -> None:
        fake = FakeCluster(3)
        links = made(fake, connections_max_idle_ms=60_000)
        addresses = [one.address for one in fake.brokers.values()]
        one, two, three = [await links.get(address) for address in addresses]
        await asyncio.sleep(70)
        two.used = three.used = asyncio.get_running_loop().time()
        links.prune({addresses[0], addresses[1]}, asyncio.get_running_loop().time())
        assert [bool(link.lost) for link in (one, two, three)] == [True, False, True]
        links.close()

    run(work())
