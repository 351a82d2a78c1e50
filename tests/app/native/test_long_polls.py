"""Long polls on one partition: answered by a record, by their deadline, by a deletion, by a disconnect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.main import Application
from tests.app.native.streams.asgi_stream import streaming
from tests.app.native.test_records import make, read

pytestmark = pytest.mark.asyncio(loop_scope="module")
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
T = "/api/v1/topics"


async def test_a_long_poll_is_answered_by_the_next_record(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic)
    path = f"{T}/{topic}/partitions/0/records?offset=0&wait_ms=20000"
    waiting = asyncio.create_task(http.get(path))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await http.post(url, json={"value": "new"})
    page = (await asyncio.wait_for(waiting, 60)).json()
    assert [r["value"] for r in page["records"]] == ["new"]


async def test_a_long_poll_ends_empty_at_its_time(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic)
    page = await read(http, topic, wait_ms=30)
    assert (page["records"], page["next_offset"], page["caught_up"]) == ([], 0, True)


async def test_a_long_poll_ends_when_its_topic_is_deleted(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic)
    waiting = asyncio.create_task(http.get(f"{T}/{topic}/partitions/0/records?wait_ms=20000"))
    await asyncio.sleep(0.05)
    await http.delete(f"{T}/{topic}")
    problem(await asyncio.wait_for(waiting, 60), 404, "unknown-topic-or-partition")


async def test_a_long_poll_ends_when_its_client_disconnects(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await make(http, topic)
    poll = streaming(app, f"{T}/{topic}/partitions/0/records", "wait_ms=60000", accept="*/*", wait=False)
    async with poll as gone:
        await asyncio.sleep(0.05)
        assert len(app.server.broker.purgatory) == 1
    assert gone.status == 0
    assert len(app.server.broker.purgatory) == 0
