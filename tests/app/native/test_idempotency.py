"""Idempotency-Key over HTTP: every status, every kind of body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.main import Application
from core.errors import BrokerError, ErrorCode

pytestmark = pytest.mark.asyncio(loop_scope="module")
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
T = "/api/v1/topics"
BODIES: list[dict[str, Any]] = [
    {"json": {"records": [{"key": "a", "value": 1}, {"key": "b", "value": None}]}},
    {"json": {"value": "bare"}},
    {"content": b'{"value":1}\n{"value":2}\n', "headers": {"content-type": "application/x-ndjson"}},
    {"content": b"raw", "headers": {"content-type": "text/plain", "x-kafka-header-trace": "7f"}},
    {"content": b"", "headers": {"content-type": "application/octet-stream"}},
]


async def make(http: httpx.AsyncClient, topic: str, partitions: int = 2) -> str:
    made = await http.put(f"{T}/{topic}", json={"partitions": partitions})
    assert made.status_code == 201, made.text
    return f"{T}/{topic}/records"


async def post(http: httpx.AsyncClient, url: str, key: str | None = "k", /, **request: Any) -> httpx.Response:
    headers = dict(request.pop("headers", {}))
    if key is not None:
        headers["idempotency-key"] = key
    return await http.post(url, headers=headers, **request)


async def total(http: httpx.AsyncClient, topic: str) -> int:
    bounds = [(await http.get(f"{T}/{topic}/offsets?at={at}")).json() for at in ("earliest", "latest")]
    first, last = (sum(one["offset"] for one in whole["partitions"]) for whole in bounds)
    return int(last - first)


@pytest.mark.parametrize("body", BODIES)
async def test_the_same_request_again_gets_the_same_answer(
    http: httpx.AsyncClient, topic: str, body: dict[str, Any]
) -> None:
    url = await make(http, topic)
    first = await post(http, url, **body)
    assert first.status_code == 200 and "idempotent-replayed" not in first.headers
    written = await total(http, topic)
    for _ in range(2):
        again = await post(http, url, **body)
        assert again.status_code == 200 and again.headers["idempotent-replayed"] == "true"
        assert (again.content, again.headers["content-type"]) == (
            first.content,
            first.headers["content-type"],
        )
    assert await total(http, topic) == written


async def test_without_the_header_everything_is_written_each_time(
    http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    for _ in range(3):
        assert "idempotent-replayed" not in (await post(http, url, None, json={"value": 1})).headers
    assert await total(http, topic) == 3


async def test_the_answer_is_for_one_topic(http: httpx.AsyncClient, topic: str) -> None:
    for name in (f"{topic}-a", f"{topic}-b"):
        got = await post(http, await make(http, name), json={"value": 1})
        assert "idempotent-replayed" not in got.headers and got.json()["topic"] == name


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("", {"content": b"other", "headers": {"content-type": "text/plain"}}),
        ("", {"content": b"raw", "headers": {"content-type": "application/octet-stream"}}),
        ("", {"content": b"raw", "headers": {"content-type": "text/plain", "x-kafka-header-a": "1"}}),
        ("?key=1", {"content": b"raw", "headers": {"content-type": "text/plain"}}),
        ("?partition=1", {"content": b"raw", "headers": {"content-type": "text/plain"}}),
        ("?acks=1", {"content": b"raw", "headers": {"content-type": "text/plain"}}),
        ("", {"json": "raw"}),
    ],
)
async def test_another_request_with_the_key_is_refused(
    http: httpx.AsyncClient, topic: str, problem: Check, path: str, change: dict[str, Any]
) -> None:
    url = await make(http, topic)
    await post(http, url, content=b"raw", headers={"content-type": "text/plain"})
    if "json" in change:
        change = {"json": {"value": "raw"}}
    document = problem(await post(http, url + path, **change), 422, "idempotency-key-reused")
    assert document["retriable"] is False
    assert await total(http, topic) == 1


async def test_what_means_the_same_is_the_same_request(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic)
    plain = {"content": b"raw", "headers": {"content-type": "text/plain"}}
    await post(http, f"{url}?key=1&partition=0", **plain)
    for query in ("?partition=0&key=1", "?acks=all&partition=0&key=1", "?key=%31&acks=-1&partition=0"):
        got = await post(http, url + query, **plain)
        assert got.headers["idempotent-replayed"] == "true", query
    assert await total(http, topic) == 1


async def test_while_the_first_is_under_way_the_second_is_told_to_wait(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    url = await make(http, topic)
    answers = await asyncio.gather(*(post(http, url, json={"value": 1}) for _ in range(5)))
    good = [a for a in answers if a.status_code == 200]
    assert sum("idempotent-replayed" not in a.headers for a in good) == 1
    waiting = [a for a in answers if a.status_code != 200]
    assert waiting
    for one in waiting:
        document = problem(one, 409, "idempotency-key-in-use")
        assert document["retriable"] is True and one.headers["retry-after"] == "1"
    assert await total(http, topic) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "\u00e9", "a\x7f", "\x01"])
async def test_a_key_that_is_none_is_refused(
    http: httpx.AsyncClient, topic: str, problem: Check, key: str
) -> None:
    url = await make(http, topic)
    got = await http.post(
        url,
        json={"value": 1},
        headers=[(b"idempotency-key", key.encode("latin-1"))],
    )
    document = problem(got, 422, "invalid-request")
    assert document["errors"][0]["parameter"] == "Idempotency-Key"
    assert await total(http, topic) == 0


@pytest.mark.parametrize("key", ["x", "x" * 255, '"8e03978e-40d5-43dd-bc93-6894a57f9324"', "a b ~!"])
async def test_every_printable_key_is_taken(http: httpx.AsyncClient, topic: str, key: str) -> None:
    url = await make(http, topic)
    assert (await post(http, url, key, json={"value": 1})).status_code == 200
    assert (await post(http, url, key, json={"value": 1})).headers["idempotent-replayed"] == "true"


async def test_two_keys_are_one_too_many(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    url = await make(http, topic)
    got = await http.post(
        url, json={"value": 1}, headers=[("idempotency-key", "a"), ("idempotency-key", "b")]
    )
    problem(got, 422, "invalid-request")


async def test_a_stream_of_lines_takes_no_key(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    url = await make(http, topic)
    kind = "application/x-ndjson"
    got = await post(http, url, content=b'{"value":1}\n', headers={"content-type": kind, "accept": kind})
    problem(got, 422, "invalid-request")


async def test_a_refusal_leaves_the_key_free_and_a_mixed_answer_does_not(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    url = await make(http, topic)
    problem(await post(http, url, json={"value": 1, "partition": 9}), 404, "unknown-topic-or-partition")
    problem(await post(http, url, json={"vaule": 1}), 422, "invalid-request")
    mixed = {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 9}]}
    first = await post(http, url, json=mixed)
    again = await post(http, url, json=mixed)
    assert (first.status_code, again.status_code, again.content) == (207, 207, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert await total(http, topic) == 1


async def test_a_full_disk_is_507_and_writes_nothing(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await make(http, topic)
    broker = app.shared.current_broker()

    async def full(_: Any) -> None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata store could not write (disk full).")

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "read", full)
        problem(await post(http, url, json={"value": 1}), 507, "kafka-storage-error")
    assert await total(http, topic) == 0
    assert (await post(http, url, json={"value": 1})).status_code == 200
    assert await total(http, topic) == 1
