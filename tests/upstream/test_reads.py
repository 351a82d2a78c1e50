"""Reads through a gateway: transactions, topics that are made again, new partitions, old brokers, bounded memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from core.errors import ErrorCode
from core.protocol.apis import APIS
from core.records.record import NewRecord
from core.types import TopicPartition
from tests.app.native.streams.asgi_stream import streaming
from tests.core.transactional_log import TransactionalLog, a_bit_of_each
from tests.upstream.cluster import Cluster
from tests.upstream.faults import FETCH
from tests.upstream.gateway import Gateway
from tests.upstream.running import now, stored, with_gateway

TOPIC = "orders"
T = f"/api/v1/topics/{TOPIC}"


async def write(gateway: Gateway, *values: str, partition: int = 0, topic: str = TOPIC) -> None:
    records = [{"value": value, "partition": partition} for value in values]
    answer = await gateway.http.post(f"/api/v1/topics/{topic}/records", json={"records": records})
    assert answer.status_code == 200, answer.text


async def read(gateway: Gateway, partition: int = 0, **params: Any) -> dict[str, Any]:
    answer = await gateway.http.get(f"{T}/partitions/{partition}/records", params=params)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def seen(body: dict[str, Any]) -> list[tuple[int, bytes]]:
    return [(one["offset"], one["value"].encode()) for one in body["records"]]


# --- case 24: transactions ---------------------------------------------------------------------------------


def test_open_and_aborted_transactions_are_not_shown(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        log = TransactionalLog(cluster.broker, TopicPartition(TOPIC, 0))
        a_bit_of_each(log)
        for committed in (True, False):
            level: dict[str, Any] = {} if committed else {"isolation_level": "read_uncommitted"}
            found, offset = [], 0
            while True:
                body = await read(gateway, offset=offset, limit=2, **level)
                found += seen(body)
                offset = body["next_offset"]
                if body["caught_up"]:
                    break
            assert found == log.seen(committed=committed)
            assert offset == (log.stable if committed else log.end_offset)
        # A marker is no record, neither is what was aborted.
        values = {at for at, _ in log.seen(committed=False)}
        marker = next(at for at in range(log.stable) if at not in values)
        answer = await gateway.http.get(f"{T}/partitions/0/records/{marker}")
        assert answer.status_code == 410, answer.text
        # A reader that waits gets the record when its transaction ends, and not before.
        waiting = asyncio.ensure_future(read(gateway, offset=log.stable, wait_ms=20_000))
        await asyncio.sleep(2)
        assert not waiting.done()
        log.end(3, commit=True)
        assert [value for _, value in seen(await waiting)] == [b"open", b"after the open one"]

    with_gateway(tmp_path, scenario)


# --- case 25: a topic that is deleted and made again -------------------------------------------------------


def test_batches_of_a_deleted_topic_are_never_served_for_its_namesake(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        await write(gateway, *(f"old-{n}" for n in range(20)))
        assert len((await read(gateway, offset=0))["records"]) == 20
        async with streaming(gateway.app, f"{T}/records", "from=earliest") as stream:
            assert len(await stream.records(20)) == 20
            await cluster.broker.topics.delete(TOPIC)
            await cluster.broker.topics.create(TOPIC, partitions=1)
            # The stream is told, before it would show a record of the other topic.
            async with asyncio.timeout(120):
                while (event := await stream.event(100)).type != "problem":
                    assert event.type != "record", event
            assert event.json()["status"] in (404, 410)
        await write(gateway, "new-0")
        async with asyncio.timeout(120):
            while True:
                page = await read(gateway, offset=0)
                assert all(one["value"].startswith("new-") for one in page["records"])
                if page["records"]:
                    break
                await asyncio.sleep(1)
        assert page["high_watermark"] == 1

    with_gateway(tmp_path, scenario)


# --- case 26: partitions that are added --------------------------------------------------------------------


def test_new_partitions_are_read_from_their_start(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        async with streaming(gateway.app, f"{T}/records", "from=latest") as stream:
            assert (await stream.event()).type == "caught_up"
            await cluster.broker.topics.create_partitions(TOPIC, 3)
            # Other clients write there before the gateway knows of the partitions.
            await write(gateway, "first", partition=0)
            await _append(cluster, 2, "second", "third")
            values = [one["value"] for one in await _records(stream, 3)]
            assert sorted(values) == ["first", "second", "third"]
        assert [v for _, v in seen(await read(gateway, 2, offset=0))] == [b"second", b"third"]

    with_gateway(tmp_path, scenario)


async def _append(cluster: Cluster, partition: int, *values: str) -> None:
    records = [NewRecord(value=value.encode()) for value in values]
    await cluster.broker.records.produce(TOPIC, records, partition=partition)


async def _records(stream: Any, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            event = await stream.event(100)
            if event.type == "record":
                found.append(event.json())
    return found


def test_a_reader_survives_the_move_of_its_leader(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        async with streaming(gateway.app, f"{T}/records", "from=latest") as stream:
            assert (await stream.event()).type == "caught_up"
            for number, move in enumerate((2, 3, 1)):
                cluster.lead(TOPIC, 0, move)
                await write(gateway, f"v{number}")
                assert [one["value"] for one in await _records(stream, 1)] == [f"v{number}"]
            cluster.stop(1)
            await write(gateway, "last")
            assert [one["value"] for one in await _records(stream, 1)] == ["last"]

    with_gateway(tmp_path, scenario, nodes=3)


# --- case 27: quotas on fetches ----------------------------------------------------------------------------


def test_a_throttled_fetch_is_not_repeated_before_its_time(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        await write(gateway, "a")
        assert len((await read(gateway, offset=0))["records"]) == 1
        await asyncio.sleep(120)
        throttled = cluster.faults.add(FETCH, throttle_ms=10_000, times=-1)
        await read(gateway, offset=0)
        await asyncio.sleep(1)
        before = cluster.asked[FETCH]
        await asyncio.sleep(8)
        # One connection for reads and one for long polls: both are silent.
        assert throttled.used and cluster.asked[FETCH] == before
        cluster.faults.clear()
        await write(gateway, "b")
        began = now()
        page = await read(gateway, offset=1, wait_ms=30_000)
        assert [v for _, v in seen(page)] == [b"b"] and now() - began < 30

    with_gateway(tmp_path, scenario)


# --- case 30 and 31: one fetch for many listeners; windows within their memory -----------------------------


def test_many_listeners_of_a_topic_cost_one_fetch(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)

        async def listen() -> list[Any]:
            async with streaming(gateway.app, f"{T}/records", "from=latest") as stream:
                return await _records(stream, 5)

        listeners = [asyncio.ensure_future(listen()) for _ in range(200)]
        await asyncio.sleep(5)
        before = cluster.asked[FETCH]
        for number in range(5):
            await write(gateway, f"v{number}")
            await asyncio.sleep(0.1)
        for values in await asyncio.gather(*listeners):
            assert [one["value"] for one in values] == [f"v{number}" for number in range(5)]
        assert cluster.asked[FETCH] - before <= 15

    with_gateway(tmp_path, scenario)


# --- case 33: old brokers ----------------------------------------------------------------------------------


def test_an_older_cluster_without_topic_ids_is_written_and_read(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        http = gateway.http
        assert (await http.put(T, json={"partitions": 2})).status_code == 201
        await write(gateway, "a", "b", partition=1)
        page = await read(gateway, 1, offset=0)
        assert [v for _, v in seen(page)] == [b"a", b"b"]
        assert cluster.versions[0] == 7 and cluster.versions[FETCH] == 11
        shown = await http.get(T)
        assert shown.status_code == 200 and shown.json()["partitions"] == 2, shown.text
        async with streaming(gateway.app, f"{T}/records", "from=earliest") as stream:
            assert [one["value"] for one in await _records(stream, 2)] == ["a", "b"]
        assert (await http.delete(T)).status_code == 204
        assert (await http.get(T)).status_code == 404

    # What Redpanda served in 2024, roughly: no flexible Produce, no topic ids, ApiVersions 0.
    old = {
        18: 0,
        0: 7,
        1: 11,
        3: 8,
        2: 3,
        19: 4,
        20: 3,
        10: 3,
        22: 1,
        8: 7,
        9: 7,
        32: 2,
        44: 0,
        23: 2,
        75: -1,
        60: -1,
    }
    assert all(key in APIS for key in old)
    with_gateway(tmp_path, scenario, max_versions=old)


# --- case 29: what the gateway's principal may not do ------------------------------------------------------


def test_what_the_cluster_forbids_is_403_and_other_topics_are_served(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: Gateway) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        await cluster.broker.topics.create("payments", partitions=1)
        await write(gateway, "a")
        await asyncio.sleep(120)
        forbidden = {"error": ErrorCode.TOPIC_AUTHORIZATION_FAILED, "times": -1}
        cluster.faults.add(
            FETCH, when=lambda r: any(cluster.topic_name(t) == TOPIC for t in r.topics), **forbidden
        )
        cluster.faults.add(
            0, when=lambda r: any(cluster.topic_name(t) == TOPIC for t in r.topic_data), **forbidden
        )
        answer: httpx.Response = await gateway.http.get(f"{T}/partitions/0/records?offset=0")
        assert answer.status_code == 403, answer.text
        refused = await gateway.http.post(f"{T}/records", json={"value": "v"})
        assert refused.status_code == 403, refused.text
        await write(gateway, "b", topic="payments")
        assert await stored(cluster, "payments") == [(0, "b")]

    with_gateway(tmp_path, scenario)
