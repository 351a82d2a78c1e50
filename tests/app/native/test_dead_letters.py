"""/api/v1/queues/{queue}/dead-letters and /redrives."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.app.conftest import Problem
from tests.app.native.test_queues import URL, queue, received, stats

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def given_up(http: httpx.AsyncClient, topic: str, *values: str) -> str:
    """Make a queue whose records are all dead letters; return its path."""
    path = await queue(http, topic, *values, dead_letter={"topic": f"{topic}-dead"})
    lease = (await received(http, path, max=100))["lease"]
    rejected = {"reject": [{"lease": lease, "reason": "no such customer"}]}
    assert (await http.post(f"{path}:settle", json=rejected)).status_code == 200
    async with asyncio.timeout(60):
        while (await stats(http, path))["archiving"]:
            await asyncio.sleep(0.01)
    return path


async def letters(http: httpx.AsyncClient, path: str, **query: Any) -> dict[str, Any]:
    answer = await http.get(f"{path}/dead-letters", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def ended(http: httpx.AsyncClient, location: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while (task := (await http.get(location)).json())["state"] == "running":
            await asyncio.sleep(0.01)
    found: dict[str, Any] = task
    return found


async def test_a_dead_letter_says_where_it_came_from_and_why(http: httpx.AsyncClient, topic: str) -> None:
    path = await given_up(http, topic, "a", "b", "c")
    first = await letters(http, path, page_size=2)
    one = first["items"][0]
    assert (one["topic"], one["partition"], one["offset"]) == (topic, 0, 0)
    assert (one["cause"], one["reason"], one["delivery_count"]) == ("rejected", "no such customer", 1)
    assert one["pointer"] is False and one["record"]["value"] == "a" and one["record"]["headers"] == []
    assert one["dead_letter"] == {"topic": f"{topic}-dead", "partition": 0, "offset": 0}
    rest = await letters(http, path, page_token=first["next_page_token"], encoding="base64")
    assert [one["record"]["value"] for one in rest["items"]] == ["Yw=="] and rest["next_page_token"] is None


async def test_a_dry_run_counts_and_a_redrive_moves(http: httpx.AsyncClient, topic: str) -> None:
    path = await given_up(http, topic, "a", "b")
    dry = await http.post(f"{path}/dead-letters:redrive", json={"dry_run": True})
    assert dry.status_code == 202
    assert (dry.json()["state"], dry.json()["moved"], dry.json()["dry_run"]) == ("done", 2, True)
    assert len((await letters(http, path))["items"]) == 2
    begun = await http.post(f"{path}/dead-letters:redrive")
    assert begun.status_code == 202
    task = await ended(http, begun.headers["location"])
    assert (task["state"], task["moved"], task["skipped"], task["error"]) == ("done", 2, 0, "")
    assert (await letters(http, path))["items"] == []
    again = await received(http, path, max=10)
    assert [(one["value"], one["delivery_count"]) for one in again["records"]] == [("a", 1), ("b", 1)]
    assert begun.json()["id"] in [one["id"] for one in (await http.get(f"{path}/redrives")).json()["items"]]


async def test_a_purge_forgets(http: httpx.AsyncClient, topic: str) -> None:
    path = await given_up(http, topic, "a")
    assert (await http.post(f"{path}/dead-letters:purge")).status_code == 204
    assert await letters(http, path) == {"items": [], "next_page_token": None}


async def test_what_cannot_be_redriven_is_refused(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    path = await given_up(http, topic, "a")
    bad = [{"cause": "tired"}, {"rate": 0}, {"partition": -1}, {"speed": 1}]
    for body in bad:
        problem(await http.post(f"{path}/dead-letters:redrive", json=body), 422, "invalid-request")
    missing = await http.post(f"{path}/dead-letters:redrive", json={"to": f"{topic}-nowhere"})
    problem(missing, 404, "unknown-topic-or-partition")
    problem(await http.get(f"{path}/redrives/none"), 404, "resource-not-found")
    problem(await http.post(f"{path}/redrives/none:cancel"), 404, "resource-not-found")
    problem(await http.get(f"{path}/dead-letters", params={"page_token": "eA"}), 422, "invalid-request")
    problem(await http.get(f"{URL}/{topic}-2/dead-letters"), 404, "group-id-not-found")


async def test_a_queue_without_a_dead_letter_topic_has_none(
    http: httpx.AsyncClient, topic: str, problem: Problem
) -> None:
    path = await queue(http, topic)
    problem(await http.get(f"{path}/dead-letters"), 400, "kafka-invalid-request")
