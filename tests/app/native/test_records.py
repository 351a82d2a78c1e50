"""Records over HTTP: write, read, one record; and every way to be refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.main import Application
from core.errors import BrokerError, ErrorCode
from tests.app.conftest import client_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {"http_max_body_bytes": 100_000, "http_max_records": 500}
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
T = "/api/v1/topics"


async def make(http: httpx.AsyncClient, topic: str, partitions: int = 1, **configs: Any) -> str:
    made = await http.put(f"{T}/{topic}", json={"partitions": partitions, "configs": configs})
    assert made.status_code == 201, made.text
    return f"{T}/{topic}/records"


async def read(http: httpx.AsyncClient, topic: str, partition: int = 0, **params: Any) -> dict[str, Any]:
    got = await http.get(f"{T}/{topic}/partitions/{partition}/records", params=params)
    assert got.status_code == 200, got.text
    body: dict[str, Any] = got.json()
    return body


# --- write --------------------------------------------------------------------------------------------------


async def test_a_list_of_records_is_written_and_read(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic)
    records = [
        {"key": "a", "value": {"n": 1}, "headers": [{"name": "h", "value": "x"}], "timestamp": 1738324800123},
        {"value": None},
        {"key": 7, "value": "text", "timestamp": "2025-01-31T12:00:00Z"},
    ]
    written = await http.post(url, json={"records": records})
    assert written.status_code == 200
    body = written.json()
    assert body["topic"] == topic
    assert [r["offset"] for r in body["records"]] == [0, 1, 2]
    assert body["records"][0] == {
        "partition": 0, "offset": 0, "timestamp": "2025-01-31T12:00:00.123Z", "timestamp_ms": 1738324800123,
    }  # fmt: skip
    page = await read(http, topic)
    assert (page["next_offset"], page["log_start_offset"], page["high_watermark"]) == (3, 0, 3)
    assert page["caught_up"] is True
    first, second, third = page["records"]
    assert first == {
        "topic": topic, "partition": 0, "offset": 0,
        "timestamp": "2025-01-31T12:00:00.123Z", "timestamp_ms": 1738324800123, "timestamp_type": "CreateTime",
        "key": "a", "key_encoding": "utf8", "value": {"n": 1}, "value_encoding": "json",
        "headers": [{"name": "h", "value": "x", "encoding": "utf8"}],
    }  # fmt: skip
    assert (second["key"], second["key_encoding"], second["value"], second["value_encoding"]) == (None,) * 4
    assert (third["key"], third["value"], third["value_encoding"]) == (7, "text", "utf8")


async def test_one_bare_record_is_written(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic)
    written = await http.post(url, json={"key": "k", "value": "v"})
    assert written.status_code == 200
    assert [(r["partition"], r["offset"]) for r in written.json()["records"]] == [(0, 0)]


@pytest.mark.parametrize(
    "media", ["application/x-ndjson", "application/ndjson", "APPLICATION/JSONL; charset=utf-8"]
)
async def test_ndjson_is_written_line_by_line(http: httpx.AsyncClient, topic: str, media: str) -> None:
    url = await make(http, topic)
    body = b'{"value":1}\n{"key":"k","value":2}\n'
    written = await http.post(url, content=body, headers={"content-type": media})
    assert [r["offset"] for r in written.json()["records"]] == [0, 1]
    assert [r["value"] for r in (await read(http, topic))["records"]] == [1, 2]


@pytest.mark.parametrize(
    "media", ["application/octet-stream", "image/png", "text/plain", "application/x-www-form-urlencoded", ""]
)
async def test_any_other_media_type_is_a_raw_value(http: httpx.AsyncClient, topic: str, media: str) -> None:
    url = await make(http, topic, 3)
    written = await http.post(
        url,
        params={
            "key": "/w==",
            "key_encoding": "base64",
            "partition": "2",
            "timestamp": "1738324800000",
            "acks": "1",
        },
        content=b"\x00\xff{",
        headers={
            b"content-type": media.encode(),
            b"X-Kafka-Header-Trace-Id": b"7f",
            b"x-kafka-header-b": b"\xff",
        },
    )
    assert written.status_code == 200, written.text
    (record,) = (await read(http, topic, 2, encoding="base64"))["records"]
    assert base64.b64decode(record["key"]) == b"\xff"
    assert base64.b64decode(record["value"]) == b"\x00\xff{"
    assert record["timestamp_ms"] == 1738324800000
    headers = [(h["name"], base64.b64decode(h["value"])) for h in record["headers"]]
    assert headers == [("trace-id", b"7f"), ("b", b"\xff")]


async def test_an_empty_raw_body_is_an_empty_value_not_null(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic)
    assert (await http.post(url, content=b"")).status_code == 200
    (record,) = (await read(http, topic))["records"]
    assert (record["value"], record["value_encoding"], record["key"]) == ("", "utf8", None)


async def test_keys_go_to_the_partitions_that_the_java_client_would_choose(
    http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic, 10)
    # murmur2 of these, as Kafka's own tests list it, masked to 31 bits, modulo 10.
    hashes = {"21": -973932308, "foobar": -790332482, "abc": 479470107}
    known = {key: (value & 0x7FFFFFFF) % 10 for key, value in hashes.items()}
    records = [{"key": key, "value": "v"} for key in ["21", "foobar", "abc", "foobar"]]
    written = (await http.post(url, json={"records": records})).json()["records"]
    assert [r["partition"] for r in written] == [known[r["key"]] for r in records]


async def test_records_without_a_key_share_a_partition_per_call_and_rotate(
    http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic, 3)
    chosen = []
    for _ in range(6):
        written = (await http.post(url, json={"records": [{"value": 1}, {"value": 2}]})).json()["records"]
        assert written[0]["partition"] == written[1]["partition"]
        chosen.append(written[0]["partition"])
    assert set(chosen) == {0, 1, 2}


@pytest.mark.parametrize("acks", ["0", "1", "all", "-1"])
async def test_every_acks_is_answered_with_the_offset(http: httpx.AsyncClient, topic: str, acks: str) -> None:
    url = await make(http, topic)
    written = await http.post(url, params={"acks": acks}, json={"value": 1})
    assert written.json()["records"][0]["offset"] == 0


async def test_a_topic_that_does_not_exist_is_created(http: httpx.AsyncClient, topic: str) -> None:
    assert (await http.post(f"{T}/{topic}/records", json={"value": 1})).status_code == 200
    assert (await http.get(f"{T}/{topic}")).json()["partitions"] == 1


async def test_some_refused_records_are_told_one_by_one(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic)
    records = [{"value": 1, "partition": 0}, {"value": 2, "partition": 5}, {"value": 3}]
    written = await http.post(url, json={"records": records})
    assert written.status_code == 207
    first, second, third = written.json()["records"]
    assert (first["offset"], third["offset"]) == (0, 1)
    assert "error" not in first
    assert (second["offset"], second["timestamp"]) == (None, None)
    error = second["error"]
    assert (error["status"], error["kafka_error"], error["kafka_error_code"]) == (
        404, "UNKNOWN_TOPIC_OR_PARTITION", 3,
    )  # fmt: skip
    assert error["retriable"] is True and "no partition 5" in error["detail"]


async def test_when_all_records_are_refused_so_is_the_request(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    url = await make(http, topic)
    records = [{"value": 1, "partition": 5}, {"value": 2, "partition": 6}]
    document = problem(await http.post(url, json={"records": records}), 404, "unknown-topic-or-partition")
    assert [e["record"] for e in document["errors"]] == [0, 1]
    assert document["errors"][1]["pointer"] == "#/records/1"


async def test_a_record_without_a_key_is_refused_by_a_compacted_topic(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    url = await make(http, topic, **{"cleanup.policy": "compact"})
    problem(await http.post(url, json={"value": 1}), 422, "invalid-record")


async def test_a_record_above_the_topics_limit_is_413(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    url = await make(http, topic, **{"max.message.bytes": 1000})
    problem(await http.post(url, json={"value": "x" * 2000}), 413, "message-too-large")


async def test_an_illegal_topic_is_refused(http: httpx.AsyncClient, problem: Check) -> None:
    problem(await http.post(f"{T}/a%20b/records", json={"value": 1}), 422, "invalid-topic")


@pytest.mark.parametrize(
    ("query", "body", "media", "status", "kind", "parameter"),
    [
        ("acks=2", b"{}", "application/json", 422, "invalid-request", "acks"),
        ("acks=", b"{}", "application/json", 422, "invalid-request", "acks"),
        ("ack=1", b"{}", "application/json", 422, "invalid-request", "ack"),
        ("acks=1&acks=1", b"{}", "application/json", 422, "invalid-request", "acks"),
        ("key=a", b"{}", "application/json", 422, "invalid-request", "key"),
        ("partition=x", b"", "text/plain", 422, "invalid-request", "partition"),
        ("partition=-1", b"", "text/plain", 422, "invalid-request", "partition"),
        ("partition=2147483648", b"", "text/plain", 422, "invalid-request", "partition"),
        ("key=abc&key_encoding=base64", b"", "text/plain", 422, "invalid-request", "key"),
        ("key=abc&key_encoding=hex", b"", "text/plain", 422, "invalid-request", "key"),
        ("key_encoding=base64", b"", "text/plain", 422, "invalid-request", "key_encoding"),
        ("timestamp=soon", b"", "text/plain", 422, "invalid-request", "timestamp"),
        ("acks=%FF", b"{}", "application/json", 400, "malformed-request", None),
        ("&".join(f"a{i}=1" for i in range(100)), b"{}", "application/json", 400, "malformed-request", None),
        ("", b"{}", "application/json; charset=utf-16", 415, "unsupported-media-type", None),
        ("", b"{}", "application/x-ndjson; charset=latin1", 415, "unsupported-media-type", None),
        ("", b'{"value":NaN}', "application/json", 400, "malformed-request", None),
        ("", b'{"records":[{}],"x":1}', "application/json", 422, "invalid-request", None),
        ("", b'{"value":1}\n{', "application/x-ndjson", 400, "malformed-request", None),
    ],
)  # fmt: skip
async def test_a_bad_write_is_refused_and_writes_nothing(
    http: httpx.AsyncClient,
    topic: str,
    problem: Check,
    query: str,
    body: bytes,
    media: str,
    status: int,
    kind: str,
    parameter: str | None,
) -> None:
    url = await make(http, topic)
    refused = await http.post(f"{url}?{query}", content=body, headers={"content-type": media})
    document = problem(refused, status, kind)
    if parameter is not None:
        assert document["errors"][0]["parameter"] == parameter
    assert (await read(http, topic))["high_watermark"] == 0


async def test_a_compressed_body_is_refused(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    url = await make(http, topic)
    refused = await http.post(url, content=b"x", headers={"content-encoding": "gzip"})
    problem(refused, 415, "unsupported-media-type")
    assert (await http.post(url, content=b"x", headers={"content-encoding": "identity"})).status_code == 200


async def test_a_body_above_the_limit_is_413_with_the_limit(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    url = await make(http, topic)

    async def chunks() -> Any:
        for _ in range(11):
            yield b"x" * 10_000

    for content in (b"x" * 100_001, chunks()):
        document = problem(await http.post(url, content=content), 413, "payload-too-large")
        assert (document["limit"], document["unit"]) == (100_000, "bytes")
    records = {"records": [{}] * 501}
    document = problem(await http.post(url, json=records), 413, "payload-too-large")
    assert (document["limit"], document["unit"]) == (500, "records")
    assert (await http.post(url, content=b"x" * 100_000)).status_code == 200


async def test_a_full_disk_is_507(
    http: httpx.AsyncClient, app: Application, topic: str, problem: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any, **__: Any) -> Any:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device.")

    monkeypatch.setattr(app.server.broker.records, "produce", full)
    document = problem(await http.post(f"{T}/{topic}/records", json={}), 507, "kafka-storage-error")
    assert document["retriable"] is True


# --- read ---------------------------------------------------------------------------------------------------


async def numbered(http: httpx.AsyncClient, topic: str, count: int = 10) -> None:
    url = await make(http, topic)
    records = [{"value": i, "timestamp": 1000 * i} for i in range(count)]
    for start in range(0, count, 4):
        await http.post(url, json={"records": records[start : start + 4]})


@pytest.mark.parametrize(
    ("params", "offsets", "next_offset", "caught_up"),
    [
        ({}, range(10), 10, True),
        ({"offset": "earliest"}, range(10), 10, True),
        ({"offset": "latest"}, range(0), 10, True),
        ({"offset": 3}, range(3, 10), 10, True),
        ({"offset": 3, "limit": 2}, range(3, 5), 5, False),
        ({"offset": 10}, range(0), 10, True),
        ({"timestamp": 0}, range(10), 10, True),
        ({"timestamp": "1970-01-01T00:00:06Z"}, range(6, 10), 10, True),
        ({"timestamp": 5001}, range(6, 10), 10, True),
        ({"timestamp": "2030-01-01"}, range(0), 10, True),
        ({"offset": 0, "max_bytes": 1}, range(4), 4, False),
    ],
)
async def test_reads_begin_and_end_where_they_are_told(
    http: httpx.AsyncClient,
    topic: str,
    params: dict[str, Any],
    offsets: range,
    next_offset: int,
    caught_up: bool,
) -> None:
    await numbered(http, topic)
    page = await read(http, topic, **params)
    assert [r["offset"] for r in page["records"]] == list(offsets)
    assert (page["next_offset"], page["caught_up"], page["high_watermark"]) == (next_offset, caught_up, 10)


async def test_pages_join_without_a_gap(http: httpx.AsyncClient, topic: str) -> None:
    await numbered(http, topic, 23)
    offset, seen = 0, []
    while True:
        page = await read(http, topic, offset=offset, limit=3)
        seen += [r["value"] for r in page["records"]]
        offset = page["next_offset"]
        if page["caught_up"]:
            break
    assert seen == list(range(23))


async def test_below_the_start_is_410_and_above_the_end_416_with_the_bounds(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await numbered(http, topic)
    await http.post(f"{T}/{topic}:truncate", json={"partitions": [{"partition": 0, "before_offset": 5}]})
    for offset, status in ((4, 410), (0, 410), (11, 416), (2**63 - 1, 416)):
        got = await http.get(f"{T}/{topic}/partitions/0/records?offset={offset}")
        document = problem(got, status, "offset-out-of-range")
        assert (document["log_start_offset"], document["high_watermark"]) == (5, 10)
        assert document["kafka_error_code"] == 1
    assert (await read(http, topic))["records"][0]["offset"] == 5


@pytest.mark.parametrize(
    ("path", "status", "kind", "parameter"),
    [
        ("partitions/1/records", 404, "unknown-topic-or-partition", None),
        ("partitions/-1/records", 422, "invalid-request", "partition"),
        ("partitions/x/records", 422, "invalid-request", "partition"),
        ("partitions/1_0/records", 422, "invalid-request", "partition"),
        ("partitions/99999999999999999999/records", 422, "invalid-request", "partition"),
        ("partitions/0/records?offset=-1", 422, "invalid-request", "offset"),
        ("partitions/0/records?offset=x", 422, "invalid-request", "offset"),
        ("partitions/0/records?offset=", 422, "invalid-request", "offset"),
        ("partitions/0/records?offset=9223372036854775808", 422, "invalid-request", "offset"),
        ("partitions/0/records?offset=1&timestamp=2020-01-01", 422, "invalid-request", "timestamp"),
        ("partitions/0/records?timestamp=x", 422, "invalid-request", "timestamp"),
        ("partitions/0/records?limit=0", 422, "invalid-request", "limit"),
        ("partitions/0/records?limit=10001", 422, "invalid-request", "limit"),
        ("partitions/0/records?limit=1e3", 422, "invalid-request", "limit"),
        ("partitions/0/records?max_bytes=0", 422, "invalid-request", "max_bytes"),
        ("partitions/0/records?max_bytes=99999999999", 422, "invalid-request", "max_bytes"),
        ("partitions/0/records?wait_ms=-1", 422, "invalid-request", "wait_ms"),
        ("partitions/0/records?wait_ms=300001", 422, "invalid-request", "wait_ms"),
        ("partitions/0/records?encoding=hex", 422, "invalid-request", "encoding"),
        ("partitions/0/records?ofset=1", 422, "invalid-request", "ofset"),
        ("partitions/0/records?limit=1&limit=2", 422, "invalid-request", "limit"),
        ("partitions/0/records/x", 422, "invalid-request", "offset"),
        ("partitions/0/records/-1", 422, "invalid-request", "offset"),
        ("partitions/0/records/0?limit=1", 422, "invalid-request", "limit"),
        ("partitions/x/records/0", 422, "invalid-request", "partition"),
        ("partitions/5/records/0", 404, "unknown-topic-or-partition", None),
    ],
)
async def test_a_bad_read_is_refused_with_the_parameter(
    http: httpx.AsyncClient,
    topic: str,
    problem: Check,
    path: str,
    status: int,
    kind: str,
    parameter: str | None,
) -> None:
    await make(http, topic)
    document = problem(await http.get(f"{T}/{topic}/{path}"), status, kind)
    if parameter is not None:
        assert document["errors"][0]["parameter"] == parameter


async def test_an_unknown_topic_is_not_made_by_reading(http: httpx.AsyncClient, problem: Check) -> None:
    for path in (
        "partitions/0/records",
        "partitions/0/records?timestamp=2020-01-01",
        "partitions/0/records/0",
    ):
        problem(await http.get(f"{T}/nowhere/{path}"), 404, "unknown-topic-or-partition")


async def test_log_append_time_is_told(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic, **{"message.timestamp.type": "LogAppendTime"})
    written = (await http.post(url, json={"value": 1, "timestamp": 5})).json()["records"][0]
    (record,) = (await read(http, topic))["records"]
    assert record["timestamp_type"] == "LogAppendTime"
    assert record["timestamp_ms"] == written["timestamp_ms"] > 1_600_000_000_000


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=40),
    st.none() | st.binary(max_size=40),
    st.sampled_from(["auto", "json", "text", "base64"]),
)
async def test_what_is_read_can_be_written_as_it_was_read(
    http: httpx.AsyncClient, key: bytes, value: bytes | None, encoding: str
) -> None:
    def b64(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    record = {
        "key": b64(key), "key_encoding": "base64", "value": b64(value), "value_encoding": "base64",
        "headers": [{"name": "h", "value": b64(key), "encoding": "base64"}], "timestamp": 123_456,
    }  # fmt: skip
    first = (await http.post(f"{T}/round-trip/records", json=record)).json()["records"][0]["offset"]
    path = f"{T}/round-trip/partitions/0/records"
    page = await http.get(path, params={"offset": first, "limit": 1, "encoding": encoding})
    # The text between the brackets of "records", exactly as it came.
    text = page.content[page.content.index(b"[") + 1 : page.content.rindex(b"],")]
    again = await http.post(
        f"{T}/round-trip/records", content=text, headers={"content-type": "application/json"}
    )
    assert again.status_code == 200, again.text
    both = (await http.get(path, params={"offset": first, "encoding": "base64"})).json()["records"]
    for one in both:
        del one["offset"]
    assert both[0] == both[1]
    assert both[0]["value"] == record["value"]


# --- auto-creation off --------------------------------------------------------------------------------------


async def test_a_topic_is_not_created_where_the_setting_forbids_it(
    app: Application, problem: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = app.server.broker
    monkeypatch.setattr(broker.topics, "_config", replace(broker.config, auto_create_topics=False))
    async with client_of(app) as http:
        problem(await http.post(f"{T}/no-auto/records", json={}), 404, "unknown-topic-or-partition")
