"""One record as a resource: its representations, caching, and the ways not to be there."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.main import Application
from app.native.one_record import is_known, record_lines
from core.records.record import Record
from core.types import LogOffsets, TopicPartition
from core.vocabulary.records import ReadResult
from tests.app.native.test_records import Check, T, make, numbered

pytestmark = pytest.mark.asyncio(loop_scope="module")
BYTES = {"accept": "application/octet-stream"}


async def test_one_record_is_a_resource_that_may_be_cached(http: httpx.AsyncClient, topic: str) -> None:
    await numbered(http, topic)
    path = f"{T}/{topic}/partitions/0/records/6"
    got = await http.get(path)
    assert got.status_code == 200
    assert (got.json()["offset"], got.json()["value"]) == (6, 6)
    assert "immutable" in got.headers["cache-control"]
    same = await http.get(path, headers={"if-none-match": got.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    other = await http.get(f"{path}?encoding=base64", headers={"if-none-match": got.headers["etag"]})
    assert (other.status_code, other.json()["value"]) == (200, "Ng==")


async def test_one_record_comes_as_bare_bytes_when_asked_for(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic)
    await http.post(url, content=b"\xff\x00")
    await http.post(url, json={"value": None})
    accept = {"accept": "application/octet-stream"}
    got = await http.get(f"{T}/{topic}/partitions/0/records/0", headers=accept)
    assert (got.content, got.headers["content-type"]) == (b"\xff\x00", "application/octet-stream")
    assert got.headers["x-content-type-options"] == "nosniff"
    null = await http.get(f"{T}/{topic}/partitions/0/records/1", headers=accept)
    assert (null.status_code, null.content) == (204, b"")


async def test_one_record_is_404_before_and_410_after_its_time(
    http: httpx.AsyncClient, topic: str, problem: Check
) -> None:
    await numbered(http, topic)
    await http.post(f"{T}/{topic}:truncate", json={"partitions": [{"partition": 0, "before_offset": 5}]})
    path = f"{T}/{topic}/partitions/0/records"
    for offset, status in ((4, 410), (10, 404), (11, 404)):
        problem(await http.get(f"{path}/{offset}"), status, "offset-out-of-range")
    problem(await http.get(f"{path}/5", headers={"accept": "text/html"}), 406, "not-acceptable")


async def test_a_browser_gets_json(http: httpx.AsyncClient, topic: str) -> None:
    await numbered(http, topic, 1)
    accept = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    got = await http.get(f"{T}/{topic}/partitions/0/records/0", headers=accept)
    assert got.headers["content-type"] == "application/json"


async def test_bare_bytes_come_with_key_and_headers_in_header_lines(
    http: httpx.AsyncClient, topic: str
) -> None:
    url = await make(http, topic)
    headers = [
        {"name": "trace", "value": "7f"},
        {"name": "Ünï", "value": "a\r\nx: y"},
        {"name": "none", "value": None},
        {"name": "trace", "value": ""},
    ]
    record = {"key": "k é", "value": "v", "headers": headers, "timestamp": 1738324800000}
    await http.post(url, json=record)
    got = await http.get(f"{T}/{topic}/partitions/0/records/0", headers=BYTES)
    assert got.content == b"v"
    assert got.headers["x-kafka-key"] == "k%20%C3%A9"
    assert got.headers["x-kafka-topic"] == topic
    assert got.headers["x-kafka-partition"] == got.headers["x-kafka-offset"] == "0"
    assert got.headers["x-kafka-timestamp"] == "1738324800000"
    assert got.headers["x-kafka-timestamp-type"] == "CreateTime"
    assert got.headers.get_list("x-kafka-header-trace") == ["7f", ""]
    assert got.headers["x-kafka-header-%c3%9cn%c3%af"] == "a%0D%0Ax%3A%20y"
    assert got.headers["x-kafka-null-header"] == "none"
    assert "x-kafka-omitted" not in got.headers


async def test_what_is_too_large_for_header_lines_is_named(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic)
    big = {"name": "h", "value": "x" * 7000}
    await http.post(
        url, json={"records": [{"key": "k" * 7000, "headers": [big]}, {"key": "k", "headers": [big]}]}
    )
    path = f"{T}/{topic}/partitions/0/records"
    both = await http.get(f"{path}/0", headers=BYTES)
    assert both.headers["x-kafka-omitted"] == "key, headers"
    one = await http.get(f"{path}/1", headers=BYTES)
    assert (one.headers["x-kafka-omitted"], one.headers["x-kafka-key"]) == ("headers", "k")


async def test_each_representation_has_its_own_strong_etag(http: httpx.AsyncClient, topic: str) -> None:
    url = await make(http, topic)
    await http.post(url, json={"value": 1})
    path = f"{T}/{topic}/partitions/0/records/0"
    asks: list[tuple[str, dict[str, str]]] = [("", {}), ("?encoding=base64", {}), ("", BYTES)]
    tags = {(await http.get(path + query, headers=headers)).headers["etag"] for query, headers in asks}
    assert len(tags) == 3
    assert all(tag.startswith('"') and tag.endswith('"') for tag in tags)


async def test_a_known_representation_is_304_without_a_body(http: httpx.AsyncClient, topic: str) -> None:
    await numbered(http, topic, 1)
    path = f"{T}/{topic}/partitions/0/records/0"
    etag = (await http.get(path)).headers["etag"]
    for known in (etag, f'"x", W/{etag}', "*"):
        got = await http.get(path, headers={"if-none-match": known})
        assert (got.status_code, got.content) == (304, b"")
        assert got.headers["etag"] == etag
        assert "immutable" in got.headers["cache-control"]
        assert "content-length" not in got.headers
    assert (await http.get(path, headers={"if-none-match": '"x"'})).status_code == 200


async def test_head_says_what_get_says_without_the_body(http: httpx.AsyncClient, topic: str) -> None:
    await numbered(http, topic, 1)
    path = f"{T}/{topic}/partitions/0/records/0"
    got, head = await http.get(path), await http.head(path)
    assert head.status_code == 200
    for name in ("etag", "content-length", "content-type", "cache-control"):
        assert head.headers[name] == got.headers[name]


async def test_what_compaction_has_removed_is_410_and_says_where_to_continue(
    app: Application, http: httpx.AsyncClient, topic: str, problem: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    await numbered(http, topic, 3)
    bounds = LogOffsets(0, 3, 3, 3)
    for records, further in (([Record(2, 0, 0, None, b"")], 2), ([], 3)):
        result = ReadResult(records, bounds, 3)
        monkeypatch.setattr(app.server.broker.records, "read_now", lambda *_, result=result, **__: result)
        got = await http.get(f"{T}/{topic}/partitions/0/records/1")
        document = problem(got, 410, "offset-out-of-range")
        assert document["next_offset"] == further
        assert "compaction" in document["detail"]
        assert got.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("partitions/0/records/-1", 422, "invalid-request"),
        ("partitions/0/records/x", 422, "invalid-request"),
        ("partitions/0/records/99999999999999999999", 422, "invalid-request"),
        ("partitions/x/records/0", 422, "invalid-request"),
        ("partitions/7/records/0", 404, "unknown-topic-or-partition"),
        ("partitions/0/records/0?encoding=rot13", 422, "invalid-request"),
        ("partitions/0/records/0?what=1", 422, "invalid-request"),
    ],
)
async def test_what_cannot_be_a_record_is_refused(
    http: httpx.AsyncClient, problem: Check, path: str, status: int, kind: str
) -> None:
    await http.put(f"{T}/refused", json={})
    problem(await http.get(f"{T}/refused/{path}"), status, kind)


@pytest.mark.parametrize(
    ("header", "known"),
    [(b"", False), (b"*", True), (b'"a"', True), (b'W/"a"', True), (b'"b" , "a"', True), (b'"ab"', False)],
)
async def test_etags_are_compared_whole(header: bytes, known: bool) -> None:
    assert is_known(header, b'"a"') is known


@given(
    st.binary(max_size=50),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
    st.binary(max_size=50),
)
async def test_no_byte_of_a_record_leaves_its_header_line(key: bytes, name: str, value: bytes) -> None:
    record = Record(0, 0, 0, key, b"", ((name, value),))
    lines: dict[bytes, Any] = dict(record_lines(TopicPartition("t", 0), record))
    assert all(0x20 < byte < 0x7F for line in lines.items() for part in line for byte in part)
    assert unquote_to_bytes(lines[b"x-kafka-key"]) == key
    ((sent, got),) = [item for item in lines.items() if item[0].startswith(b"x-kafka-header-")]
    assert sent == sent.lower()
    assert unquote_to_bytes(sent.removeprefix(b"x-kafka-header-")) == name.encode()
    assert unquote_to_bytes(got) == value
