"""/api/v1/queues/{queue}/webhooks: the routes, their refusals, what is shown and what is not."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.app.conftest import Problem
from tests.app.native.test_queues import queue
from tests.core.queues.webhooks.endpoint import Endpoint, status

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {"webhook_allow": ("127.0.0.0/8",)}
SECRET = "whsec_" + base64.b64encode(b"planted" * 5).decode()


@pytest_asyncio.fixture(loop_scope="module")
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint() as one:
        yield one


async def hook(http: httpx.AsyncClient, path: str, endpoint: Endpoint, **body: Any) -> dict[str, Any]:
    made = await http.put(f"{path}/webhooks/shop", json={"url": endpoint.url, **body})
    assert made.status_code in (200, 201), made.text
    found: dict[str, Any] = made.json()
    return found


async def test_a_webhook_from_its_creation_to_its_end(
    http: httpx.AsyncClient, topic: str, endpoint: Endpoint, problem: Problem
) -> None:
    path = await queue(http, topic, "a", "b")
    made = await http.put(f"{path}/webhooks/shop", json={"url": endpoint.url})
    assert made.status_code == 201
    assert made.headers["location"] == f"{path}/webhooks/shop"
    assert made.json()["secret"].startswith("whsec_")
    async with asyncio.timeout(60):
        while (await http.get(f"{path}/webhooks/shop")).json()["accepted"] < 2:
            await asyncio.sleep(0.02)
    shown = (await http.get(f"{path}/webhooks/shop")).json()
    assert (shown["secret"], shown["circuit"], shown["enabled"], shown["version"]) == (
        None,
        "closed",
        True,
        1,
    )
    assert (await http.get(f"{path}/webhooks")).json() == {"items": [shown]}
    attempts = (await http.get(f"{path}/webhooks/shop/attempts")).json()["items"]
    assert [(one["offset"], one["status"], one["verdict"]) for one in attempts] == [
        (1, 200, "accepted"), (0, 200, "accepted"),
    ]  # fmt: skip
    changed = await http.put(f"{path}/webhooks/shop", json={"url": endpoint.url, "enabled": False})
    assert (changed.status_code, changed.json()["version"], changed.json()["secret"]) == (200, 2, None)
    assert (await http.post(f"{path}/webhooks/shop:enable")).json()["enabled"]
    assert (await http.delete(f"{path}/webhooks/shop")).status_code == 204
    problem(await http.get(f"{path}/webhooks/shop"), 404, "resource-not-found")


async def test_a_test_tells_what_the_endpoint_answers(
    http: httpx.AsyncClient, topic: str, endpoint: Endpoint
) -> None:
    path = await queue(http, topic)
    await hook(http, path, endpoint, enabled=False)
    endpoint.answer = status(503)
    found = (await http.post(f"{path}/webhooks/shop:test")).json()
    assert (found["status"], found["verdict"], found["error"]) == (503, "retried", None)


async def test_secrets_and_headers_are_written_and_never_read(
    http: httpx.AsyncClient, topic: str, endpoint: Endpoint
) -> None:
    path = await queue(http, topic)
    await hook(
        http, path, endpoint, secret=SECRET, headers={"authorization": "Bearer planted"}, enabled=False
    )
    rotated = await http.post(f"{path}/webhooks/shop:rotate-secret", json={"signing": "ed25519"})
    private = rotated.json()["secret"]
    assert private.startswith("whsk_") and rotated.json()["public_keys"][0].startswith("whpk_")
    texts = [
        (await http.get(f"{path}/webhooks/shop")).text, (await http.get(f"{path}/webhooks")).text,
        (await http.put(f"{path}/webhooks/shop", json={"url": endpoint.url, "secret": SECRET})).text,
        (await http.put(f"{path}/webhooks/shop", json={"url": endpoint.url, "secret": SECRET + "!"})).text,
        (await http.put(f"{path}/webhooks/shop", json={"url": endpoint.url, "secret": [SECRET]})).text,
    ]  # fmt: skip
    for text in texts:
        assert "Bearer" not in text and SECRET[6:] not in text and private not in text
    assert '"authorization"' in texts[0]


@pytest.mark.parametrize(
    ("body", "code", "kind"),
    [
        ({"url": "https://10.0.0.1/"}, 403, "forbidden"), ({"url": "http://example.org/"}, 403, "forbidden"),
        ({"url": "ftp://x/"}, 400, "invalid-request"), ({}, 422, "invalid-request"),
        ({"url": "https://example.org/", "concurrency": 1000}, 422, "invalid-request"),
        ({"url": "https://example.org/", "headers": {"host": "x"}}, 400, "invalid-request"),
        ({"url": "https://example.org/", "unknown": 1}, 422, "invalid-request"),
    ],
)  # fmt: skip
async def test_what_cannot_be_a_webhook_is_refused(
    http: httpx.AsyncClient, body: dict[str, Any], code: int, kind: str
) -> None:
    await http.put("/api/v1/topics/refused-hooks")
    await http.put("/api/v1/queues/refused-hooks", json={"topics": ["refused-hooks"]})
    answer = await http.put("/api/v1/queues/refused-hooks/webhooks/a", json=body)
    assert answer.status_code == code, answer.text
    assert (await http.get("/api/v1/queues/refused-hooks/webhooks")).json() == {"items": []}


async def test_a_queue_that_is_missing_has_no_webhooks(http: httpx.AsyncClient, problem: Problem) -> None:
    problem(await http.get("/api/v1/queues/no-such-queue/webhooks"), 404, "group-id-not-found")
    answer = await http.put("/api/v1/queues/no-such-queue/webhooks/a", json={"url": "http://127.0.0.1:8000/"})
    problem(answer, 404, "group-id-not-found")
