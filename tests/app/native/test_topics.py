"""Topics over HTTP: every route, and every way to be refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.main import Application
from core.errors import BrokerError, ErrorCode
from tests.core.listeners.kafka.test_configs import ALL_SETTINGS

pytestmark = pytest.mark.asyncio(loop_scope="module")
Check = Callable[[httpx.Response, int, str], dict[str, Any]]
T = "/api/v1/topics"


async def put(http: httpx.AsyncClient, topic: str, **body: Any) -> httpx.Response:
    return await http.put(f"{T}/{topic}", json=body)


async def test_put_creates_a_topic_once(http: httpx.AsyncClient, topic: str) -> None:
    made = await put(http, topic, partitions=3, configs={"retention.ms": 1000})
    assert made.status_code == 201
    assert made.headers["location"] == f"{T}/{topic}"
    body = made.json()
    assert (body["name"], body["partitions"], body["configs"]) == (topic, 3, {"retention.ms": "1000"})
    assert body["partition_details"][2] == {
        "partition": 2,
        "earliest": 0,
        "latest": 0,
        "high_watermark": 0,
        "size_bytes": 0,
    }
    assert body["effective_configs"]["retention.ms"]["source"] == "topic"
    assert body["effective_configs"]["segment.bytes"]["source"] == "default"
    assert body["created"].endswith("Z") and body["internal"] is False

    again = await put(http, topic, partitions=3, configs={"retention.ms": "1000"})
    assert again.status_code == 200
    assert again.json() == body
    assert again.headers["etag"] == made.headers["etag"]
    assert (await http.put(f"{T}/{topic}")).status_code == 200


async def test_a_topic_takes_every_setting_of_kafka(http: httpx.AsyncClient, topic: str) -> None:
    made = await put(http, topic, configs=ALL_SETTINGS)
    assert made.status_code == 201, made.text
    assert made.json()["configs"] == ALL_SETTINGS
    shown = made.json()["effective_configs"]
    assert {name: one["value"] for name, one in shown.items()} == ALL_SETTINGS
    assert (await put(http, topic, configs=ALL_SETTINGS)).status_code == 200


async def test_numbers_and_switches_are_settings_too(http: httpx.AsyncClient, topic: str) -> None:
    configs = {"min.cleanable.dirty.ratio": 0.25, "preallocate": True, "cleanup.policy": "", "flush.ms": 5}
    made = await put(http, topic, configs=configs)
    assert made.json()["configs"] == {
        "min.cleanable.dirty.ratio": "0.25", "preallocate": "true", "cleanup.policy": "", "flush.ms": "5",
    }  # fmt: skip


async def test_tiered_storage_is_refused(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    answer = await put(http, topic, configs={"remote.storage.enable": True})
    assert answer.status_code == 422
    assert "Tiered Storage functionality is disabled" in answer.text
    assert (await http.get(f"{T}/{topic}")).status_code == 404


async def test_put_without_a_body_takes_the_defaults(http: httpx.AsyncClient, topic: str) -> None:
    made = await http.put(f"{T}/{topic}")
    assert (made.status_code, made.json()["partitions"]) == (201, 1)


@pytest.mark.parametrize(
    ("wanted", "pointer"),
    [
        ({"partitions": 3}, "#/partitions"),
        ({"replication_factor": 2}, "#/replication_factor"),
        ({"configs": {"retention.ms": 1}}, "#/configs/retention.ms"),
        ({"configs": {}}, "#/configs/retention.ms"),
        ({"configs": {"retention.ms": 5, "segment.ms": 5}}, "#/configs/segment.ms"),
    ],
)
async def test_put_refuses_another_shape(
    http: httpx.AsyncClient, topic: str, problem: Check, wanted: dict[str, Any], pointer: str
) -> None:
    await put(http, topic, partitions=2, configs={"retention.ms": 5})
    document = problem(await put(http, topic, **wanted), 409, "topic-differs")
    assert document["errors"][0]["pointer"] == pointer
    assert "kafka_error" not in document


async def test_put_can_check_only(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    for attempt in (
        await http.put(f"{T}/{topic}?validate_only=true", json={"partitions": 2}),
        await put(http, topic, partitions=2, validate_only=True),
    ):
        assert (attempt.status_code, attempt.json()["partitions"]) == (200, 2)
        problem(await http.get(f"{T}/{topic}"), 404, "unknown-topic-or-partition")


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"partitions": 0}, 422, "invalid-request"),
        ({"partitions": -1}, 422, "invalid-request"),
        ({"partitions": "3"}, 422, "invalid-request"),
        ({"partitions": 1.5}, 422, "invalid-request"),
        ({"partitions": 2**31}, 422, "invalid-request"),
        ({"partitions": 10_001}, 422, "invalid-partitions"),
        ({"replication_factor": 3}, 422, "invalid-replication-factor"),
        ({"replication_factor": 10**9}, 422, "invalid-request"),
        ({"configs": {"no.such": "1"}}, 422, "invalid-config"),
        ({"configs": {"retention.ms": "soon"}}, 422, "invalid-config"),
        ({"configs": {"retention.ms": 1.5}}, 422, "invalid-config"),
        ({"configs": {"retention.ms": True}}, 422, "invalid-config"),
        ({"configs": {"retention.ms": [1]}}, 422, "invalid-request"),
        ({"configs": []}, 422, "invalid-request"),
        ({"partition": 1}, 422, "invalid-request"),
        ([], 422, "invalid-request"),
        ("x", 422, "invalid-request"),
        (3, 422, "invalid-request"),
    ],
    ids=str,
)
async def test_put_refuses_what_makes_no_sense(
    http: httpx.AsyncClient, topic: str, problem: Check, body: Any, status: int, kind: str
) -> None:
    document = problem(await http.put(f"{T}/{topic}", json=body), status, kind)
    if kind == "invalid-request":
        assert document["errors"][0]["pointer"].startswith("#")
    assert (await http.get(f"{T}/{topic}")).status_code == 404


@pytest.mark.parametrize(
    "name", ["a b", "a%2Fb", "a:b", "%C3%A9", "x" * 250, "%20", "a%22b", "a,b"], ids=lambda n: n[:10]
)
async def test_an_illegal_name_is_refused(http: httpx.AsyncClient, problem: Check, name: str) -> None:
    response = await http.put(f"{T}/{name}")
    if name == "a%2Fb":
        problem(response, 404, "not-found")
    else:
        assert problem(response, 422, "invalid-topic")["kafka_error"] == "INVALID_TOPIC_EXCEPTION"
    assert (await http.get(f"{T}/{name}")).status_code == 404


async def test_a_setting_is_written_as_json_has_it(http: httpx.AsyncClient, topic: str) -> None:
    configs = {"retention.ms": 86400000.0, "cleanup.policy": "compact", "segment.ms": None}
    made = await put(http, topic, configs=configs)
    assert made.json()["configs"] == {"retention.ms": "86400000", "cleanup.policy": "compact"}


async def test_get_shows_the_bounds_of_each_partition(http: httpx.AsyncClient, topic: str) -> None:
    await put(http, topic, partitions=2)
    await http.post(f"{T}/{topic}/records", json={"value": "x", "partition": 1})
    got = await http.get(f"{T}/{topic}")
    assert got.status_code == 200
    first, second = got.json()["partition_details"]
    assert (first["earliest"], first["latest"], first["size_bytes"]) == (0, 0, 0)
    assert (second["earliest"], second["latest"]) == (0, 1)
    assert second["size_bytes"] > 60


async def test_a_trailing_slash_makes_no_difference(http: httpx.AsyncClient, topic: str) -> None:
    await put(http, topic)
    assert (await http.get(f"{T}/{topic}/")).json()["name"] == topic
    assert (await http.get(f"{T}/")).status_code == 200


async def test_head_answers_like_get(http: httpx.AsyncClient, topic: str) -> None:
    await put(http, topic)
    assert (await http.head(f"{T}/{topic}")).status_code == 200
    assert (await http.head(f"{T}/none-of-this-name")).status_code == 404


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
async def test_an_unknown_topic_is_404(http: httpx.AsyncClient, problem: Check, method: str) -> None:
    response = await http.request(method, f"{T}/nowhere", json={} if method == "PATCH" else None)
    assert problem(response, 404, "unknown-topic-or-partition")["kafka_error_code"] == 3


# --- list ---------------------------------------------------------------------------------------------------


async def test_topics_are_listed_by_name_page_by_page(http: httpx.AsyncClient) -> None:
    names = [f"page-{i}" for i in range(5)]
    for name in reversed(names):
        await put(http, name)
    seen: list[str] = []
    token = None
    sizes = []
    while True:
        params = {"prefix": "page-", "page_size": 2} | ({"page_token": token} if token else {})
        page = (await http.get(T, params=params)).json()
        seen += [item["name"] for item in page["items"]]
        sizes.append(len(page["items"]))
        token = page["next_page_token"]
        if token is None:
            break
    assert seen == names
    assert sizes == [2, 2, 1]


async def test_a_page_that_is_known_is_not_sent_again(http: httpx.AsyncClient) -> None:
    await put(http, "etag-1")
    first = await http.get(T, params={"prefix": "etag-"})
    etag = first.headers["etag"]
    same = await http.get(T, params={"prefix": "etag-"}, headers={"if-none-match": f'"x", W/{etag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", etag)
    await put(http, "etag-2")
    other = await http.get(T, params={"prefix": "etag-"}, headers={"if-none-match": etag})
    assert other.status_code == 200 and other.headers["etag"] != etag


@pytest.mark.parametrize(
    "query",
    ["page_size=0", "page_size=1001", "page_size=x", "page_token=%21", "page_token=%C3%A9", "page_token=_w",
     "prefix=" + "x" * 250, "include_internal=maybe", "limit=1", "prefix=a&prefix=b"],
)  # fmt: skip
async def test_a_bad_list_parameter_is_refused(http: httpx.AsyncClient, problem: Check, query: str) -> None:
    document = problem(await http.get(f"{T}?{query}"), 422, "invalid-request")
    assert document["errors"][0]["parameter"] == query.split("=")[0]


# --- change -------------------------------------------------------------------------------------------------


async def test_patch_grows_and_configures_at_once(http: httpx.AsyncClient, topic: str) -> None:
    made = await put(http, topic, configs={"retention.ms": 1, "segment.ms": 9})
    changed = await http.patch(
        f"{T}/{topic}",
        content=b'{"partitions":4,"configs":{"retention.ms":null,"segment.bytes":1000}}',
        headers={"content-type": "application/merge-patch+json", "if-match": made.headers["etag"]},
    )
    assert changed.status_code == 200
    body = changed.json()
    assert (body["partitions"], body["configs"]) == (4, {"segment.bytes": "1000", "segment.ms": "9"})
    assert len(body["partition_details"]) == 4
    assert changed.headers["etag"] != made.headers["etag"]
    same = await http.patch(f"{T}/{topic}", json={"partitions": 4, "configs": {}})
    assert same.status_code == 200 and same.headers["etag"] == changed.headers["etag"]


async def test_patch_does_all_or_nothing(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    await put(http, topic, partitions=2)
    bad_config = await http.patch(f"{T}/{topic}", json={"partitions": 3, "configs": {"no.such": "1"}})
    problem(bad_config, 422, "invalid-config")
    fewer = await http.patch(f"{T}/{topic}", json={"partitions": 1, "configs": {"retention.ms": 1}})
    problem(fewer, 422, "invalid-partitions")
    body = (await http.get(f"{T}/{topic}")).json()
    assert (body["partitions"], body["configs"], body["version"]) == (2, {}, 1)


async def test_patch_can_check_only(http: httpx.AsyncClient, topic: str) -> None:
    await put(http, topic)
    change = {"partitions": 9, "configs": {"retention.ms": 1}}
    planned = await http.patch(f"{T}/{topic}?validate_only=true", json=change)
    assert (planned.json()["partitions"], planned.json()["configs"]) == (9, {"retention.ms": "1"})
    assert (await http.get(f"{T}/{topic}")).json()["partitions"] == 1


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_if_match_of_another_version_is_refused(
    http: httpx.AsyncClient, topic: str, problem: Check, method: str
) -> None:
    made = await put(http, topic)
    body = {"json": {"configs": {"retention.ms": 7}}} if method == "PATCH" else {}
    await http.patch(f"{T}/{topic}", json={"configs": {"retention.ms": 6}})
    refused = await http.request(
        method,
        f"{T}/{topic}",
        headers={"if-match": made.headers["etag"]},
        **body,  # type: ignore[arg-type]
    )
    document = problem(refused, 412, "precondition-failed")
    taken = await http.request(
        method,
        f"{T}/{topic}",
        headers={"if-match": document["current_etag"]},
        **body,  # type: ignore[arg-type]
    )
    assert taken.status_code in (200, 204)


async def test_patch_without_a_body_is_refused(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    await put(http, topic)
    problem(await http.patch(f"{T}/{topic}"), 422, "invalid-request")


# --- delete -------------------------------------------------------------------------------------------------


async def test_delete_removes_a_topic_and_its_records(http: httpx.AsyncClient, topic: str) -> None:
    first = await put(http, topic)
    await http.post(f"{T}/{topic}/records", json={"value": "x"})
    gone = await http.delete(f"{T}/{topic}")
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await http.get(f"{T}/{topic}")).status_code == 404
    again = await put(http, topic)
    assert again.status_code == 201
    assert again.json()["partition_details"][0]["latest"] == 0
    assert again.json()["topic_id"] != first.json()["topic_id"]


# --- truncate -----------------------------------------------------------------------------------------------


async def filled(http: httpx.AsyncClient, topic: str, count: int = 5) -> None:
    await put(http, topic, partitions=2)
    records = [{"value": i, "partition": p, "timestamp": 1000 * i} for i in range(count) for p in (0, 1)]
    assert (await http.post(f"{T}/{topic}/records", json={"records": records})).status_code == 200


async def test_truncate_deletes_below_an_offset(http: httpx.AsyncClient, topic: str, problem: Check) -> None:
    await filled(http, topic)
    targets = [{"partition": 0, "before_offset": 3}, {"partition": 1}]
    wanted = [
        {"partition": 0, "earliest_before": 0, "earliest": 3, "latest": 5, "deleted": 3},
        {"partition": 1, "earliest_before": 0, "earliest": 5, "latest": 5, "deleted": 5},
    ]
    for query, body in (("", {"dry_run": True}), ("?dry_run=true", {})):
        dry = await http.post(f"{T}/{topic}:truncate{query}", json={"partitions": targets, **body})
        assert dry.json() == {"topic": topic, "dry_run": True, "partitions": wanted}
        assert (await http.get(f"{T}/{topic}")).json()["partition_details"][0]["earliest"] == 0
    done = await http.post(f"{T}/{topic}:truncate", json={"partitions": targets})
    assert done.json() == {"topic": topic, "dry_run": False, "partitions": wanted}
    problem(await http.get(f"{T}/{topic}/partitions/0/records?offset=2"), 410, "offset-out-of-range")
    rest = (await http.get(f"{T}/{topic}/partitions/0/records")).json()["records"]
    assert [r["offset"] for r in rest] == [3, 4]
    again = await http.post(f"{T}/{topic}:truncate", json={"partitions": targets[:1]})
    assert again.json()["partitions"][0]["deleted"] == 0


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"partitions": [{"partition": 0, "before_offset": 6}]}, 416, "offset-out-of-range"),
        ({"partitions": [{"partition": 0}, {"partition": 2}]}, 404, "unknown-topic-or-partition"),
        ({"partitions": [{"partition": 0}, {"partition": 0}]}, 422, "invalid-request"),
        ({"partitions": [{"partition": 0, "before_offset": -1}]}, 422, "invalid-request"),
        ({"partitions": [{"partition": 0, "before_offset": 2**63}]}, 422, "invalid-request"),
        ({"partitions": [{"before_offset": 1}]}, 422, "invalid-request"),
        ({"partitions": []}, 422, "invalid-request"),
        ({}, 422, "invalid-request"),
        ({"partitions": [{"partition": 0}], "dryrun": True}, 422, "invalid-request"),
        ({"partitions": [{"partition": 0}], "dry_run": "yes"}, 422, "invalid-request"),
    ],
    ids=str,
)
async def test_a_bad_truncation_deletes_nothing(
    http: httpx.AsyncClient, topic: str, problem: Check, body: Any, status: int, kind: str
) -> None:
    await filled(http, topic)
    problem(await http.post(f"{T}/{topic}:truncate", json=body), status, kind)
    problem(
        await http.post(f"{T}/{topic}:truncate?dry_ran=true", json={"partitions": [{"partition": 0}]}),
        422,
        "invalid-request",
    )
    details = (await http.get(f"{T}/{topic}")).json()["partition_details"]
    assert [d["earliest"] for d in details] == [0, 0]


# --- offsets by time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "offset", "ms"),
    [
        ("earliest", 0, None),
        ("latest", 5, None),
        ("max_timestamp", 4, 4000),
        ("1970-01-01T00:00:02Z", 2, 2000),
        ("1970-01-01T00:00:01.500Z", 2, 2000),
        ("1970-01-01T02:00:02+02:00", 2, 2000),
        ("1970-01-01 00:00:03", 3, 3000),
        ("3000", 3, 3000),
        ("2025-01-01", None, None),
    ],
)
async def test_offsets_are_found_by_time(
    http: httpx.AsyncClient, topic: str, at: str, offset: int | None, ms: int | None
) -> None:
    await filled(http, topic)
    found = (await http.get(f"{T}/{topic}/offsets", params={"at": at})).json()
    assert (found["topic"], found["at"]) == (topic, at)
    for partition in (0, 1):
        entry = found["partitions"][partition]
        assert (entry["partition"], entry["offset"]) == (partition, offset)
        if ms is not None:
            assert entry["timestamp_ms"] == ms
            assert entry["timestamp"].startswith("1970-01-01T00:00:0")


@pytest.mark.parametrize("at", ["", "yesterday", "-1", "1969-01-01", "99999999999999999999"])
async def test_a_time_that_is_none_is_refused(
    http: httpx.AsyncClient, topic: str, problem: Check, at: str
) -> None:
    await put(http, topic)
    document = problem(await http.get(f"{T}/{topic}/offsets", params={"at": at}), 422, "invalid-request")
    assert document["errors"][0]["parameter"] == "at"


async def test_a_topic_that_appears_meanwhile_is_compared_not_failed(
    http: httpx.AsyncClient, app: Application, topic: str, problem: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Kafka client creates the topic between our look and our create."""
    broker = app.server.broker
    create = broker.topics.create

    async def beaten(name: str, **options: Any) -> Any:
        await create(name, partitions=2)
        raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, "Beaten.")

    monkeypatch.setattr(broker.topics, "create", beaten)
    problem(await put(http, topic, partitions=3), 409, "topic-differs")
    assert (await put(http, topic, partitions=2)).status_code == 200
