"""/api/v1/transactions with users: what each may see and abort, and what the audit log says."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from core.security.audit import AUDIT
from tests.app.http.test_authentication import PASSWORD, Served, basic
from tests.app.native.test_transactions import URL, begun


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", "basic,token")
    async with made.app.lifespan():
        for name in ("alice", "carol"):
            await made.users.create(name, PASSWORD)
        for topic in ("seen", "hidden"):
            await made.app.server.broker.topics.create(topic)
        await begun(made.app, "mine", "seen", "hidden")
        await begun(made.app, "another", "seen")
        yield made
        await made.http.aclose()


async def ask(served: Served, method: str, path: str, user: str = "carol") -> httpx.Response:
    return await served.http.request(method, URL + path, headers={"authorization": basic(user, PASSWORD)})


async def allow(served: Served, operation: str, kind: str, name: str = "kafka-cluster") -> None:
    rule = {"resource_type": kind, "resource_name": name, "principal": "User:carol", "operation": operation}
    headers = {"authorization": basic("alice", PASSWORD)}
    made = await served.http.post("/api/v1/acls", json={"acls": [rule]}, headers=headers)
    assert made.status_code == 201, made.text


async def test_what_may_not_be_described_is_not_shown(served: Served) -> None:
    assert (await ask(served, "GET", "")).json()["items"] == []
    for path in ("/mine", "/nothing"):
        assert (await ask(served, "GET", path)).status_code == 403
    await allow(served, "DESCRIBE", "TRANSACTIONAL_ID", "mine")
    await allow(served, "DESCRIBE", "TOPIC", "seen")
    assert [one["transactional_id"] for one in (await ask(served, "GET", "")).json()["items"]] == ["mine"]
    got = (await ask(served, "GET", "/mine")).json()
    assert (got["partitions"], got["partition_details"]) == (
        1,
        [{"topic": "seen", "partition": 0, "first_offset": 0}],
    )


@pytest.mark.parametrize(
    ("operation", "kind", "name"),
    [
        ("WRITE", "TRANSACTIONAL_ID", "mine"),
        ("ALTER", "CLUSTER", "kafka-cluster"),
        ("CLUSTER_ACTION", "CLUSTER", "kafka-cluster"),
    ],
)
async def test_an_abort_needs_a_right_and_is_in_the_audit_log(
    served: Served, caplog: pytest.LogCaptureFixture, operation: str, kind: str, name: str
) -> None:
    await allow(served, "DESCRIBE", "TRANSACTIONAL_ID", "mine")
    refused = await ask(served, "DELETE", "/mine")
    assert refused.status_code == 403 and "ransactional" in refused.json()["detail"]
    assert (await ask(served, "GET", "/mine", "alice")).json()["state"] == "Ongoing"
    await allow(served, operation, kind, name)
    with caplog.at_level(logging.INFO, AUDIT):
        assert (await ask(served, "DELETE", "/mine")).status_code == 204
        assert (await ask(served, "DELETE", "/mine")).status_code == 409
    noted = [record.__dict__["fields"] for record in caplog.records if record.name == AUDIT]
    changes = [one for one in noted if one["event"] == "change"]
    assert [(one["operation"], one["resource"], one["decision"]) for one in changes] == [
        ("ABORT_TRANSACTION", "TRANSACTIONAL_ID:mine", "allowed"),
        ("ABORT_TRANSACTION", "TRANSACTIONAL_ID:mine", "failed"),
    ]
    assert changes[0]["principal"] == "User:carol" and changes[1]["error"] == "INVALID_TXN_STATE"


async def test_a_token_aborts_only_what_its_scope_lists(served: Served) -> None:
    headers = {"authorization": basic("alice", PASSWORD)}
    scope = [{"resource_type": "TRANSACTIONAL_ID", "resource_name": "mine", "operation": "WRITE"}]
    made = await served.http.post("/api/v1/tokens", json={"owner": "alice", "scope": scope}, headers=headers)
    bearer = {"authorization": f"Bearer {made.json()['token']}"}
    assert (await served.http.delete(f"{URL}/another", headers=bearer)).status_code == 403
    assert (await served.http.delete(f"{URL}/mine", headers=bearer)).status_code == 204
    listing = (await served.http.get(URL, headers=bearer)).json()
    assert [one["transactional_id"] for one in listing["items"]] == ["mine"]
