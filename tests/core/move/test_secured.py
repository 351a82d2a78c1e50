"""A move between clusters whose clients log in: to three nodes whose leaders move, and over TLS."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from core.broker.broker import Broker
from core.client.cluster import ClusterClient
from core.client.network import Network
from core.client.properties import client_settings
from core.clock import Clock
from core.config import Config
from core.move.cluster import MoveCluster
from core.move.copy import Copy
from core.move.journal import Journal
from core.move.verify import verify
from core.records.record import NewRecord
from core.types import TopicPartition
from tests.core.client.conftest import Served
from tests.tls import make_certificate
from tests.upstream.cluster import Cluster
from tests.upstream.running import stored
from tests.virtual_time import LoopClock, run

PASSWORD = "canary of the move"
MAY_ALL: dict[str, Any] = {"super_users": ("User:mover",)}


def login(bootstrap: str, mechanism: str, ca: Path | None = None) -> dict[str, str]:
    """Return the properties of a client that logs in."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT" if ca is None else "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "mover",
        "sasl.password": PASSWORD,
        **({} if ca is None else {"ssl.ca.location": str(ca)}),
    }


async def opened(
    stack: AsyncExitStack, properties: dict[str, str], clock: Clock, network: Network | None = None
) -> MoveCluster:
    client = ClusterClient(client_settings(properties), clock, network)
    await client.open()
    stack.push_async_callback(client.close)
    return MoveCluster(client)


async def filled(broker: Broker) -> None:
    await broker.users.create("mover", PASSWORD)
    await broker.topics.create("t", partitions=6)
    for number in range(60):
        await broker.records.produce("t", [NewRecord(value=b"v%d" % number)], partition=number % 6)


async def copied(work_dir: Path, source: MoveCluster, target: MoveCluster) -> None:
    with Journal(work_dir, create=True) as journal:
        run = Copy(source, target, journal, lambda name: True)
        await run.open()
        await run.until_caught_up()


def test_a_move_to_three_nodes_whose_leaders_move(tmp_path: Path) -> None:
    async def whole() -> None:
        async with (
            Cluster.open(
                tmp_path / "source", LoopClock(1), options=(("auth", "plain"),), settings=MAY_ALL
            ) as ours,
            Cluster.open(
                tmp_path / "target",
                LoopClock(2),
                nodes=3,
                options=(("auth", "scram-sha-512"),),
                settings=MAY_ALL,
            ) as theirs,
            AsyncExitStack() as stack,
        ):
            await filled(ours.broker)
            await theirs.broker.users.create("mover", PASSWORD)
            source = await opened(stack, login(ours.bootstrap, "PLAIN"), LoopClock(), ours)
            target = await opened(stack, login(theirs.bootstrap, "SCRAM-SHA-512"), LoopClock(), theirs)
            await copied(tmp_path / "move", source, target)
            for number in range(60, 120):
                await ours.broker.records.produce(
                    "t", [NewRecord(value=b"v%d" % number)], partition=number % 6
                )
            theirs.stop(2)
            theirs.lead("t", 0, 3)
            await copied(tmp_path / "move", source, target)
            theirs.start(2)
            for partition in range(6):
                expected = [f"v{number}" for number in range(120) if number % 6 == partition]
                assert [value for _, value in await stored(theirs, "t", partition)] == expected
            with Journal(tmp_path / "move", create=False) as journal:
                assert (await verify(source, target, journal, lambda name: True)).equal

    run(whole())


async def test_a_move_over_tls(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    async with AsyncExitStack() as stack:
        brokers, clusters = [], []
        for name, auth in (("source", "plain"), ("target", "scram-sha-256")):
            (tmp_path / name).mkdir()
            broker = Broker(Config(data_dir=tmp_path / name, drain_timeout_ms=10, **MAY_ALL), Clock())
            await broker.open()
            stack.push_async_callback(broker.close)
            served = Served(broker, (("auth", auth),), certificate)
            await served.start()
            stack.push_async_callback(served.stop)
            brokers.append(broker)
            if name == "source":
                await filled(broker)
            else:
                await broker.users.create("mover", PASSWORD)
            mechanism = auth.upper()
            properties = login(str(served.address), mechanism, certificate.file)
            clusters.append(await opened(stack, properties, Clock()))
        source, target = clusters
        await copied(tmp_path / "move", source, target)
        for partition in range(6):
            tp = TopicPartition("t", partition)
            assert brokers[1].partitions.offsets(tp).high_watermark == 10
        with Journal(tmp_path / "move", create=False) as journal:
            assert (await verify(source, target, journal, lambda name: True)).equal
