"""The stateless read over v2, and how records are shown."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio

from app.main import Application
from app.rest_v2.dialect import DIALECTS
from app.rest_v2.records import Embedder
from core.config import Config
from core.records.record import NewRecord, Record
from core.types import TopicPartition
from tests.app.rest_v2.conftest import BINARY, JSON, TEXT, V2, Refused

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/topics/mixed/partitions/0/records"


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def mixed(app: Application) -> None:
    records = [
        NewRecord(b'"k"', b'{"a": 1}\n', (("h", b"\xff"), ("n", None)), 1700000000000),
        NewRecord(None, b"null", timestamp=1),
        NewRecord(b"1", None),
        NewRecord(b"k", b"text, no JSON"),
        NewRecord(None, b"\xff"),
        NewRecord(None, b""),
    ]
    await app.shared.broker.records.produce("mixed", records)


async def read(http: httpx.AsyncClient, query: str = "", accept: str = JSON) -> httpx.Response:
    return await http.get(f"{PATH}{query}", headers={"accept": accept})


async def test_a_record_is_shown_whole(http: httpx.AsyncClient) -> None:
    answer = await read(http)
    assert answer.headers["content-type"] == JSON
    assert answer.json()[:2] == [
        {
            "topic": "mixed", "partition": 0, "offset": 0, "key": "k", "value": {"a": 1},
            "timestamp": 1700000000000, "headers": [{"name": "h", "value": "/w=="}, {"name": "n", "value": None}],
        },
        {"topic": "mixed", "partition": 0, "offset": 1, "key": None, "value": None, "timestamp": 1, "headers": []},
    ]  # fmt: skip


async def test_what_stands_before_a_record_that_does_not_fit_is_delivered(
    http: httpx.AsyncClient, refused: Refused
) -> None:
    assert [r["offset"] for r in (await read(http)).json()] == [0, 1, 2]
    refused(await read(http, "?offset=3"), 422, 42203, "key", "offset 3", "mixed-0", "continue at offset 4")
    refused(await read(http, "?offset=4"), 422, 42203, "value", "not JSON")
    refused(await read(http, "?offset=5"), 422, 42203, "not JSON")
    assert [r["offset"] for r in (await read(http, "?offset=2", TEXT)).json()] == [2, 3]
    refused(await read(http, "?offset=4", TEXT), 422, 42203, "not UTF-8")
    assert (await read(http, "?offset=5", TEXT)).json()[0]["value"] == ""


async def test_binary_shows_everything(http: httpx.AsyncClient) -> None:
    answer = await read(http, accept=BINARY)
    assert answer.headers["content-type"] == BINARY
    shown = [(r["key"], r["value"]) for r in answer.json()]
    assert shown == [
        ("Imsi", "eyJhIjogMX0K"), (None, "bnVsbA=="), ("MQ==", None), ("aw==", "dGV4dCwgbm8gSlNPTg=="),
        (None, "/w=="), (None, ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("?offset=4", [4, 5]),
        ("?offset=6", []),
        ("?offset=6&timeout=1", []),
        ("?offset=6&timeout=0", []),
        ("?offset=6&timeout=-5", []),
        ("?max_bytes=1", [0, 1, 2, 3, 4, 5]),  # one batch, and the first always comes
        ("?max_bytes=-1&something=else", [0, 1, 2, 3, 4, 5]),
        ("?max_bytes=99999999999", [0, 1, 2, 3, 4, 5]),
    ],
)
async def test_a_query_says_from_where(http: httpx.AsyncClient, query: str, offsets: list[int]) -> None:
    answer = await read(http, query, BINARY)
    assert answer.status_code == 200
    assert [r["offset"] for r in answer.json()] == offsets


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("?offset=7", 416, 50002),
        ("?offset=-1", 422, 422),
        ("?offset=x", 422, 422),
        ("?offset=99999999999999999999", 422, 422),
        ("?timeout=soon", 422, 422),
        ("?max_bytes=1.5", 422, 422),
        ("?offset=%FF", 400, 400),
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(
    http: httpx.AsyncClient, refused: Refused, query: str, status: int, code: int
) -> None:
    refused(await read(http, query), status, code)


async def test_below_the_start_is_410(
    http: httpx.AsyncClient, app: Application, topic: str, refused: Refused
) -> None:
    broker = app.shared.broker
    await broker.records.produce(topic, [NewRecord(None, b"1"), NewRecord(None, b"2")])
    await broker.partitions.delete_records([(TopicPartition(topic, 0), 1)])
    refused(await http.get(f"/topics/{topic}/partitions/0/records?offset=0"), 410, 50002)
    answer = await http.get(f"/topics/{topic}/partitions/0/records")
    assert [r["offset"] for r in answer.json()] == [1]


async def test_a_read_waits_for_the_next_record(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await app.shared.broker.topics.create(topic)
    path = f"/topics/{topic}/partitions/0/records?timeout=10000"
    waiting = asyncio.create_task(http.get(path))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await app.shared.broker.records.produce(topic, [NewRecord(None, b"7")])
    assert [r["value"] for r in (await waiting).json()] == [7]


@pytest.mark.parametrize(
    ("accept", "status", "media_type", "value"),
    [
        (JSON, 200, JSON, {"a": 1}),
        (BINARY, 200, BINARY, "eyJhIjogMX0K"),
        (TEXT, 200, TEXT, '{"a": 1}\n'),
        (V2, 200, V2, "eyJhIjogMX0K"),
        ("*/*", 200, "application/json", {"a": 1}),
        ("text/html, */*;q=0.1", 200, "application/json", {"a": 1}),
        ("application/vnd.kafka.avro.v2+json", 406, "application/vnd.kafka.avro.v2+json", None),
        ("text/html", 406, "application/json", None),
    ],
)
async def test_the_accepted_media_type_names_the_format(
    http: httpx.AsyncClient, accept: str, status: int, media_type: str, value: Any
) -> None:
    answer = await read(http, "?max_bytes=1", accept)
    assert (answer.status_code, answer.headers["content-type"]) == (status, media_type)
    if status == 200:
        assert answer.json()[0]["value"] == value
    else:
        assert answer.json()["error_code"] == 406


def shown(data: bytes, format_name: str, dialect: str = "confluent") -> Any:
    records, refusal = Embedder(Config(), DIALECTS[dialect]).records(
        [("t", 0, Record(0, -1, 0, None, data, (("a", b"b"),)))], format_name
    )
    return refusal or msgspec.json.decode(msgspec.json.encode(records))[0]


@pytest.mark.parametrize(
    "data", [b"", b" ", b"nul", b"{", b'"\xff"', b'"\\ud800"', b"NaN", b"[" * 200 + b"]" * 200, b"1 2"]
)
async def test_what_is_not_clean_json_is_not_shown_as_json(data: bytes) -> None:
    assert shown(data, "json").error_code == 42203


@pytest.mark.parametrize(
    ("data", "value"), [(b" [1] ", [1]), (b'"\xc3\xa9"', "é"), (b"null", None), (b"1e2", 100.0)]
)
async def test_clean_json_is_shown_as_it_is(data: bytes, value: Any) -> None:
    assert shown(data, "json")["value"] == value


async def test_no_timestamp_is_null_and_a_header_has_the_name_of_the_dialect() -> None:
    assert shown(b"1", "json")["timestamp"] is None
    assert shown(b"1", "json")["headers"] == [{"name": "a", "value": "Yg=="}]
    assert shown(b"1", "json", "strimzi")["headers"] == [{"key": "a", "value": "Yg=="}]
