"""Gateways that stand still, clocks that jump, logs that are cut, rights that are missing, and little memory."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from core.types import TopicPartition
from tests.app.native.streams.asgi_stream import Stream, streaming
from tests.upstream.cluster import Cluster
from tests.upstream.faults import FETCH, HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT
from tests.upstream.gateway import Gateway
from tests.upstream.running import stored, with_cluster, with_gateway
from tests.upstream.test_consumers import URL, committed, membership, poll, prepare, values
from tests.virtual_time import LoopClock

TOPIC = "orders"
T = f"/api/v1/topics/{TOPIC}"
DAY_MS = 86_400_000


async def write(gateway: Gateway, *texts: str, partition: int = 0) -> None:
    records = [{"value": text, "partition": partition} for text in texts]
    answer = await gateway.http.post(f"{T}/records", json={"records": records})
    assert answer.status_code == 200, answer.text


async def read(gateway: Gateway, **params: Any) -> list[str]:
    answer = await gateway.http.get(f"{T}/partitions/0/records", params={"offset": 0, **params})
    assert answer.status_code == 200, answer.text
    return [one["value"] for one in answer.json()["records"]]


async def next_records(stream: Stream, count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(300):
        while len(found) < count:
            event = await stream.event(300)
            if event.type == "record":
                found.append(event.json()["value"])
    return found


# --- case 4: a gateway that stands still for longer than a session, in the middle of an acknowledgement ----


def test_an_ack_of_a_gateway_that_stood_still_loses_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await prepare(cluster, gateway)
        first = await poll(gateway)
        before = membership(cluster)
        # What it sends arrives when its session is over.
        cluster.faults.add(HEARTBEAT, delay=200.0)
        cluster.faults.add(OFFSET_COMMIT, delay=200.0)
        late = asyncio.ensure_future(gateway.http.post(f"{URL}/c:ack", json={"ack": first["ack"]}))
        await asyncio.sleep(150)
        view = cluster.broker.groups.describe("g")
        assert view is None or before[1][0] not in [one.member_id for one in view.members]
        answer = await late
        assert answer.status_code in (200, 409, 503), answer.text
        cluster.faults.clear()
        seen: list[str] = []
        async with asyncio.timeout(300):
            token = None
            while (committed(cluster) or 0) < 6:
                batch = await poll(gateway, **({} if token is None else {"ack": token}))
                seen += values(batch)
                token = batch["ack"] or token
        # At least once: what was not acknowledged comes again, and nothing is left out.
        assert set(seen) >= {f"v{n}" for n in range(2, 6)}
        if answer.status_code != 200:
            assert {"v0", "v1"} <= set(seen)

    with_gateway(tmp_path, scenario)


# --- case 26: an unclean election has cut the log ----------------------------------------------------------


def test_records_of_a_log_that_was_cut_are_not_shown_from_memory(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        for n in range(10):
            # Each in a batch of its own: a log is cut between batches.
            await write(gateway, f"old-{n}")
        async with streaming(gateway.app, f"{T}/records", "from=earliest") as stream:
            assert len(await next_records(stream, 10)) == 10
            cluster.broker.partitions.log(TopicPartition(TOPIC, 0)).truncate_to(5)
            cluster.lead(TOPIC, 0, 2)
            cluster.disconnect()
            await asyncio.sleep(60)
            await write(gateway, *(f"new-{n}" for n in range(8)))
            whole = [value for _, value in await stored(cluster, TOPIC)]
            assert whole == [*(f"old-{n}" for n in range(5)), *(f"new-{n}" for n in range(8))]
            assert await read(gateway, limit=100) == whole
            # The stream continues at its position: what was written in the place of lost records is not sent.
            await write(gateway, "last")
            assert await next_records(stream, 4) == ["new-5", "new-6", "new-7", "last"]

    with_gateway(tmp_path, scenario, nodes=2)


# --- case 29: a principal without rights on the cluster ----------------------------------------------------


def test_a_gateway_without_rights_on_the_cluster_serves_its_topics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        http = gateway.http
        await cluster.broker.topics.create(TOPIC, partitions=1)
        await cluster.broker.topics.create("hidden", partitions=1)
        rules = [
            Acl(
                ResourceType.TOPIC, TOPIC, PatternType.LITERAL, "User:gateway", "*", operation, Permission.ALLOW
            )
            for operation in (Operation.READ, Operation.WRITE)
        ]  # fmt: skip
        assert not any(await cluster.broker.acls.create(rules))
        # The start has said it.
        assert "DESCRIBE on the cluster is missing" in caplog.text
        await write(gateway, "a")
        assert await read(gateway) == ["a"]
        names = [one["name"] for one in (await http.get("/api/v1/topics")).json()["items"]]
        assert names == [TOPIC]
        assert (await http.get("/api/v1/groups")).json()["items"] == []
        assert (await http.put("/api/v1/topics/another", json={"partitions": 1})).status_code == 403
        for path in ("hidden", "hidden/partitions/0/records?offset=0"):
            assert (await http.get(f"/api/v1/topics/{path}")).status_code in (403, 404)

    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "gateway",
        "sasl.password": "a right password",
    }
    with_gateway(
        tmp_path,
        scenario,
        gateway={"properties": properties},
        users={"gateway": "a right password"},
        options=(("auth", "plain"),),
        settings={"super_users": ("User:admin",)},
    )


# --- case 30: listeners of one topic through three gateways ------------------------------------------------


def test_listeners_through_three_gateways_cost_one_fetch_each(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        async with AsyncExitStack() as stack:
            gateways = [
                await stack.enter_async_context(Gateway(cluster, tmp_path / f"gateway-{n}", LoopClock(n)))
                for n in range(3)
            ]

            async def listen(gateway: Gateway, *, slow: bool) -> list[str]:
                async with streaming(gateway.app, f"{T}/records", "from=latest") as stream:
                    if slow:
                        # It takes nothing for a while; its records wait in the cluster.
                        stream.room.clear()
                        await asyncio.sleep(60)
                        stream.room.set()
                    return await next_records(stream, 5)

            listeners = [
                asyncio.ensure_future(listen(gateway, slow=number % 10 == 0))
                for gateway in gateways
                for number in range(100)
            ]
            await asyncio.sleep(5)
            before = cluster.asked[FETCH]
            for number in range(5):
                await write(gateways[number % 3], f"v{number}")
                await asyncio.sleep(0.1)
            await asyncio.sleep(1)
            assert cluster.asked[FETCH] - before <= 3 * 15
            expected = [f"v{number}" for number in range(5)]
            assert all(found == expected for found in await asyncio.gather(*listeners))

    with_cluster(tmp_path, scenario)


# --- case 31: more is followed than memory holds -----------------------------------------------------------


def test_more_partitions_are_followed_than_memory_holds(tmp_path: Path) -> None:
    partitions, rounds, size, limit = 40, 6, 4_000, 200_000

    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=partitions)
        gateway.broker.fetcher._windows._max_bytes = limit
        most = 0

        async def listen(partition: int) -> list[str]:
            query = f"from=earliest&partitions={partition}"
            async with streaming(gateway.app, f"{T}/records", query) as stream:
                return [value[:3] for value in await next_records(stream, rounds)]

        listeners = [asyncio.ensure_future(listen(partition)) for partition in range(partitions)]
        await asyncio.sleep(5)
        for number in range(rounds):
            for partition in range(partitions):
                await write(gateway, f"{number:03}" + "x" * size, partition=partition)
                most = max(most, gateway.broker.fetcher.memory)
            await asyncio.sleep(0.5)
        for found in await asyncio.gather(*listeners):
            assert found == [f"{number:03}" for number in range(rounds)]
        # All of it would be five times the limit. None starved, and late readers get everything as well.
        assert most <= limit + 64 * 1024
        assert len(await read(gateway, limit=100)) == rounds
        assert gateway.broker.fetcher.memory <= limit + 64 * 1024

    with_gateway(tmp_path, scenario)


# --- case 35: a wall clock that jumps ----------------------------------------------------------------------


@pytest.mark.parametrize("shift_ms", [-DAY_MS, DAY_MS // 2])
def test_a_wall_clock_that_jumps_ends_no_session_and_no_key(tmp_path: Path, shift_ms: int) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await prepare(cluster, gateway)
        first = await poll(gateway)
        keyed = {"idempotency-key": "k"}
        body = {"value": "once", "partition": 0}
        written = await gateway.http.post(f"{T}/records", json=body, headers=keyed)
        assert written.status_code == 200, written.text
        before, joins = membership(cluster), cluster.asked[JOIN_GROUP]
        clock = gateway.clock
        assert isinstance(clock, LoopClock)
        clock.wall_shift_ms = shift_ms
        await asyncio.sleep(120)
        second = await poll(gateway, ack=first["ack"])
        assert values(second) == ["v2", "v3"] and committed(cluster) == 2
        again = await gateway.http.post(f"{T}/records", json=body, headers=keyed)
        assert (again.status_code, again.json()) == (200, written.json())
        assert again.headers["idempotent-replayed"] == "true"
        assert membership(cluster) == before and cluster.asked[JOIN_GROUP] == joins
        assert len(await stored(cluster, TOPIC)) == 7
        # Also over a restart with the wrong clock.
        await gateway.restart()
        third = await poll(gateway, ack=second["ack"])
        assert values(third)[:2] == ["v4", "v5"]
        assert membership(cluster) == before

    with_gateway(tmp_path, scenario)
