"""/api/v1/queues: create, describe, pause, seek, delete; what a queue holds."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from app.main import Application
from core.vocabulary.groups import Commit, CommitRequest
from tests.app.conftest import Problem
from tests.app.native.test_records import make

pytestmark = pytest.mark.asyncio(loop_scope="module")
URL = "/api/v1/queues"


async def queue(http: httpx.AsyncClient, name: str, *values: str, **settings: Any) -> str:
    """Make a topic with these records and a queue of the same name from its start; return the path of the queue."""
    await make(http, name)
    if values:
        body = {"records": [{"value": one} for one in values]}
        assert (await http.post(f"/api/v1/topics/{name}/records", json=body)).status_code == 200
    made = await http.put(f"{URL}/{name}", json={"topics": [name], "start": "earliest", **settings})
    assert made.status_code == 201, made.text
    return f"{URL}/{name}"


async def received(http: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await http.post(f"{path}:receive", json={"wait_ms": 0, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def stats(http: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await http.get(f"{path}/stats")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


# --- life ---------------------------------------------------------------------------------------------------


async def test_a_queue_is_created_once_and_has_all_its_settings(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic)
    wanted = {
        "topics": [topic],
        "start": "earliest",
        "lock_ms": 60_000,
        "delivery_limit": 3,
        "backoff": {"first_ms": 1000, "factor": 3, "max_ms": 60_000, "jitter": 0.5},
        "dead_letter": {"topic": f"{topic}-dead"},
        "order": "key",
        "max_in_flight": 50,
        "max_delay_ms": 3_600_000,
        "isolation_level": "read_uncommitted",
    }
    made = await http.put(f"{URL}/{topic}", json=wanted)
    assert made.status_code == 201 and made.headers["location"] == f"{URL}/{topic}"
    again = await http.put(f"{URL}/{topic}", json=wanted)
    assert again.status_code == 200 and again.headers["etag"] == made.headers["etag"]
    found = await http.get(f"{URL}/{topic}")
    document = found.json()
    assert found.headers["etag"] == made.headers["etag"]
    assert document == made.json() == again.json()
    assert {name: document[name] for name in wanted} == {
        **wanted, "dead_letter": {"topic": f"{topic}-dead", "copy": True},
    }  # fmt: skip
    assert document["queue"] == topic and document["pattern"] is None and not document["paused"]


async def test_what_the_body_leaves_out_has_its_default_again(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, lock_ms=5_000)
    changed = await http.put(path, json={"topics": [topic], "start": "earliest"})
    assert changed.status_code == 200 and changed.json()["lock_ms"] == 30_000
    assert changed.json()["delivery_limit"] == 5
    never = await http.put(path, json={"topics": [topic], "delivery_limit": None})
    assert never.json()["delivery_limit"] is None


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        ("2025-01-31T12:00:00Z", "2025-01-31T12:00:00.000Z"),
        (1738324800000, "2025-01-31T12:00:00.000Z"),
        ("latest", "latest"),
    ],
)
async def test_a_start_is_shown_as_it_will_be_used(
    http: httpx.AsyncClient, topic: str, start: Any, shown: Any
) -> None:
    await queue(http, topic, start=start)
    assert (await http.get(f"{URL}/{topic}")).json()["start"] == shown


async def test_a_queue_may_begin_where_a_consumer_group_has_come(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await make(http, topic)
    group = f"{topic}-group"
    await app.server.broker.groups.positions.set(group, CommitRequest([Commit(topic, 0, 0, -1, "")], "", -1))
    made = await http.put(f"{URL}/{topic}", json={"topics": [topic], "start": {"group": group}})
    assert made.status_code == 201 and made.json()["start"] == {"group": group}


async def test_a_change_is_fenced_by_the_version(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    path = await queue(http, topic)
    known = (await http.get(path)).headers["etag"]
    body = {"topics": [topic], "start": "earliest", "lock_ms": 2_000}
    assert (await http.put(path, json=body, headers={"if-match": known})).status_code == 200
    stale = await http.put(path, json={**body, "lock_ms": 3_000}, headers={"if-match": known})
    now = (await http.get(path)).headers["etag"]
    assert problem(stale, 412, "precondition-failed")["current_etag"] == now
    problem(await http.put(path, json=body, headers={"if-none-match": "*"}), 412, "precondition-failed")
    missing = await http.put(f"{URL}/{topic}-2", json=body, headers={"if-match": "*"})
    problem(missing, 412, "precondition-failed")
    assert (await http.put(f"{URL}/{topic}-2", json=body, headers={"if-none-match": "*"})).status_code == 201


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/topics"),
        ({"topics": ["a"], "pattern": "b"}, "#/topics"),
        ({"topics": []}, "#/topics"),
        ({"topics": ["a"], "lock_ms": 999}, "#/lock_ms"),
        ({"topics": ["a"], "delivery_limit": 0}, "#/delivery_limit"),
        ({"topics": ["a"], "backoff": {"factor": 0.5}}, "#/backoff/factor"),
        ({"topics": ["a"], "order": "size"}, "#/order"),
        ({"topics": ["a"], "drop": True, "dead_letter": {"topic": "b"}}, "#/drop"),
        ({"topics": ["a"], "lock": 1}, "#/lock"),
    ],
)
async def test_a_bad_setting_is_named(
    http: httpx.AsyncClient, topic: str, problem: Problem, body: dict[str, Any], pointer: str
) -> None:
    document = problem(await http.put(f"{URL}/{topic}", json=body), 422, "invalid-request")
    assert document["errors"][0]["pointer"].startswith(pointer), document


async def test_queues_are_listed_with_their_counts(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b", "c")
    await queue(http, f"{topic}-2")
    await received(http, path)
    page = (await http.get(URL, params={"prefix": topic, "page_size": 1})).json()
    assert page["items"] == [
        {
            "queue": topic, "topics": [topic], "pattern": None, "paused": False,
            "available": 2, "in_flight": 1, "delayed": 0, "archiving": 0,
        }
    ]  # fmt: skip
    more = {"prefix": topic, "page_token": page["next_page_token"]}
    rest = (await http.get(URL, params=more)).json()
    assert [one["queue"] for one in rest["items"]] == [f"{topic}-2"] and rest["next_page_token"] is None


async def test_a_missing_queue_and_a_group_of_another_type(
    http: httpx.AsyncClient, app: Application, topic: str, problem: Problem
) -> None:
    problem(await http.get(f"{URL}/{topic}"), 404, "group-id-not-found")
    problem(await http.get(f"{URL}/{topic}/stats"), 404, "group-id-not-found")
    problem(await http.post(f"{URL}/{topic}:receive", json={}), 404, "group-id-not-found")
    problem(await http.post(f"{URL}/{topic}:settle", json={"accept": ["1"]}), 404, "group-id-not-found")
    await make(http, topic)
    group = f"classic-{topic}"
    await app.server.broker.groups.positions.set(group, CommitRequest([Commit(topic, 0, 0, -1, "")], "", -1))
    assert problem(await http.get(f"{URL}/{group}"), 409, "group-type")["detail"]


async def test_a_name_is_escaped(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic)
    name = quote(f"{topic} ä", safe="")
    made = await http.put(f"{URL}/{name}", json={"topics": [topic]})
    assert made.status_code == 201 and made.headers["location"] == f"{URL}/{name}"
    assert (await http.get(made.headers["location"])).json()["queue"] == f"{topic} ä"


async def test_share_groups_are_another_name_of_queues(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b")
    alias = f"/api/v1/share-groups/{topic}"
    assert (await http.get(alias)).json() == (await http.get(path)).json()
    got = await received(http, alias)
    assert (await http.post(f"{alias}:settle", json={"accept": [got["lease"]]})).json()["counts"] == {
        "settled": 1
    }
    assert (await stats(http, alias))["available"] == 1
    assert any(one["queue"] == topic for one in (await http.get("/api/v1/share-groups")).json()["items"])
    assert (await http.get("/api/v1/share-groupsx")).status_code == 404


async def test_a_pause_ends_deliveries_and_keeps_leases(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b")
    got = await received(http, path)
    assert (await http.post(f"{path}:pause")).json()["paused"] is True
    empty = await received(http, path)
    assert empty["records"] == [] and empty["blocked"] == "paused" and empty["lease"] is None
    done = await http.post(f"{path}:settle", json={"accept": [got["lease"]]})
    assert done.json()["counts"] == {"settled": 1}
    assert (await http.post(f"{path}:resume")).json()["paused"] is False
    assert len((await received(http, path))["records"]) == 1


async def test_a_seek_replays_and_needs_force_while_leases_live(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    path = await queue(http, topic, "a", "b")
    got = await received(http, path, max=10)
    problem(await http.post(f"{path}:seek", json={"start": "earliest"}), 409, "non-empty-group")
    assert (await http.post(f"{path}:seek", json={"start": "earliest", "force": True})).json()[
        "available"
    ] == 2
    again = await received(http, path, max=10)
    assert [one["value"] for one in again["records"]] == ["a", "b"]
    assert again["lease"] != got["lease"]


async def test_a_queue_is_deleted_once_its_leases_are_settled(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    path = await queue(http, topic, "a")
    await received(http, path)
    problem(await http.delete(path), 409, "non-empty-group")
    assert (await http.delete(path, params={"force": "true"})).status_code == 204
    problem(await http.get(path), 404, "group-id-not-found")


# --- what it holds ------------------------------------------------------------------------------------------


async def test_a_peek_shows_records_and_takes_none(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b", "c")
    shown = (await http.post(f"{path}:peek", json={"max": 2})).json()["records"]
    assert [(one["topic"], one["offset"], one["value"]) for one in shown] == [
        (topic, 0, "a"),
        (topic, 1, "b"),
    ]
    assert len((await http.post(f"{path}:peek")).json()["records"]) == 3
    assert (await stats(http, path))["available"] == 3
    assert [one["delivery_count"] for one in (await received(http, path))["records"]] == [1]


async def test_counts_are_of_the_queue_and_of_each_partition(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b", "c", "d")
    got = await received(http, path, max=3)
    await http.post(
        f"{path}:settle",
        json={
            "accept": [got["records"][0]["receipt"]],
            "release": [{"receipt": got["records"][1]["receipt"], "delay_ms": 60_000}],
        },
    )
    counts = await stats(http, path)
    assert [counts[name] for name in ("available", "in_flight", "delayed", "archiving")] == [1, 1, 1, 0]
    (part,) = counts["partitions"]
    assert (part["topic"], part["partition"], part["served"]) == (topic, 0, True)
    assert [part[name] for name in ("available", "in_flight", "delayed", "archiving")] == [1, 1, 1, 0]


async def test_records_in_flight_are_listed_page_by_page(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    path = await queue(http, topic, "a", "b", "c")
    got = await received(http, path, max=3)
    page = (await http.get(f"{path}/in-flight", params={"page_size": 2})).json()
    assert [(one["offset"], one["state"], one["lease"]) for one in page["items"]] == [
        (0, "leased", got["lease"]),
        (1, "leased", got["lease"]),
    ]
    # The wall clock and the clock of leases are read one after the other.
    assert abs(page["items"][0]["until_ms"] - got["lock_until_ms"]) <= 5
    token = {"page_token": page["next_page_token"]}
    rest = (await http.get(f"{path}/in-flight", params=token)).json()
    assert [one["offset"] for one in rest["items"]] == [2] and rest["next_page_token"] is None
    for bad in ("x", "b3JkZXJz", "b3JkZXJzLzAvLTE"):
        problem(await http.get(f"{path}/in-flight", params={"page_token": bad}), 422, "invalid-request")


async def test_one_record_has_a_state_and_a_count(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    path = await queue(http, topic, "a", "b", "c")
    first, second = (await received(http, path, max=2))["records"]
    await http.post(f"{path}:settle", json={"accept": [first["receipt"]]})

    async def record(offset: int, name: str = topic) -> httpx.Response:
        return await http.get(f"{path}/records/{name}/0/{offset}")

    assert (await record(0)).json()["state"] == "settled"
    one = (await record(1)).json()
    assert (one["state"], one["delivery_count"]) == ("leased", second["delivery_count"])
    assert (await record(2)).json()["state"] == "available"
    problem(await record(0, "another"), 404, "unknown-topic-or-partition")
