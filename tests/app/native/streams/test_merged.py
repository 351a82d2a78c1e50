"""Merged reads as pages: all partitions, in turn, with a cursor that continues exactly."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import httpx
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.main import Application
from app.native.streams.cursor import CursorWriter, Position
from app.native.streams.merged import PARAMETERS
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.types import TopicPartition
from tests.app.conftest import logs_of
from tests.app.native.streams.asgi_stream import streaming
from tests.app.native.test_records import Check, T, make

pytestmark = pytest.mark.asyncio(loop_scope="module")
NUMBERS = itertools.count()
CONFIG = {"http_max_scan": 2_000, "max_partitions_per_topic": 100}


async def fill(http: httpx.AsyncClient, topic: str, *counts: int, **record: Any) -> None:
    """Write `count` records to each partition. The value is their number there, their time that many seconds."""
    records = [
        {"partition": number, "value": i, "timestamp": i * 1000, **record}
        for number, count in enumerate(counts)
        for i in range(count)
    ]
    for start in range(0, len(records), 400):
        wrote = await http.post(f"{T}/{topic}/records?acks=1", json={"records": records[start : start + 400]})
        assert wrote.status_code == 200, wrote.text


async def page(http: httpx.AsyncClient, topic: str, **params: Any) -> dict[str, Any]:
    got = await http.get(f"{T}/{topic}/records", params=params)
    assert got.status_code == 200, got.text
    body: dict[str, Any] = got.json()
    return body


def places(body: dict[str, Any]) -> list[tuple[int, int]]:
    return [(r["partition"], r["offset"]) for r in body["records"]]


async def walk(http: httpx.AsyncClient, topic: str, **params: Any) -> list[list[tuple[int, int]]]:
    """All pages until nothing is left."""
    pages = []
    first = dict(params)
    while True:
        body = await page(http, topic, **params)
        pages.append(places(body))
        if body["caught_up"]:
            return pages
        params = {k: v for k, v in first.items() if k != "from"} | {"cursor": body["next_cursor"]}


def broken_batch() -> bytearray:
    """A batch of two records that can be stored, since its checksum is right, and not be read."""
    batch = build_batch([NewRecord(value=b"x" * 50)] * 2, now_ms=0)
    batch[61:] = b"\xff" * (len(batch) - 61)
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return batch


# --- what is read -------------------------------------------------------------------------------------------


async def test_a_page_holds_the_records_of_all_partitions_as_other_reads_give_them(
    http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 3)
    await fill(http, topic, 2, 0, 3)
    body = await page(http, topic)
    assert body["caught_up"] is True
    assert places(body) == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]
    one = await http.get(f"{T}/{topic}/partitions/2/records/1")
    assert body["records"][3] == one.json()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    limit=st.integers(1, 40),
    chosen=st.booleans(),
    data=st.data(),
)
async def test_pages_give_each_record_once_and_in_order(
    http: httpx.AsyncClient, counts: list[int], limit: int, chosen: bool, data: st.DataObject
) -> None:
    topic = f"pages-{next(NUMBERS)}"
    await make(http, topic, len(counts))
    await fill(http, topic, *counts)
    wanted = set(range(len(counts)))
    params: dict[str, Any] = {"limit": limit}
    if chosen:
        wanted = data.draw(st.sets(st.sampled_from(sorted(wanted)), min_size=1))
        params["partitions"] = ",".join(map(str, wanted))
    pages = await walk(http, topic, **params)
    assert all(len(one) <= limit for one in pages)
    got = [place for one in pages for place in one]
    for partition in range(len(counts)):
        expected = range(counts[partition]) if partition in wanted else ()
        assert [o for p, o in got if p == partition] == list(expected)


async def test_a_busy_partition_starves_no_other(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic, 3)
    await fill(http, topic, 2_000, 3, 3)
    turns, cursor = [], (await page(http, topic, limit=1, partitions="0-2"))["next_cursor"]
    for _ in range(8):
        body = await page(http, topic, limit=1, cursor=cursor)
        turns.append(body["records"][0]["partition"])
        cursor = body["next_cursor"]
    assert turns == [1, 2, 0, 1, 2, 0, 1, 2]
    first = places(await page(http, topic, limit=500))
    assert {p for p, _ in first} == {0, 1, 2}


async def test_a_page_continues_where_records_have_come_and_partitions_too(
    http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 1)
    await fill(http, topic, 2)
    cursor = (await page(http, topic))["next_cursor"]
    assert places(await page(http, topic, cursor=cursor)) == []
    await http.patch(f"{T}/{topic}", json={"partitions": 3})
    await fill(http, topic, 1, 0, 2)
    assert places(await page(http, topic, cursor=cursor)) == [(0, 2), (2, 0), (2, 1)]


async def test_chosen_partitions_stay_chosen_by_the_cursor(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic, 4)
    await fill(http, topic, 1, 1, 1, 1)
    body = await page(http, topic, partitions="3,1-2", limit=1)
    rest = await page(http, topic, cursor=body["next_cursor"], partitions="1,2,3")
    assert places(body) + places(rest) == [(1, 0), (2, 0), (3, 0)]
    await http.patch(f"{T}/{topic}", json={"partitions": 5})
    assert places(await page(http, topic, cursor=rest["next_cursor"])) == []


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ("earliest", [(0, 0), (0, 1), (0, 2), (1, 0)]),
        ("latest", []),
        ("1000", [(0, 1), (0, 2)]),
        ("1970-01-01T00:00:02Z", [(0, 2)]),
        ("5000", []),
    ],
)
async def test_a_read_begins_where_from_says(
    http: httpx.AsyncClient, topic: str, begin: str, expected: list[tuple[int, int]]
) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 3, 1)
    assert places(await page(http, topic, **{"from": begin})) == expected


async def test_a_page_ends_before_max_bytes_but_holds_one_record(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic, 2)
    await fill(http, topic, 3, 3)
    whole = await http.get(f"{T}/{topic}/records", params={"limit": 2})
    size = len(whole.content)
    assert len(places(await page(http, topic, max_bytes=1))) == 1
    assert len(places(await page(http, topic, max_bytes=size))) == 2
    assert [len(one) for one in await walk(http, topic, max_bytes=1)] == [1] * 6


@pytest.mark.parametrize(("encoding", "value"), [("auto", 0), ("text", "0"), ("base64", "MA==")])
async def test_an_encoding_is_as_in_other_reads(
    http: httpx.AsyncClient, topic: str, encoding: str, value: Any
) -> None:
    await make(http, topic, 1)
    await fill(http, topic, 1)
    assert (await page(http, topic, encoding=encoding))["records"][0]["value"] == value


async def test_pages_are_not_cached(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic, 1)
    got = await http.get(f"{T}/{topic}/records")
    assert (got.headers["cache-control"], got.headers["vary"]) == ("no-store", "accept")


async def test_records_that_are_larger_than_a_range_come_one_after_the_other(
    http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic, 1)
    for _ in range(3):
        await http.post(url, json={"records": [{"value": "x" * 90_000} for _ in range(3)]})
    assert places(await page(http, topic)) == [(0, offset) for offset in range(9)]


# --- filters ------------------------------------------------------------------------------------------------


async def test_a_filter_takes_some_and_the_cursor_passes_the_others(
    http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic, 1)
    records = [
        {"key": f"k{i % 3}", "value": i, "headers": [{"name": "H", "value": str(i % 2)}]} for i in range(12)
    ]
    await http.post(url, json={"records": records})
    by_key = await page(http, topic, key="k1")
    assert [r["value"] for r in by_key["records"]] == [1, 4, 7, 10]
    assert by_key["caught_up"] is True
    assert by_key["next_cursor"] == (await page(http, topic))["next_cursor"]
    both = await page(http, topic, **{"key_prefix": "k1", "header.H": "0"})
    assert [r["value"] for r in both["records"]] == [4, 10]
    pages = await walk(http, topic, key="k1", limit=1)
    assert [place for one in pages for place in one] == [(0, 1), (0, 4), (0, 7), (0, 10)]


async def test_a_filter_that_finds_nothing_stops_after_its_share_and_continues(
    http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic, 2)
    await fill(http, topic, 2_500, 2_500)
    await http.post(url, json={"key": "needle", "partition": 1})
    pages = await walk(http, topic, key="needle")
    assert pages[0] == []
    assert [place for one in pages for place in one] == [(1, 2_500)]
    assert len(pages) == 3


# --- long polls ---------------------------------------------------------------------------------------------


async def test_a_poll_waits_for_a_record_in_any_partition(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 3)
    polls = [
        asyncio.create_task(page(http, topic, wait_ms=20_000)),
        asyncio.create_task(page(http, topic, wait_ms=20_000, partitions="2")),
    ]
    await asyncio.sleep(0.05)
    assert not any(poll.done() for poll in polls)
    await fill(http, topic, 0, 0, 1)
    for poll in polls:
        assert places(await asyncio.wait_for(poll, 60)) == [(2, 0)]
    assert len(app.server.broker.purgatory) == 0


async def test_a_poll_for_one_partition_is_not_woken_by_another(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 2)
    poll = asyncio.create_task(page(http, topic, wait_ms=200, partitions="1"))
    await asyncio.sleep(0.02)
    await fill(http, topic, 1)
    body = await asyncio.wait_for(poll, 60)
    assert (places(body), body["caught_up"]) == ([], True)


async def test_a_filtered_poll_waits_on_through_what_it_does_not_want(
    http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic, 1)
    poll = asyncio.create_task(page(http, topic, wait_ms=20_000, key="b"))
    await asyncio.sleep(0.02)
    await http.post(url, json={"key": "a"})
    await asyncio.sleep(0.05)
    assert not poll.done()
    await http.post(url, json={"key": "b"})
    assert places(await asyncio.wait_for(poll, 60)) == [(0, 1)]


async def test_a_poll_is_answered_empty_at_its_deadline(http: httpx.AsyncClient, topic: str) -> None:
    await make(http, topic, 2)
    body = await page(http, topic, wait_ms=30)
    assert (body["records"], body["caught_up"]) == ([], True)


async def test_a_poll_on_a_topic_that_is_deleted_is_404(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    for partitions in ("", "&partitions=0"):
        await make(http, topic, 1)
        poll = asyncio.create_task(http.get(f"{T}/{topic}/records?wait_ms=20000{partitions}"))
        await asyncio.sleep(0.05)
        await http.delete(f"{T}/{topic}")
        problem(await asyncio.wait_for(poll, 60), 404, "unknown-topic-or-partition")


async def test_a_client_that_disconnects_ends_its_poll(
    app: Application, http: httpx.AsyncClient, topic: str
) -> None:
    await make(http, topic, 1)
    async with streaming(app, f"{T}/{topic}/records", "wait_ms=20000", accept="*/*", wait=False) as stream:
        await asyncio.sleep(0.05)
        assert len(app.server.broker.purgatory) == 1
    assert stream.status == 0
    assert len(app.server.broker.purgatory) == 0


# --- refusals -----------------------------------------------------------------------------------------------


async def test_a_cursor_below_the_start_is_410_and_the_answer_leads_on(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic, 3)
    await fill(http, topic, 5, 5, 5)
    begin = (await page(http, topic, limit=1))["next_cursor"]
    cut = [{"partition": 0, "before_offset": 3}, {"partition": 2, "before_offset": 4}]
    await http.post(f"{T}/{topic}:truncate", json={"partitions": cut})
    document = problem(await http.get(f"{T}/{topic}/records?cursor={begin}"), 410, "offset-out-of-range")
    assert (document["partition"], document["offset"], document["log_start_offset"]) == (0, 1, 3)
    assert document["high_watermark"] == 5
    assert [(e["partition"], e["log_start_offset"]) for e in document["errors"]] == [(0, 3), (2, 4)]
    rest = await page(http, topic, cursor=document["next_cursor"])
    assert sorted(places(rest)) == [(0, 3), (0, 4), *((1, o) for o in range(5)), (2, 4)]


async def test_a_cursor_above_the_end_is_416(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic, 2)
    writer = CursorWriter(app.server.broker.topics.get(topic).topic_id, None)
    cursor = writer.text(Position((0, 7))).decode()
    document = problem(await http.get(f"{T}/{topic}/records?cursor={cursor}"), 416, "offset-out-of-range")
    assert (document["partition"], document["offset"], document["high_watermark"]) == (1, 7, 0)
    assert places(await page(http, topic, cursor=document["next_cursor"])) == []


async def test_a_cursor_of_another_topic_or_of_a_former_one_is_refused(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic)
    await make(http, topic + "-other")
    cursor = (await page(http, topic))["next_cursor"]
    problem(await http.get(f"{T}/{topic}-other/records?cursor={cursor}"), 422, "invalid-request")
    await http.delete(f"{T}/{topic}")
    await make(http, topic)
    document = problem(await http.get(f"{T}/{topic}/records?cursor={cursor}"), 422, "invalid-request")
    assert document["errors"][0]["parameter"] == "cursor"


@pytest.mark.parametrize(
    ("query", "status", "parameter"),
    [
        ("cursor=", 422, "cursor"),
        ("cursor=1.abc", 422, "cursor"),
        ("cursor=%00", 422, "cursor"),
        ("cursor=%C3%A9", 422, "cursor"),
        ("cursor=%FF", 400, None),
        ("cursor=1.0&from=earliest", 422, "from"),
        ("from=yesterday", 422, "from"),
        ("from=-1", 422, "from"),
        ("from=", 422, "from"),
        ("from=99999999999999999999", 422, "from"),
        ("partitions=", 422, "partitions"),
        ("partitions=a", 422, "partitions"),
        ("partitions=0,,1", 422, "partitions"),
        ("partitions=3-1", 422, "partitions"),
        ("partitions=-1", 422, "partitions"),
        ("partitions=0-2147483647", 422, "partitions"),
        ("partitions=0-60,61-120", 422, "partitions"),
        ("partitions=0-99999999999999999999", 422, "partitions"),
        ("partitions=2", 404, None),
        ("partitions=0,99", 404, None),
        ("limit=0", 422, "limit"),
        ("limit=1000000", 422, "limit"),
        ("limit=ten", 422, "limit"),
        ("max_bytes=0", 422, "max_bytes"),
        ("max_bytes=999999999999", 422, "max_bytes"),
        ("wait_ms=-1", 422, "wait_ms"),
        ("wait_ms=300001", 422, "wait_ms"),
        ("wait_ms=1.5", 422, "wait_ms"),
        ("encoding=rot13", 422, "encoding"),
        ("key=a&key_prefix=b", 422, "key_prefix"),
        ("key_encoding=base64", 422, "key_encoding"),
        ("key=%3D%3D&key_encoding=base64", 422, "key"),
        ("header.=x", 422, "header."),
        ("header.a=1&header.a=2", 422, "header.a"),
        ("headers.a=1", 422, "headers.a"),
        ("last_event_id=1.0", 422, "last_event_id"),
        ("offset=3", 422, "offset"),
        ("limit=1&limit=2", 422, "limit"),
    ],
)  # fmt: skip
async def test_bad_input_is_refused_by_name(
    http: httpx.AsyncClient, problem: Check, query: str, status: int, parameter: str | None
) -> None:
    await http.put(f"{T}/refused", json={"partitions": 2})
    got = await http.get(f"{T}/refused/records?{query}")
    kind = {400: "malformed-request", 404: "unknown-topic-or-partition"}.get(status, "invalid-request")
    document = problem(got, status, kind)
    if parameter is not None:
        assert document["errors"][0]["parameter"] == parameter


VALUES = st.one_of(
    st.sampled_from(
        ["", "0", "1", "-1", "earliest", "latest", "0-2", "a", "base64", "2**63", "1.0", "\x00", "é", "+"]
    ),
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=10),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.dictionaries(
        st.sampled_from(
            [p for p in PARAMETERS if p not in ("wait_ms", "header.*")] + ["header.a", "header.", "x"]
        ),
        VALUES,
        max_size=4,
    ),
    lines=st.booleans(),
)
async def test_any_query_is_answered_or_refused(
    http: httpx.AsyncClient, query: dict[str, str], lines: bool
) -> None:
    await http.put(f"{T}/refused", json={"partitions": 2})
    accept = "application/x-ndjson" if lines else "application/json"
    more = {"wait_ms": "0"} if lines else {}
    got = await http.get(f"{T}/refused/records", params=query | more, headers={"accept": accept})
    assert got.status_code in (200, 400, 404, 422)


async def test_a_forged_cursor_of_partitions_that_are_not_there_is_refused(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic, 2)
    topic_id = app.server.broker.topics.get(topic).topic_id
    more = CursorWriter(topic_id, None).text(Position((0, 0, 0))).decode()
    problem(await http.get(f"{T}/{topic}/records?cursor={more}"), 422, "invalid-request")
    other = CursorWriter(topic_id, (0, 7)).text(Position((0, 0))).decode()
    problem(await http.get(f"{T}/{topic}/records?cursor={other}"), 404, "unknown-topic-or-partition")


async def test_other_partitions_than_the_cursors_are_refused(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic, 2)
    for before, after in (("0", "1"), (None, "0,1"), ("0,1", "0")):
        params = {} if before is None else {"partitions": before}
        cursor = (await page(http, topic, **params))["next_cursor"]
        got = await http.get(f"{T}/{topic}/records", params={"cursor": cursor, "partitions": after})
        assert problem(got, 422, "invalid-request")["errors"][0]["parameter"] == "partitions"


async def test_a_topic_that_is_not_there_is_404_and_not_created(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    problem(await http.get(f"{T}/{topic}/records"), 404, "unknown-topic-or-partition")
    assert topic not in [info.name for info in app.server.broker.topics.list()]


async def test_a_media_type_that_is_not_had_is_406(http: httpx.AsyncClient, problem: Check) -> None:
    await http.put(f"{T}/refused", json={"partitions": 2})
    got = await http.get(f"{T}/refused/records", headers={"accept": "text/csv"})
    problem(got, 406, "not-acceptable")


async def test_a_broken_batch_is_told_with_a_cursor_after_it(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await make(http, topic, 1)
    await fill(http, topic, 1)
    logs_of(app).partitions.append(TopicPartition(topic, 0), memoryview(broken_batch()))
    await fill(http, topic, 1)
    body = await page(http, topic)
    assert (places(body), body["caught_up"]) == ([(0, 0)], False)
    got = await http.get(f"{T}/{topic}/records?cursor={body['next_cursor']}")
    document = problem(got, 400, "corrupt-message")
    assert places(await page(http, topic, cursor=document["next_cursor"])) == [(0, 3)]
