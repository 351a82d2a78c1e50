"""Streams that are cut, that lag, that are overtaken: no record is missed or repeated, little memory is held."""

from __future__ import annotations

import asyncio
import json
import random

import httpx
import pytest

from app.main import Application
from app.native.streams.cursor import CursorWriter, Position
from core.types import TopicPartition
from tests.app.conftest import logs_of
from tests.app.native.streams.asgi_stream import EventParser
from tests.app.native.streams.test_events import LINES, events, open_streams, place
from tests.app.native.streams.test_merged import NUMBERS, broken_batch, fill
from tests.app.native.test_records import T, make

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {
    "stream_comment_ms": 60, "stream_interval_ms": 1, "stream_piece_bytes": 4_096, "stream_cache_bytes": 200_000,
}  # fmt: skip


# --- exact resume -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_a_connection_that_is_cut_anywhere_resumes_exactly(
    app: Application, http: httpx.AsyncClient, seed: int
) -> None:
    """Cut at a random byte again and again, while records arrive in four partitions and later in six."""
    topic = f"resume-{next(NUMBERS)}"
    await make(http, topic, 4)
    chance = random.Random(seed)
    total = 400
    written: dict[int, int] = {}

    async def write() -> None:
        done = 0
        while done < total:
            count = min(chance.randrange(1, 12), total - done)
            partitions = 4 if done < total // 2 else 6
            if partitions == 6:
                await http.patch(f"{T}/{topic}", json={"partitions": 6})
            records = []
            for _ in range(count):
                number = chance.randrange(partitions)
                records.append({"partition": number, "value": {"n": written.get(number, 0)}})
                written[number] = written.get(number, 0) + 1
            await http.post(f"{T}/{topic}/records?acks=1", json={"records": records})
            done += count
            await asyncio.sleep(chance.choice((0, 0, 0.003)))

    writer = asyncio.create_task(write())
    got: list[tuple[int, int]] = []
    last_id, connections = "", 0
    while len(got) < total:
        connections += 1
        by_header = bool(last_id) and chance.random() < 0.5
        query = f"last_event_id={last_id}" if last_id and not by_header else ""
        more = {"last_event_id": last_id} if by_header else {}
        async with events(app, topic, query, **more) as stream:
            assert stream.status == 200
            budget = chance.randrange(1, 6_000)
            parser = EventParser(last_id=last_id)
            while budget > 0 and len(got) < total:
                piece = (await stream.piece() or b"")[:budget]
                budget -= len(piece)
                for event in parser.feed(piece):
                    last_id = event.id
                    if event.type == "record":
                        record = event.json()
                        assert record["value"]["n"] == record["offset"]
                        got.append(place(record))
    await writer
    assert connections > 10
    for partition in range(6):
        mine = [offset for number, offset in got if number == partition]
        assert mine == list(range(written.get(partition, 0)))
    assert open_streams(app) == 0


async def test_listeners_together_each_get_every_record_once(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic, 3)

    async def listen(number: int) -> list[tuple[int, int]]:
        chance = random.Random(number)
        await asyncio.sleep(chance.random() / 20)
        found: list[tuple[int, int]] = []
        async with events(app, topic, "from=earliest") as stream:
            while len(found) < 300:
                found += [place(r) for r in await stream.records(1)]
                if chance.random() < 0.02:
                    await asyncio.sleep(0.005)
        return found

    listeners = [asyncio.create_task(listen(number)) for number in range(12)]
    for i in range(60):
        await http.post(
            f"{url}?acks=1", json={"records": [{"value": i, "partition": (i + k) % 3} for k in range(5)]}
        )
    for found in await asyncio.gather(*listeners):
        for partition in range(3):
            assert [o for p, o in found if p == partition] == list(range(100))


# --- slow readers -------------------------------------------------------------------------------------------


async def test_a_reader_that_takes_nothing_holds_one_piece_and_misses_nothing(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    async with events(app, topic) as slow, events(app, topic) as quick:
        assert (await slow.event()).type == "caught_up"
        slow.room.clear()
        for i in range(30):
            await http.post(
                f"{url}?acks=1", json={"records": [{"value": f"{i}-{k}" + "x" * 900} for k in range(20)]}
            )
        assert len(await quick.records(600)) == 600
        # What waits for the slow one is the one piece that it was given; the rest lies in the log.
        assert 0 < slow.blocked_bytes < 3 * CONFIG["stream_piece_bytes"] + 25_000
        slow.room.set()
        assert [r["offset"] for r in await slow.records(600)] == list(range(600))


async def test_a_reader_that_retention_overtakes_is_told_what_it_lost(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic, 2)
    async with events(app, topic) as stream:
        assert (await stream.event()).type == "caught_up"
        stream.room.clear()
        await fill(http, topic, 1)
        async with asyncio.timeout(60):
            while not stream.blocked_bytes:
                await asyncio.sleep(0.005)
        await http.post(url, json={"records": [{"value": "x" * 900, "partition": 1}] * 50})
        cut = {"partitions": [{"partition": 1, "before_offset": 45}]}
        await http.post(f"{T}/{topic}:truncate", json=cut)
        stream.room.set()
        assert place((await stream.event()).json()) == (0, 0)
        problem = await stream.event()
        assert problem.type == "problem"
        document = problem.json()
        assert (document["status"], document["kafka_error"]) == (410, "OFFSET_OUT_OF_RANGE")
        assert (document["partition"], document["offset"], document["next_offset"]) == (1, 0, 45)
        assert [place(r) for r in await stream.records(5)] == [(1, offset) for offset in range(45, 50)]
    async with events(app, topic, last_event_id=problem.id) as stream:
        assert place((await stream.event()).json()) == (1, 45)


async def test_a_reconnect_below_the_start_is_told_in_the_stream(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    """A browser shows its page neither status nor body of a refused reconnect; it would just stop."""
    await make(http, topic, 2)
    await fill(http, topic, 4, 1)
    async with events(app, topic) as stream:
        cursor = (await stream.event()).id
    cut = {"partitions": [{"partition": 0, "before_offset": 3}]}
    await http.post(f"{T}/{topic}:truncate", json=cut)
    async with events(app, topic, last_event_id=cursor) as stream:
        seen = [await stream.event() for _ in range(4)]
        assert [e.type for e in seen] == ["problem", "record", "record", "caught_up"]
        assert [place(e.json()) for e in seen[1:3]] == [(0, 3), (1, 0)]
    got = await http.get(f"{T}/{topic}/records?cursor={cursor}", headers={"accept": "text/event-stream"})
    assert got.status_code == 410


async def test_a_broken_batch_is_told_and_passed(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    await fill(http, topic, 1)
    logs_of(app).partitions.append(TopicPartition(topic, 0), memoryview(broken_batch()))
    await fill(http, topic, 1)
    async with events(app, topic) as stream:
        seen = [await stream.event() for _ in range(3)]
        assert [e.type for e in seen] == ["record", "problem", "record"]
        assert (seen[1].json()["kafka_error"], seen[1].json()["next_offset"]) == ("CORRUPT_MESSAGE", 3)
    async with events(app, topic, "wait_ms=0", accept=LINES) as stream:
        lines = [json.loads(line) for line in (await stream.rest()).splitlines()]
        assert [line.get("offset") for line in lines] == [0, None, 3]
        assert lines[1]["problem"]["kafka_error"] == "CORRUPT_MESSAGE"


async def test_a_reconnect_above_the_end_is_told_and_continues_at_the_end(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    """After a power loss, records that were never on disk are lost; the ones at their offsets are new."""
    await make(http, topic)
    await fill(http, topic, 2)
    writer = CursorWriter(app.server.broker.topics.get(topic).topic_id, None)
    async with events(app, topic, last_event_id=writer.text(Position((9,))).decode()) as stream:
        problem = await stream.event()
        assert (problem.type, problem.json()["status"]) == ("problem", 416)
        assert (problem.json()["offset"], problem.json()["high_watermark"]) == (9, 2)
        await fill(http, topic, 1)
        assert [place(r) for r in await stream.records(1)] == [(0, 2)]


async def test_a_topic_that_is_deleted_while_a_reader_is_slow_ends_its_stream(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    async with events(app, topic) as stream:
        assert (await stream.event()).type == "caught_up"
        stream.room.clear()
        await fill(http, topic, 100)
        await asyncio.sleep(0.02)
        await http.delete(f"{T}/{topic}")
        stream.room.set()
        while (event := await stream.event()).type == "record":
            pass
        assert (event.type, event.json()["status"]) == ("problem", 404)
        assert await stream.rest() == b""
