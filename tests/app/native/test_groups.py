"""Groups over HTTP: every route, and every way to be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
CONFIG = {"group_initial_rebalance_delay_ms": 0}
G = "/api/v1/groups"


async def records(http: httpx.AsyncClient, topic: str, count: int = 4, partitions: int = 2) -> None:
    await http.put(f"/api/v1/topics/{topic}", json={"partitions": partitions})
    body = {"records": [{"value": n, "partition": 0, "timestamp": 1000 + n} for n in range(count)]}
    assert (await http.post(f"/api/v1/topics/{topic}/records", json=body)).status_code == 200


async def put_at(http: httpx.AsyncClient, group: str, topic: str, *offsets: int) -> httpx.Response:
    wanted = [{"topic": topic, "partition": p, "next_offset": o} for p, o in enumerate(offsets)]
    return await http.patch(f"{G}/{group}/offsets", json={"offsets": wanted})


async def member(http: httpx.AsyncClient, group: str, topic: str) -> str:
    joined = await http.post(f"{G}/{group}/members", json={"topics": [topic]})
    assert joined.status_code == 200, joined.text
    member_id: str = joined.json()["member_id"]
    synced = await http.post(f"{G}/{group}/members/{member_id}:sync", json={"generation_id": 1})
    assert synced.status_code == 200, synced.text
    return member_id


async def test_a_group_comes_to_be_with_its_first_position(http: httpx.AsyncClient, topic: str) -> None:
    await records(http, topic)
    set_ = await put_at(http, topic, topic, 3, 0)
    assert set_.status_code == 200
    body = set_.json()
    assert [(o["topic"], o["partition"], o["next_offset"]) for o in body["offsets"]] == [
        (topic, 0, 3),
        (topic, 1, 0),
    ]
    assert body["offsets"][0]["committed"].endswith("Z") and body["offsets"][0]["leader_epoch"] is None
    assert (await http.get(f"{G}/{topic}/offsets")).json() == body
    detail = (await http.get(f"{G}/{topic}")).json()
    assert (detail["state"], detail["type"], detail["members"]) == ("Empty", "classic", [])
    assert detail["leader_id"] is None and detail["protocol"] is None


async def test_groups_are_listed_page_by_page_and_by_state(http: httpx.AsyncClient, topic: str) -> None:
    await records(http, topic)
    names = [f"{topic}-{n}" for n in range(3)]
    for name in names[:2]:
        await put_at(http, name, topic, 1)
    await member(http, names[2], topic)

    async def listed(**query: Any) -> tuple[list[str], str | None]:
        page = (await http.get(G, params={"prefix": topic, **query})).json()
        return [item["group_id"] for item in page["items"]], page["next_page_token"]

    first, token = await listed(page_size=2)
    assert first == names[:2] and token
    assert await listed(page_size=2, page_token=token) == (names[2:], None)
    assert await listed(state="stable") == (names[2:], None)
    assert await listed(state="empty, dead") == (names[:2], None)


async def test_a_bad_page_is_refused(http: httpx.AsyncClient, problem: Check) -> None:
    problem(await http.get(G, params={"page_size": 100_000}), 422, "invalid-request")
    problem(await http.get(G, params={"page_token": "?"}), 422, "invalid-request")


async def test_a_stable_group_shows_the_partitions_of_each_member(
    http: httpx.AsyncClient, topic: str
) -> None:
    await records(http, topic)
    one = await member(http, topic, topic)
    detail = (await http.get(f"{G}/{topic}")).json()
    assert (detail["state"], detail["protocol"], detail["leader_id"]) == ("Stable", "range", one)
    (shown,) = detail["members"]
    assert (shown["member_id"], shown["client_id"], shown["topics"]) == (one, "http", [topic])
    assert shown["client_host"].startswith("/")
    assert [(p["topic"], p["partition"]) for p in shown["partitions"]] == [(topic, 0), (topic, 1)]
    assert shown["metadata"] and shown["assignment"]


async def test_a_group_that_is_not_there(http: httpx.AsyncClient, problem: Check) -> None:
    for path in ("nope", "nope/offsets", "nope/lag"):
        document = problem(await http.get(f"{G}/{path}"), 404, "group-id-not-found")
        assert document["kafka_error_code"] == 69
    problem(await http.delete(f"{G}/nope"), 404, "group-id-not-found")
    problem(await http.delete(f"{G}/nope/offsets/t"), 404, "group-id-not-found")
    problem(await http.post(f"{G}/nope/offsets:reset", json={"to": "latest"}), 404, "group-id-not-found")


async def test_only_a_group_without_members_is_deleted(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await records(http, topic)
    one = await member(http, topic, topic)
    problem(await http.delete(f"{G}/{topic}"), 409, "non-empty-group")
    await http.delete(f"{G}/{topic}/members/{one}")
    assert (await http.delete(f"{G}/{topic}")).status_code == 204
    problem(await http.get(f"{G}/{topic}"), 404, "group-id-not-found")


async def test_a_running_group_is_moved_only_by_its_members(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await records(http, topic)
    one = await member(http, topic, topic)
    problem(await put_at(http, topic, topic, 1), 409, "non-empty-group")
    body: dict[str, Any] = {"offsets": [{"topic": topic, "partition": 0, "next_offset": 2}]}
    wrong = body | {"member_id": one, "generation_id": 9}
    problem(await http.patch(f"{G}/{topic}/offsets", json=wrong), 409, "illegal-generation")
    ghost = body | {"member_id": "ghost", "generation_id": 1}
    problem(await http.patch(f"{G}/{topic}/offsets", json=ghost), 404, "unknown-member")
    fenced = body | {"member_id": one, "generation_id": 1, "group_instance_id": "i"}
    problem(await http.patch(f"{G}/{topic}/offsets", json=fenced), 404, "unknown-member")
    right = await http.patch(f"{G}/{topic}/offsets", json=body | {"member_id": one, "generation_id": 1})
    assert right.json()["offsets"][0]["next_offset"] == 2


@pytest.mark.parametrize(
    ("wanted", "status", "kind"),
    [
        ({"partition": 9, "next_offset": 1}, 404, "unknown-topic-or-partition"),
        ({"topic": "nope", "partition": 0, "next_offset": 1}, 404, "unknown-topic-or-partition"),
        ({"partition": 0, "next_offset": -1}, 422, "invalid-request"),
        ({"partition": 0, "next_offset": "1"}, 422, "invalid-request"),
        ({"partition": 0}, 422, "invalid-request"),
        ({"partition": 0, "next_offset": 1, "offset": 1}, 422, "invalid-request"),
        ({"partition": 0, "next_offset": 1, "metadata": "x" * 5000}, 422, "offset-metadata-too-large"),
    ],
)
async def test_a_bad_position_is_refused_and_none_is_set(
    http: httpx.AsyncClient, topic: str, problem: Check, wanted: dict[str, Any], status: int, kind: str
) -> None:
    await records(http, topic)
    body = {"offsets": [{"topic": topic, "partition": 1, "next_offset": 0}, {"topic": topic, **wanted}]}
    problem(await http.patch(f"{G}/{topic}/offsets", json=body), status, kind)
    problem(await http.get(f"{G}/{topic}/offsets"), 404, "group-id-not-found")


@pytest.mark.parametrize(
    ("target", "after"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 4),
        ({"time": 1002}, 2),
        ({"time": "1970-01-01T00:00:01.003Z"}, 3),
        ({"offset": 1}, 1),
        ({"shift": -2}, 1),
    ],
)
async def test_a_reset_is_shown_first_and_done_then(
    http: httpx.AsyncClient, topic: str, target: dict[str, Any], after: int
) -> None:
    await records(http, topic)
    await put_at(http, topic, topic, 3)
    shown = await http.post(f"{G}/{topic}/offsets:reset", json={**target, "dry_run": True})
    expected = [{"topic": topic, "partition": 0, "before": 3, "after": after}]
    assert (shown.status_code, shown.json()["offsets"], shown.json()["dry_run"]) == (200, expected, True)
    assert (await http.get(f"{G}/{topic}/offsets")).json()["offsets"][0]["next_offset"] == 3
    done = await http.post(f"{G}/{topic}/offsets:reset", json=target)
    assert done.json()["offsets"] == expected
    assert (await http.get(f"{G}/{topic}/offsets")).json()["offsets"][0]["next_offset"] == after


async def test_a_reset_of_topics_prepares_a_group_that_is_yet_to_come(
    http: httpx.AsyncClient, topic: str
) -> None:
    await records(http, topic)
    done = await http.post(f"{G}/{topic}/offsets:reset", json={"to": "latest", "topics": [topic]})
    assert [o["after"] for o in done.json()["offsets"]] == [4, 0]


@pytest.mark.parametrize(
    ("target", "status", "kind"),
    [
        ({}, 422, "invalid-request"),
        ({"to": "latest", "offset": 1}, 422, "invalid-request"),
        ({"to": "middle"}, 422, "invalid-request"),
        ({"time": "yesterday"}, 422, "invalid-request"),
        ({"to": "latest", "topics": []}, 422, "invalid-request"),
        ({"to": "latest", "topics": ["nope"]}, 404, "unknown-topic-or-partition"),
    ],
)
async def test_a_bad_reset_is_refused(
    http: httpx.AsyncClient, problem: Check, target: dict[str, Any], status: int, kind: str
) -> None:
    problem(await http.post(f"{G}/any/offsets:reset", json=target), status, kind)


async def test_a_group_with_members_is_not_reset(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    await records(http, topic)
    await member(http, topic, topic)
    problem(await http.post(f"{G}/{topic}/offsets:reset", json={"to": "latest"}), 409, "non-empty-group")


async def test_lag_is_told_in_total_and_by_partition(http: httpx.AsyncClient, topic: str) -> None:
    await records(http, topic)
    await put_at(http, topic, topic, 1)
    one = await member(http, topic, topic)
    lag = (await http.get(f"{G}/{topic}/lag")).json()
    assert lag == {
        "group_id": topic,
        "total_lag": 3,
        "partitions": [
            {
                "topic": topic,
                "partition": 0,
                "next_offset": 1,
                "log_start_offset": 0,
                "high_watermark": 4,
                "last_stable_offset": 4,
                "lag": 3,
                "member_id": one,
            },
            {
                "topic": topic,
                "partition": 1,
                "next_offset": None,
                "log_start_offset": 0,
                "high_watermark": 0,
                "last_stable_offset": 0,
                "lag": None,
                "member_id": one,
            },
        ],
    }


async def test_positions_are_forgotten_without_readers(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await records(http, topic)
    await put_at(http, topic, topic, 1, 0)
    one = await member(http, topic, topic)
    problem(await http.delete(f"{G}/{topic}/offsets/{topic}"), 409, "group-subscribed-to-topic")
    await http.delete(f"{G}/{topic}/members/{one}")
    assert (await http.delete(f"{G}/{topic}/offsets/{topic}/1")).status_code == 204
    problem(await http.delete(f"{G}/{topic}/offsets/{topic}/1"), 404, "unknown-topic-or-partition")
    assert len((await http.get(f"{G}/{topic}/offsets")).json()["offsets"]) == 1
    assert (await http.delete(f"{G}/{topic}/offsets/{topic}")).status_code == 204
    assert (await http.get(f"{G}/{topic}/offsets")).json()["offsets"] == []


async def test_a_group_shows_its_managed_consumers_beside_its_members(
    http: httpx.AsyncClient, topic: str
) -> None:
    await records(http, topic)
    url = f"/api/v1/groups/{topic}"
    for body in (
        {"name": "one", "topics": [topic]},
        {"name": "own", "assignments": [{"topic": topic, "partition": 1}]},
    ):
        assert (await http.post(f"{url}/consumers", json=body)).status_code == 201
    assert (await http.post(f"{url}/consumers/one:poll", json={"wait_ms": 5000})).status_code == 200
    group = (await http.get(url)).json()
    one, own = group["consumers"]
    assert (one["name"], one["state"], one["topics"]) == ("one", "stable", [topic])
    assert [member["member_id"] for member in group["members"]] == [one["member_id"]]
    assert sorted(p["partition"] for p in one["partitions"]) == [0, 1]
    assert (own["name"], own["state"], own["member_id"], own["topics"]) == ("own", "assigned", None, None)
