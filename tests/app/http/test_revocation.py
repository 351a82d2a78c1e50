"""What waits over HTTP ends with its user, its password, its token, and the time of its token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.records.record import NewRecord

from .test_authentication import PASSWORD, Served, ask, basic

RECORDS = "/api/v1/topics/t/records"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", "basic,token")
    async with made.app.lifespan():
        await made.users.create("alice", PASSWORD)
        await made.users.create("bob", PASSWORD)
        await made.app.server.broker.topics.create("t", partitions=1)
        yield made
        await made.http.aclose()


async def waiting(served: Served, credentials: str, *, stream: bool, query: str = "") -> asyncio.Task[object]:
    """Begin a long poll or a stream; return its task once it waits in the broker."""
    accept = "text/event-stream" if stream else "application/json"
    path = RECORDS + query if stream else "/api/v1/topics/t/partitions/0/records?offset=0&wait_ms=60000"
    before = len(served.app.server.broker.purgatory)
    task: asyncio.Task[object] = asyncio.create_task(
        served.get(path, authorization=credentials, accept=accept)
    )
    while len(served.app.server.broker.purgatory) == before and not task.done():
        await asyncio.sleep(0)
    assert not task.done(), task.result()
    return task


async def ends(task: asyncio.Task[object]) -> bool:
    """Whether a task was cancelled, which closes the connection."""
    try:
        await asyncio.wait_for(asyncio.shield(task), 30)
    except asyncio.CancelledError:
        return task.cancelled()
    return False


@pytest.mark.parametrize("stream", [False, True])
async def test_what_waits_ends_with_its_user(served: Served, stream: bool) -> None:
    alice = await waiting(served, basic("alice", PASSWORD), stream=stream)
    bob = await waiting(served, basic("bob", PASSWORD), stream=False)
    assert (await ask(served, "DELETE", "/users/alice", user="bob")).status_code == 204
    assert await ends(alice)
    await served.app.server.broker.records.produce("t", [NewRecord(value=b"a")], partition=0)
    assert (await bob).status_code == 200  # type: ignore[attr-defined]
    assert len(served.app.server.broker.logins) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_what_waits_ends_with_its_token(served: Served, stream: bool) -> None:
    broker = served.app.server.broker
    info, text = await broker.tokens.create("alice", "", None)
    by_token = await waiting(served, f"Bearer {text}", stream=stream)
    by_password = await waiting(served, basic("alice", PASSWORD), stream=False)
    assert (await ask(served, "DELETE", f"/tokens/{info.token_id}", user="bob")).status_code == 204
    assert await ends(by_token)
    await broker.records.produce("t", [NewRecord(value=b"a")], partition=0)
    assert (await by_password).status_code == 200  # type: ignore[attr-defined]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_waits_by_a_password_ends_when_it_is_changed(served: Served, stream: bool) -> None:
    broker = served.app.server.broker
    by_password = await waiting(served, basic("alice", PASSWORD), stream=stream)
    by_token = await waiting(served, f"Bearer {await served.token('alice')}", stream=False)
    changed = await ask(served, "PUT", "/users/alice/password", {"password": "another password"})
    assert changed.status_code == 200, "the request that changes it is answered"
    assert await ends(by_password)
    await broker.records.produce("t", [NewRecord(value=b"a")], partition=0)
    assert (await by_token).status_code == 200  # type: ignore[attr-defined]
    assert len(broker.logins) == 0


async def test_a_stream_ends_with_the_time_of_its_token(served: Served) -> None:
    stream = await waiting(served, f"Bearer {await served.token('alice', 1000)}", stream=True)
    served.clock.advance(1)
    served.app.server.broker.logins.expire()
    assert await ends(stream)


async def test_a_user_that_deletes_itself_gets_an_answer(served: Served) -> None:
    info, text = await served.app.server.broker.tokens.create("alice", "", None)
    token = {"authorization": f"Bearer {text}"}
    gone = await served.http.delete(f"/api/v1/tokens/{info.token_id}", headers=token)
    assert gone.status_code == 204
    assert (await ask(served, "DELETE", "/users/alice")).status_code == 204
    assert (await ask(served, "GET", "/users")).status_code == 401
