"""The dialect of Karapace: the statuses, codes and words that its clients compare.

What Karapace does is taken from its source and its own integration tests (tests/integration/kafka_rest_apis).
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from app.main import Application
from app.version import VERSION
from core.records.record import NewRecord
from tests.app.rest_v2.conftest import BINARY, JSON, Group, Refused, places

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {"group_initial_rebalance_delay_ms": 0, "v2_dialect": "karapace"}
AVRO = "application/vnd.kafka.avro.v2+json"
ONE_WAY = (
    "IllegalStateError: You must choose only one way to configure your consumer: (1) subscribe to specific topics by "
    "name, (2) subscribe to topics matching a regex pattern, (3) assign itself specific topic-partitions."
)
TOO_LARGE = (
    "The server has a configurable maximum message size to avoid unbounded memory allocation. This error is thrown "
    "if the client attempt to produce a message larger than this maximum."
)
NO_PARTITION = "This request is for a topic or partition that does not exist on this broker."


async def post(http: httpx.AsyncClient, path: str, body: Any, content_type: str = JSON) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await http.post(path, content=content, headers={"content-type": content_type})


# --- produce ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"{", JSON, 400, 400),
        (b"[]", JSON, 400, 400),
        ({"records": "should be an array"}, BINARY, 400, 400),
        ({"records": ["object with value"]}, BINARY, 400, 400),
        ({"records": [{"value": "not base64"}]}, BINARY, 400, 400),
        ({"records": [{"key": "not base64", "value": "YQ=="}]}, "application/json", 400, 400),
        ({"records": [{"value": {"a": 1}}]}, BINARY, 400, 400),
        ({"records": [{"value": 1, "partition": "x"}]}, JSON, 400, 400),
        ({"records": [{"value": 1, "headers": [{"name": "h", "value": "?"}]}]}, JSON, 400, 400),
        ({"records": []}, JSON, 422, 422),
        ({"foo": "bar"}, JSON, 422, 422),
        ({"records": [{"valur": {"foo": "bar"}}]}, JSON, 422, 422),
        ({"records": [{"value": 1}], "more": 1}, JSON, 422, 422),
        ({"records": [{"value": {"foo": "bar"}}]}, AVRO, 422, 42202),
        ({"records": [{"key": {"foo": "bar"}}]}, AVRO, 422, 42201),
    ],
    ids=str,
)
async def test_a_malformed_body_is_400_and_an_unknown_or_missing_member_422(
    http: httpx.AsyncClient, app: Application, refused: Refused,
    body: Any, content_type: str, status: int, code: int,
) -> None:  # fmt: skip
    await app.shared.broker.topics.get_or_create("known")
    for path in ("/topics/known", "/topics/known/partitions/0"):
        refused(await post(http, path, body, content_type), status, code)


async def test_any_refused_record_is_422_with_the_offsets_and_errors(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await app.shared.broker.topics.create(topic, partitions=1, configs={"max.message.bytes": "1000"})
    records = [{"value": 1}, {"value": 2, "partition": 7}, {"value": 3}, {"value": "x" * 2000}]
    answer = await post(http, f"/topics/{topic}", {"records": records})
    assert answer.status_code == 422
    assert answer.json() == {
        "offsets": [
            {"partition": 0, "offset": 0},
            {"error_code": 2, "error": NO_PARTITION},
            {"partition": 0, "offset": 1},
            {"error_code": 1, "error": TOO_LARGE},
        ],
        "key_schema_id": None,
        "value_schema_id": None,
    }


async def test_an_entry_has_no_error_where_there_is_none(http: httpx.AsyncClient, topic: str) -> None:
    answer = await post(http, f"/topics/{topic}", {"records": [{"value": 1}, {"value": 2}]})
    assert answer.status_code == 200
    assert answer.json()["offsets"] == [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}]


async def test_a_record_that_is_too_large_is_422_with_the_text_of_kafka(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await app.shared.broker.topics.create(topic, configs={"max.message.bytes": "1000"})
    for path in (f"/topics/{topic}", f"/topics/{topic}/partitions/0"):
        answer = await post(http, path, {"records": [{"value": "x" * 2000}]})
        assert answer.status_code == 422
        assert answer.json()["offsets"] == [{"error_code": 1, "error": TOO_LARGE}]


# --- words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("/topics/fooo", 40403, "Topic fooo not found"),
        ("/topics/fooo/partitions", 40401, "Topic fooo not found"),
        ("/topics/fooo/partitions/0", 40401, "Topic fooo not found"),
        ("/topics/fooo/partitions/0/offsets", 40401, "Topic fooo not found"),
        ("/topics/fooo/partitions/0/records", 40401, "Topic fooo not found"),
        ("/topics/known/partitions/10", 40402, "Partition 10 not found"),
        ("/topics/known/partitions/10/offsets", 40402, "Partition 10 not found"),
        ("/topics/known/partitions/foo/offsets", 404, "Partition foo not found"),
    ],
)
async def test_what_is_not_found_is_named(
    http: httpx.AsyncClient, app: Application, refused: Refused, path: str, code: int, message: str
) -> None:
    await app.shared.broker.topics.get_or_create("known")
    assert refused(await http.get(path), 404, code) == message


async def test_an_unknown_topic_is_named_before_the_media_type(
    http: httpx.AsyncClient, refused: Refused
) -> None:
    for path in ("/topics/fooo", "/topics/fooo/partitions/0"):
        for body in ({"value_schema": "{}", "records": [{"value": 1}]}, {"records": [{"value": 1}]}):
            for content_type in (AVRO, "text/plain"):
                answer = await post(http, path, body, content_type)
                assert refused(answer, 404, 40401) == "Topic fooo not found"


async def test_only_one_way_to_choose_what_is_read(
    http: httpx.AsyncClient, app: Application, group: Group, refused: Refused, topic: str
) -> None:
    await app.shared.broker.topics.get_or_create(topic)
    instance = await group.create()
    both = {"topics": [topic], "topic_pattern": "baz"}
    assert refused(await instance.call("POST", "subscription", both), 409, 40903) == ONE_WAY
    await instance.subscribe(topic)
    partitions = {"partitions": places((topic, 0))}
    assert refused(await instance.call("POST", "assignments", partitions), 409, 40903) == ONE_WAY
    # Other states keep their own words.
    refused(await (await group.create("idle")).call("GET", "records"), 409, 40903, "subscribe")


@pytest.mark.parametrize(
    ("format_name", "good", "bad"),
    [
        ("json", b"1", b"test"),
        ("avro", None, b"test"),
        ("jsonschema", None, b"test"),
        ("protobuf", None, b"test"),
    ],
)
async def test_a_record_that_cannot_be_shown_says_of_which_format(
    app: Application, group: Group, refused: Refused, format_name: str, good: bytes | None, bad: bytes
) -> None:
    topic = f"unfit-{format_name}"
    await app.shared.broker.records.produce(topic, [NewRecord(b"1", good), NewRecord(b"1", bad)])
    instance = await group.create(format=format_name)
    await instance.assign((topic, 0))
    assert len(await instance.read("timeout=0")) == 1
    message = refused(await instance.call("GET", "records"), 422, 422, "offset 1")
    assert message.startswith(f"value deserialization error for format {format_name}: ")


async def test_a_record_has_the_member_headers_only_if_it_has_headers(
    http: httpx.AsyncClient, group: Group, topic: str
) -> None:
    headers = [{"name": "trace", "value": "YWJj"}, {"name": "none", "value": None}]
    body = {"records": [{"value": 1, "headers": headers}, {"value": 2}]}
    assert (await post(http, f"/topics/{topic}", body)).status_code == 200
    instance = await group.create(format="json")
    await instance.assign((topic, 0))
    first, second = await instance.read("timeout=0")
    assert first["headers"] == headers
    assert set(second) == {"topic", "partition", "offset", "timestamp", "key", "value"}


# --- health -------------------------------------------------------------------------------------------------


async def test_health_has_uptime_and_version(
    http: httpx.AsyncClient, app: Application, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = app.shared.broker.clock
    before = (await http.get("/_health")).json()
    assert before["karapace_version"] == VERSION and before["process_uptime_sec"] >= 0
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now + 100)
    answer = await http.get("/_health")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["process_uptime_sec"] - before["process_uptime_sec"] >= 100
    refused(await http.post("/_health"), 405, 405)
    monkeypatch.setattr(app.shared.broker, "ready", False)
    answer = await http.get("/_health")
    assert (answer.status_code, set(answer.json())) == (503, {"process_uptime_sec", "karapace_version"})
