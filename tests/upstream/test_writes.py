"""Writes through a gateway while the cluster misbehaves: none is lost, none is stored again, offsets are right."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.errors import ErrorCode
from tests.upstream.cluster import Cluster
from tests.upstream.faults import METADATA, PRODUCE
from tests.upstream.gateway import Gateway
from tests.upstream.running import now, stored, with_gateway

TOPIC = "orders"
URL = f"/api/v1/topics/{TOPIC}/records"


async def write(gateway: Gateway, *values: str, partition: int = 0, **more: Any) -> httpx.Response:
    records = [{"value": value, "partition": partition} | more for value in values]
    return await gateway.http.post(URL, json={"records": records})


def offsets(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [one["offset"] for one in answer.json()["records"]]


# --- case 21: the leader dies with requests under way ------------------------------------------------------


@pytest.mark.parametrize("fault", ["close_before", "close_after"])
def test_the_leader_dies_with_many_batches_under_way(tmp_path: Path, fault: str) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=3)
        answers: dict[str, int] = {}

        async def client(name: int) -> None:
            for number in range(10):
                value = f"{name}-{number}"
                (answers[value],) = offsets(await write(gateway, value))
                await asyncio.sleep(0.01)

        clients = [asyncio.ensure_future(client(name)) for name in range(8)]
        await asyncio.sleep(0.04)
        # Each of the next requests is lost with its connection, before or after it was carried out.
        cluster.faults.add(PRODUCE, times=6, answer_delay=0.05, **{fault: True})
        await asyncio.sleep(0.02)
        cluster.lead(TOPIC, 0, 2)
        await asyncio.sleep(0.2)
        cluster.stop(2)
        await asyncio.gather(*clients)
        found = await stored(cluster, TOPIC)
        assert len(found) == 80 and {value: offset for offset, value in found} == answers
        for name in range(8):
            mine = [value for _, value in found if value.startswith(f"{name}-")]
            assert mine == [f"{name}-{number}" for number in range(10)]

    with_gateway(tmp_path, scenario, nodes=3, latency=0.002)


def test_the_leader_is_named_by_the_refusal(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        assert offsets(await write(gateway, "a")) == [0]
        cluster.lead(TOPIC, 0, 2)
        # Metadata is slow to say so, the refusal is not (KIP-951).
        cluster.faults.add(METADATA, delay=20.0, times=-1)
        began = now()
        assert offsets(await write(gateway, "b")) == [1]
        assert now() - began < 5

    with_gateway(tmp_path, scenario, nodes=2, hints=True)


# --- case 19: one refused record in a batch of many clients ------------------------------------------------


def test_a_refused_record_does_not_hit_the_records_of_other_clients(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
        # A request that takes its time: those that come meanwhile share the next one.
        cluster.faults.add(PRODUCE, delay=0.5)
        first = asyncio.ensure_future(write(gateway, "first", key="k"))
        await asyncio.sleep(0.1)
        good = [asyncio.ensure_future(write(gateway, f"good-{n}", key=f"k{n}")) for n in range(3)]
        bad = asyncio.ensure_future(write(gateway, "without a key"))
        more = [asyncio.ensure_future(write(gateway, f"good-{n}", key=f"k{n}")) for n in range(3, 6)]
        await first
        answers = [await one for one in (*good, *more)]
        assert all(one.status_code == 200 for one in answers), [one.text for one in answers]
        refused = await bad
        assert refused.status_code in (400, 422), refused.text
        found = {value: offset for offset, value in await stored(cluster, TOPIC)}
        assert found == {"first": 0} | {f"good-{n}": offsets(a)[0] for n, a in enumerate(answers)}
        assert list(found) == ["first", *(f"good-{n}" for n in range(6))]

    with_gateway(tmp_path, scenario)


# --- case 20: batches that are too large -------------------------------------------------------------------


def test_a_merged_batch_that_is_too_large_is_split(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1, configs={"max.message.bytes": "3000"})
        cluster.faults.add(PRODUCE, delay=0.5)
        first = asyncio.ensure_future(write(gateway, "first"))
        await asyncio.sleep(0.1)
        values = [f"{n}:" + "x" * 900 for n in range(12)]
        writes = [asyncio.ensure_future(write(gateway, value)) for value in values]
        large = asyncio.ensure_future(write(gateway, "y" * 5000))
        await first
        found = {
            (await one).json()["records"][0]["offset"]: value
            for one, value in zip(writes, values, strict=True)
        }
        refused = await large
        assert refused.status_code == 413, refused.text
        assert await stored(cluster, TOPIC) == [(0, "first"), *sorted(found.items())]
        assert [found[n] for n in sorted(found)] == values

    with_gateway(tmp_path, scenario)


# --- case 22: not enough replicas --------------------------------------------------------------------------


def test_too_few_replicas_are_said_and_a_retry_with_a_key_writes_once(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        fault = cluster.faults.add(
            PRODUCE, times=-1, error=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, carried_out=True
        )
        body = {"records": [{"value": "v"}]}
        key = {"idempotency-key": '"k"'}
        refused = await gateway.http.post(URL, json=body, headers=key)
        assert refused.status_code == 503 and refused.json()["retriable"] is True, refused.text
        assert fault.used
        cluster.faults.clear()
        answer = await gateway.http.post(URL, json=body, headers=key)
        assert offsets(answer) == [0]
        assert [value for _, value in await stored(cluster, TOPIC)] == ["v"]

    with_gateway(tmp_path, scenario)


def test_replicas_that_come_back_in_time_are_waited_for(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        cluster.faults.add(PRODUCE, times=3, error=ErrorCode.NOT_ENOUGH_REPLICAS)
        assert offsets(await write(gateway, "v")) == [0]
        assert [value for _, value in await stored(cluster, TOPIC)] == ["v"]

    with_gateway(tmp_path, scenario)


# --- case 23: no false success -----------------------------------------------------------------------------


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_what_is_answered_is_stored_also_while_the_leader_moves(tmp_path: Path, acks: str) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        told: dict[str, int | None] = {}
        for number in range(20):
            if number % 5 == 2:
                cluster.faults.add(PRODUCE, close_before=True)
                cluster.lead(TOPIC, 0, 2 if cluster.leader(TOPIC, 0).node == 1 else 1)
            body = {"records": [{"value": str(number)}]}
            answer = await gateway.http.post(f"{URL}?acks={acks}", json=body)
            if answer.status_code in (200, 202):
                told[str(number)] = answer.json()["records"][0].get("offset")
        await asyncio.sleep(60)
        found = {value: offset for offset, value in await stored(cluster, TOPIC)}
        assert len(told) == 20 and set(found) == set(told)
        assert all(offset in (None, found[value]) for value, offset in told.items())

    with_gateway(tmp_path, scenario, nodes=2)


def test_a_write_that_cannot_be_stored_is_never_a_success(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        assert offsets(await write(gateway, "a")) == [0]
        cluster.lead(TOPIC, 0, -1)
        began = now()
        refused = await write(gateway, "b")
        assert refused.status_code == 503 and refused.json()["retriable"] is True, refused.text
        assert now() - began < 120
        cluster.lead(TOPIC, 0, 1)
        assert offsets(await write(gateway, "c"))[0] >= 1
        assert [value for _, value in await stored(cluster, TOPIC)] in (["a", "c"], ["a", "b", "c"])

    with_gateway(tmp_path, scenario)


# --- case 27: quotas of the cluster ------------------------------------------------------------------------


def test_a_throttled_gateway_writes_later_and_refuses_when_its_memory_is_full(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        cluster.faults.add(PRODUCE, throttle_ms=4_000)
        assert offsets(await write(gateway, "first")) == [0]
        began = now()
        large = "x" * 900_000
        writes = [asyncio.ensure_future(write(gateway, large)) for _ in range(100)]
        answers = [await one for one in writes]
        # The broker asked for silence for 4 s, and got it (KIP-219).
        assert 3.9 < now() - began < 60
        codes = [one.status_code for one in answers]
        assert set(codes) == {200, 429}, set(codes)
        # 64 MiB of memory hold about 70 of these records, in two encodings perhaps fewer.
        assert 30 <= codes.count(200) <= 80
        assert len(await stored(cluster, TOPIC)) == 1 + codes.count(200)

    with_gateway(tmp_path, scenario)
