"""Transactions of several requests over HTTP: begin, the header `Transaction`, commit and abort."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.main import Application
from core.types import TopicPartition

pytestmark = pytest.mark.asyncio(loop_scope="module")
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
CONFIG = {"group_initial_rebalance_delay_ms": 0, "max_long_transactions_per_client": 20}
V1 = "/api/v1"


class Transaction:
    """A client with a transaction of several requests."""

    def __init__(self, http: httpx.AsyncClient, begun: dict[str, Any]) -> None:
        self.http = http
        self.id = begun["id"]
        self.header = {"transaction": self.id}

    @classmethod
    async def begin(cls, http: httpx.AsyncClient, **body: Any) -> Transaction:
        answer = await http.post(f"{V1}/transactions:begin", json=body)
        assert answer.status_code == 201, answer.text
        return cls(http, answer.json())

    async def write(self, topic: str, *values: Any, **query: Any) -> httpx.Response:
        body = {"records": [{"value": value} for value in values]}
        path = f"{V1}/topics/{topic}/records"
        return await self.http.post(path, json=body, headers=self.header, params=query)

    async def commit(self) -> httpx.Response:
        return await self.http.post(f"{V1}/transactions/{self.id}:commit")

    async def abort(self) -> httpx.Response:
        return await self.http.post(f"{V1}/transactions/{self.id}:abort")


async def values(http: httpx.AsyncClient, topic: str) -> list[Any]:
    page = await http.get(f"{V1}/topics/{topic}/partitions/0/records")
    return [record["value"] for record in page.json()["records"]]


def left(app: Application) -> int:
    return len(app.shared.broker.long_transactions)


async def test_what_is_written_in_several_requests_is_seen_with_the_commit(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    one = await Transaction.begin(http)
    first, second = await one.write(topic, 1, 2), await one.write(f"{topic}-2", 3, acks="1")
    assert (first.status_code, second.status_code) == (200, 200)
    assert [record["offset"] for record in (await one.write(topic, 4)).json()["records"]] == [2]
    lines = {**one.header, "content-type": "application/x-ndjson"}
    path = f"{V1}/topics/{topic}/records"
    assert (await http.post(path, content=b'{"value": 5}\n{"value": 6}\n', headers=lines)).status_code == 200
    raw = {**one.header, "content-type": "text/plain"}
    assert (await http.post(path, content=b"7", headers=raw)).status_code == 200
    assert await values(http, topic) == await values(http, f"{topic}-2") == []
    answer = await one.commit()
    assert (answer.status_code, answer.json()) == (200, {"id": one.id, "state": "committed"})
    assert (await values(http, topic), await values(http, f"{topic}-2")) == ([1, 2, 4, 5, 6, 7], [3])
    assert left(app) == 0
    named = [info.transactional_id for info in app.shared.broker.transactions.all()]
    assert one.id not in named, "its transactional id is forgotten"


async def test_an_abort_leaves_nothing_to_be_seen(http: httpx.AsyncClient, topic: str) -> None:
    one = await Transaction.begin(http)
    await one.write(topic, 1)
    for _ in range(2):
        assert (await one.abort()).json() == {"id": one.id, "state": "aborted"}
    assert await values(http, topic) == []
    assert (await one.commit()).status_code == (await one.write(topic, 2)).status_code == 409
    two = await Transaction.begin(http)
    await two.write(topic, 3)
    await two.commit()
    assert await values(http, topic) == [3]


async def test_a_commit_may_be_repeated_and_an_empty_one_made(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    one = await Transaction.begin(http)
    answers = await asyncio.gather(one.commit(), one.commit())
    assert [answer.status_code for answer in answers] == [200, 200]
    assert (await one.commit()).status_code == 200
    problem(await one.abort(), 409, "invalid-txn-state")
    problem(await one.write(topic, 1), 409, "invalid-txn-state")


async def test_an_id_that_no_client_has_begun_is_unknown(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    for path in ("none:commit", "none:abort", "none:extend"):
        problem(await http.post(f"{V1}/transactions/{path}"), 404, "transactional-id-not-found")
    one = Transaction(http, {"id": "__http-none"})
    problem(await one.write(topic, 1), 404, "transactional-id-not-found")
    assert (await http.get(f"{V1}/topics/{topic}")).status_code == 404


async def test_a_new_begin_with_the_same_transactional_id_fences_the_old_one(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    # A name that neither a path nor a header line could have.
    name = f"{topic}/ü ~"
    old = await Transaction.begin(http, transactional_id=name)
    await old.write(topic, "old")
    new = await Transaction.begin(http, transactional_id=name)
    for answer in (await old.write(topic, "late"), await old.commit(), await old.abort()):
        problem(answer, 409, "producer-fenced")
    await new.write(topic, "new")
    assert (await new.commit()).status_code == 200
    assert await values(http, topic) == ["new"]


async def test_a_producer_of_kafka_with_the_id_fences_it(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    one = await Transaction.begin(http, transactional_id=topic)
    await one.write(topic, 1)
    await app.shared.broker.transactions.init(topic, 60_000)
    problem(await one.write(topic, 2), 409, "producer-fenced")
    problem(await one.commit(), 409, "producer-fenced")
    await app.shared.broker.long_transactions.step()
    problem(await one.commit(), 409, "producer-fenced")
    assert await values(http, topic) == []


async def test_offsets_of_a_group_are_committed_with_it(http: httpx.AsyncClient, topic: str) -> None:
    await http.put(f"{V1}/topics/{topic}", json={"partitions": 1})
    path = f"{V1}/groups/{topic}/offsets"
    body = {"offsets": [{"topic": topic, "partition": 0, "next_offset": 5}]}

    async def committed() -> list[int]:
        found = (await http.get(path)).json()["offsets"]
        return [one["next_offset"] for one in found]

    for end in ("abort", "commit"):
        one = await Transaction.begin(http)
        staged = await http.patch(path, json=body, headers=one.header)
        assert (staged.status_code, staged.json()["offsets"]) == (200, [])
        assert await committed() == []
        await getattr(one, end)()
    assert await committed() == [5]


async def test_a_batch_is_acknowledged_with_it(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    await http.post(f"{V1}/topics/{topic}/records", json={"records": [{"value": 1}]})
    consumers = f"{V1}/groups/{topic}/consumers"
    assert (await http.post(consumers, json={"name": "c", "topics": [topic]})).status_code == 201
    for end in ("abort", "commit"):
        batch = (await http.post(f"{consumers}/c:poll", json={"wait_ms": 10_000})).json()
        assert [record["value"] for record in batch["records"]] == [1]
        one = await Transaction.begin(http)
        ack = {"ack": batch["ack"]}
        staged = await http.post(f"{consumers}/c:ack", json=ack, headers=one.header)
        assert staged.json() == {"acknowledged": [], "revoked": []}
        assert (await http.post(f"{consumers}/c:poll", json={"wait_ms": 0})).status_code == 409
        await one.write(f"{topic}-out", end)
        assert (await getattr(one, end)()).status_code == 200
    assert (await http.post(f"{consumers}/c:poll", json={"wait_ms": 0})).json()["records"] == []
    assert await values(http, f"{topic}-out") == ["commit"]
    offsets = (await http.get(f"{V1}/groups/{topic}/offsets")).json()["offsets"]
    assert [found["next_offset"] for found in offsets] == [1]


async def test_a_request_in_it_keeps_it_open_until_the_longest_time(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    all_of_them = app.shared.broker.long_transactions
    idle, busy = await Transaction.begin(http, timeout_ms=1), await Transaction.begin(http)
    await all_of_them.step()
    while left(app) > 1:
        await asyncio.sleep(0.001)
        await all_of_them.step()
    problem(await idle.commit(), 409, "invalid-txn-state")
    problem(await idle.write(topic, 1), 409, "invalid-txn-state")
    extended = await http.post(f"{V1}/transactions/{busy.id}:extend")
    assert extended.json()["expires_ms"] <= app.shared.broker.clock.wall_ms() + 30_000
    await busy.commit()


async def test_there_is_a_limit_for_each_client(
    app: Application, http: httpx.AsyncClient, problem: Check
) -> None:
    made = [await Transaction.begin(http) for _ in range(20)]
    problem(await http.post(f"{V1}/transactions:begin"), 429, "throttling-quota-exceeded")
    for one in made:
        await one.abort()
    await (await Transaction.begin(http)).abort()


async def test_the_header_is_refused_where_it_would_have_no_effect(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    one = await Transaction.begin(http)
    header = one.header
    ours = [
        ("GET", f"{V1}/topics/{topic}/records"),
        ("PUT", f"{V1}/topics/{topic}"),
        ("POST", f"{V1}/groups/g/consumers/c:poll"),
        ("POST", f"{V1}/transactions/{one.id}:commit"),
        ("POST", f"{V1}/transactions:begin"),
    ]
    for method, path in ours:
        problem(await http.request(method, path, headers=header), 422, "invalid-request")
    body = {"records": [{"value": 1}]}
    kafka = {"content-type": "application/vnd.kafka.json.v2+json"}
    v2 = await http.post(f"/topics/{topic}", json=body, headers=header | kafka)
    assert (v2.status_code, v2.json()["error_code"]) == (422, 422)
    path = f"{V1}/topics/{topic}/records"
    lines = {"content-type": "application/x-ndjson", "accept": "application/x-ndjson"}
    problem(await http.post(path, content=b"{}", headers=header | lines), 422, "invalid-request")
    twice = httpx.Headers([("transaction", one.id), ("transaction", one.id)])
    problem(await http.post(path, json=body, headers=twice), 422, "invalid-request")
    assert (await http.get(f"{V1}/topics/{topic}")).status_code == 404, "nothing was written"
    await one.abort()


async def test_the_answer_of_an_idempotency_key_is_kept_by_the_commit_and_forgotten_by_the_abort(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    path, body = f"{V1}/topics/{topic}/records", {"records": [{"value": 1}]}

    async def send(one: Transaction | None, value: int = 1) -> httpx.Response:
        header = {"idempotency-key": "k"} | ({} if one is None else one.header)
        return await http.post(path, json={"records": [{"value": value}]}, headers=header)

    dropped = await Transaction.begin(http)
    assert (await send(dropped)).json() == (await send(dropped)).json()
    await dropped.abort()
    one, other = await Transaction.begin(http), await Transaction.begin(http)
    first = await send(one)
    assert (first.status_code, first.headers.get("idempotent-replayed")) == (200, None)
    again = await send(one)
    assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
    for late in (await send(one, 2), await send(other), await send(None)):
        problem(late, 422, "idempotency-key-reused")
    assert (await one.commit()).status_code == 200
    assert (await send(one)).json() == first.json(), "a retry that comes after the commit"
    for late in (await send(other), await send(None)):
        problem(late, 422, "idempotency-key-reused")
    await other.abort()
    assert await values(http, topic) == [body["records"][0]["value"]]


async def test_a_key_that_was_used_outside_is_refused_inside(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    path, body = f"{V1}/topics/{topic}/records", {"records": [{"value": 1}]}
    key = {"idempotency-key": "k"}
    assert (await http.post(path, json=body, headers=key)).status_code == 200
    one = await Transaction.begin(http)
    problem(await http.post(path, json=body, headers=key | one.header), 422, "idempotency-key-reused")
    await one.commit()
    assert await values(http, topic) == [1]


async def test_an_id_that_would_be_the_brokers_own_is_refused(
    http: httpx.AsyncClient, problem: Check
) -> None:
    for body in ({"transactional_id": "__http-x"}, {"timeout_ms": 300_001}):
        answer = await http.post(f"{V1}/transactions:begin", json=body)
        assert answer.status_code in (400, 422)


async def test_a_part_of_a_request_may_be_refused_and_the_rest_committed(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await http.put(f"{V1}/topics/{topic}", json={"partitions": 2})
    one = await Transaction.begin(http)
    body = {"records": [{"value": 1, "partition": 0}, {"value": 2, "partition": 7}]}
    answer = await http.post(f"{V1}/topics/{topic}/records", json=body, headers=one.header)
    assert answer.status_code == 207
    await one.commit()
    assert await values(http, topic) == [1]
    assert app.shared.broker.partitions.log(TopicPartition(topic, 0)).last_stable_offset == 2
