"""POST /transactions:commit and :abort: transactions of Kafka producers that one decision ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.main import Application
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest
from core.vocabulary.transactions import TransactionState
from tests.core.transactions.test_transactions import ABORTED, COMMITTED, ONGOING, Client

pytestmark = pytest.mark.asyncio(loop_scope="module")
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
V1 = "/api/v1"


async def tasks(app: Application, topic: str, count: int = 2) -> list[Client]:
    """Producers that have each written two records into a partition of their own."""
    await app.shared.broker.topics.create(topic, partitions=count)
    clients = [Client(app.shared.broker, f"{topic}/{n}") for n in range(count)]
    for n, client in enumerate(clients):
        await client.init()
        await client.write(TopicPartition(topic, n), "a", "b")
    return clients


def participant(client: Client, **more: Any) -> dict[str, Any]:
    producer_id, epoch = client.producer
    return {"transactional_id": client.name, "producer_id": producer_id, "producer_epoch": epoch, **more}


def offset(topic: str, value: int, **more: Any) -> dict[str, Any]:
    return {"group": topic, "topic": topic, "partition": 0, "offset": value, **more}


async def seen(http: httpx.AsyncClient, topic: str, partition: int) -> int:
    page = await http.get(f"{V1}/topics/{topic}/partitions/{partition}/records")
    return len(page.json()["records"])


def committed(app: Application, topic: str) -> int | None:
    found = app.shared.broker.groups.committed(topic, topic, 0)
    return None if found is None else found.offset


def state(app: Application, client: Client) -> TransactionState:
    return app.shared.broker.transactions.get(client.name).state


async def test_all_participants_and_the_offsets_are_committed(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    one, two = await tasks(app, topic)
    body = {
        "participants": [
            participant(one, records=2, partitions=[{"topic": topic, "partition": 0}]),
            participant(two),
        ],
        "offsets": [offset(topic, 1, expected=None)],
    }
    answer = await http.post(f"{V1}/transactions:commit", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["offsets"] == [offset(topic, 1)]
    assert [p["producer_epoch"] for p in answer.json()["participants"]] == [1, 1]
    assert [await seen(http, topic, n) for n in range(2)] == [2, 2]
    assert committed(app, topic) == 1


async def test_a_retry_after_a_lost_answer_is_told_the_offset(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    clients = await tasks(app, topic)
    body = {
        "participants": [participant(one) for one in clients],
        "offsets": [offset(topic, 1, expected=-1)],
        "ephemeral": True,
    }
    assert (await http.post(f"{V1}/transactions:commit", json=body)).status_code == 200
    refused = problem(await http.post(f"{V1}/transactions:commit", json=body), 409, "invalid-update-version")
    assert (refused["expected"], refused["actual"], refused["partition"]) == (None, 1, 0)
    assert [await seen(http, topic, n) for n in range(2)] == [2, 2]


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"records": 3}, "invalid-txn-state"),
        ({"partitions": []}, "invalid-txn-state"),
        ({"producer_epoch": 5}, "producer-fenced"),
        ({"producer_id": 1 << 60}, "invalid-producer-id-mapping"),
        ({"transactional_id": "unknown"}, "invalid-producer-id-mapping"),
    ],
)
async def test_a_participant_that_is_not_as_named_leaves_everything_open(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check, wrong: dict[str, Any], kind: str
) -> None:
    one, two = await tasks(app, topic)
    body = {
        "participants": [participant(one), {**participant(two), **wrong}],
        "offsets": [offset(topic, 1)],
    }
    problem(await http.post(f"{V1}/transactions:commit", json=body), 409, kind)
    assert [state(app, client) for client in (one, two)] == [ONGOING, ONGOING]
    assert committed(app, topic) is None
    body["participants"] = [participant(one), participant(two)]
    assert (await http.post(f"{V1}/transactions:commit", json=body)).status_code == 200


async def test_an_offset_that_another_client_has_committed_leaves_everything_open(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    one, _ = await tasks(app, topic)
    await app.shared.broker.groups.commit(topic, CommitRequest([Commit(topic, 0, 1)]))
    body = {"participants": [participant(one)], "offsets": [offset(topic, 2, expected=0)]}
    refused = problem(await http.post(f"{V1}/transactions:commit", json=body), 409, "invalid-update-version")
    assert (refused["expected"], refused["actual"]) == (0, 1)
    assert (state(app, one), committed(app, topic)) == (ONGOING, 1)


async def test_of_two_decisions_at_once_that_expect_the_same_offset_one_is_made(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    clients = await tasks(app, topic)
    bodies = [
        {"participants": [participant(one)], "offsets": [offset(topic, 1, expected=None)]} for one in clients
    ]
    answers = await asyncio.gather(*(http.post(f"{V1}/transactions:commit", json=one) for one in bodies))
    assert sorted(one.status_code for one in answers) == [200, 409]
    assert sorted(state(app, one) for one in clients) == [ONGOING, COMMITTED]
    assert sum([await seen(http, topic, n) for n in range(2)]) == 2


async def test_ephemeral_ids_are_forgotten_and_leftovers_aborted(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    one, two, three = await tasks(app, topic, 3)
    transactions = app.shared.broker.transactions
    body = {"participants": [participant(one)], "ephemeral": True}
    assert (await http.post(f"{V1}/transactions:commit", json=body)).status_code == 200
    left = [info.transactional_id for info in transactions.all() if info.transactional_id.startswith(topic)]
    assert left == [two.name, three.name]
    aborting = {"prefix": f"{topic}/", "keep": [three.name]}
    answer = await http.post(f"{V1}/transactions:abort", json=aborting)
    assert answer.json() == {"aborted": [two.name]}
    assert (state(app, two), state(app, three)) == (ABORTED, ONGOING)
    answer = await http.post(f"{V1}/transactions:abort", json={"prefix": f"{topic}/", "ephemeral": True})
    assert answer.json() == {"aborted": [three.name]}
    assert not [info for info in transactions.all() if info.transactional_id.startswith(topic)]
    assert [await seen(http, topic, n) for n in range(3)] == [2, 0, 0]


async def test_what_no_decision_can_be_is_refused(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    commit = f"{V1}/transactions:commit"
    problem(await http.post(commit, json={}), 422, "invalid-request")
    twice = {"offsets": [offset(topic, 1), offset(topic, 2)]}
    problem(await http.post(commit, json=twice), 422, "invalid-request")
    unknown = {"offsets": [offset(topic, 1)]}
    problem(await http.post(commit, json=unknown), 404, "unknown-topic-or-partition")
    (one,) = await tasks(app, topic, 1)
    same = {"participants": [participant(one), participant(one)]}
    problem(await http.post(commit, json=same), 422, "invalid-request")
    member = {"offsets": [offset(topic, 1, generation_id=3, member_id="m") | {"group": "none"}]}
    problem(await http.post(commit, json=member), 404, "group-id-not-found")
    problem(await http.post(f"{V1}/transactions:abort", json={"prefix": ""}), 422, "invalid-request")
