"""POST …/queues/{queue}:receive and :settle."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from app.main import Application
from app.native.receipts import receipt_of
from core.records.record import NewRecord
from tests.app.conftest import Problem
from tests.app.native.test_queues import URL, queue, received, stats
from tests.app.native.test_records import make

pytestmark = pytest.mark.asyncio(loop_scope="module")
LINES = {"accept": "application/x-ndjson"}


async def settled(http: httpx.AsyncClient, path: str, **body: Any) -> dict[str, Any]:
    answer = await http.post(f"{path}:settle", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def outcomes(items: list[dict[str, Any]]) -> list[str]:
    return [one["outcome"] for one in items]


# --- receive ------------------------------------------------------------------------------------------------


async def test_a_record_comes_with_its_lease_its_receipt_and_its_count(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    path = await queue(http, topic)
    record = {
        "key": "k",
        "value": {"n": 1},
        "headers": [{"name": "h", "value": "x"}],
        "timestamp": 1738324800000,
    }
    await http.post(f"/api/v1/topics/{topic}/records", json={"records": [record]})
    before = app.server.broker.clock.wall_ms()
    got = await received(http, path, lock_ms=60_000)
    (one,) = got["records"]
    plain = (await http.get(f"/api/v1/topics/{topic}/partitions/0/records")).json()["records"][0]
    assert {**plain, "delivery_count": 1, "receipt": one["receipt"]} == one
    assert before + 60_000 <= got["lock_until_ms"] <= app.server.broker.clock.wall_ms() + 60_000
    assert got["lock_until"].endswith("Z") and got["blocked"] is None and "settled" not in got
    receipt = receipt_of(one["receipt"])
    assert receipt is not None and f"{receipt.lease:x}" == got["lease"] and receipt.offset == one["offset"]


async def test_without_a_body_one_record_comes(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b")
    answer = await http.post(f"{path}:receive")
    assert answer.status_code == 200 and len(answer.json()["records"]) == 1


@pytest.mark.parametrize(
    ("encoding", "shown"), [("auto", {"n": 1}), ("text", '{"n":1}'), ("base64", "eyJuIjoxfQ==")]
)
async def test_values_have_the_encoding_that_was_asked_for(
    http: httpx.AsyncClient, topic: str, encoding: str, shown: Any
) -> None:
    path = await queue(http, topic)
    await http.post(f"/api/v1/topics/{topic}/records", json={"records": [{"value": {"n": 1}}]})
    (one,) = (await received(http, path, encoding=encoding))["records"]
    assert one["value"] == shown


async def test_the_first_receive_creates_the_queue(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    await make(http, topic)
    await http.post(f"/api/v1/topics/{topic}/records", json={"records": [{"value": "a"}]})
    got = await received(http, f"{URL}/{topic}", topics=[topic], start="earliest")
    assert [one["value"] for one in got["records"]] == ["a"]
    view = (await http.get(f"{URL}/{topic}")).json()
    assert (view["topics"], view["start"]) == ([topic], "earliest")
    # An existing queue stays as it is.
    await received(http, f"{URL}/{topic}", topics=[topic], start="latest")
    assert (await http.get(f"{URL}/{topic}")).json() == view


async def test_an_empty_queue_answers_no_records(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic)
    assert await received(http, path) == {
        "lease": None, "lock_until": None, "lock_until_ms": None, "records": [], "blocked": None,
    }  # fmt: skip


async def test_a_wait_ends_with_the_first_record(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic)
    waiting = asyncio.ensure_future(received(http, path, wait_ms=60_000, max=10))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await http.post(f"/api/v1/topics/{topic}/records", json={"records": [{"value": "a"}]})
    assert [one["value"] for one in (await waiting)["records"]] == ["a"]


async def test_an_attempt_gets_the_same_lease_again(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b")
    first = await received(http, path, attempt="one")
    again = await received(http, path, attempt="one")
    assert (again["lease"], again["records"]) == (first["lease"], first["records"])
    assert (await received(http, path, attempt="two"))["lease"] != first["lease"]


async def test_a_receive_may_settle_what_came_before(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b")
    first = await received(http, path)
    second = await received(http, path, settle={"accept": [first["lease"]]})
    assert second["settled"]["counts"] == {"settled": 1} and second["records"][0]["value"] == "b"
    assert outcomes(second["settled"]["accept"]) == ["settled"]


async def test_lines_have_a_record_each_and_the_lease_in_a_header(
    http: httpx.AsyncClient, topic: str
) -> None:
    path = await queue(http, topic, "a", "b")
    body = {"max": 10, "wait_ms": 0}
    answer = await http.post(f"{path}:receive", json=body, headers=LINES)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/x-ndjson"
    records = [json.loads(line) for line in answer.text.splitlines()]
    assert [one["value"] for one in records] == ["a", "b"]
    assert answer.headers["sluice-lease"] == records[0]["receipt"].split(".")[1]
    assert answer.headers["sluice-lock-until"].endswith("Z")
    await http.post(f"{path}:pause")
    body["settle"] = {"accept": [answer.headers["sluice-lease"]]}  # type: ignore[assignment]
    empty = await http.post(f"{path}:receive", json=body, headers=LINES)
    assert empty.text == "" and "sluice-lease" not in empty.headers
    assert empty.headers["sluice-blocked"] == "paused" and empty.headers["sluice-settled"] == "settled=2"


@pytest.mark.parametrize(
    ("body", "kind", "pointer"),
    [
        ({"max": 0}, "invalid-request", "#/max"),
        ({"max": 1001}, "invalid-request", "#/max"),
        ({"wait_ms": 60_001}, "invalid-request", "#/wait_ms"),
        ({"lock_ms": 999}, "invalid-request", "#/lock_ms"),
        ({"encoding": "hex"}, "invalid-request", "#/encoding"),
        ({"limit": 1}, "invalid-request", "#/limit"),
        ({"topics": ["a"], "pattern": "b"}, "invalid-request", "#/pattern"),
        ({"start": "earliest"}, "invalid-request", "#/start"),
        ({"topics": ["a"], "start": "yesterday"}, "invalid-request", ""),
        ({"settle": {}}, "invalid-request", "#/settle"),
        ({"settle": {"release": [{"delay_ms": 1}]}}, "invalid-request", "#/settle/release/0"),
        ({"settle": {"extend": [{"lease": "1", "receipt": "2"}]}}, "invalid-request", "#/settle/extend/0"),
    ],
)
async def test_a_bad_receive_is_refused_with_the_place(
    http: httpx.AsyncClient, topic: str, problem: Problem, body: dict[str, Any], kind: str, pointer: str
) -> None:
    document = problem(await http.post(f"{URL}/{topic}:receive", json=body), 422, kind)
    assert document["errors"][0].get("pointer", "") == pointer, document


async def test_a_body_that_is_no_json_is_refused(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    for verb in ("receive", "settle"):
        path = f"{URL}/{topic}:{verb}"
        json_type = {"content-type": "application/json"}
        problem(await http.post(path, content=b"{", headers=json_type), 400, "malformed-request")
        problem(await http.post(path, content=b'{"a":"\xff"}', headers=json_type), 400, "malformed-request")
        problem(await http.post(path, content=b"[" * 100_000, headers=json_type), 422, "invalid-request")
        plain = await http.post(path, content=b"{}", headers={"content-type": "text/plain"})
        problem(plain, 415, "unsupported-media-type")
        problem(await http.post(f"{path}?max=1", json={}), 422, "invalid-request")
        problem(await http.get(path), 405, "method-not-allowed")
    problem(await http.post(f"{URL}/{topic}:settle"), 400, "malformed-request")
    answer = await http.post(f"{URL}/{topic}:receive", headers={"accept": "text/csv"})
    problem(answer, 406, "not-acceptable")


async def test_too_many_waiting_receivers_of_a_client_are_refused(
    http: httpx.AsyncClient, app: Application, topic: str, problem: Problem
) -> None:
    path = await queue(http, topic)
    limit = app.server.broker.config.http_max_waiting_per_client
    waiting = app.traffic.waiting
    for _ in range(limit):
        waiting.enter("@127.0.0.1")
    try:
        refused = await http.post(f"{path}:receive", json={"wait_ms": 1000})
        problem(refused, 429, "throttling-quota-exceeded")
        assert refused.headers["retry-after"]
        assert (await received(http, path))["records"] == []
    finally:
        for _ in range(limit):
            waiting.leave("@127.0.0.1")


async def called(app: Application, path: str, body: dict[str, Any], leaves: asyncio.Event) -> list[Any]:
    """Send a POST whose client disconnects when `leaves` is set; return what was sent to it."""
    sent: list[Any] = []
    parts = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        if parts:
            return parts.pop()
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:8082"), (b"content-type", b"application/json")]
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8082),
    }  # fmt: skip
    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize("turns", range(8))
async def test_a_client_that_hangs_up_costs_no_delivery(
    http: httpx.AsyncClient, app: Application, topic: str, turns: int
) -> None:
    """It hangs up some turns of the event loop after the record was written: while it waits, or is served."""
    path = await queue(http, topic)
    leaves = asyncio.Event()
    waiting = asyncio.create_task(called(app, f"{path}:receive", {"wait_ms": 60_000}, leaves))
    async with asyncio.timeout(60):
        while not (await stats(http, path))["waiting_receivers"]:
            await asyncio.sleep(0.01)
    writing = asyncio.create_task(app.server.broker.records.produce(topic, [NewRecord(None, b"a")], acks=1))
    for _ in range(turns):
        await asyncio.sleep(0)
    leaves.set()
    sent = await waiting
    await writing
    if not sent:
        # Its records are available again in a moment, not when the lock runs out.
        again = await received(http, path, wait_ms=20_000)
        assert [(one["value"], one["delivery_count"]) for one in again["records"]] == [("a", 1)]


# --- settle -------------------------------------------------------------------------------------------------


async def test_every_verb_and_every_item_has_an_outcome(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b", "c", "d", "e")
    got = await received(http, path, max=5)
    receipts = [one["receipt"] for one in got["records"]]
    done = await settled(
        http, path,
        accept=[receipts[0]], release=[{"receipt": receipts[1], "delay_ms": 60_000}],
        reject=[{"receipt": receipts[2], "reason": "no such customer"}],
        extend=[{"receipt": receipts[3], "lock_ms": 120_000}],
    )  # fmt: skip
    assert done == {
        "counts": {"settled": 4},
        **{
            verb: [{"outcome": "settled", "records": 1}] for verb in ("accept", "release", "reject", "extend")
        },
    }
    again = await settled(http, path, accept=[receipts[0], receipts[3], receipts[4]])
    assert outcomes(again["accept"]) == ["already-settled", "settled", "settled"]
    assert again["counts"] == {"already-settled": 1, "settled": 2}


async def test_a_lease_is_what_is_left_after_the_receipts(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a", "b", "c")
    got = await received(http, path, max=3)
    done = await settled(
        http,
        path,
        accept=[got["lease"]],
        release=[{"receipt": got["records"][1]["receipt"], "delay_ms": 60_000}],
    )
    assert done["accept"] == [{"outcome": "settled", "records": 2}]
    assert done["counts"] == {"settled": 3}
    assert (await stats(http, path))["delayed"] == 1


async def test_a_release_may_give_the_delivery_back(http: httpx.AsyncClient, topic: str) -> None:
    path = await queue(http, topic, "a")
    for count, shown in ((True, 2), (False, 2), (True, 3)):
        got = await received(http, path)
        await settled(http, path, release=[{"lease": got["lease"], "count": count, "delay_ms": 0}])
        (one,) = (await received(http, path))["records"]
        assert one["delivery_count"] == shown
        await settled(http, path, release=[{"receipt": one["receipt"], "count": False, "delay_ms": 0}])


@pytest.mark.parametrize(
    "text", ["", "x", "nothing", "7f.3", "1.1.AAAAAAAAAAAAAAAAAAAAAA.0.-1", "g" * 20, "1.1.ä.0.1"]
)
async def test_what_is_no_receipt_is_invalid_and_harms_no_other(
    http: httpx.AsyncClient, topic: str, text: str
) -> None:
    path = await queue(http, topic, "a")
    got = await received(http, path)
    done = await settled(http, path, accept=[text, got["records"][0]["receipt"]])
    assert outcomes(done["accept"]) == ["invalid", "settled"]
    assert done["counts"] == {"invalid": 1, "settled": 1}


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({}, 422, "#"),
        ({"accept": []}, 422, "#"),
        ({"accept": [1]}, 422, "#/accept/0"),
        ({"accept": "7f"}, 422, "#/accept"),
        ({"release": [{"receipt": "a", "delay_ms": -1}]}, 422, "#/release/0/delay_ms"),
        ({"release": [{}]}, 422, "#/release/0"),
        ({"reject": [{"receipt": "a", "reason": "x" * 501}]}, 422, "#/reject/0/reason"),
        ({"extend": [{"receipt": "a", "lock_ms": 43_200_001}]}, 422, "#/extend/0/lock_ms"),
        ({"ack": ["7f"]}, 422, "#/ack"),
    ],
)
async def test_a_bad_settlement_is_refused_with_the_place(
    http: httpx.AsyncClient, topic: str, problem: Problem, body: dict[str, Any], status: int, pointer: str
) -> None:
    document = problem(await http.post(f"{URL}/{topic}:settle", json=body), status, "invalid-request")
    assert document["errors"][0].get("pointer", "#") == pointer, document


async def test_too_many_items_are_refused(http: httpx.AsyncClient, topic: str, problem: Problem) -> None:
    refused = await http.post(f"{URL}/{topic}:settle", json={"accept": ["1"] * 1001})
    assert problem(refused, 413, "payload-too-large")["limit"] == 1000
