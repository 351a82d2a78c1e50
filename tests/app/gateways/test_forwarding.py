"""Three gateways: whatever gateway a client reaches, the owner of the group or of the key answers."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from app.gateways.ownership import owner_of
from tests.app.gateways.conftest import NAMES, Gateways, Running

CONFIG = {"group_initial_rebalance_delay_ms": 0}
pytestmark = pytest.mark.asyncio(loop_scope="module")


def key_of(owner: str) -> str:
    """An Idempotency-Key that a gateway owns."""
    return next(k for k in (f"key-{n}" for n in range(100)) if owner_of(NAMES, b"key " + k.encode()) == owner)


def group_of(owner: str, name: str) -> str:
    """A group that a gateway owns."""
    groups = (f"{name}-{n}" for n in range(100))
    return next(g for g in groups if owner_of(NAMES, b"group " + g.encode()) == owner)


async def write(owner: Running, topic: str, *values: object) -> None:
    body = {"records": [{"value": value} for value in values]}
    (await owner.http.post(f"/api/v1/topics/{topic}/records", json=body)).raise_for_status()


async def test_a_managed_consumer_is_reached_through_every_gateway(gateways: Gateways) -> None:
    owner = gateways.owner("readers")
    one, two = gateways.others(owner)
    await write(owner, "managed", "first")
    created = await one.http.post(
        "/api/v1/groups/readers/consumers", json={"name": "r", "topics": ["managed"], "start": "earliest"}
    )
    assert created.status_code == 201
    path = "/api/v1/groups/readers/consumers/r"
    polled = (await two.http.post(f"{path}:poll", json={"wait_ms": 5_000})).json()
    assert [record["value"] for record in polled["records"]] == ["first"]
    assert (await one.http.post(f"{path}:ack", json={"ack": polled["ack"]})).is_success
    listed = [await g.http.get("/api/v1/groups/readers/consumers") for g in gateways.values()]
    assert [[c["name"] for c in answer.json()["items"]] for answer in listed] == [["r"]] * 3
    assert (await two.http.delete(path)).status_code == 204
    assert (await owner.http.get(path)).status_code == 404
    assert one.counts()[owner.name, "answered"] >= 3


async def test_a_v2_instance_is_reached_through_every_gateway_and_has_the_address_of_the_client(
    gateways: Gateways,
) -> None:
    owner = gateways.owner("v2")
    one, two = gateways.others(owner)
    await write(owner, "topic-v2", 7)
    v2 = {"content-type": "application/vnd.kafka.v2+json"}
    made = await one.http.post(
        "/consumers/v2", headers=v2, content='{"name":"i","format":"json","auto.offset.reset":"earliest"}'
    )
    assert made.json() == {
        "instance_id": "i",
        "base_uri": f"http://127.0.0.1:{one.port}/consumers/v2/instances/i",
    }
    path = "/consumers/v2/instances/i"
    subscribed = await two.http.post(f"{path}/subscription", headers=v2, content='{"topics":["topic-v2"]}')
    assert subscribed.status_code == 204
    accept = {"accept": "application/vnd.kafka.json.v2+json"}
    values: list[int] = []
    async with asyncio.timeout(60):
        while not values:
            records = await one.http.get(f"{path}/records?timeout=1000", headers=accept)
            assert records.headers["content-type"] == "application/vnd.kafka.json.v2+json"
            values = [record["value"] for record in records.json()]
    assert values == [7]


async def test_a_keyed_write_is_written_once_whichever_gateways_get_it(gateways: Gateways) -> None:
    for owner in NAMES:
        topic, headers = f"keyed-{owner}", {"idempotency-key": key_of(owner)}
        answers = [
            await g.http.post(f"/api/v1/topics/{topic}/records", headers=headers, content="v")
            for g in gateways.values()
        ]
        assert [answer.status_code for answer in answers] == [200] * 3
        assert len({answer.text for answer in answers}) == 1
        assert [answer.headers.get("idempotent-replayed") for answer in answers] == [None, "true", "true"]
        offsets = await gateways[owner].http.get(f"/api/v1/topics/{topic}/offsets")
        assert offsets.json()["partitions"][0]["offset"] == 1


async def test_a_request_without_state_is_served_where_it_arrives(gateways: Gateways) -> None:
    before = [one.counts() for one in gateways.values()]
    for one in gateways.values():
        await write(one, "here", one.name)
        read = await one.http.get("/api/v1/topics/here/partitions/0/records?offset=0")
        assert [record["value"] for record in read.json()["records"]] == [one.name]
    assert before == [one.counts() for one in gateways.values()]


async def test_an_answer_has_each_line_once_and_the_id_of_the_request(gateways: Gateways) -> None:
    owner = gateways.owner("lines")
    (one, _) = gateways.others(owner)
    answer = await one.http.get("/api/v1/groups/lines/consumers/none", headers={"x-request-id": "mine"})
    names = [name.lower() for name, _ in answer.headers.raw]
    assert len(set(names)) == len(names)
    assert answer.headers["x-request-id"] == "mine"
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    head = await one.http.head("/api/v1/groups/lines/consumers")
    get = await one.http.get("/api/v1/groups/lines/consumers")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(get.content))


async def test_large_bodies_pass_in_both_directions(gateways: Gateways) -> None:
    owner = gateways["b"]
    records = {"records": [{"value": "x" * 10_000} for _ in range(300)]}

    async def pieces() -> object:
        text = json.dumps(records).encode()
        for at in range(0, len(text), 50_000):
            yield text[at : at + 50_000]

    headers = {"idempotency-key": key_of("b"), "content-type": "application/json"}
    answer = await gateways["a"].http.post(
        "/api/v1/topics/large/records",
        headers=headers,
        content=pieces(),  # type: ignore[arg-type]
    )
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["records"]) == 300
    group = group_of("b", "large")
    body = {"name": "r", "topics": ["large"], "start": "earliest"}
    assert (await gateways["c"].http.post(f"/api/v1/groups/{group}/consumers", json=body)).is_success
    polled = await gateways["a"].http.post(
        f"/api/v1/groups/{group}/consumers/r:poll", json={"wait_ms": 10_000, "max_bytes": 5_000_000}
    )
    assert len(polled.content) > 65_536
    assert polled.json()["records"][0]["value"] == "x" * 10_000
    assert owner.app.traffic.in_flight.held == 0


async def test_a_body_above_the_limit_is_refused_by_the_owner(gateways: Gateways) -> None:
    limit = gateways["a"].app.shared.config.http_max_body_bytes

    async def pieces() -> object:
        for _ in range(limit // 1_000_000 + 2):
            yield b"x" * 1_000_000

    answer = await gateways["a"].http.post(
        "/api/v1/topics/large/records",
        headers={"idempotency-key": key_of("c")},
        content=pieces(),  # type: ignore[arg-type]
    )
    assert answer.status_code == 413
    assert answer.json()["limit"] == limit


async def test_a_client_that_disconnects_ends_the_work_of_the_owner(gateways: Gateways) -> None:
    group = group_of("c", "leaving")
    owner, one = gateways["c"], gateways["a"]
    await write(owner, "leaving", "x")
    body = {"name": "r", "topics": ["leaving"], "start": "latest"}
    assert (await one.http.post(f"/api/v1/groups/{group}/consumers", json=body)).is_success
    before = owner.app.traffic.in_progress
    with pytest.raises(httpx.ReadTimeout):
        await one.http.post(f"/api/v1/groups/{group}/consumers/r:poll", json={"wait_ms": 30_000}, timeout=1.5)
    async with asyncio.timeout(60):
        while owner.app.traffic.in_progress > before or one.app.traffic.in_progress:
            await asyncio.sleep(0.01)
    assert one.counts()["c", "client_gone"] == 1


async def test_metrics_count_what_was_forwarded(gateways: Gateways) -> None:
    group = group_of("b", "counted")
    await gateways["a"].http.get(f"/api/v1/groups/{group}/consumers")
    text = (await gateways["a"].http.get("/metrics")).text
    assert 'sluice_forwarded_requests_total{gateway="b",result="answered"}' in text
    assert 'sluice_received_forwards_total{gateway="a"}' in (await gateways["b"].http.get("/metrics")).text


async def test_a_hop_header_of_a_client_is_refused(gateways: Gateways) -> None:
    answer = await gateways["a"].http.get("/livez", headers={"sluice-hop": "e30=.00"})
    assert (answer.status_code, answer.json()["type"]) == (403, "/problems/untrusted-hop")
