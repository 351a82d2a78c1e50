"""Keyed writes through a gateway that dies, over a cluster that forgets: written once, with one answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from core.errors import ErrorCode
from tests.upstream.cluster import Cluster
from tests.upstream.faults import PRODUCE
from tests.upstream.gateway import Gateway
from tests.upstream.running import stored, with_gateway

TOPIC = "orders"
URL = f"/api/v1/topics/{TOPIC}/records"


async def write(gateway: Gateway, *values: str, key: str = "k") -> httpx.Response:
    records = [{"value": value, "partition": n % 2} for n, value in enumerate(values)]
    return await gateway.http.post(URL, json={"records": records}, headers={"idempotency-key": f'"{key}"'})


async def all_values(cluster: Cluster) -> list[str]:
    return sorted([value for p in (0, 1) for _, value in await stored(cluster, TOPIC, p)])


def places(answer: httpx.Response) -> list[tuple[int, int]]:
    assert answer.status_code == 200, answer.text
    return [(one["partition"], one["offset"]) for one in answer.json()["records"]]


# --- case 9: the gateway dies at each step -----------------------------------------------------------------


@pytest.mark.parametrize("step", ["before the append", "after the append of one", "after all appends"])
def test_a_gateway_that_dies_in_a_keyed_write_writes_once(tmp_path: Path, step: str) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=2)
        await write(gateway, "warm", "up", key="first")
        held = asyncio.Event()
        how = {"hold": held} if step == "before the append" else {"answer_delay": 30.0}
        only = {"when": lambda r: r.topic_data[0].partition_data[0].index == 0} if "of one" in step else {}
        if "of one" in step:
            cluster.faults.add(PRODUCE, hold=held, when=lambda r: 1 in _partitions(r), times=-1)
        cluster.faults.add(PRODUCE, times=-1, **how, **only)
        lost = asyncio.ensure_future(write(gateway, "a", "b"))
        await asyncio.sleep(1)
        await gateway.kill()
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        cluster.faults.clear()
        await asyncio.sleep(5)
        await gateway.start()
        # The client does not know what became of its request. It asks twice at once, and once more.
        answers = await asyncio.gather(
            write(gateway, "a", "b"), write(gateway, "a", "b"), return_exceptions=True
        )
        done = [one for one in answers if isinstance(one, httpx.Response) and one.status_code == 200]
        assert done, answers
        again = await write(gateway, "a", "b")
        assert again.headers.get("idempotent-replayed") == "true"
        assert all(places(one) == places(again) for one in done)
        assert await all_values(cluster) == ["a", "b", "up", "warm"]
        found = {(p, offset): value for p in (0, 1) for offset, value in await stored(cluster, TOPIC, p)}
        assert [found[place] for place in places(again)] == ["a", "b"]

    with_gateway(tmp_path, scenario)


def _partitions(request: object) -> list[int]:
    topics = request.topic_data  # type: ignore[attr-defined]
    return [one.index for topic in topics for one in topic.partition_data]


def test_an_answered_key_is_replayed_after_a_restart(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=2)
        first = await write(gateway, "a", "b")
        for restart in (gateway.restart, gateway.restart):
            await restart()
            again = await write(gateway, "a", "b")
            assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
        assert await all_values(cluster) == ["a", "b"]

    with_gateway(tmp_path, scenario)


# --- case 6, as far as it applies: a lost answer, and a leader that moves ----------------------------------


def test_the_answer_of_a_keyed_append_is_lost_and_the_leader_moves(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=2)
        cluster.faults.add(PRODUCE, close_after=True)
        asked = asyncio.ensure_future(write(gateway, "a", "b"))
        await asyncio.sleep(0.01)
        cluster.lead(TOPIC, 0, 2)
        answer = await asked
        if answer.status_code != 200:
            assert answer.status_code == 503 and answer.json()["retriable"], answer.text
            answer = await write(gateway, "a", "b")
        assert len(places(answer)) == 2
        assert await all_values(cluster) == ["a", "b"]

    with_gateway(tmp_path, scenario, nodes=2, latency=0.002)


# --- case 10: the cluster has forgotten the producer -------------------------------------------------------


def test_a_retry_after_the_cluster_forgot_the_producer_is_not_appended_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=2)
        cluster.faults.add(PRODUCE, times=-1, answer_delay=60.0)
        lost = asyncio.ensure_future(write(gateway, "a", "b"))
        await asyncio.sleep(2)
        await gateway.kill()
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        cluster.faults.clear()
        assert await all_values(cluster) == ["a", "b"]
        # producer.id.expiration.ms is 5 s: nothing remembers the sequences any more.
        await asyncio.sleep(3600)
        await gateway.start()
        again = await write(gateway, "a", "b")
        # Settled by what the log has, or refused: never appended again.
        assert again.status_code in (200, 409, 503), again.text
        assert await all_values(cluster) == ["a", "b"]

    with_gateway(tmp_path, scenario, settings={"producer_id_expiration_ms": 5_000})


# --- case 11: the topic is deleted and made again ----------------------------------------------------------


def test_a_key_whose_topic_was_made_again_is_a_new_write_or_the_answer(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=2)
        cluster.faults.add(PRODUCE, times=-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        lost = await write(gateway, "a", "b")
        assert lost.status_code == 503, lost.text
        cluster.faults.clear()
        await cluster.broker.topics.delete(TOPIC)
        await cluster.broker.topics.create(TOPIC, partitions=2)
        await asyncio.sleep(60)
        answer = await write(gateway, "a", "b")
        assert sorted(places(answer)) == [(0, 0), (1, 0)]
        assert await all_values(cluster) == ["a", "b"]
        # And the producer is not stuck in OUT_OF_ORDER_SEQUENCE_NUMBER.
        assert (await write(gateway, "c", "d", key="other")).status_code == 200

    with_gateway(tmp_path, scenario)
