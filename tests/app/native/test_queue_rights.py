"""/api/v1/queues with users: what each may see, receive, settle and change, and what the audit log says."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from core.records.record import NewRecord
from core.security.audit import AUDIT
from core.vocabulary.queues import EARLIEST, DeadLetter, QueueSettings, Start
from tests.app.http.test_authentication import PASSWORD, Served, basic

URL = "/api/v1/queues"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", "basic,token")
    async with made.app.lifespan():
        for name in ("alice", "carol"):
            await made.users.create(name, PASSWORD)
        broker = made.app.server.broker
        await broker.topics.create("orders")
        await broker.records.produce("orders", [NewRecord(None, b"a"), NewRecord(None, b"b")])
        for name in ("mail", "another"):
            dead = DeadLetter("orders-dead")
            await broker.queues.put(name, QueueSettings(("orders",), start=Start(EARLIEST), dead_letter=dead))
        yield made
        await made.http.aclose()


async def ask(
    served: Served, method: str, path: str, body: Any = None, user: str = "carol", **query: str
) -> httpx.Response:
    headers = {"authorization": basic(user, PASSWORD)}
    return await served.http.request(method, URL + path, json=body, headers=headers, params=query)


async def allow(served: Served, operation: str, kind: str, name: str) -> None:
    rule = {"resource_type": kind, "resource_name": name, "principal": "User:carol", "operation": operation}
    headers = {"authorization": basic("alice", PASSWORD)}
    made = await served.http.post("/api/v1/acls", json={"acls": [rule]}, headers=headers)
    assert made.status_code == 201, made.text


async def test_what_may_not_be_described_is_not_shown(served: Served) -> None:
    assert (await ask(served, "GET", "")).json()["items"] == []
    for path in (
        "/mail",
        "/nothing",
        "/mail/stats",
        "/mail/in-flight",
        "/mail/dead-letters",
        "/mail/redrives",
    ):
        assert (await ask(served, "GET", path)).status_code == 403, path
    await allow(served, "DESCRIBE", "GROUP", "mail")
    await allow(served, "DESCRIBE", "TOPIC", "orders")
    assert [one["queue"] for one in (await ask(served, "GET", "")).json()["items"]] == ["mail"]
    assert (await ask(served, "GET", "/mail/stats")).json()["available"] == 2


@pytest.mark.parametrize("first", ["GROUP", "TOPIC"])
async def test_to_receive_and_to_settle_need_read_on_the_group_and_on_the_topics(
    served: Served, first: str
) -> None:
    needed = {"GROUP": "mail", "TOPIC": "orders"}
    lease = (await ask(served, "POST", "/mail:receive", {}, "alice")).json()["lease"]

    async def statuses() -> list[int]:
        calls = ((":receive", {"wait_ms": 0}), (":peek", {}), (":settle", {"accept": [lease]}))
        return [(await ask(served, "POST", f"/mail{verb}", body)).status_code for verb, body in calls]

    assert await statuses() == [403, 403, 403]
    await allow(served, "READ", first, needed.pop(first))
    assert await statuses() == [403, 403, 403]
    ((kind, name),) = needed.items()
    await allow(served, "READ", kind, name)
    assert await statuses() == [200, 200, 200]


async def test_to_create_and_to_change_need_rights_on_all_that_is_named(served: Served) -> None:
    wanted = {"topics": ["orders"], "dead_letter": {"topic": "bin"}, "start": {"group": "old"}}
    create = {"topics": ["orders"], "start": "earliest"}
    for operation, kind, name in (
        ("READ", "GROUP", "new"), ("ALTER_CONFIGS", "GROUP", "new"), ("READ", "TOPIC", "orders"),
        ("WRITE", "TOPIC", "bin"), ("DESCRIBE", "GROUP", "old"),
    ):  # fmt: skip
        assert (await ask(served, "PUT", "/new", wanted)).status_code == 403
        await allow(served, operation, kind, name)
    # The group of the start is missing; the rights are there.
    assert (await ask(served, "PUT", "/new", wanted)).status_code == 404
    assert (await ask(served, "POST", "/new:receive", create)).status_code == 200
    assert (await ask(served, "POST", "/mail:pause")).status_code == 403


async def test_changes_are_in_the_audit_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT):
        for method, path, body in (
            ("PUT", "/made", {"topics": ["orders"]}), ("POST", "/made:pause", None),
            ("POST", "/made:resume", None), ("POST", "/made:seek", {"start": "earliest"}), ("DELETE", "/made", None),
        ):  # fmt: skip
            assert (await ask(served, method, path, body, "alice")).status_code < 300
    noted = [record.__dict__["fields"] for record in caplog.records if record.name == AUDIT]
    changes = [one for one in noted if one.get("resource") == "GROUP:made"]
    assert [one["operation"] for one in changes] == [
        "PUT_QUEUE", "PAUSE_QUEUE", "RESUME_QUEUE", "SEEK_QUEUE", "DELETE_QUEUE",
    ]  # fmt: skip
