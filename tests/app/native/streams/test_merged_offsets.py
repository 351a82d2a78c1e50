"""Merged reads that begin at offsets, partition by partition."""

from __future__ import annotations

import httpx
import pytest

from tests.app.native.streams.test_merged import fill, page, places
from tests.app.native.test_records import Check, T, make

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"offsets": "0:2"}, [(0, 2), (1, 0), (1, 1)]),
        ({"offsets": "0:2,1:1"}, [(0, 2), (1, 1)]),
        ({"offsets": "1:2,0:3"}, []),
        ({"offsets": "1:1", "from": "latest"}, [(1, 1)]),
        ({"offsets": "1:0", "partitions": "1"}, [(1, 0), (1, 1)]),
    ],
)
async def test_a_read_begins_at_offsets_and_elsewhere_at_from(
    http: httpx.AsyncClient, topic: str, params: dict[str, str], expected: list[tuple[int, int]]
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 3, 2)
    first = await page(http, topic, limit=1, **params)
    rest = await page(http, topic, cursor=first["next_cursor"])
    assert sorted(places(first) + places(rest)) == expected


async def test_a_stream_begins_at_offsets(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 3, 2)
    got = await http.get(
        f"{T}/{topic}/records?offsets=0:1,1:2&wait_ms=0", headers={"accept": "application/x-ndjson"}
    )
    assert [line.count('"offset":1,') + line.count('"offset":2,') for line in got.text.splitlines()] == [1, 1]


@pytest.mark.parametrize(
    ("query", "status", "parameter"),
    [
        ("offsets=", 422, "offsets"),
        ("offsets=0", 422, "offsets"),
        ("offsets=0:", 422, "offsets"),
        ("offsets=0:-1", 422, "offsets"),
        ("offsets=0:1,0:2", 422, "offsets"),
        ("offsets=0:99999999999999999999", 422, "offsets"),
        ("offsets=1:0&partitions=0", 422, "offsets"),
        ("offsets=0:0&cursor=1.0", 422, "offsets"),
        ("offsets=2:0", 404, None),
        ("offsets=0:4", 416, "offsets"),
    ],
)
async def test_offsets_that_make_no_sense_are_refused(
    http: httpx.AsyncClient, topic: str, problem: Check, query: str, status: int, parameter: str | None
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 3, 2)
    kinds = {404: "unknown-topic-or-partition", 416: "offset-out-of-range", 422: "invalid-request"}
    told = problem(await http.get(f"{T}/{topic}/records?{query}"), status, kinds[status])
    if parameter is not None:
        assert told["errors"][0]["parameter"] == parameter


async def test_deleted_records_are_410_with_a_cursor_to_continue_with(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic, 1)
    await fill(http, topic, 3)
    cut = {"partitions": [{"partition": 0, "before_offset": 2}]}
    assert (await http.post(f"{T}/{topic}:truncate", json=cut)).status_code == 200
    told = problem(await http.get(f"{T}/{topic}/records?offsets=0:1"), 410, "offset-out-of-range")
    assert "what was asked for is 1" in told["detail"]
    assert places(await page(http, topic, cursor=told["next_cursor"])) == [(0, 2)]
