"""Reads over HTTP beside transactions: pages, streams, one record, offsets, lag, managed consumers, REST v2."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.main import Application
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest
from tests.app.conftest import Problem, logs_of
from tests.app.native.streams.asgi_stream import streaming
from tests.app.native.test_records import T, make, read
from tests.core.transactional_log import TransactionalLog, a_bit_of_each

pytestmark = pytest.mark.asyncio(loop_scope="module")
UNCOMMITTED = {"isolation_level": "read_uncommitted"}


async def opened(app: Application, http: httpx.AsyncClient, topic: str) -> TransactionalLog:
    await make(http, topic)
    return TransactionalLog(logs_of(app), TopicPartition(topic, 0))


def seen(body: dict[str, Any]) -> list[tuple[int, bytes]]:
    return [(record["offset"], record["value"].encode()) for record in body["records"]]


@pytest.mark.parametrize("committed", [True, False])
async def test_pages_of_one_partition(
    app: Application, http: httpx.AsyncClient, topic: str, committed: bool
) -> None:
    log = await opened(app, http, topic)
    a_bit_of_each(log)
    params: dict[str, Any] = {} if committed else UNCOMMITTED
    end = log.stable if committed else log.end_offset
    found, offset = [], 0
    while True:
        body = await read(http, topic, offset=offset, limit=2, max_bytes=1, **params)
        assert (body["last_stable_offset"], body["high_watermark"]) == (log.stable, log.end_offset)
        found += seen(body)
        offset = body["next_offset"]
        assert body["caught_up"] is (offset == end)
        if body["caught_up"]:
            break
    assert found == log.seen(committed=committed)
    for start in ({"offset": "latest"}, {"timestamp": 10_000_000}):
        assert (await read(http, topic, **start, **params))["next_offset"] == end


@pytest.mark.parametrize("committed", [True, False])
async def test_pages_of_all_partitions(
    app: Application, http: httpx.AsyncClient, topic: str, committed: bool
) -> None:
    log = await opened(app, http, topic)
    a_bit_of_each(log)
    params: dict[str, Any] = {} if committed else UNCOMMITTED
    found, cursor = [], {}
    while True:
        body = (await http.get(f"{T}/{topic}/records", params={"limit": 2, **params, **cursor})).json()
        found += seen(body)
        cursor = {"cursor": body["next_cursor"]}
        if body["caught_up"]:
            break
    assert found == log.seen(committed=committed)
    latest = (await http.get(f"{T}/{topic}/records", params={"from": "latest", **params})).json()
    assert (latest["records"], latest["caught_up"]) == ([], True)
    log.end(3, commit=True)
    body = (await http.get(f"{T}/{topic}/records", params={**params, "cursor": latest["next_cursor"]})).json()
    assert seen(body) == (log.seen(found[-1][0] + 1) if committed else [])


async def test_a_stream_sends_a_transaction_when_it_is_committed(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    log = await opened(app, http, topic)
    a_bit_of_each(log)
    before = log.seen()
    async with streaming(app, f"{T}/{topic}/records") as stream:
        events = [await stream.event() for _ in range(len(before) + 1)]
        assert [(e.json()["offset"], e.json()["value"].encode()) for e in events[:-1]] == before
        assert events[-1].type == "caught_up"
        log.write(3, "still open")
        log.write(5, "never seen")
        log.end(5, commit=False)
        log.end(3, commit=True)
        after = log.seen()[len(before) :]
        events = [await stream.event() for _ in after]
        assert [(e.json()["offset"], e.json()["value"].encode()) for e in events] == after


async def test_a_long_poll_waits_for_the_end_of_a_transaction(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    log = await opened(app, http, topic)
    log.write(1, "aborted")
    log.end(1, commit=False)
    log.write(2, "open")
    reads = [
        asyncio.ensure_future(http.get(f"{T}/{topic}/partitions/0/records", params={"wait_ms": 20_000})),
        asyncio.ensure_future(http.get(f"{T}/{topic}/records", params={"wait_ms": 20_000})),
    ]
    for _ in range(20):
        await asyncio.sleep(0)
    log.write(2, "also open")
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(one.done() for one in reads)
    log.end(2, commit=True)
    for one in reads:
        assert seen((await one).json()) == [(2, b"open"), (3, b"also open")]


async def test_one_record_is_there_once_its_transaction_is_committed(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    log = await opened(app, http, topic)
    log.write(1, "maybe")
    log.write(2, "never")
    log.write(0, "after")
    url = f"{T}/{topic}/partitions/0/records"
    for offset in range(3):
        answer = await http.get(f"{url}/{offset}")
        problem(answer, 404, "offset-out-of-range")
        assert answer.headers["cache-control"] == "no-store"
    log.end(1, commit=True)
    answer = await http.get(f"{url}/0")
    assert (answer.status_code, answer.json()["value"]) == (200, "maybe")
    assert "immutable" in answer.headers["cache-control"]
    problem(await http.get(f"{url}/2"), 404, "offset-out-of-range")
    log.end(2, commit=False)
    gone = await http.get(f"{url}/1")
    assert problem(gone, 410, "offset-out-of-range")["next_offset"] == 2
    assert gone.headers["cache-control"] == "no-store"
    assert (await http.get(f"{url}/2")).json()["value"] == "after"


async def test_offsets_and_lag_are_those_of_committed_reads(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    log = await opened(app, http, topic)
    a_bit_of_each(log)

    async def latest(**params: Any) -> Any:
        return (await http.get(f"{T}/{topic}/offsets", params=params)).json()["partitions"][0]["offset"]

    assert (await latest(), await latest(**UNCOMMITTED)) == (log.stable, log.end_offset)
    detail = (await http.get(f"{T}/{topic}")).json()["partition_details"][0]
    assert (detail["latest"], detail["high_watermark"]) == (log.stable, log.end_offset)
    await app.shared.broker.groups.positions.set(topic, CommitRequest([Commit(topic, 0, log.stable - 3)]))
    lag = (await http.get(f"/api/v1/groups/{topic}/lag")).json()["partitions"][0]
    assert (lag["lag"], lag["last_stable_offset"], lag["high_watermark"]) == (3, log.stable, log.end_offset)


async def test_an_isolation_level_must_be_one_of_two(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    await make(http, topic)
    for path in (f"{topic}/records", f"{topic}/partitions/0/records"):
        answer = await http.get(f"{T}/{path}", params={"isolation_level": "1"})
        assert problem(answer, 422, "invalid-request")["errors"][0]["parameter"] == "isolation_level"


@pytest.mark.parametrize("committed", [True, False])
async def test_a_managed_consumer_reads_to_the_end(
    app: Application, http: httpx.AsyncClient, topic: str, committed: bool
) -> None:
    log = await opened(app, http, topic)
    a_bit_of_each(log)
    wanted = {"assignments": [{"topic": topic, "partition": 0}]} | ({} if committed else UNCOMMITTED)
    made = await http.post(f"/api/v1/groups/{topic}/consumers", json=wanted)
    assert made.status_code == 201, made.text
    url, ack, found = made.headers["location"], None, []
    while True:
        body = (await http.post(f"{url}:poll", json={"ack": ack, "limit": 2, "wait_ms": 0})).json()
        found += seen(body)
        ack = body["ack"]
        if not body["records"]:
            break
    assert found == log.seen(committed=committed)
    if not committed:
        return
    # A poll waits for the end of the transaction, and the position rests after what is hidden.
    waiting = asyncio.ensure_future(http.post(f"{url}:poll", json={"wait_ms": 20_000}))
    for _ in range(20):
        await asyncio.sleep(0)
    log.write(3, "one more")
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    log.end(3, commit=True)
    assert seen((await waiting).json()) == log.seen()[len(found) :]


@pytest.mark.parametrize("committed", [True, False])
async def test_rest_v2_reads_as_isolation_level_says(
    app: Application, http: httpx.AsyncClient, topic: str, committed: bool
) -> None:
    log = await opened(app, http, topic)
    a_bit_of_each(log)
    options = {} if committed else {"isolation.level": "read_uncommitted"}
    body = {"name": "i", "format": "binary", "auto.offset.reset": "earliest", **options}
    v2 = {"content-type": "application/vnd.kafka.v2+json"}
    base = (await http.post(f"/consumers/{topic}", json=body)).json()["base_uri"]
    places = {"partitions": [{"topic": topic, "partition": 0}]}
    assert (await http.post(f"{base}/assignments", content=json.dumps(places), headers=v2)).status_code == 204
    offsets: list[int] = []
    while True:
        records = (await http.get(f"{base}/records?timeout=0")).json()
        offsets += [record["offset"] for record in records]
        if not records:
            break
    assert offsets == [offset for offset, _ in log.seen(committed=committed)]


async def test_the_stateless_read_of_rest_v2_looks_on_after_hidden_records(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    log = await opened(app, http, topic)
    for i in range(5):
        log.write(1, f"aborted {i}")
        log.end(1, commit=False)
    log.write(0, "here")
    log.write(2, "open")
    url = f"/topics/{topic}/partitions/0"
    accept = {"accept": "application/vnd.kafka.binary.v2+json"}
    records = (await http.get(f"{url}/records?offset=0&max_bytes=1", headers=accept)).json()
    assert [record["offset"] for record in records] == [10]
    assert (await http.get(f"{url}/records?offset=11", headers=accept)).json() == []
    assert (await http.get(f"{url}/offsets")).json() == {"beginning_offset": 0, "end_offset": 11}
