"""Transactions of one request over HTTP: what is committed, every refusal, keys, and polls with output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.main import Application
from core.errors import BrokerError, ErrorCode

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {"group_initial_rebalance_delay_ms": 0, "http_max_records": 30}
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
URL = "/api/v1/transactions"


async def make(http: httpx.AsyncClient, name: str, records: int = 0) -> str:
    made = await http.put(f"/api/v1/topics/{name}", json={"partitions": 1})
    assert made.status_code == 201, made.text
    if records:
        body = {"records": [{"value": {"n": n}} for n in range(records)]}
        assert (await http.post(f"/api/v1/topics/{name}/records", json=body)).status_code == 200
    return name


async def values(http: httpx.AsyncClient, name: str) -> list[Any]:
    page = await http.get(f"/api/v1/topics/{name}/partitions/0/records")
    return [record["value"] for record in page.json()["records"]]


async def committed(http: httpx.AsyncClient, group: str) -> list[int]:
    found = await http.get(f"/api/v1/groups/{group}/offsets")
    return [one["next_offset"] for one in found.json()["offsets"]] if found.status_code == 200 else []


def pointers(document: dict[str, Any]) -> list[str]:
    return [one["pointer"] for one in document["errors"]]


async def test_records_of_several_topics_and_offsets_are_one_commit(
    http: httpx.AsyncClient, topic: str
) -> None:
    source, a, b = [await make(http, f"{topic}-{name}", 5) for name in "sab"]
    offset = {"group": topic, "topic": source, "partition": 0, "offset": 3, "expected": None}
    done = await http.post(
        URL,
        json={
            "records": {
                a: [{"key": "k", "value": {"x": 1}}, {"value": "two"}],
                b: [{"value": "AA==", "value_encoding": "base64"}],
            },
            "offsets": [offset | {"metadata": "note"}],
        },
    )  # fmt: skip
    assert done.status_code == 200, done.text
    document = done.json()
    assert [(one["partition"], one["offset"]) for one in document["records"][a]] == [(0, 5), (0, 6)]
    assert [(one["partition"], one["offset"]) for one in document["records"][b]] == [(0, 5)]
    assert document["offsets"] == [{"group": topic, "topic": source, "partition": 0, "offset": 3}]
    assert document["acks"] == []
    assert (await values(http, a))[5:] == [{"x": 1}, "two"] and len(await values(http, b)) == 6
    assert await committed(http, topic) == [3]


async def test_an_unexpected_offset_is_refused_with_the_actual_one(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    source = await make(http, topic, 5)
    offset = {"group": topic, "topic": source, "partition": 0, "offset": 3}
    assert (await http.post(URL, json={"offsets": [offset]})).status_code == 200
    for expected in (None, -1, 2):
        body = {"records": {topic: [{"value": 1}]}, "offsets": [offset | {"expected": expected}]}
        document = problem(await http.post(URL, json=body), 409, "invalid-update-version")
        assert document["errors"][0]["actual"] == 3 and pointers(document) == ["#/offsets/0"]
    assert len(await values(http, source)) == 5
    assert (
        await http.post(URL, json={"offsets": [offset | {"expected": 3, "offset": 4}]})
    ).status_code == 200
    assert await committed(http, topic) == [4]


async def test_a_member_commits_with_its_generation(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic, 5)
    joined = await http.post(f"/api/v1/groups/{topic}/members", json={"topics": [topic]})
    member = joined.json()
    offset = {"group": topic, "topic": topic, "partition": 0, "offset": 3}
    problem(await http.post(URL, json={"offsets": [offset]}), 409, "non-empty-group")
    named = offset | {"member": member["member_id"], "generation": member["generation_id"] + 1}
    problem(await http.post(URL, json={"offsets": [named]}), 409, "illegal-generation")
    named["generation"] -= 1
    done = await http.post(URL, json={"offsets": [named]})
    assert done.status_code == 200, done.text
    problem(await http.post(URL, json={"offsets": [named | {"member": "x"}]}), 404, "unknown-member")


@pytest.mark.parametrize(
    ("body", "status", "kind", "pointer"),
    [
        ("{", 400, "malformed-request", None),
        ("{}", 422, "invalid-request", "#"),
        ('{"records":{}}', 422, "invalid-request", "#"),
        ('{"records":{"t":[]}}', 422, "invalid-request", "#/records/t"),
        ('{"records":{"t":[{"value":1},{"valeu":1}]}}', 422, "invalid-request", "#/records/t/1/valeu"),
        ('{"records":[{"value":1}]}', 422, "invalid-request", "#/records"),
        ('{"recrods":{}}', 422, "invalid-request", "#/recrods"),
        ('{"offsets":[{"group":"g","topic":"t","partition":0}]}', 422, "invalid-request", "#/offsets/0/offset"),
        (
            '{"offsets":[{"group":"g","topic":"t","partition":0,"offset":-2}]}',
            422, "invalid-request", "#/offsets/0/offset",
        ),
        (
            '{"offsets":[{"group":"g","topic":"t","partition":0,"offset":1,"member":"m"}]}',
            422, "invalid-request", "#/offsets/0/generation",
        ),
        (
            '{"offsets":[{"group":"g","topic":"t","partition":0,"offset":1},'
            '{"group":"g","topic":"t","partition":0,"offset":2}]}',
            422, "invalid-request", "#/offsets/1",
        ),
        (
            '{"acks":[{"group":"g","consumer":"c","ack":"1"},{"group":"g","consumer":"c","ack":"2"}]}',
            422, "invalid-request", "#/acks/1",
        ),
        ('{"acks":[{"group":"g","consumer":"c","ack":"x.1"}]}', 404, "resource-not-found", "#/acks/0"),
        ('{"offsets":[{"group":"g","topic":"no-such","partition":0,"offset":1}]}', 404, "unknown-topic-or-partition",
         "#/offsets/0"),
        ('{"records":{"no/such":[{"value":1}]}}', 422, "invalid-topic", "#/records/no~1such"),
    ],
)  # fmt: skip
async def test_a_body_that_cannot_be_taken_is_refused_and_the_place_named(
    http: httpx.AsyncClient, problem: Check, body: str, status: int, kind: str, pointer: str | None
) -> None:
    refused = await http.post(URL, content=body, headers={"content-type": "application/json"})
    document = problem(refused, status, kind)
    assert pointer is None or pointers(document) == [pointer]


async def test_all_faults_are_named_and_nothing_is_written(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic)
    compacted = f"{topic}-compacted"
    await http.put(f"/api/v1/topics/{compacted}", json={"configs": {"cleanup.policy": "compact"}})
    records: dict[str, Any] = {
        topic: [{"value": 1}, {"value": 1, "partition": 7}],
        compacted: [{"value": 1}, {"key": "k", "value": 1}],
    }
    document = problem(await http.post(URL, json={"records": records}), 404, "unknown-topic-or-partition")
    assert pointers(document) == [f"#/records/{topic}/1", f"#/records/{compacted}/0"]
    records[topic] = [
        {"value": "!", "value_encoding": "base64"},
        {"value": 1},
        {"timestamp": "x", "value": 1},
    ]
    document = problem(await http.post(URL, json={"records": records}), 422, "invalid-request")
    assert pointers(document) == [f"#/records/{topic}/0/value", f"#/records/{topic}/2/timestamp"]
    assert await values(http, topic) == []


async def test_limits_and_media_types(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    await make(http, topic)
    records = {topic: [{"value": n} for n in range(31)]}
    document = problem(await http.post(URL, json={"records": records}), 413, "payload-too-large")
    assert document["limit"] == 30
    problem(
        await http.post(URL, content=b"x", headers={"content-type": "text/plain"}),
        415,
        "unsupported-media-type",
    )
    problem(await http.post(f"{URL}?acks=1", json={"records": records}), 422, "invalid-request")


async def test_a_key_gets_one_answer(
    http: httpx.AsyncClient, app: Application, topic: str, problem: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(http, topic)
    body, key = {"records": {topic: [{"value": 1}]}}, {"idempotency-key": topic}
    first = await http.post(URL, json=body, headers=key)
    again = await http.post(URL, json=body, headers=key)
    assert first.status_code == 200 and "idempotent-replayed" not in first.headers
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    problem(await http.post(URL, json=body | {"acks": []}, headers=key), 422, "idempotency-key-reused")
    problem(await http.post(URL, json=body, headers={"idempotency-key": ""}), 422, "invalid-request")
    assert await values(http, topic) == [1]
    # What was refused does not use its key up.
    other = {"idempotency-key": f"{topic}-2"}
    with monkeypatch.context() as patched:
        full = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")

        def refuse(*arguments: Any, **more: Any) -> Any:
            raise full

        patched.setattr(app.server.broker.partitions, "append", refuse)
        problem(await http.post(URL, json=body, headers=other), 507, "kafka-storage-error")
    racing = [http.post(URL, json=body, headers=other) for _ in range(2)]
    statuses = sorted(one.status_code for one in await asyncio.gather(*racing))
    assert statuses[0] == 200 and statuses[1] in (200, 409)
    assert await values(http, topic) == [1, 1]


# --- polls with output ----------------------------------------------------------------------------------------


async def consumer(http: httpx.AsyncClient, topic: str) -> tuple[str, dict[str, Any]]:
    """A consumer of the topic, and its first batch of two records."""
    url = f"/api/v1/groups/{topic}/consumers"
    assert (await http.post(url, json={"name": "c", "topics": [topic]})).status_code == 201
    batch = (await http.post(f"{url}/c:poll", json={"limit": 2})).json()
    assert [one["value"]["n"] for one in batch["records"]] == [0, 1]
    return f"{url}/c:poll", batch


async def test_a_poll_writes_the_output_of_the_batch_before_once(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    source, out = await make(http, topic, 5), await make(http, f"{topic}-out")
    poll, batch = await consumer(http, source)
    body = {"ack": batch["ack"], "records": {out: [{"value": "done"}]}, "limit": 2}
    following = await http.post(poll, json=body)
    assert following.status_code == 200 and "idempotent-replayed" not in following.headers
    first = following.json()
    assert [one["value"]["n"] for one in first["records"]] == [2, 3]
    assert [one["offset"] for one in first["committed"]["records"][out]] == [0]
    assert first["committed"]["acks"][0]["acknowledged"] == [
        {"topic": source, "partition": 0, "first_offset": 0, "next_offset": 2}
    ]
    assert await committed(http, topic) == [2]
    # The answer was lost.
    replayed = await http.post(poll, json=body | {"limit": 5})
    again = replayed.json()
    assert replayed.headers["idempotent-replayed"] == "true"
    assert (again["ack"], again["committed"], again["redelivered"]) == (
        first["ack"],
        first["committed"],
        True,
    )
    other = body | {"records": {out: [{"value": "other"}]}}
    problem(await http.post(poll, json=other), 422, "idempotency-key-reused")
    assert await values(http, out) == ["done"]


async def test_a_poll_that_is_refused_moves_nothing(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    source, out = await make(http, topic, 5), await make(http, f"{topic}-out")
    poll, batch = await consumer(http, source)
    offset = {"group": "else", "topic": source, "partition": 0, "offset": 1, "expected": 7}
    body = {"ack": batch["ack"], "records": {out: [{"value": 1}]}, "offsets": [offset]}
    document = problem(await http.post(poll, json=body), 409, "invalid-update-version")
    assert pointers(document) == ["#/offsets/0"]
    document = problem(
        await http.post(poll, json=body | {"records": {out: [{"vale": 1}]}}), 422, "invalid-request"
    )
    assert pointers(document) == [f"#/records/{out}/0/vale"]
    problem(await http.post(poll, json=body | {"ack": None}), 422, "invalid-request")
    again = (await http.post(poll, json={})).json()
    assert (again["ack"], again["redelivered"]) == (batch["ack"], True)
    assert await committed(http, topic) == [] and await values(http, out) == []


async def test_a_batch_that_was_acknowledged_without_its_output_is_refused(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    source, out = await make(http, topic, 5), await make(http, f"{topic}-out")
    poll, batch = await consumer(http, source)
    await http.post(poll, json={"ack": batch["ack"], "limit": 1})
    body = {"ack": batch["ack"], "records": {out: [{"value": 1}]}}
    document = problem(await http.post(poll, json=body), 409, "invalid-record-state")
    assert document["reason"] == "already-acknowledged" and await values(http, out) == []


async def test_batches_of_consumers_are_acknowledged_beside_other_things(
    http: httpx.AsyncClient, topic: str
) -> None:
    source = await make(http, topic, 5)
    _, batch = await consumer(http, source)
    body = {
        "acks": [{"group": topic, "consumer": "c", "ack": batch["ack"]}],
        "offsets": [{"group": "other", "topic": source, "partition": 0, "offset": 1}],
    }
    done = (await http.post(URL, json=body)).json()
    assert done["acks"][0]["consumer"] == "c" and done["acks"][0]["acknowledged"][0]["next_offset"] == 2
    assert await committed(http, topic) == [2]
