"""Groups of Kafka 0.7 over HTTP: shown beside our own, and changed by nothing here."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from app.http.request import Request
from app.main import Application
from app.native.operations import Operations
from core.vocabulary.foreign_groups import ByteOffset, ForeignGroup, ForeignMember

pytestmark = pytest.mark.asyncio(loop_scope="module")
G = "/api/v1/groups"

OLD = ForeignGroup(
    "of-0.7",
    (ForeignMember("c_1", '{"t": 2}', (("t", 0), ("t", 1))),),
    (ByteOffset("t", 1, 0, 4711), ByteOffset("t", 2, 0, 12)),
)
SHARED = ForeignGroup("shared", (), (ByteOffset("t", 1, 0, 5),))


@pytest.fixture(autouse=True)
def _found(app: Application) -> Iterator[None]:
    app.server.broker.foreign_groups.replace([OLD, SHARED])
    yield
    app.server.broker.foreign_groups.replace([])


async def _shared(http: httpx.AsyncClient) -> None:
    await http.put("/api/v1/topics/t", json={"partitions": 1})
    position = {"topic": "t", "partition": 0, "next_offset": 0}
    await http.patch(f"{G}/shared/offsets", json={"offsets": [position]})


async def test_they_are_listed_with_their_type(http: httpx.AsyncClient) -> None:
    await _shared(http)
    groups = {one["group_id"]: one for one in (await http.get(G)).json()["items"]}
    assert groups["of-0.7"] == {
        "group_id": "of-0.7",
        "state": "Stable",
        "type": "kafka07-zookeeper",
        "protocol_type": "",
    }
    assert groups["shared"]["type"] == "classic", "one of ours has that id"
    for state, names in (("stable", ["of-0.7"]), ("empty", ["shared"])):
        found = (await http.get(f"{G}?state={state}")).json()["items"]
        assert [one["group_id"] for one in found] == names


async def test_their_members_and_byte_offsets_are_told(
    http: httpx.AsyncClient, problem: Callable[[httpx.Response, int, str], dict[str, Any]]
) -> None:
    group = (await http.get(f"{G}/of-0.7")).json()
    (member,) = group["members"]
    assert (group["state"], group["type"], member["member_id"]) == ("Stable", "kafka07-zookeeper", "c_1")
    assert member["partitions"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    assert base64.b64decode(member["metadata"]) == b'{"t": 2}'
    assert (await http.get(f"{G}/of-0.7/offsets")).json() == {
        "group_id": "of-0.7",
        "offsets": [],
        "byte_offsets": [
            {"topic": "t", "broker_id": 1, "partition": 0, "byte_offset": 4711},
            {"topic": "t", "broker_id": 2, "partition": 0, "byte_offset": 12},
        ],
    }
    problem(await http.delete(f"{G}/of-0.7"), 404, "group-id-not-found")


async def test_a_group_of_both_kinds_shows_both_positions(http: httpx.AsyncClient) -> None:
    await _shared(http)
    body = (await http.get(f"{G}/shared/offsets")).json()
    assert [one["next_offset"] for one in body["offsets"]] == [0]
    assert [one["byte_offset"] for one in body["byte_offsets"]] == [5]


async def test_health_and_metrics_tell_how_the_registration_stands(
    http: httpx.AsyncClient, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "sluice_zookeeper" not in (await http.get("/metrics")).text
    monkeypatch.setattr(
        app.server,
        "zookeeper_numbers",
        lambda: {"registered": 0, "nodes": 3, "lost_sessions": 2, "groups": 1},
    )
    operations = Operations(app.shared.current_broker, app.shared.acting, lambda: "away", app.metrics.scrape)
    answer = await operations.ready(cast(Request, SimpleNamespace(scope={})), [])
    assert (answer.status, json.loads(answer.body)) == (200, {"status": "ok", "zookeeper": "away"})
    text = (await http.get("/metrics")).text
    for line in ("registered 0.0", "nodes 3.0", "lost_sessions_total 2.0", "groups 1.0"):
        assert f"\nsluice_zookeeper_{line}\n" in text
