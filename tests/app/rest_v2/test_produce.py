"""POST of records over v2: formats, answers, and every way to be refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pytest

from app.main import Application, create_app
from core.errors import BrokerError, ErrorCode
from core.records.record import Record
from core.types import TopicPartition
from tests.app.conftest import client_of, config_for
from tests.app.rest_v2.conftest import BINARY, JSON, TEXT, V2, Refused

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def post(
    http: httpx.AsyncClient, path: str, body: Any, content_type: str = JSON, **headers: str
) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await http.post(path, content=content, headers={"content-type": content_type} | headers)


async def stored(app: Application, topic: str, partition: int = 0) -> list[Record]:
    read = await app.shared.broker.records.read(
        TopicPartition(topic, partition), 0, max_bytes=10**6, max_records=10**4
    )
    return read.records


async def test_each_record_has_its_entry_in_order(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await app.shared.broker.topics.create(topic, partitions=3)
    records = [{"value": 0, "partition": 2}, {"value": 1, "partition": 0}, {"value": 2, "partition": 2}]
    answer = await post(http, f"/topics/{topic}", {"records": records})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "offsets": [
            {"partition": 2, "offset": 0, "error_code": None, "error": None},
            {"partition": 0, "offset": 0, "error_code": None, "error": None},
            {"partition": 2, "offset": 1, "error_code": None, "error": None},
        ],
        "key_schema_id": None,
        "value_schema_id": None,
    }


@pytest.mark.parametrize(
    ("content_type", "embedded", "data"),
    [
        (JSON, '{"a":  1}', b'{"a":  1}'),
        (JSON, '"text"', b'"text"'),
        (JSON, '""', b'""'),
        (JSON, "0", b"0"),
        (JSON, "false", b"false"),
        (JSON, "[]", b"[]"),
        (JSON, "1.10", b"1.10"),
        (JSON, "null", None),
        (JSON, '"\\u00e9\\n"', b'"\\u00e9\\n"'),
        (BINARY, '"AAH/"', b"\x00\x01\xff"),
        (BINARY, '""', b""),
        (BINARY, "null", None),
        (TEXT, '"0"', b"0"),
        (TEXT, '""', b""),
        (TEXT, '"a\\u00e9\\n"', "aé\n".encode()),
        (TEXT, "null", None),
        ("application/json", '{"a":1}', b'{"a":1}'),
        ("application/json; charset=UTF-8", '{"a":1}', b'{"a":1}'),
        (V2, '"AA=="', b"\0"),
        ("application/vnd.kafka.v1+json", '"AA=="', b"\0"),
        ("application/vnd.kafka+json", '"AA=="', b"\0"),
        ("application/vnd.kafka.json+json", "1", b"1"),
        ("application/vnd.kafka.binary.v1+json", '"AA=="', b"\0"),
        ("APPLICATION/vnd.Kafka.Binary.V2+JSON", '"AA=="', b"\0"),
        ("", "1", b"1"),
        ("application/octet-stream", '"AAH/"', b"\x00\x01\xff"),
        ("application/octet-stream; charset=UTF-8", "null", None),
    ],
    ids=(f"case{number}" for number in range(99)),
)
async def test_a_format_says_what_the_bytes_are(
    http: httpx.AsyncClient,
    app: Application,
    topic: str,
    content_type: str,
    embedded: str,
    data: bytes | None,
) -> None:
    body = f'{{"records":[{{"key":{embedded},"value":{embedded}}}]}}'.encode()
    assert (await post(http, f"/topics/{topic}", body, content_type)).status_code == 200
    (record,) = await stored(app, topic)
    assert (record.key, record.value) == (data, data)


async def test_absent_is_null(http: httpx.AsyncClient, app: Application, topic: str) -> None:
    await post(
        http, f"/topics/{topic}", {"records": [{"key": "k"}, {"value": "v"}, {"key": "k", "value": None}]}
    )
    assert [(r.key, r.value) for r in await stored(app, topic)] == [
        (b'"k"', None), (None, b'"v"'), (b'"k"', None),
    ]  # fmt: skip


async def test_a_key_chooses_the_partition_as_java_does(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await app.shared.broker.topics.create(topic, partitions=10)
    answer = await post(http, f"/topics/{topic}", {"records": [{"key": "21", "value": "v"}] * 5}, TEXT)
    # Java's murmur2 of "21" is -973932308; without its sign, over ten partitions, that is 0.
    assert {entry["partition"] for entry in answer.json()["offsets"]} == {0}


async def test_headers_and_timestamps_are_taken(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    headers = [
        {"name": "trace", "value": base64.b64encode(b"7f\xff").decode()},
        {"key": "trace", "value": ""},
        {"name": "none"},
        {"name": "null", "value": None},
    ]
    records = [{"value": 1, "headers": headers, "timestamp": 1700000000000}, {"value": 2, "timestamp": None}]
    assert (await post(http, f"/topics/{topic}", {"records": records})).status_code == 200
    first, second = await stored(app, topic)
    assert first.headers == (("trace", b"7f\xff"), ("trace", b""), ("none", None), ("null", None))
    assert first.timestamp == 1700000000000
    assert second.timestamp > 1700000000000 and second.headers == ()


async def test_what_was_read_can_be_written(http: httpx.AsyncClient, app: Application, topic: str) -> None:
    headers = [{"name": "h", "value": "AA=="}]
    record = {"key": {"a": 1}, "value": [1, 2], "headers": headers, "timestamp": 1700000000000}
    await post(http, f"/topics/{topic}", {"records": [record]})
    read = await http.get(f"/topics/{topic}/partitions/0/records", headers={"accept": JSON})
    assert (await post(http, f"/topics/{topic}", {"records": read.json()})).status_code == 200
    first, second = await stored(app, topic)
    assert (first.key, first.value, first.headers) == (second.key, second.value, second.headers)


async def test_a_partition_takes_records_for_itself(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await app.shared.broker.topics.create(topic, partitions=3)
    records = [{"key": "a", "value": 1}, {"value": 2, "partition": "1"}]
    answer = await post(http, f"/topics/{topic}/partitions/1", {"records": records})
    assert [(e["partition"], e["offset"]) for e in answer.json()["offsets"]] == [(1, 0), (1, 1)]


async def test_the_answer_has_the_media_type_that_is_accepted(http: httpx.AsyncClient, topic: str) -> None:
    answer = await post(http, f"/topics/{topic}", {"records": [{"value": 1}]}, JSON, accept=V2)
    assert answer.headers["content-type"] == V2


async def test_one_refused_record_does_not_refuse_the_others(
    http: httpx.AsyncClient, app: Application, topic: str
) -> None:
    await app.shared.broker.topics.create(topic, partitions=1, configs={"max.message.bytes": "1000"})
    records = [{"value": 1}, {"value": 2, "partition": 7}, {"value": 3}, {"value": "x" * 2000}]
    answer = await post(http, f"/topics/{topic}", {"records": records})
    assert answer.status_code == 200
    entries = answer.json()["offsets"]
    assert [entry["offset"] for entry in entries] == [0, None, 1, None]
    assert [entry["partition"] for entry in entries] == [0, None, 0, None]
    assert [entry["error_code"] for entry in entries] == [None, 50003, None, 50002]
    assert "partition 7" in entries[1]["error"] and "1000" in entries[3]["error"]


@pytest.mark.parametrize(
    ("body", "status", "code", "word"),
    [
        (b"", 400, 400, "JSON"),
        (b"{", 400, 400, "early"),
        (b'{"records":[{"value":NaN}]}', 400, 400, "byte"),
        (b'{"records":[{"value":Infinity}]}', 400, 400, "byte"),
        (b'{"records":[{"value":"\\ud800"}]}', 400, 400, "surrogate"),
        (b'{"records":[{"value":"\xff"}]}', 400, 400, "UTF-8"),
        (b'{"records":[{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", 400, 400, "deep"),
        (b'{"records":[{"value":' + b"[" * 200 + b"]" * 200 + b"}]}", 422, 42203, "128"),
        (b"[]", 422, 422, "object"),
        (b"null", 422, 422, "object"),
        (b"{}", 422, 422, "records"),
        (b'{"foo":"bar"}', 422, 422, "foo"),
        (b'{"records":null}', 422, 422, "array"),
        (b'{"records":{}}', 422, 422, "array"),
        (b'{"records":[]}', 422, 422, "empty"),
        (b'{"records":[1]}', 422, 422, "object"),
        (b'{"records":[{}]}', 422, 422, "neither"),
        (b'{"records":[{"partition":0}]}', 422, 422, "neither"),
        (b'{"records":[{"valur":1}]}', 422, 422, "valur"),
        (b'{"records":[{"value":1}],"more":1}', 422, 422, "more"),
        (b'{"records":[{"value":1,"partition":-1}]}', 422, 422, "partition"),
        (b'{"records":[{"value":1,"partition":"x"}]}', 422, 422, "partition"),
        (b'{"records":[{"value":1,"partition":1.5}]}', 422, 422, "partition"),
        (b'{"records":[{"value":1,"partition":99999999999}]}', 422, 422, "partition"),
        (b'{"records":[{"value":1,"timestamp":-1}]}', 422, 422, "timestamp"),
        (b'{"records":[{"value":1,"timestamp":9223372036854775808}]}', 422, 422, "timestamp"),
        (b'{"records":[{"value":1,"headers":[{"value":"AA=="}]}]}', 422, 422, "header"),
        (b'{"records":[{"value":1,"headers":[{"name":"a","key":"a"}]}]}', 422, 422, "header"),
        (b'{"records":[{"value":1,"headers":[{"name":"a","value":"?"}]}]}', 422, 42203, "base64"),
    ],
    ids=lambda value: value[:60].decode(errors="replace") if isinstance(value, bytes) else None,
)
@pytest.mark.parametrize("path", ["/topics/{}", "/topics/{}/partitions/0"])
async def test_a_malformed_list_is_refused(
    http: httpx.AsyncClient,
    topic: str,
    refused: Refused,
    path: str,
    body: bytes,
    status: int,
    code: int,
    word: str,
) -> None:
    topic = topic[:60]
    refused(await post(http, path.format(topic), body), status, code, word)
    assert (await http.get(f"/topics/{topic}")).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"value":1,"value":2}]}',
        b'{"records":[{"value":1,"v\\u0061lue":2}]}',
        b'{"records":[{"value":1},{"value":3}],"records":[{"value":2}]}',
        b'{"records":[{"value":' + b"[" * 100 + b"]" * 100 + b',"value":2}]}',
    ],
)
async def test_of_a_member_that_occurs_more_than_once_the_last_one_counts(
    http: httpx.AsyncClient, app: Application, topic: str, body: bytes
) -> None:
    topic = topic[:60]
    assert (await post(http, f"/topics/{topic}", body)).status_code == 200
    assert (await stored(app, topic))[-1].value == b"2"


async def test_names_of_members_inside_of_values_are_kept(http: httpx.AsyncClient, topic: str) -> None:
    value = {"key": 1, "value": {"records": [{"value": 1}, {"value": 2}], "a": '"value"\\'}, "headers": []}
    answer = await post(http, f"/topics/{topic}", {"records": [{"key": value, "value": value}]})
    assert answer.status_code == 200


@pytest.mark.parametrize("value", [1, {"a": 1}, "no base64", "YQ", "YQ=\n=", "é", True])
async def test_what_is_not_base64_is_no_binary(
    http: httpx.AsyncClient, topic: str, refused: Refused, value: Any
) -> None:
    body = {"records": [{"value": "YQ=="}, {"key": value}]}
    refused(await post(http, f"/topics/{topic[:60]}", body, BINARY), 422, 42203, "Record 1", "'key'")


@pytest.mark.parametrize("value", [1, {"a": 1}, [], False])
async def test_what_is_no_string_is_no_text(
    http: httpx.AsyncClient, topic: str, refused: Refused, value: Any
) -> None:
    refused(
        await post(http, f"/topics/{topic[:60]}", {"records": [{"value": value}]}, TEXT), 422, 42203, "text"
    )


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain", "application/octet", "application/x-www-form-urlencoded", "multipart/form-data",
        "application/vnd.kafka.v3+json", "application/vnd.kafka.avro.v0+json", "application/vnd.kafka.json+avro",
        "application/vnd.kafka", "application/vnd.kafka+binary", "application/vnd.kafka.xml.v2+json", "bar/baz",
        "application/json; charset=latin-1", "application/vnd.kafka.json.v2+json;charset=utf-16",
    ],
)  # fmt: skip
async def test_media_types_that_are_not_ours_are_415(
    http: httpx.AsyncClient, app: Application, refused: Refused, content_type: str
) -> None:
    await app.shared.broker.topics.get_or_create("known")
    body = {"records": [{"value": "YQ=="}]}
    for path in ("/topics/known", "/topics/known/partitions/0"):
        refused(await post(http, path, body, content_type), 415, 415)
    # What is unknown is told first.
    for path, code in (
        ("/topics/unknown", 40401),
        ("/topics/unknown/partitions/0", 40401),
        ("/topics/known/partitions/7", 40402),
    ):
        refused(await post(http, path, body, content_type), 404, code)
    assert (await http.get("/topics/unknown")).status_code == 404


@pytest.mark.parametrize("accept", ["text/html", "application/octet-stream", "application/vnd.kafka.v3+json"])
async def test_unknown_answer_types_are_406(
    http: httpx.AsyncClient, app: Application, refused: Refused, accept: str
) -> None:
    await app.shared.broker.topics.get_or_create("known")
    answer = await post(http, "/topics/known", {"records": [{"value": 1}]}, JSON, accept=accept)
    refused(answer, 406, 406)
    assert answer.headers["content-type"] == "application/json"
    refused(await post(http, "/topics/unknown", {"records": [{"value": 1}]}, JSON, accept=accept), 404, 40401)
    assert (await http.get("/topics/unknown")).status_code == 404


@pytest.mark.parametrize("embedded", ["avro", "jsonschema", "protobuf"])
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"records": [{"key": 1}]}, 422, 42201),
        ({"records": [{"value": 1}]}, 422, 42202),
        ({"records": [{"key": 1, "value": 1}], "key_schema_id": 1}, 422, 42202),
        ({"records": [{"key": None, "value": 1}], "value_schema": "{}"}, 415, 415),
        ({"records": [{"value": 1}], "value_schema_id": "1"}, 415, 415),
    ],
)
async def test_formats_with_schemas_are_told_what_is_missing(
    http: httpx.AsyncClient,
    app: Application,
    refused: Refused,
    embedded: str,
    body: Any,
    status: int,
    code: int,
) -> None:
    media_type = f"application/vnd.kafka.{embedded}.v2+json"
    await app.shared.broker.topics.get_or_create("known")
    refused(await post(http, "/topics/known", body, media_type), status, code)
    refused(await post(http, "/topics/unknown", body, media_type), 404, 40401)
    refused(await post(http, "/topics/unknown/partitions/0", body, media_type), 404, 40401)
    assert (await http.get("/topics/unknown")).status_code == 404


async def test_too_large_is_413(
    http: httpx.AsyncClient, app: Application, topic: str, refused: Refused
) -> None:
    await app.shared.broker.topics.create(topic, configs={"max.message.bytes": "1000"})
    path = f"/topics/{topic}"
    refused(await post(http, path, {"records": [{"value": "x" * 2000}]}), 413, 413, "1000")
    limit = app.shared.config.http_max_body_bytes
    refused(await post(http, path, b" " * (limit + 1)), 413, 413, str(limit))
    count = app.shared.config.http_max_records + 1
    refused(await post(http, path, b'{"records":[%s{"key":1}]}' % (b'{"key":1},' * (count - 1))), 413, 413)


@pytest.mark.parametrize("name", ["a b", "a,b", "%C3%A9", "x" * 250, "a%22", "%2E%2E"])
async def test_an_illegal_topic_is_refused(http: httpx.AsyncClient, refused: Refused, name: str) -> None:
    for path in (f"/topics/{name}", f"/topics/{name}/partitions/0"):
        refused(await post(http, path, {"records": [{"value": 1}]}), 422, 40002, "topic name")


async def test_a_control_character_in_a_path_is_400(http: httpx.AsyncClient, refused: Refused) -> None:
    refused(await post(http, "/topics/a%00b", {"records": [{"value": 1}]}), 400, 400)


async def test_the_partition_of_the_path_must_exist(
    http: httpx.AsyncClient, app: Application, topic: str, refused: Refused
) -> None:
    await app.shared.broker.topics.create(topic, partitions=2)
    body = {"records": [{"value": 1}]}
    refused(await post(http, f"/topics/{topic}/partitions/2", body), 404, 40402)
    refused(await post(http, f"/topics/{topic}/partitions/-1", body), 404, 40402)
    refused(await post(http, f"/topics/{topic}/partitions/x", body), 404, 404)
    other = {"records": [{"value": 1, "partition": 0}]}
    refused(await post(http, f"/topics/{topic}/partitions/1", other), 422, 422, "another partition")


async def test_a_page_of_another_site_may_not_write(http: httpx.AsyncClient, refused: Refused) -> None:
    answer = await post(http, "/topics/t", {"records": [{"value": 1}]}, JSON, origin="http://evil.example")
    refused(answer, 403, 403)
    refused(await http.get("/topics", headers={"host": "evil.example"}), 421, 421)


async def test_an_unknown_topic_is_40401_where_none_may_be_made(
    tmp_path_factory: pytest.TempPathFactory, refused: Refused
) -> None:
    other = create_app(config_for(tmp_path_factory.mktemp("other") / "data", auto_create_topics=False))
    async with other.lifespan(), client_of(other) as http:
        for path in ("/topics/t", "/topics/t/partitions/0"):
            refused(await post(http, path, {"records": [{"value": 1}]}), 404, 40401)
            refused(await post(http, path, {"foo": "bar"}), 404, 40401)


@pytest.mark.parametrize(
    ("code", "status", "v2"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, 503, 50003),
        (ErrorCode.REQUEST_TIMED_OUT, 504, 50003),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 429, 42901),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 403, 40301),
        (ErrorCode.KAFKA_STORAGE_ERROR, 507, 50003),
    ],
)
async def test_what_the_broker_refuses_as_a_whole_has_its_code(
    http: httpx.AsyncClient, app: Application, monkeypatch: pytest.MonkeyPatch, refused: Refused,
    code: ErrorCode, status: int, v2: int,
) -> None:  # fmt: skip
    async def produce(*_: Any, **__: Any) -> None:
        raise BrokerError(code, "no")

    monkeypatch.setattr(app.shared.broker.records, "produce", produce)
    answer = await post(http, "/topics/t", {"records": [{"value": 1}]})
    refused(answer, status, v2, "no")
    assert ("retry-after" in answer.headers) == (status in (429, 503))


async def test_a_failure_is_500_in_the_shape_of_v2(
    http: httpx.AsyncClient, app: Application, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    async def produce(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app.shared.broker.records, "produce", produce)
    refused(await post(http, "/topics/t", {"records": [{"value": 1}]}), 500, 500)
