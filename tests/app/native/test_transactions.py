"""/api/v1/transactions: list, describe, abort."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.main import Application
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest, TransactionalCommit
from tests.app.conftest import Problem
from tests.app.native.test_records import make, read
from tests.core.transactions.test_transactions import Client

pytestmark = pytest.mark.asyncio(loop_scope="module")
URL = "/api/v1/transactions"


async def begun(app: Application, name: str, *topics: str, timeout_ms: int = 60_000) -> Client:
    """A client with an open transaction of one record in each topic."""
    client = Client(app.server.broker, name)
    await client.init(timeout_ms=timeout_ms)
    for topic in topics:
        await client.write(TopicPartition(topic, 0), "open")
    return client


async def listed(http: httpx.AsyncClient, **query: Any) -> list[str]:
    """The ids of one page of a listing."""
    got = await http.get(URL, params=query)
    assert got.status_code == 200, got.text
    return [item["transactional_id"] for item in got.json()["items"]]


async def test_an_open_transaction_is_described(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, partitions=2)
    client = await begun(app, "payments-1", topic, timeout_ms=30_000)
    commit = CommitRequest([Commit(topic, 1, 0, -1, "")])
    request = TransactionalCommit(client.name, *client.producer, commit)
    broker = app.server.broker
    staged = await client.transactions.stage(
        client.name,
        client.producer,
        lambda: broker.groups.stage_transactional("billing", request),
        begins=True,
    )
    assert staged == [0]
    got = (await http.get(f"{URL}/payments-1")).json()
    started, expires = got.pop("started_ms"), got.pop("expires_ms")
    assert 0 < got.pop("age_ms") + started <= broker.clock.wall_ms()
    assert abs(expires - started - 30_000) <= 2
    assert got.pop("started").endswith("Z") and got.pop("expires").endswith("Z")
    assert got == {
        "transactional_id": "payments-1",
        "state": "Ongoing",
        "producer_id": client.producer.producer_id,
        "producer_epoch": client.producer.producer_epoch,
        "timeout_ms": 30_000,
        "partitions": 1,
        "partition_details": [{"topic": topic, "partition": 0, "first_offset": 0}],
        "groups": ["billing"],
    }
    await client.end(commit=True)
    got = (await http.get(f"{URL}/payments-1")).json()
    assert (got["state"], got["started_ms"], got["partition_details"], got["groups"]) == (
        "CompleteCommit", started, [], [],
    )  # fmt: skip
    assert got["age_ms"] is got["expires"] is got["expires_ms"] is None


async def test_ids_are_listed_page_by_page(app: Application, http: httpx.AsyncClient) -> None:
    for number in range(5):
        await begun(app, f"page-{number}")
    found: list[str] = []
    query: dict[str, Any] = {"prefix": "page-", "page_size": 2}
    while True:
        page = (await http.get(URL, params=query)).json()
        assert len(page["items"]) <= 2
        found += [item["transactional_id"] for item in page["items"]]
        if page["next_page_token"] is None:
            break
        query["page_token"] = page["next_page_token"]
    assert found == [f"page-{number}" for number in range(5)]


async def test_ids_are_listed_by_state_producer_and_age(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    client = await begun(app, "listed-open", topic)
    await begun(app, "listed-empty")
    committed = await begun(app, "listed-committed", topic)
    await committed.end(commit=True)
    assert await listed(http, prefix="listed-", state="ongoing") == ["listed-open"]
    assert await listed(http, prefix="listed-", state="Empty,CompleteCommit") == [
        "listed-committed", "listed-empty",
    ]  # fmt: skip
    assert await listed(http, producer_id=client.producer.producer_id) == ["listed-open"]
    # What has ended is not old, however long ago it began.
    age = (await http.get(f"{URL}/listed-open")).json()["age_ms"]
    assert await listed(http, prefix="listed-", longer_than_ms=age + 3_600_000) == []
    client.transactions._ids["listed-open"].start_ms -= 10_000
    client.transactions._ids["listed-committed"].start_ms -= 10_000
    assert await listed(http, prefix="listed-", longer_than_ms=9_999) == ["listed-open"]
    await client.end(commit=False)


async def test_a_bad_question_is_refused(http: httpx.AsyncClient, problem: Problem) -> None:
    for query in ({"state": "Open"}, {"page_size": "100000"}, {"page_token": "?"}, {"longer_than_ms": "-1"}):
        problem(await http.get(URL, params=query), 422, "invalid-request")
    problem(await http.get(URL, params={"states": "Empty"}), 422, "invalid-request")
    answer = problem(await http.get(URL, params={"state": "Open"}), 422, "invalid-request")
    assert "Ongoing" in answer["detail"]


async def test_an_administrator_aborts_an_open_transaction(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    await make(http, topic)
    client = await begun(app, "stuck", topic)
    await http.post(f"/api/v1/topics/{topic}/records", json={"value": "after"})
    assert (await read(http, topic))["records"] == []
    assert (await http.delete(f"{URL}/stuck")).status_code == 204
    assert [one["value"] for one in (await read(http, topic))["records"]] == ["after"]
    answer = problem(await http.delete(f"{URL}/stuck"), 409, "invalid-txn-state")
    assert answer["detail"] == "No transaction of 'stuck' is open: its state is CompleteAbort."
    with pytest.raises(Exception, match="is over"):
        client.append(TopicPartition(topic, 0), "late")


async def test_an_id_that_is_not_there(http: httpx.AsyncClient, problem: Problem) -> None:
    for method in ("GET", "DELETE"):
        answer = problem(await http.request(method, f"{URL}/nothing"), 404, "transactional-id-not-found")
        assert answer["detail"] == "There is no transactional id 'nothing'."
