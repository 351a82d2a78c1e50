"""The fan-out: records are read and encoded once for all readers of the same ones, within bounded memory."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.formats import Reader
from app.main import Application
from app.native.streams.cursor import Position
from app.native.streams.fanout import RANGE_RECORDS, Fanout, Feed, ReadFaultError, Taken
from app.native.streams.filters import Filter
from app.native.streams.forms import NDJSON, SSE
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from tests.app.conftest import logs_of
from tests.app.native.streams.test_merged import broken_batch, fill
from tests.app.native.test_records import T, make

pytestmark = pytest.mark.asyncio(loop_scope="module")
AUTO = Reader("auto", 128)
NO_LIMIT = 1 << 30


def fanout_of(app: Application, **changes: Any) -> Fanout:
    return Fanout(Config(**changes), lambda: app.server.broker)


def feed_of(app: Application, topic: str, partitions: tuple[int, ...] | None = None, **more: Any) -> Feed:
    wanted = Filter(more["key"], None, ()) if "key" in more else None
    return Feed(app.server.broker.topics.get(topic), partitions, AUTO, "auto", wanted)


def places(taken: Taken) -> list[tuple[int, int]]:
    return [(part.at, end - 1) for part in taken.parts for end in part.found.ends[: part.used]]


class Reads:
    """Counts how often the broker is asked."""

    def __init__(self, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int]] = []
        self.bounds = 0
        broker = app.server.broker
        read_now, bounds = broker.records.read_now, broker.partitions.bounds

        def reading(tp: TopicPartition, offset: int, **limits: int) -> Any:
            self.seen.append((tp.partition, offset))
            return read_now(tp, offset, **limits)

        def looking(topic: str, partitions: Any) -> Any:
            self.bounds += 1
            return bounds(topic, partitions)

        monkeypatch.setattr(broker.records, "read_now", reading)
        monkeypatch.setattr(broker.partitions, "bounds", looking)


async def test_a_hundred_listeners_cost_one_read_and_one_encoding(
    app: Application, http: httpx.AsyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 5, 5)
    reads, fanout = Reads(app, monkeypatch), fanout_of(app)
    pieces = [await fanout.piece(feed_of(app, topic), SSE, Position((0, 0))) for _ in range(100)]
    assert reads.seen == [(0, 0), (1, 0)]
    assert reads.bounds == 1
    assert all(piece is pieces[0] for piece in pieces)
    # Another form has other bytes, of the same encoded records.
    assert await fanout.piece(feed_of(app, topic), NDJSON, Position((0, 0))) is not None
    assert len(reads.seen) == 2


async def test_readers_of_other_encodings_and_filters_share_nothing_wrong(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    await http.post(url, json={"records": [{"key": "a", "value": 1}, {"key": "b", "value": 2}]})
    fanout, begin = fanout_of(app), Position((0,))
    info = app.server.broker.topics.get(topic)
    feeds = [
        feed_of(app, topic), feed_of(app, topic, key=b"a"), feed_of(app, topic, key=b"b"),
        Feed(info, None, Reader("base64", 128), "base64", None),
    ]  # fmt: skip
    bodies = [piece.body for feed in feeds if (piece := await fanout.piece(feed, SSE, begin)) is not None]
    assert len(set(bodies)) == 4
    assert [body.count(b"event: record") for body in bodies] == [2, 1, 1, 2]


async def test_readers_that_leave_the_same_position_arrive_at_the_same(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 3, 0)
    fanout, feed = fanout_of(app), feed_of(app, topic)
    first = await fanout.piece(feed, SSE, Position((0, 0)))
    await fill(http, topic, 2, 2)
    late = await fanout.piece(feed, SSE, Position((0, 0)))
    assert late is first and first is not None
    rest = fanout.take(feed, first.behind, max_bytes=NO_LIMIT)
    assert places(rest) == [(0, 3), (0, 4), (1, 0), (1, 1)]
    assert fanout.caught_up(feed, rest.behind)


async def test_readers_that_lag_are_brought_together(
    app: Application, http: httpx.AsyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(http, topic)
    await fill(http, topic, 3 * RANGE_RECORDS)
    reads, fanout, feed = Reads(app, monkeypatch), fanout_of(app), feed_of(app, topic)
    for begin in (0, 7, 100):
        position = Position((begin,))
        while not fanout.caught_up(feed, position):
            position = fanout.take(feed, position, max_bytes=1, whole=True).behind
    # Each begins by itself; from the first multiple on they read the same.
    assert sorted(reads.seen) == [(0, 0), (0, 7), (0, 100), (0, RANGE_RECORDS), (0, 2 * RANGE_RECORDS)]


async def test_what_is_kept_stays_under_its_limit(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    await fill(http, topic, 2_000)
    limit = 200_000
    fanout, feed = fanout_of(app, stream_cache_bytes=limit, stream_piece_bytes=4_096), feed_of(app, topic)
    position = Position((0,))
    while (piece := await fanout.piece(feed, SSE, position)) is not None:
        position = piece.behind
        assert fanout._ranges.size <= limit
        assert fanout._pieces.size <= limit
    assert fanout._pieces.size > limit // 2
    assert position == Position((2_000,))


async def test_one_record_that_is_wanted_alone_is_not_paid_for_256(
    app: Application, http: httpx.AsyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make(http, topic)
    await fill(http, topic, 50)
    wanted = []
    read_now = app.server.broker.records.read_now

    def reading(tp: TopicPartition, offset: int, **limits: int) -> Any:
        wanted.append(limits["max_records"])
        return read_now(tp, offset, **limits)

    monkeypatch.setattr(app.server.broker.records, "read_now", reading)
    taken = fanout_of(app).take(feed_of(app, topic), Position((0,)), max_bytes=NO_LIMIT, max_records=1)
    assert (places(taken), wanted) == ([(0, 0)], [1])


async def test_a_read_is_cut_at_its_bytes_and_continues_there(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 4, 4)
    fanout, feed = fanout_of(app), feed_of(app, topic)
    size = len(fanout.take(feed, Position((3, 0)), max_bytes=1).parts[0].found.texts[0])
    first = fanout.take(feed, Position((0, 0)), max_bytes=3 * size)
    assert places(first) == [(0, 0), (0, 1), (0, 2)]
    assert first.behind == Position((3, 0), 0)
    assert first.records == 3
    none = fanout.take(feed, first.behind, max_bytes=size - 1, one_at_least=False)
    assert (none.parts, none.behind) == ([], first.behind)
    rest = fanout.take(feed, first.behind, max_bytes=NO_LIMIT)
    assert places(rest) == [(0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert rest.behind == Position((4, 4), 0)


async def test_the_next_turn_is_that_of_the_partition_after_the_last(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 4)
    await fill(http, topic, 2, 0, 2, 2)
    fanout, feed, position = fanout_of(app), feed_of(app, topic), Position((0, 0, 0, 0), 1)
    order = []
    while not fanout.caught_up(feed, position):
        taken = fanout.take(feed, position, max_bytes=NO_LIMIT, max_records=1)
        order += places(taken)
        position = taken.behind
    assert order == [(2, 0), (3, 0), (0, 0), (2, 1), (3, 1), (0, 1)]


async def test_a_fault_after_good_records_waits_for_its_turn(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 1, 1)
    logs_of(app).partitions.append(TopicPartition(topic, 0), memoryview(broken_batch()))
    fanout, feed = fanout_of(app), feed_of(app, topic)
    taken = fanout.take(feed, Position((0, 0)), max_bytes=NO_LIMIT)
    assert places(taken) == [(0, 0), (1, 0)]
    with pytest.raises(ReadFaultError) as fault:
        fanout.take(feed, taken.behind, max_bytes=NO_LIMIT)
    assert (fault.value.index, fault.value.error.code) == (0, ErrorCode.CORRUPT_MESSAGE)


async def test_a_topic_made_again_is_not_the_one_that_was_read(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic)
    fanout, feed = fanout_of(app), feed_of(app, topic)
    assert fanout.ends(feed) == (0,)
    await http.delete(f"{T}/{topic}")
    await make(http, topic)
    with pytest.raises(BrokerError) as gone:
        fanout.ends(feed)
    assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_lines_have_no_breaks_and_texts_keep_theirs(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    body = b'{"value":[1,\r\n2]}'
    await http.post(url, content=body, headers={"content-type": "application/json"})
    (part,) = fanout_of(app).take(feed_of(app, topic), Position((0,)), max_bytes=NO_LIMIT).parts
    assert b"[1,\r\n2]" in part.found.texts[0]
    assert b"[1,  2]" in part.found.lines[0]


async def test_the_ends_of_many_topics_are_forgotten_again(
    app: Application, http: httpx.AsyncClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.native.streams.fanout._MAX_ENDS", 3)
    await make(http, topic, 8)
    fanout = fanout_of(app)
    for partition in range(8):
        assert fanout.ends(feed_of(app, topic, (partition,))) == (0,)
    assert len(fanout._ends) == 3
