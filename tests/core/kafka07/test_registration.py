"""A broker's registration against a real ZooKeeper: made, kept, made again, and done without."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from core.broker.broker import Broker
from core.clock import Clock
from core.config import Config, Endpoint
from core.kafka07.registration import AWAY, HELD, REGISTERED, ZooKeeperRegistry
from core.vocabulary.foreign_groups import ByteOffset
from tests.zookeeper_process import ZooKeeperProcess

pytestmark = pytest.mark.client("zookeeper")

WAIT_SECONDS = 20.0
ID, DOGS, MUTTS = "/brokers/ids/2", "/brokers/topics/dogs/2", "/brokers/topics/mutts/2"


@pytest.fixture
async def broker(tmp_path: Path, zookeeper: ZooKeeperProcess) -> AsyncIterator[Broker]:
    config = Config(
        data_dir=tmp_path,
        broker_id=2,
        zookeeper=zookeeper.address,
        zookeeper_session_timeout_ms=1_000,
        zookeeper_refresh_interval_ms=200,
    )
    opened = Broker(config, Clock())
    await opened.open()
    await opened.topics.create("dogs", partitions=4)
    yield opened
    await opened.close()


@asynccontextmanager
async def registered(broker: Broker, port: int = 9093) -> AsyncIterator[ZooKeeperRegistry]:
    registry = ZooKeeperRegistry(broker, Endpoint("kafka07", "127.0.0.1", port))
    await registry.start()
    try:
        yield registry
    finally:
        await registry.stop()


async def eventually(what: Callable[[], Any]) -> Any:
    """Wait until something is true, and answer it."""
    for _ in range(int(WAIT_SECONDS / 0.02)):
        if found := await asyncio.to_thread(what):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")


def value(client: Any, path: str) -> bytes | None:
    """A node's value; None where there is no node."""
    from kazoo.exceptions import NoNodeError

    try:
        found: bytes = client.get(path)[0]
        return found
    except NoNodeError:
        return None


async def test_a_broker_publishes_its_address_and_its_topics(broker: Broker, looker: Any) -> None:
    await broker.topics.create("mutts", partitions=5)
    async with registered(broker) as registry:
        await eventually(lambda: registry.registration.state == REGISTERED)
        address, stat = looker.get(ID)
        creator, host, port = address.decode().split(":")
        assert (host, port) == ("127.0.0.1", "9093")
        assert creator.startswith("127.0.0.1-") and stat.ephemeralOwner
        assert looker.get(DOGS)[0] == b"4" and looker.get(MUTTS)[0] == b"5"
        assert looker.get(DOGS)[1].ephemeralOwner == stat.ephemeralOwner
        for above in ("/brokers", "/brokers/ids", "/brokers/topics", "/brokers/topics/dogs"):
            found, stat = looker.get(above)
            assert (found.decode(), stat.ephemeralOwner) == (creator, 0), above
        assert registry.registration.numbers()["nodes"] == 3
    assert value(looker, ID) is None and value(looker, DOGS) is None, "a stop takes the nodes away at once"
    assert looker.exists("/brokers/topics/dogs"), "what is above them stays"


async def test_topics_that_come_grow_and_go_are_published(broker: Broker, looker: Any) -> None:
    async with registered(broker) as registry:
        await eventually(lambda: registry.registration.state == REGISTERED)
        await broker.topics.create("mutts")
        await eventually(lambda: value(looker, MUTTS) == b"1")
        await broker.topics.create_partitions("mutts", 3)
        await eventually(lambda: value(looker, MUTTS) == b"3")
        await broker.topics.delete("mutts")
        await eventually(lambda: value(looker, MUTTS) is None)
        assert value(looker, DOGS) == b"4"


async def test_a_lost_session_is_followed_by_a_new_registration(
    broker: Broker, looker: Any, another: Callable[..., Any]
) -> None:
    async with registered(broker) as registry:
        await eventually(lambda: registry.registration.state == REGISTERED)
        before = looker.get(ID)[1].ephemeralOwner
        # A second client that takes the session over and ends it: ZooKeeper expires it.
        await asyncio.to_thread(lambda: another(client_id=registry._session._client.client_id).stop())
        await eventually(
            lambda: (found := looker.exists(DOGS)) is not None and found.ephemeralOwner != before
        )
        assert looker.get(ID)[1].ephemeralOwner not in (0, before)
        await eventually(lambda: registry.registration.state == REGISTERED)
        assert registry.registration.lost_sessions == 1


async def test_nodes_that_an_earlier_process_left_are_taken_over_at_once(
    broker: Broker, looker: Any, another: Callable[..., Any]
) -> None:
    """Killed with -9 and back before ZooKeeper has noticed."""
    left = another()
    left.create(ID, b"127.0.0.1-1:127.0.0.1:9093", ephemeral=True, makepath=True)
    left.create(DOGS, b"3", ephemeral=True, makepath=True)
    async with registered(broker) as registry:
        await eventually(lambda: registry.registration.state == REGISTERED)
        assert looker.get(ID)[1].ephemeralOwner != left.client_id[0]
        assert value(looker, DOGS) == b"4"
        left.stop()
        await asyncio.sleep(0.5)
        assert value(looker, ID) and value(looker, DOGS), "the old session's end takes nothing with it"


async def test_another_broker_s_id_is_left_alone_until_it_is_deleted(
    broker: Broker, looker: Any, another: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    other = another()
    other.create(ID, b"10.0.0.1-1:10.0.0.1:9093", ephemeral=True, makepath=True)
    async with registered(broker) as registry:
        await eventually(lambda: registry.registration.state == HELD)
        await asyncio.sleep(0.5)
        assert value(looker, ID) == b"10.0.0.1-1:10.0.0.1:9093" and value(looker, DOGS) is None
        assert caplog.text.count("held by another broker") == 1
        other.stop()
        await eventually(lambda: registry.registration.state == REGISTERED)
        assert value(looker, DOGS) == b"4"


async def test_nodes_that_another_client_deletes_come_back(broker: Broker, looker: Any) -> None:
    async with registered(broker) as registry:
        await eventually(lambda: registry.registration.state == REGISTERED)
        looker.delete(DOGS)
        looker.delete(ID)
        await eventually(lambda: value(looker, ID) and value(looker, DOGS) == b"4")


async def test_the_broker_works_while_zookeeper_is_away_at_its_start(
    broker: Broker, zookeeper: ZooKeeperProcess, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper.kill()
    try:
        async with registered(broker) as registry:
            await broker.topics.create("mutts")
            await eventually(lambda: "works without it" in caplog.text)
            assert registry.registration.state == AWAY
            await asyncio.to_thread(zookeeper.start)
            await eventually(lambda: registry.registration.state == REGISTERED)
            assert registry.registration.nodes == 3
    finally:
        zookeeper.kill()
        zookeeper.start()


async def test_a_stop_does_not_wait_for_a_zookeeper_that_is_away(
    broker: Broker, zookeeper: ZooKeeperProcess
) -> None:
    zookeeper.kill()
    try:
        async with asyncio.timeout(60), registered(broker):
            await asyncio.sleep(0.3)
    finally:
        zookeeper.start()


@pytest.mark.parametrize("pause", [0.0, 2.5])
async def test_a_restart_of_zookeeper_is_lived_through(
    broker: Broker, zookeeper: ZooKeeperProcess, pause: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with registered(broker) as registry:
        await eventually(lambda: registry.registration.state == REGISTERED)
        zookeeper.kill()
        try:
            await eventually(lambda: registry.registration.state == AWAY)
            await broker.topics.create("mutts", partitions=2)
            await asyncio.sleep(pause)
        finally:
            await asyncio.to_thread(zookeeper.start)
        await eventually(
            lambda: registry.registration.state == REGISTERED and registry.registration.nodes == 3
        )

        def looked() -> bool:
            from kazoo.client import KazooClient

            client = KazooClient(hosts=zookeeper.address)
            client.start(timeout=20)
            try:
                return value(client, MUTTS) == b"2" and value(client, ID) is not None
            finally:
                client.stop()
                client.close()

        await eventually(looked)
    assert "the broker continues" in caplog.text


async def test_groups_of_0_7_are_read_and_followed(broker: Broker, looker: Any) -> None:
    looker.create("/consumers/g/ids/c_1", b"{}", ephemeral=True, makepath=True)
    looker.create("/consumers/g/owners/dogs/2-0", b"c_1-0", ephemeral=True, makepath=True)
    looker.create("/consumers/g/offsets/dogs/2-0", b"4711", makepath=True)
    async with registered(broker):
        group = await eventually(lambda: broker.foreign_groups.get("g"))
        assert group.state == "Stable" and group.members[0].owned == (("dogs", 0),)
        assert group.offsets == (ByteOffset("dogs", 2, 0, 4711),)
        looker.set("/consumers/g/offsets/dogs/2-0", b"4800")
        await eventually(lambda: broker.foreign_groups.get("g").offsets[0].offset == 4800)  # type: ignore[union-attr]
        looker.delete("/consumers", recursive=True)
        await eventually(lambda: broker.foreign_groups.get("g") is None)


async def test_the_number_of_nodes_that_are_read_is_limited(
    tmp_path: Path, zookeeper: ZooKeeperProcess, looker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(30):
        looker.create(f"/consumers/g/offsets/dogs/2-{number}", b"1", makepath=True)
    config = Config(
        data_dir=tmp_path,
        zookeeper=zookeeper.address,
        zookeeper_refresh_interval_ms=100,
        zookeeper_max_nodes=10,
    )
    small = Broker(config, Clock())
    await small.open()
    async with registered(small):
        group = await eventually(lambda: small.foreign_groups.get("g"))
        assert 0 < len(group.offsets) < 10
        await asyncio.sleep(0.5)
    await small.close()
    assert caplog.text.count("not all groups are shown") == 1
