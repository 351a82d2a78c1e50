"""/api/v1/acls over a whole application: list, create, delete by filter, and the rights for that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.http.test_authentication import PASSWORD, Served, basic

RULE = {
    "resource_type": "TOPIC",
    "resource_name": "orders-",
    "pattern_type": "PREFIXED",
    "principal": "User:erin",
    "host": "*",
    "operation": "READ",
    "permission_type": "ALLOW",
}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", "basic,token")
    async with made.app.lifespan():
        for name in ("alice", "carol"):
            await made.users.create(name, PASSWORD)
        yield made
        await made.http.aclose()


async def ask(
    served: Served, method: str, body: Any = None, *, user: str = "alice", **query: str
) -> httpx.Response:
    headers = {"authorization": basic(user, PASSWORD)}
    return await served.http.request(method, "/api/v1/acls", json=body, params=query, headers=headers)


async def items(served: Served, **query: str) -> list[dict[str, str]]:
    answer = await ask(served, "GET", **query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, str]] = answer.json()["items"]
    return found


async def test_rules_are_created_once_found_and_in_force(served: Served) -> None:
    body = {"acls": [RULE, {"resource_type": "CLUSTER", "principal": "User:erin", "operation": "DESCRIBE"}]}
    for _ in range(2):
        made = await ask(served, "POST", body)
        assert made.status_code == 201
        assert [one["resource_name"] for one in made.json()["items"]] == ["orders-", "kafka-cluster"]
    assert len(await items(served)) == 2
    assert await items(served, resource_type="TOPIC") == [RULE]
    assert await items(served, resource_name="orders-1", pattern_type="MATCH") == [RULE]
    assert await items(served, resource_name="orders-1") == []
    assert await items(served, principal="User:erin", operation="READ", permission_type="ALLOW") == [RULE]
    assert await items(served, principal="User:carol") == []
    allows = served.app.server.broker.authorizer.allows
    from core.security.acl import Operation, ResourceType

    assert allows("User:erin", "::1", Operation.READ, ResourceType.TOPIC, "orders-7")
    assert not allows("User:erin", "::1", Operation.READ, ResourceType.TOPIC, "order")


async def test_rules_are_deleted_by_filter_and_never_all_by_mistake(served: Served) -> None:
    other = {**RULE, "principal": "User:dora"}
    await ask(served, "POST", {"acls": [RULE, other]})
    assert (await ask(served, "DELETE")).status_code == 422
    dry = await ask(served, "DELETE", principal="User:erin", dry_run="true")
    assert dry.json() == {"dry_run": True, "items": [RULE]} and len(await items(served)) == 2
    gone = await ask(served, "DELETE", principal="User:erin")
    assert gone.json() == {"dry_run": False, "items": [RULE]}
    assert await items(served) == [other]
    assert (await ask(served, "DELETE", principal="User:erin")).json()["items"] == []
    assert (await ask(served, "DELETE", principle="User:dora")).status_code == 422
    assert await items(served) == [other]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"resource_name": ""}, "#/acls/1"),
        ({"resource_name": None}, "#/acls/1"),
        ({"principal": "bob"}, "#/acls/1"),
        ({"resource_type": "CLUSTER"}, "#/acls/1"),
        ({"operation": "read"}, ""),
        ({"pattern_type": "MATCH"}, ""),
        ({"permission_type": "ANY"}, ""),
        ({"unknown": 1}, ""),
    ],
)
async def test_a_rule_that_cannot_be_is_refused_with_all_others(
    served: Served, change: dict[str, Any], pointer: str
) -> None:
    refused = await ask(served, "POST", {"acls": [RULE, {**RULE, **change}]})
    assert refused.status_code == 422, refused.text
    if pointer:
        assert refused.json()["errors"][0]["pointer"] == pointer
    assert await items(served) == []


async def test_to_see_needs_describe_and_to_change_alter_on_the_cluster(served: Served) -> None:
    for method, body in (("GET", None), ("POST", {"acls": [RULE]}), ("DELETE", None)):
        query = {"principal": "User:erin"} if method == "DELETE" else {}
        assert (await ask(served, method, body, user="carol", **query)).status_code == 403
    right = {"resource_type": "CLUSTER", "principal": "User:carol", "operation": "DESCRIBE"}
    await ask(served, "POST", {"acls": [right]})
    assert (await ask(served, "GET", user="carol")).status_code == 200
    assert (await ask(served, "POST", {"acls": [RULE]}, user="carol")).status_code == 403
    await ask(served, "POST", {"acls": [{**right, "operation": "ALTER"}]})
    assert (await ask(served, "POST", {"acls": [RULE]}, user="carol")).status_code == 201


async def test_without_an_authorizer_there_are_no_rules(tmp_path: Path) -> None:
    from app.main import create_app
    from core.config import Config

    app = create_app(Config(data_dir=tmp_path / "open", listeners=()), http_endpoints=[])
    async with app.lifespan():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8082") as http:
            answer = await http.get("/api/v1/acls")
            assert answer.status_code == 403 and answer.json()["kafka_error"] == "SECURITY_DISABLED"
