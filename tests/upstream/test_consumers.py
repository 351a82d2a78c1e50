"""Managed consumers and members through a gateway that dies: same tokens, no rebalance, one commit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.errors import ErrorCode
from core.vocabulary.groups import Commit, CommitRequest
from tests.upstream.cluster import Cluster
from tests.upstream.faults import HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT
from tests.upstream.gateway import Gateway
from tests.upstream.running import with_gateway
from tests.virtual_time import LoopClock

TOPIC = "orders"
URL = "/api/v1/groups/g/consumers"


async def prepare(cluster: Cluster, gateway: Gateway, count: int = 6) -> None:
    """Write some records, create a consumer, and wait until it has its assignment."""
    await cluster.broker.topics.create(TOPIC, partitions=1)
    records = [{"value": f"v{n}"} for n in range(count)]
    written = await gateway.http.post(f"/api/v1/topics/{TOPIC}/records", json={"records": records})
    assert written.status_code == 200, written.text
    made = await gateway.http.post(URL, json={"name": "c", "topics": [TOPIC]})
    assert made.status_code == 201, made.text


async def poll(gateway: Gateway, **body: Any) -> dict[str, Any]:
    answer = await gateway.http.post(f"{URL}/c:poll", json={"limit": 2, "wait_ms": 10_000} | body)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def values(batch: dict[str, Any]) -> list[str]:
    return [one["value"] for one in batch["records"]]


def committed(cluster: Cluster) -> int | None:
    found = cluster.broker.groups.committed("g", TOPIC, 0)
    return None if found is None else found.offset


def membership(cluster: Cluster) -> tuple[int, list[str]]:
    view = cluster.broker.groups.describe("g")
    assert view is not None
    return view.generation, sorted(one.member_id for one in view.members)


# --- case 2: the gateway dies between its note and its answer ----------------------------------------------


def test_a_batch_that_was_not_answered_comes_again_with_its_token(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await prepare(cluster, gateway)
        first = await poll(gateway)
        assert values(first) == ["v0", "v1"]
        before = membership(cluster)
        await gateway.restart()
        again = await poll(gateway)
        assert (values(again), again["ack"], again["redelivered"]) == (["v0", "v1"], first["ack"], True)
        second = await poll(gateway, ack=first["ack"])
        assert values(second) == ["v2", "v3"] and committed(cluster) == 2
        assert membership(cluster) == before

    with_gateway(tmp_path, scenario)


# --- case 3: it dies between the commit and its own note, and the other way --------------------------------


@pytest.mark.parametrize("carried_out", [True, False])
def test_an_ack_that_was_cut_is_settled_after_the_restart(tmp_path: Path, carried_out: bool) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await prepare(cluster, gateway)
        first = await poll(gateway)
        fault = {"answer_delay": 100.0} if carried_out else {"delay": 100.0}
        cluster.faults.add(OFFSET_COMMIT, **fault)
        lost = asyncio.ensure_future(gateway.http.post(f"{URL}/c:ack", json={"ack": first["ack"]}))
        await asyncio.sleep(1)
        assert committed(cluster) == (2 if carried_out else None)
        await gateway.kill()
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        await gateway.start()
        # The client repeats its request: acknowledged once, whatever became of the first.
        again = await gateway.http.post(f"{URL}/c:ack", json={"ack": first["ack"]})
        assert again.status_code == 200, again.text
        assert committed(cluster) == 2
        second = await poll(gateway)
        assert values(second) == ["v2", "v3"]
        third = await poll(gateway, ack=second["ack"])
        assert values(third) == ["v4", "v5"] and committed(cluster) == 4

    with_gateway(tmp_path, scenario)


# --- case 14: a heartbeat first ----------------------------------------------------------------------------


def test_a_restart_is_no_rebalance(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await prepare(cluster, gateway)
        await poll(gateway)
        before = membership(cluster)
        joins = cluster.asked[JOIN_GROUP]
        for _ in range(3):
            await gateway.restart()
            await asyncio.sleep(3)
            await poll(gateway)
        assert membership(cluster) == before
        assert cluster.asked[JOIN_GROUP] == joins
        # In order, too: a drained gateway does not leave the groups of its consumers.
        await gateway.stop()
        await asyncio.sleep(3)
        await gateway.start()
        await poll(gateway)
        assert membership(cluster) == before and cluster.asked[JOIN_GROUP] == joins

    with_gateway(tmp_path, scenario)


def test_after_the_session_has_ended_the_consumer_joins_as_a_new_member(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await prepare(cluster, gateway)
        first = await poll(gateway)
        before = membership(cluster)
        await gateway.kill()
        await asyncio.sleep(600)
        view = cluster.broker.groups.describe("g")
        assert view is None or not view.members
        await gateway.start()
        again = await poll(gateway, wait_ms=30_000)
        # At least once: what was not acknowledged comes again.
        assert values(again)[0] == "v0" and again["ack"] != first["ack"]
        assert membership(cluster)[1] != before[1]

    with_gateway(tmp_path, scenario)


# --- case 15: two joins of one member ----------------------------------------------------------------------


def test_two_joins_of_one_member_leave_nothing_that_waits(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await prepare(cluster, gateway, 1)
        path = "/api/v1/groups/m/members"

        async def join(one: Gateway, member: str = "") -> httpx.Response:
            body = {"topics": [TOPIC], "member_id": member, "session_timeout_ms": 10_000, "wait_ms": 20_000}
            return await one.http.post(path, json=body)

        async with Gateway(cluster, tmp_path / "second", LoopClock(2)) as second:
            first = await join(gateway)
            assert first.status_code == 200, first.text
            member = first.json()["member_id"]
            # Held until both are there: a second member keeps the round open.
            both = await asyncio.gather(join(gateway, member), join(second, member))
            codes = sorted(one.status_code for one in both)
            assert codes[0] in (200, 202), [one.text for one in both]
            assert codes[1] in (200, 202, 409, 503, 504), [one.text for one in both]
        await asyncio.sleep(120)
        view = cluster.broker.groups.describe("m")
        assert view is None or not view.members

    with_gateway(tmp_path, scenario)


# --- case 16: the coordinator moves during an ack ----------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_an_ack_waits_for_the_coordinator_and_commits_once(tmp_path: Path, code: ErrorCode) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await prepare(cluster, gateway)
        first = await poll(gateway)
        cluster.faults.add(OFFSET_COMMIT, error=code, times=4)
        cluster.faults.add(HEARTBEAT, error=code, times=4)
        before = membership(cluster)
        answer = await gateway.http.post(f"{URL}/c:ack", json={"ack": first["ack"]})
        assert answer.status_code == 200, answer.text
        assert committed(cluster) == 2 and membership(cluster) == before
        assert values(await poll(gateway)) == ["v2", "v3"]

    with_gateway(tmp_path, scenario)


# --- case 37: the group is reset while its consumer is down ------------------------------------------------


def test_a_group_that_was_reset_while_its_consumer_was_down_begins_there(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await prepare(cluster, gateway)
        first = await poll(gateway)
        await poll(gateway, ack=first["ack"])
        assert committed(cluster) == 2
        await gateway.kill()
        # The session ends, the group is empty: now kafka-consumer-groups may reset it.
        await asyncio.sleep(600)
        await cluster.broker.groups.positions.set("g", CommitRequest([Commit(TOPIC, 0, 5)]))
        await gateway.start()
        batch = await poll(gateway, wait_ms=30_000)
        assert values(batch) == ["v5"]

    with_gateway(tmp_path, scenario)
