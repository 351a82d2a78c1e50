"""Managed consumers over HTTP: every route, every error, and clients that disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.main import Application
from tests.app.native.streams.asgi_stream import streaming

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {"group_initial_rebalance_delay_ms": 50}
Check = Callable[[httpx.Response, int, str], dict[str, Any]]


@pytest.fixture
def url(topic: str) -> str:
    """The consumers of a group of this test alone."""
    return f"/api/v1/groups/{topic}/consumers"


async def fill(http: httpx.AsyncClient, topic: str, count: int = 3, partitions: int = 1) -> None:
    await http.put(f"/api/v1/topics/{topic}", json={"partitions": partitions})
    records = [{"value": {"n": n}, "partition": n % partitions} for n in range(count)]
    if records:
        written = await http.post(f"/api/v1/topics/{topic}/records?acks=1", json={"records": records})
        assert written.status_code == 200


async def create(
    http: httpx.AsyncClient, url: str, topic: str, name: str = "c", **body: Any
) -> dict[str, Any]:
    wanted = {"name": name} | ({} if body.keys() & {"pattern", "assignments"} else {"topics": [topic]}) | body
    made = await http.post(url, json=wanted)
    assert made.status_code == 201, made.text
    assert made.headers["location"] == f"{url}/{name}"
    document: dict[str, Any] = made.json()
    return document


def numbers(batch: dict[str, Any]) -> list[int]:
    return [record["value"]["n"] for record in batch["records"]]


# --- the usual life -------------------------------------------------------------------------------------------


async def test_create_poll_ack_and_delete(
    http: httpx.AsyncClient, url: str, topic: str, problem: Check
) -> None:
    await fill(http, topic)
    made = await create(http, url, topic)
    assert (made["state"], made["topics"], made["start"], made["encoding"]) == (
        "joining",
        [topic],
        "earliest",
        "auto",
    )
    first = (await http.post(f"{url}/c:poll", json={"limit": 2})).json()
    assert numbers(first) == [0, 1] and not first["redelivered"] and first["state"] == "stable"
    assert first["records"][0]["topic"] == topic and first["records"][0]["value_encoding"] == "json"
    assert first["partitions"] == [{"topic": topic, "partition": 0, "first_offset": 0, "next_offset": 2}]
    # Without a body: the same batch again.
    again = (await http.post(f"{url}/c:poll")).json()
    assert (again["ack"], again["records"], again["redelivered"]) == (first["ack"], first["records"], True)
    shown = (await http.get(f"{url}/c")).json()
    assert shown["outstanding"] == {"ack": first["ack"], "partitions": first["partitions"]}
    assert shown["partitions"] == [{"topic": topic, "partition": 0, "next_offset": 0, "paused": False}]

    second = (await http.post(f"{url}/c:poll", json={"ack": first["ack"]})).json()
    assert numbers(second) == [2]
    acked = await http.post(f"{url}/c:ack", json={"ack": second["ack"]})
    assert acked.json() == {
        "acknowledged": [{"topic": topic, "partition": 0, "first_offset": 2, "next_offset": 3}],
        "revoked": [],
    }
    group = url.removesuffix("/consumers")
    lag = (await http.get(f"{group}/lag")).json()
    assert lag["total_lag"] == 0
    empty = (await http.post(f"{url}/c:poll", json={"wait_ms": 0})).json()
    assert empty == {"ack": None, "records": [], "redelivered": False, "state": "stable", "partitions": []}

    listed = (await http.get(url)).json()["items"]
    assert [one["name"] for one in listed] == ["c"]
    assert (await http.delete(f"{url}/c")).status_code == 204
    problem(await http.get(f"{url}/c"), 404, "resource-not-found")
    problem(await http.post(f"{url}/c:poll"), 404, "resource-not-found")
    problem(await http.delete(f"{url}/c"), 404, "resource-not-found")
    assert (await http.get(url)).json() == {"items": []}


async def test_a_name_is_made_up_and_stands_in_the_location(
    http: httpx.AsyncClient, url: str, topic: str
) -> None:
    await fill(http, topic)
    made = await http.post(url, json={"topics": [topic]})
    name = made.json()["name"]
    assert made.headers["location"] == f"{url}/{name}"
    polled = await http.post(f"{made.headers['location']}:poll", json={})
    assert numbers(polled.json()) == [0, 1, 2]


async def test_a_name_with_odd_characters_can_be_addressed(
    http: httpx.AsyncClient, url: str, topic: str
) -> None:
    await fill(http, topic)
    name = "häuser 100% & more?"
    made = await http.post(url, json={"name": name, "topics": [topic]})
    assert made.status_code == 201
    polled = await http.post(f"{made.headers['location']}:poll", json={})
    assert numbers(polled.json()) == [0, 1, 2]


async def test_a_poll_is_answered_by_the_first_record(http: httpx.AsyncClient, url: str, topic: str) -> None:
    await fill(http, topic, 0)
    await create(http, url, topic)
    assert (await http.post(f"{url}/c:poll", json={"wait_ms": 500})).json()["records"] == []
    polling = asyncio.create_task(http.post(f"{url}/c:poll", json={"wait_ms": 20_000}))
    await asyncio.sleep(0.1)
    await fill(http, topic, 1)
    answered = await asyncio.wait_for(polling, 2)
    assert numbers(answered.json()) == [0]


async def test_two_consumers_share_the_partitions(http: httpx.AsyncClient, url: str, topic: str) -> None:
    await fill(http, topic, 8, partitions=4)
    await create(http, url, topic, "a")
    await create(http, url, topic, "b")
    batches = [(await http.post(f"{url}/{name}:poll", json={})).json() for name in ("a", "b")]
    assert sorted(numbers(batches[0]) + numbers(batches[1])) == list(range(8))
    assert [len(batch["partitions"]) for batch in batches] == [2, 2]
    members = (await http.get(url.removesuffix("/consumers"))).json()["members"]
    assert sorted(one["client_id"] for one in members) == ["a", "b"]


async def test_the_encoding_is_the_consumer_s(http: httpx.AsyncClient, url: str, topic: str) -> None:
    await fill(http, topic, 1)
    await create(http, url, topic, encoding="base64")
    (record,) = (await http.post(f"{url}/c:poll", json={})).json()["records"]
    assert (record["value"], record["value_encoding"]) == ("eyJuIjowfQ==", "base64")


@pytest.mark.parametrize(
    ("start", "shown", "found"),
    [
        ("earliest", "earliest", [0, 1, 2]),
        ("latest", "latest", []),
        (1000, "1970-01-01T00:00:01.000Z", [0, 1, 2]),
        ("2001-01-01T00:00:00Z", "2001-01-01T00:00:00.000Z", [0, 1, 2]),
        ("2101-01-01T00:00:00Z", "2101-01-01T00:00:00.000Z", []),
    ],
)
async def test_where_a_consumer_starts(
    http: httpx.AsyncClient, url: str, topic: str, start: Any, shown: str, found: list[int]
) -> None:
    await fill(http, topic)
    made = await create(http, url, topic, start=start)
    assert made["start"] == shown
    assert numbers((await http.post(f"{url}/c:poll", json={"wait_ms": 300})).json()) == found


async def test_a_consumer_of_a_pattern_and_one_of_chosen_partitions(
    http: httpx.AsyncClient, url: str, topic: str, problem: Check
) -> None:
    await fill(http, topic, 4, partitions=2)
    chosen = [{"topic": topic, "partition": 1}]
    made = await create(http, url, topic, "alone", assignments=chosen)
    assert (made["state"], made["assignments"], made["member_id"]) == ("assigned", chosen, None)
    polled = (await http.post(f"{url}/alone:poll", json={"wait_ms": 0})).json()
    assert numbers(polled) == [1, 3]
    made = await create(http, url, topic, "pattern", pattern=f"{topic[:-1]}.")
    assert made["pattern"] == f"{topic[:-1]}."
    assert len((await http.post(f"{url}/pattern:poll", json={})).json()["partitions"]) == 2
    problem(await http.post(f"{url}/alone:ack", json={"ack": polled["ack"]}), 409, "non-empty-group")


# --- seek, pause, resume -------------------------------------------------------------------------------------


async def test_seek_to_offsets_times_and_ends(
    http: httpx.AsyncClient, url: str, topic: str, problem: Check
) -> None:
    await fill(http, topic)
    await create(http, url, topic)
    moved = await http.post(
        f"{url}/c:seek", json={"partitions": [{"topic": topic, "partition": 0, "offset": 2}]}
    )
    assert moved.json()["partitions"][0]["next_offset"] == 2
    assert numbers((await http.post(f"{url}/c:poll", json={})).json()) == [2]
    assert (await http.post(f"{url}/c:seek", json={"at": "earliest"})).json()["outstanding"] is None
    assert numbers((await http.post(f"{url}/c:poll", json={})).json()) == [0, 1, 2]
    for at in ("latest", "2101-01-01T00:00:00Z"):
        moved = await http.post(f"{url}/c:seek", json={"at": at})
        assert moved.json()["partitions"][0]["next_offset"] == 3
    back = {"partitions": [{"topic": topic, "partition": 0, "at": "2001-01-01T00:00:00Z"}]}
    assert (await http.post(f"{url}/c:seek", json=back)).json()["partitions"][0]["next_offset"] == 0

    beyond = {"partitions": [{"topic": topic, "partition": 0, "offset": 4}]}
    document = problem(await http.post(f"{url}/c:seek", json=beyond), 416, "offset-out-of-range")
    assert document["high_watermark"] == 3
    await http.post(
        f"/api/v1/topics/{topic}:truncate", json={"partitions": [{"partition": 0, "before_offset": 2}]}
    )
    below = {"partitions": [{"topic": topic, "partition": 0, "offset": 1}]}
    problem(await http.post(f"{url}/c:seek", json=below), 410, "offset-out-of-range")
    elsewhere = {"partitions": [{"topic": topic, "partition": 5, "offset": 0}]}
    document = problem(await http.post(f"{url}/c:seek", json=elsewhere), 409, "invalid-record-state")
    assert document["reason"] == "not-assigned"
    # What retention took is passed over.
    assert numbers((await http.post(f"{url}/c:poll", json={})).json()) == [2]


async def test_pause_and_resume(http: httpx.AsyncClient, url: str, topic: str, problem: Check) -> None:
    await fill(http, topic, 4, partitions=2)
    await create(http, url, topic)
    paused = await http.post(f"{url}/c:pause")
    assert paused.status_code == 200
    assert (await http.post(f"{url}/c:poll", json={"wait_ms": 300})).json()["records"] == []
    some = {"partitions": [{"topic": topic, "partition": 1}]}
    resumed = (await http.post(f"{url}/c:resume", json=some)).json()
    assert [one["paused"] for one in resumed["partitions"]] == [True, False]
    assert numbers((await http.post(f"{url}/c:poll", json={})).json()) == [1, 3]
    assert not any(o["paused"] for o in (await http.post(f"{url}/c:resume", json={})).json()["partitions"])
    unknown = {"partitions": [{"topic": topic, "partition": 9}]}
    problem(await http.post(f"{url}/c:pause", json=unknown), 409, "invalid-record-state")


# --- refusals -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({}, 422, "invalid-request"),
        ({"topics": []}, 422, "invalid-request"),
        ({"topics": ["t"], "pattern": "t"}, 422, "invalid-request"),
        ({"topics": "t"}, 422, "invalid-request"),
        ({"topics": [1]}, 422, "invalid-request"),
        ({"topics": ["a b"]}, 422, "invalid-topic"),
        ({"topics": ["t"], "name": ""}, 422, "invalid-request"),
        ({"topics": ["t"], "name": "a/b"}, 422, "invalid-request"),
        ({"topics": ["t"], "name": "a:b"}, 422, "invalid-request"),
        ({"topics": ["t"], "name": ".."}, 400, "kafka-invalid-request"),
        ({"topics": ["t"], "ttl_ms": 0}, 422, "invalid-request"),
        ({"topics": ["t"], "ttl_ms": 10**9}, 422, "invalid-request"),
        ({"topics": ["t"], "session_timeout_ms": 10}, 422, "invalid-session-timeout"),
        ({"topics": ["t"], "rebalance_timeout_ms": 0}, 422, "invalid-request"),
        ({"topics": ["t"], "assignor": "fair"}, 422, "unsupported-assignor"),
        ({"topics": ["t"], "encoding": "xml"}, 422, "invalid-request"),
        ({"topics": ["t"], "start": "soon"}, 422, "invalid-request"),
        ({"topics": ["t"], "start": -1}, 422, "invalid-request"),
        ({"topics": ["t"], "start": True}, 422, "invalid-request"),
        ({"topics": ["t"], "colour": "red"}, 422, "invalid-request"),
        ({"pattern": "("}, 422, "invalid-regular-expression"),
        ({"pattern": "(?=look)ahead"}, 422, "invalid-regular-expression"),
        ({"assignments": [{"topic": "t"}]}, 422, "invalid-request"),
        ({"assignments": [{"topic": "missing-here", "partition": 0}]}, 404, "unknown-topic-or-partition"),
        ([], 422, "invalid-request"),
    ],
    ids=str,
)
async def test_a_consumer_that_makes_no_sense_is_refused(
    http: httpx.AsyncClient, url: str, problem: Check, body: Any, status: int, kind: str
) -> None:
    problem(await http.post(url, json=body), status, kind)
    assert (await http.get(url)).json() == {"items": []}


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [
        ("poll", {"limit": 0}, 422),
        ("poll", {"limit": 10_001}, 422),
        ("poll", {"max_bytes": 0}, 422),
        ("poll", {"wait_ms": -1}, 422),
        ("poll", {"wait_ms": 300_001}, 422),
        ("poll", {"ack": 1}, 422),
        ("poll", {"ack": "0.1"}, 409),
        ("poll", {"acknowledge": "x"}, 422),
        ("ack", {}, 422),
        ("ack", {"ack": None}, 422),
        ("ack", {"ack": "…"}, 409),
        ("seek", {}, 422),
        ("seek", {"at": "soon"}, 422),
        ("seek", {"at": "latest", "partitions": [{"topic": "t", "partition": 0, "offset": 1}]}, 422),
        ("seek", {"partitions": [{"topic": "t", "partition": 0}]}, 422),
        ("seek", {"partitions": [{"topic": "t", "partition": 0, "offset": 1, "at": "latest"}]}, 422),
        ("seek", {"partitions": [{"topic": "t", "partition": 0, "offset": -1}]}, 422),
        ("seek", {"partitions": []}, 422),
        ("pause", {"partitions": []}, 422),
        ("pause", {"partitions": [{"topic": "t", "partition": "0"}]}, 422),
        ("resume", {"partitions": [0]}, 422),
    ],
    ids=str,
)
async def test_a_request_that_makes_no_sense_is_refused(
    http: httpx.AsyncClient, url: str, topic: str, problem: Check, verb: str, body: Any, status: int
) -> None:
    await fill(http, topic)
    await create(http, url, topic)
    kind = "invalid-request" if status == 422 else "invalid-record-state"
    problem(await http.post(f"{url}/c:{verb}", json=body), status, kind)
    assert numbers((await http.post(f"{url}/c:poll", json={})).json()) == [0, 1, 2]


async def test_a_name_that_is_taken(http: httpx.AsyncClient, url: str, topic: str, problem: Check) -> None:
    await create(http, url, topic)
    problem(await http.post(url, json={"name": "c", "topics": [topic]}), 409, "duplicate-resource")


async def test_verbs_and_parameters_that_there_are_not(
    http: httpx.AsyncClient, url: str, topic: str, problem: Check
) -> None:
    await create(http, url, topic)
    problem(await http.post(f"{url}/c:commit", json={}), 405, "method-not-allowed")
    problem(await http.get(f"{url}/c:poll"), 404, "resource-not-found")
    problem(await http.post(f"{url}/c:poll?limit=1", json={}), 422, "invalid-request")
    problem(
        await http.post(f"{url}/c:poll", content=b"{", headers={"content-type": "application/json"}),
        400,
        "malformed-request",
    )


async def test_a_fenced_consumer_says_so(
    http: httpx.AsyncClient, url: str, topic: str, problem: Check
) -> None:
    await fill(http, topic)
    await create(http, url, topic, "old", group_instance_id="one")
    batch = (await http.post(f"{url}/old:poll", json={})).json()
    await create(http, url, topic, "new", group_instance_id="one")
    assert numbers((await http.post(f"{url}/new:poll", json={})).json()) == [0, 1, 2]
    problem(await http.post(f"{url}/old:ack", json={"ack": batch["ack"]}), 409, "fenced-instance-id")
    problem(await http.post(f"{url}/old:poll", json={}), 409, "fenced-instance-id")
    assert (await http.get(f"{url}/old")).json()["state"] == "fenced"


# --- clients that disconnect ---------------------------------------------------------------------------------


async def test_a_poll_whose_client_has_disconnected_is_given_up(
    http: httpx.AsyncClient, app: Application, url: str, topic: str
) -> None:
    await fill(http, topic, 0)
    await create(http, url, topic)
    await http.post(f"{url}/c:poll", json={"wait_ms": 300})
    waiting_before = len(app.server.broker.purgatory)
    body = b'{"wait_ms":60000}'
    poll = streaming(
        app, f"{url}/c:poll", method="POST", body=body, wait=False, content_type="application/json"
    )
    async with poll as gone:
        await asyncio.sleep(0.1)
        assert len(app.server.broker.purgatory) == waiting_before + 1
    assert gone.status == 499
    assert len(app.server.broker.purgatory) == waiting_before
    await fill(http, topic, 1)
    assert (await http.get(f"{url}/c")).json()["outstanding"] is None
    assert numbers((await http.post(f"{url}/c:poll", json={})).json()) == [0]
