"""app.http.principal: all clients are the same until a resolver tells them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from app.errors import Problem
from app.http.principal import principal_of, take_ticket
from app.http.request import Request
from app.main import create_app
from tests.app.conftest import client_of, config_for

T = "/api/v1/topics/t"


def test_every_client_is_anonymous_whatever_it_sends() -> None:
    for claim in ((b"authorization", b"Basic YTpi"), (b"x-forwarded-user", b"root")):
        assert principal_of({"type": "http", "headers": [claim], "query_string": b"user=root"}) == "anonymous"


@pytest.mark.parametrize(
    ("query", "ticket", "left"),
    [
        (b"", None, b""),
        (b"from=latest", None, b"from=latest"),
        (b"ticket=abc", "abc", b""),
        (b"from=latest&ticket=a-b_c&limit=1", "a-b_c", b"from=latest&limit=1"),
        (b"key=ticket%3D1", None, b"key=ticket%3D1"),
        (b"my_ticket=1", None, b"my_ticket=1"),
    ],
)
def test_a_ticket_is_taken_out_of_the_query(query: bytes, ticket: str | None, left: bytes) -> None:
    scope: dict[str, Any] = {"query_string": query}
    assert take_ticket(scope) == ticket
    assert scope["query_string"] == left


def test_two_tickets_are_refused() -> None:
    with pytest.raises(Problem):
        take_ticket({"query_string": b"ticket=a&ticket=b"})


class Tickets:
    """A resolver as one will be: names by ticket or by header, and a record of what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []

    async def __call__(self, request: Request, ticket: str | None) -> str:
        self.asked.append((request.scope["path"], ticket))
        if ticket is not None:
            if ticket != "good":
                raise Problem("foreign-origin", "This ticket opens nothing.")
            return "ann"
        return request.headers.get(b"x-name", b"anonymous").decode()


async def test_a_resolver_gets_the_ticket_and_its_answer_is_the_principal(tmp_path: Path) -> None:
    tickets = Tickets()
    app = create_app(config_for(tmp_path / "data"), resolver=cast(Any, tickets))
    async with app.lifespan(), client_of(app) as http:
        assert (await http.put(f"{T}?ticket=good", json={})).status_code == 201
        # The ticket is no parameter of a route: not of a lean one, of FastAPI's, of the v2 surface.
        lines = {"accept": "application/x-ndjson"}
        stream = await http.get(f"{T}/records?ticket=good&from=earliest&wait_ms=0", headers=lines)
        assert stream.status_code == 200
        assert (await http.get("/topics/t/partitions/0/records?ticket=good")).status_code == 200
        assert [ticket for _, ticket in tickets.asked] == ["good"] * 3
        for path in (f"{T}/records?ticket=bad", "/topics/t?ticket=bad"):
            assert (await http.get(path)).status_code == 403

        # Names have idempotency keys of their own.
        async def write(name: str) -> httpx.Response:
            return await http.post(
                f"{T}/records", json={"value": 1}, headers={"idempotency-key": "k", "x-name": name}
            )

        assert "idempotent-replayed" not in (await write("ann")).headers
        assert "idempotent-replayed" in (await write("ann")).headers
        assert "idempotent-replayed" not in (await write("bob")).headers


async def test_without_a_resolver_a_ticket_is_an_unknown_parameter(tmp_path: Path) -> None:
    app = create_app(config_for(tmp_path / "data"))
    async with app.lifespan(), client_of(app) as http:
        assert (await http.put(f"{T}?ticket=x", json={})).status_code == 422
