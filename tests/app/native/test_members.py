"""Members over HTTP: a shell script as a real member, alone and among others."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio

from app.main import Application
from core.vocabulary.groups import JoinRequest, SyncRequest
from tests.app.conftest import logs_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
CONFIG = {"group_initial_rebalance_delay_ms": 0}
G = "/api/v1/groups"


def subscription(topic: str) -> bytes:
    return b"\0\0\0\0\0\1" + len(topic).to_bytes(2, "big") + topic.encode() + b"\xff\xff\xff\xff"


class Member:
    """A script: what it would keep in its variables."""

    def __init__(self, http: httpx.AsyncClient, group: str, topic: str) -> None:
        self.http, self.path, self.topic = http, f"{G}/{group}/members", topic
        self.id, self.generation = "", 0

    async def join(self, **body: Any) -> httpx.Response:
        wanted = {"topics": [self.topic], "member_id": self.id, **body}
        answer = await self.http.post(self.path, json={k: v for k, v in wanted.items() if v is not None})
        if answer.is_success:
            self.id = answer.json()["member_id"]
            self.generation = answer.json()["generation_id"] or self.generation
        return answer

    async def sync(self, **body: Any) -> httpx.Response:
        return await self.http.post(
            f"{self.path}/{self.id}:sync", json={"generation_id": self.generation, **body}
        )

    async def heartbeat(self, **body: Any) -> httpx.Response:
        return await self.http.post(
            f"{self.path}/{self.id}:heartbeat", json={"generation_id": self.generation, **body}
        )

    async def leave(self, **query: str) -> httpx.Response:
        return await self.http.delete(f"{self.path}/{self.id}", params=query)


@pytest_asyncio.fixture(loop_scope="module")
async def script(http: httpx.AsyncClient, topic: str) -> Member:
    await http.put(f"/api/v1/topics/{topic}", json={"partitions": 4})
    return Member(http, topic, topic)


def partitions(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [p["partition"] for p in answer.json()["partitions"]]


async def test_a_script_alone_reads_everything(script: Member) -> None:
    joined = await script.join()
    body = joined.json()
    assert (joined.status_code, body["joined"], body["generation_id"]) == (200, True, 1)
    assert body["leader_id"] == body["member_id"] and body["protocol"] == "range"
    assert [(m["member_id"], m["topics"]) for m in body["members"]] == [(script.id, [script.topic])]
    synced = await script.sync()
    assert partitions(synced) == [0, 1, 2, 3]
    assert b64decode(synced.json()["assignment"])
    assert (await script.heartbeat()).status_code == 204
    assert (await script.leave()).status_code == 204


async def test_two_scripts_share(script: Member, http: httpx.AsyncClient, topic: str) -> None:
    await script.join()
    other = Member(http, topic, topic)
    waits = await other.join(wait_ms=0)
    assert (waits.status_code, waits.json()["joined"]) == (202, False)
    assert waits.headers["retry-after"] == "1"
    told = await script.heartbeat()
    assert told.status_code == 409 and told.json()["type"] == "/problems/rebalance-in-progress"
    await asyncio.gather(script.join(), other.join())
    assert script.generation == other.generation == 2
    shares = [partitions(await m.sync()) for m in (script, other)]
    assert sorted(shares[0] + shares[1]) == [0, 1, 2, 3] and len(shares[0]) == 2


async def test_a_script_with_protocols_of_its_own_leads_itself(script: Member) -> None:
    metadata = subscription(script.topic)
    offer = [{"name": "mine", "metadata": b64encode(metadata).decode()}]
    joined = await script.join(topics=None, protocols=offer)
    (shown,) = joined.json()["members"]
    assert (joined.json()["protocol"], b64decode(shown["metadata"])) == ("mine", metadata)
    plan = [{"member_id": script.id, "partitions": [{"topic": script.topic, "partition": 2}]}]
    assert partitions(await script.sync(assignments=plan)) == [2]


async def test_a_script_brings_and_gets_assignments_byte_for_byte(script: Member) -> None:
    await script.join(topics=None, protocols=[{"name": "mine", "metadata": "eA=="}], protocol_type="own")
    plan = [{"member_id": script.id, "assignment": b64encode(b"as you like").decode()}]
    synced = (await script.sync(assignments=plan)).json()
    assert b64decode(synced["assignment"]) == b"as you like"
    assert synced["partitions"] == []


async def test_a_script_and_a_binary_client_are_one_group(
    script: Member, app: Application, topic: str
) -> None:
    groups = logs_of(app).groups
    protocols = (("range", subscription(topic)),)
    asked = JoinRequest("", "consumer", protocols, 10_000, 10_000, "java", "/h")
    java = await groups.join(topic, asked)
    await groups.sync(topic, SyncRequest(java.member_id, 1, [(java.member_id, b"")]))
    joining = asyncio.create_task(script.join())
    await asyncio.sleep(0.05)
    asked = JoinRequest(java.member_id, "consumer", protocols, 10_000, 10_000, "java", "/h")
    led = await groups.join(topic, asked)
    assert (await joining).json()["members"] is None
    late = await script.sync(wait_ms=0)
    assert (late.status_code, late.json()["synced"]) == (202, False)
    await groups.sync(topic, SyncRequest(led.member_id, 2, [(script.id, b"\0\0\0\0\0\0\xff\xff\xff\xff")]))
    assert partitions(await script.sync()) == []


async def test_a_static_script_keeps_its_place(script: Member) -> None:
    await script.join(group_instance_id="one")
    first = script.id
    await script.sync()
    script.id = ""
    await script.join(group_instance_id="one")
    assert script.id != first and script.generation == 1
    assert partitions(await script.sync(group_instance_id="one")) == [0, 1, 2, 3]
    script.id, second = first, script.id
    fenced = await script.heartbeat(group_instance_id="one")
    assert (fenced.status_code, fenced.json()["kafka_error"]) == (409, "FENCED_INSTANCE_ID")
    script.id = second
    assert (await script.leave(group_instance_id="one")).status_code == 204


async def test_refusals_say_what_to_do(script: Member, problem: Check) -> None:
    await script.join()
    script.generation = 9
    problem(await script.heartbeat(), 409, "illegal-generation")
    problem(await script.sync(), 409, "illegal-generation")
    script.id = "ghost"
    for answer in (await script.heartbeat(), await script.sync(), await script.leave(), await script.join()):
        document = problem(answer, 404, "unknown-member")
        assert "ghost" in document["detail"]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"topics": None}, "invalid-request"),
        ({"topics": []}, "invalid-request"),
        ({"protocols": [{"name": "p", "metadata": ""}]}, "invalid-request"),
        ({"topics": None, "protocols": [{"name": "p", "metadata": "%"}]}, "invalid-request"),
        (
            {"topics": None, "protocols": [{"name": "p", "metadata": ""}], "assignor": "range"},
            "invalid-request",
        ),
        ({"assignor": "homemade"}, "unsupported-assignor"),
        ({"session_timeout_ms": 1}, "invalid-session-timeout"),
        ({"topic": ["t"]}, "invalid-request"),
    ],
)
async def test_a_bad_join_is_refused(script: Member, problem: Check, body: dict[str, Any], kind: str) -> None:
    script.id = None  # type: ignore[assignment]
    problem(await script.join(**body), 422, kind)


@pytest.mark.parametrize(
    "plan",
    [
        [{"member_id": "m"}],
        [{"member_id": "m", "partitions": [], "assignment": ""}],
        [{"member_id": "m", "assignment": "%"}],
        [{"member_id": "m", "partitions": [{"topic": "t", "partition": -1}]}],
    ],
)
async def test_a_bad_plan_is_refused(script: Member, problem: Check, plan: list[dict[str, Any]]) -> None:
    await script.join()
    problem(await script.sync(assignments=plan), 422, "invalid-request")


async def test_a_full_group_and_a_foreign_protocol_are_conflicts(script: Member, problem: Check) -> None:
    await script.join(topics=None, protocols=[{"name": "mine", "metadata": ""}])
    script.id = ""
    problem(await script.join(), 409, "inconsistent-group-protocol")
