"""Stream tickets: what a page gets with its credentials, and opens one stream with, once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from core.clock import ManualClock
from core.errors import BrokerError
from core.security.passwords import Identity
from core.security.principal import Principal
from core.security.tickets import MAX_TICKETS_PER_PRINCIPAL, TICKET_SECONDS, StreamTickets
from tests.app.http.test_authentication import PASSWORD, Served, basic
from tests.app.http.test_revocation import ends, waiting

STREAM = "/api/v1/topics/t/records"
LINES = {"accept": "application/x-ndjson"}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path / "data", "basic,token")
    async with made.app.lifespan():
        await made.users.create("alice", PASSWORD)
        await made.users.create("carol", PASSWORD)
        await made.app.server.broker.topics.create("t")
        yield made
        await made.http.aclose()


async def order(served: Served, path: str = STREAM, user: str = "alice") -> httpx.Response:
    headers = {"authorization": basic(user, PASSWORD)}
    return await served.http.post("/api/v1/stream-tickets", json={"path": path}, headers=headers)


async def ticket_of(served: Served, path: str = STREAM, user: str = "alice") -> str:
    answer = await order(served, path, user)
    assert answer.status_code == 201 and answer.headers["cache-control"] == "no-store"
    assert answer.json()["expires_in_seconds"] == TICKET_SECONDS
    text: str = answer.json()["ticket"]
    return text


async def opened(served: Served, ticket: str, path: str = STREAM, method: str = "GET") -> int:
    query = {"ticket": ticket, "from": "earliest", "wait_ms": "0"}
    return (await served.http.request(method, path, params=query, headers=LINES)).status_code


async def test_a_ticket_opens_its_stream_once(served: Served) -> None:
    ticket = await ticket_of(served)
    assert await opened(served, ticket) == 200
    assert await opened(served, ticket) == 401
    assert await opened(served, "x") == await opened(served, "") == 401


async def test_a_ticket_is_no_other_right(served: Served) -> None:
    paths = ["/api/v1/topics/u/records", "/api/v1/topics/t", "/api/v1/users", "/topics/t", "/metrics"]
    for path in paths:
        ticket = await ticket_of(served)
        assert await opened(served, ticket, path) == 401, path
        assert await opened(served, ticket) == 401, "a ticket that was seen elsewhere is used"
    ticket = await ticket_of(served)
    answer = await served.http.post(f"{STREAM}?ticket={ticket}", json={"value": 1})
    assert answer.status_code == 401
    as_bearer = await served.http.get(STREAM, headers={"authorization": f"Bearer {await ticket_of(served)}"})
    assert as_bearer.status_code == 401


async def test_a_stream_has_the_rights_of_the_user_of_its_ticket(served: Served) -> None:
    """carol is no super user: a ticket does not let her read what no rule allows."""
    assert await opened(served, await ticket_of(served, user="carol")) == 403
    assert await opened(served, await ticket_of(served)) == 200


async def test_only_the_records_of_a_topic_have_tickets(served: Served) -> None:
    refused = [
        "", "/api/v1/users", STREAM + "?from=latest", STREAM + "/", "https://evil.example" + STREAM, STREAM + "\n",
        "/api/v1/topics//records", "/api/v1/topics/a/b/records", 3,
    ]  # fmt: skip
    for path in refused:
        assert (await order(served, path)).status_code == 422, path  # type: ignore[arg-type]
    bare = await served.http.post("/api/v1/stream-tickets", json={"path": STREAM})
    assert bare.status_code == 401


async def test_a_ticket_ends_with_its_time_and_with_its_user(served: Served) -> None:
    ticket = await ticket_of(served)
    served.clock.advance(TICKET_SECONDS)
    assert await opened(served, ticket) == 401
    ticket = await ticket_of(served)
    await served.users.set_password("alice", "another password")
    assert await opened(served, ticket) == 401
    await served.users.set_password("alice", PASSWORD)
    text = await served.token("alice")
    body, headers = {"path": STREAM}, {"authorization": f"Bearer {text}"}
    by_token = await served.http.post("/api/v1/stream-tickets", json=body, headers=headers)
    await served.app.server.broker.tokens.delete(text.split("_")[1])
    assert await opened(served, by_token.json()["ticket"]) == 401
    ticket = await ticket_of(served)
    await served.users.delete("alice")
    assert await opened(served, ticket) == 401


async def test_the_stream_of_a_ticket_ends_with_its_user(served: Served) -> None:
    stream = await waiting(served, "", stream=True, query=f"?ticket={await ticket_of(served)}")
    await served.users.delete("alice")
    assert await ends(stream)


async def test_unused_tickets_are_bounded_for_each_user(served: Served) -> None:
    for _ in range(MAX_TICKETS_PER_PRINCIPAL):
        served.app.shared.tickets.issue(Identity(Principal(name="alice")), STREAM)
    assert (await order(served)).status_code == 429
    assert (await order(served, user="carol")).status_code == 201
    served.clock.advance(TICKET_SECONDS)
    assert (await order(served)).status_code == 201
    assert len(served.app.shared.tickets) == 1


async def test_a_ticket_is_not_logged_and_not_repeated(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ticket = await ticket_of(served)
    for path in (STREAM, STREAM, "/api/v1/topics/none/records"):
        answer = await served.http.get(path, params={"ticket": ticket, "wrong": "1"})
        assert ticket not in answer.text + str(answer.headers)
    own = [one.getMessage() for one in caplog.records if one.name.startswith("sluice")]
    assert not any(ticket in line for line in own)


async def test_a_client_without_a_user_needs_no_ticket(tmp_path: Path) -> None:
    served = Served(tmp_path / "open", "")
    async with served.app.lifespan():
        answer = await served.http.post("/api/v1/stream-tickets", json={"path": STREAM})
        assert answer.status_code == 422
        await served.http.aclose()


async def test_all_tickets_together_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("core.security.tickets.MAX_TICKETS", 3)
    served = Served(tmp_path / "data", "token")
    tickets = StreamTickets(ManualClock(), served.app.server.broker.passwords)
    a, b, c, d = [Identity(Principal(name=name)) for name in "abcd"]
    texts = [tickets.issue(one, STREAM) for one in (a, b, c)]
    with pytest.raises(BrokerError):
        tickets.issue(d, STREAM)
    assert tickets.use(texts[1], STREAM) == b
    tickets.issue(d, STREAM)
    assert len(tickets) == 3
    await served.http.aclose()
