"""Streams: server-sent events and NDJSON, what they say, the drain, and every end."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import Application, create_app
from app.native.streams.events import Streams
from tests.app.conftest import client_of, config_for
from tests.app.native.streams.asgi_stream import Stream, streaming
from tests.app.native.streams.test_merged import fill, page
from tests.app.native.test_records import Check, T, make

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {
    "stream_comment_ms": 60, "stream_interval_ms": 1, "stream_piece_bytes": 4_096, "http_max_streams": 20,
    "stream_cache_bytes": 200_000,
}  # fmt: skip
LINES = "application/x-ndjson"


def events(app: Application, topic: str, query: str = "", **more: Any) -> Any:
    return streaming(app, f"{T}/{topic}/records", query, **more)


def place(record: Any) -> tuple[int, int]:
    return record["partition"], record["offset"]


def open_streams(app: Application) -> int:
    """How many streams the application counts."""
    (streams,) = [
        one for one in gc.get_objects() if isinstance(one, Streams) and one.broker() is app.server.broker
    ]
    return streams.count.open


# --- events -------------------------------------------------------------------------------------------------


async def test_what_is_there_comes_first_then_what_is_new(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 2, 1)
    async with events(app, topic) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-store"
        assert "content-length" not in stream.headers
        first = [await stream.event() for _ in range(4)]
        assert [e.type for e in first] == ["record"] * 3 + ["caught_up"]
        assert stream.parser.retry == 1000
        assert [place(e.json()) for e in first[:3]] == [(0, 0), (0, 1), (1, 0)]
        assert first[3].json() == {"cursor": first[3].id}
        await fill(http, topic, 1)
        new = await stream.event()
        assert (new.type, place(new.json())) == ("record", (0, 2))
    one = await http.get(f"{T}/{topic}/partitions/0/records/2")
    assert new.json() == one.json()


async def test_a_stream_from_the_end_has_a_cursor_before_its_first_record(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 2, 2)
    async with events(app, topic, "from=latest") as stream:
        begin = await stream.event()
        assert begin.type == "caught_up"
    await fill(http, topic, 1, 1)
    async with events(app, topic, "from=latest", last_event_id=begin.id) as stream:
        assert [place(r) for r in await stream.records(2)] == [(0, 2), (1, 2)]


async def test_events_pages_and_lines_share_their_cursors(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 3)
    await fill(http, topic, 3, 3, 3)
    body = await page(http, topic, limit=4)
    async with events(app, topic, f"cursor={body['next_cursor']}") as stream:
        event = await stream.event()
    async with events(app, topic, f"cursor={event.id}&wait_ms=0", accept=LINES) as stream:
        lines = [json.loads(line) for line in (await stream.rest()).splitlines()]
    assert len(body["records"]) + 1 + len(lines) == 9
    assert len({place(r) for r in [*body["records"], event.json(), *lines]}) == 9
    assert (await page(http, topic, cursor=lines[-1]["cursor"]))["records"] == []


async def test_a_json_value_over_several_lines_stays_one_event_and_one_line(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    body = b'{"value": {"a":\r\n [1,\n\n2], "b": "x\\ny"}, "key": "a\\n\\nid: evil"}'
    await http.post(url, content=body, headers={"content-type": "application/json"})
    async with events(app, topic) as stream:
        event = await stream.event()
        assert event.json()["value"] == {"a": [1, 2], "b": "x\ny"}
        assert event.json()["key"] == "a\n\nid: evil"
    async with events(app, topic, "wait_ms=0", accept=LINES) as stream:
        (line,) = (await stream.rest()).splitlines()
        assert json.loads(line)["value"] == {"a": [1, 2], "b": "x\ny"}
    # A page keeps the client's bytes.
    assert b'{"a":\r\n [1,\n\n2]' in (await http.get(url)).content


async def test_a_silent_stream_gets_comments(app: Application, http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic)
    async with events(app, topic) as stream:
        assert (await stream.event()).type == "caught_up"
        for expected in (1, 2):
            stream.parser.feed(await stream.piece() or b"")
            assert stream.parser.comments == expected
    async with events(app, topic, accept=LINES) as stream:
        assert await stream.piece() == b"\n"


async def test_a_comment_carries_the_cursor_past_what_a_filter_left_out(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    async with events(app, topic, "key=b") as stream:
        begin = (await stream.event()).id
        await http.post(url, json={"records": [{"key": "a"}] * 5})
        while stream.parser.last_id == begin:
            assert stream.parser.feed(await stream.piece() or b"") == []
        assert stream.parser.last_id == (await page(http, topic))["next_cursor"]
        await http.post(url, json={"key": "b"})
        assert place((await stream.event()).json()) == (0, 5)


async def test_new_partitions_are_picked_up(app: Application, http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic, 1)
    async with events(app, topic, "from=latest") as stream:
        assert (await stream.event()).type == "caught_up"
        await http.patch(f"{T}/{topic}", json={"partitions": 3})
        await fill(http, topic, 0, 0, 2)
        assert [place(r) for r in await stream.records(2)] == [(2, 0), (2, 1)]


async def test_caught_up_comes_again_after_a_stream_has_lagged(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    async with events(app, topic) as stream:
        assert (await stream.event()).type == "caught_up"
        stream.room.clear()
        for _ in range(3):
            await http.post(url, json={"records": [{"value": "x" * 1000}] * 40})
        stream.room.set()
        assert [(await stream.event()).type for _ in range(121)] == ["record"] * 120 + ["caught_up"]


async def test_listeners_that_want_different_things_get_them(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic, 2)
    queries = ("", "encoding=base64", "key=a", "partitions=1", "header.h=1")
    async with (
        events(app, topic, queries[0]) as everything, events(app, topic, queries[1]) as base64,
        events(app, topic, queries[2]) as key, events(app, topic, queries[3]) as partition,
        events(app, topic, queries[4]) as header,
    ):  # fmt: skip
        records = [
            {"key": "a", "value": 1, "partition": 0},
            {"key": "b", "value": 2, "partition": 1, "headers": [{"name": "h", "value": "1"}]},
        ]
        await http.post(url, json={"records": records})
        assert [r["value"] for r in await everything.records(2)] == [1, 2]
        assert [r["value"] for r in await base64.records(2)] == ["MQ==", "Mg=="]
        assert [r["value"] for r in await key.records(1)] == [1]
        assert [r["value"] for r in await partition.records(1)] == [2]
        assert [r["value"] for r in await header.records(1)] == [2]


# --- NDJSON -------------------------------------------------------------------------------------------------


async def test_lines_end_at_the_limit_or_when_nothing_comes(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 30, 30)
    for query, count in (("limit=7", 7), ("limit=60", 60), ("wait_ms=0", 60), ("limit=99&wait_ms=20", 60)):
        async with events(app, topic, query, accept=LINES) as stream:
            lines = (await stream.rest()).splitlines()
            assert len([line for line in lines if line]) == count
            assert len({place(json.loads(line)) for line in lines if line}) == count


async def test_a_line_can_be_written_back_as_it_came(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    await http.post(url, json={"key": "k", "value": [1], "headers": [{"name": "h", "value": "x"}]})
    async with events(app, topic, "wait_ms=0", accept=LINES) as stream:
        lines = await stream.rest()
    again = await http.post(url, content=lines, headers={"content-type": LINES})
    assert again.status_code == 200, again.text
    one, two = (await page(http, topic))["records"]
    assert {**one, "offset": 1} == two


# --- ends ---------------------------------------------------------------------------------------------------


async def test_a_client_that_disconnects_leaves_nothing(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 2)
    # A gateway follows what was read for a while longer: for all streams, not for each.
    async with events(app, topic) as first:
        assert (await first.event()).type == "caught_up"
    before = len(asyncio.all_tasks())
    async with events(app, topic) as waiting, events(app, topic, "partitions=1") as one:
        assert (await waiting.event()).type == (await one.event()).type == "caught_up"
        assert open_streams(app) == 2
        assert len(app.server.broker.purgatory) == 2
    await asyncio.sleep(0)
    assert open_streams(app) == 0
    assert len(app.server.broker.purgatory) == 0
    async with events(app, topic) as blocked:
        await blocked.event()
        blocked.room.clear()
        await fill(http, topic, 3)
    await asyncio.sleep(0)
    assert open_streams(app) == 0
    assert len(asyncio.all_tasks()) <= before


@pytest.mark.parametrize("again", [False, True])
async def test_a_topic_that_is_deleted_ends_its_streams(
    app: Application, http: httpx.AsyncClient, topic: str, again: bool
) -> None:
    await make(http, topic, 2)
    async with (
        events(app, topic) as stream, events(app, topic, "partitions=1") as one,
        events(app, topic, accept=LINES) as lines,
    ):  # fmt: skip
        await stream.event()
        await one.event()
        await http.delete(f"{T}/{topic}")
        if again:
            await make(http, topic, 2)
            await fill(http, topic, 1, 1)
        for each in (stream, one):
            problem = await each.event()
            assert (problem.type, problem.json()["kafka_error"]) == ("problem", "UNKNOWN_TOPIC_OR_PARTITION")
            assert await each.rest() == b""
        rest = [json.loads(line) for line in (await lines.rest()).splitlines() if line]
        assert [line["problem"]["status"] for line in rest] == [404]


async def test_the_number_of_streams_is_limited(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic)
    streams = [events(app, topic) for _ in range(CONFIG["http_max_streams"])]
    for stream in streams:
        await stream.__aenter__()
    got = await http.get(f"{T}/{topic}/records", headers={"accept": "text/event-stream"})
    problem(got, 429, "throttling-quota-exceeded")
    assert got.headers["retry-after"]
    for stream in streams:
        await stream.__aexit__(None, None, None)


async def test_head_has_the_header_lines_and_no_stream(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    got = await http.head(f"{T}/{topic}/records", headers={"accept": "text/event-stream"})
    assert (got.status_code, got.headers["content-type"], got.content) == (200, "text/event-stream", b"")
    assert open_streams(app) == 0


@pytest.mark.parametrize(
    ("query", "accept", "parameter"),
    [
        ("limit=1", "text/event-stream", "limit"),
        ("wait_ms=1", "text/event-stream", "wait_ms"),
        ("max_bytes=1", "text/event-stream", "max_bytes"),
        ("max_bytes=1", LINES, "max_bytes"),
        ("last_event_id=1.x", "text/event-stream", "last_event_id"),
        ("last_event_id=1.x", LINES, "last_event_id"),
        ("cursor=1.x", LINES, "cursor"),
        ("limit=0", LINES, "limit"),
        ("wait_ms=-1", LINES, "wait_ms"),
        ("key=a&key_prefix=b", "text/event-stream", "key_prefix"),
    ],
)
async def test_bad_input_is_refused_before_a_stream_begins(
    http: httpx.AsyncClient, problem: Check, query: str, accept: str, parameter: str
) -> None:
    await http.put(f"{T}/refused", json={})
    got = await http.get(f"{T}/refused/records?{query}", headers={"accept": accept})
    assert problem(got, 422, "invalid-request")["errors"][0]["parameter"] == parameter


async def test_a_damaged_last_event_id_is_refused(http: httpx.AsyncClient, problem: Check) -> None:
    await http.put(f"{T}/refused", json={})
    for value in (b"1.x", b"\xff"):
        headers = {b"accept": b"text/event-stream", b"last-event-id": value}
        document = problem(await http.get(f"{T}/refused/records", headers=headers), 422, "invalid-request")
        assert document["errors"][0]["parameter"] == "Last-Event-ID"


# --- drain --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def fresh(tmp_path: Path, **changes: Any) -> AsyncIterator[tuple[Application, httpx.AsyncClient]]:
    application = create_app(config_for(tmp_path / "data", **changes))
    async with application.lifespan(), client_of(application) as client:
        yield application, client


async def test_a_drain_says_goodbye_with_a_time_and_the_cursor_to_come_back(tmp_path: Path) -> None:
    async with fresh(tmp_path) as (app, http):
        await make(http, "t", 2)
        async with (
            events(app, "t") as waiting,
            events(app, "t", accept=LINES) as lines,
            AsyncPoll(http) as poll,
        ):
            assert (await waiting.event()).type == "caught_up"
            await asyncio.sleep(0.02)
            app.drain()
            bye = await waiting.event()
            assert (bye.type, bye.json()["cursor"]) == ("bye", bye.id)
            assert 1000 <= (waiting.parser.retry or 0) <= 2000
            assert await waiting.rest() == b""
            (line,) = [json.loads(one) for one in (await lines.rest()).splitlines()]
            assert line["cursor"] == bye.id
            assert line["bye"]["retry_ms"] >= 1000
            assert (await poll.answer()).json()["records"] == []


async def test_a_drain_reaches_a_reader_that_lags(tmp_path: Path) -> None:
    async with fresh(tmp_path, stream_piece_bytes=1_000) as (app, http):
        await make(http, "t")
        await http.post(f"{T}/t/records", json={"records": [{"value": "x" * 500}] * 100})
        async with events(app, "t") as stream:
            stream.room.clear()
            await asyncio.sleep(0.01)
            app.drain()
            stream.room.set()
            seen = []
            while (event := await stream.event()).type == "record":
                seen.append(event)
            assert event.type == "bye"
            assert len(seen) < 100
            assert event.id == seen[-1].id if seen else True


class AsyncPoll:
    """A long poll under way."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._task = asyncio.create_task(http.get(f"{T}/t/records?wait_ms=20000"))

    async def __aenter__(self) -> AsyncPoll:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def answer(self) -> httpx.Response:
        return await asyncio.wait_for(self._task, 60)


__all__ = ["Stream"]
