"""Consumer instances over v2: their life, what they read, their records, and every way to be refused."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from app.main import Application, create_app
from core.records.record import NewRecord
from core.vocabulary.consumers import Batch, ConsumerInfo
from tests.app.conftest import client_of, config_for
from tests.app.native.streams.asgi_stream import streaming
from tests.app.rest_v2.conftest import BINARY, JSON, TEXT, V2, Group, Refused, places, write

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {"group_initial_rebalance_delay_ms": 0}


# --- life ---------------------------------------------------------------------------------------------------


async def test_an_instance_says_where_it_is(http: httpx.AsyncClient) -> None:
    answer = await http.post("/consumers/my%20group", json={"name": "a b"}, headers={"accept": V2})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == V2
    assert answer.json() == {
        "instance_id": "a b",
        "base_uri": "http://127.0.0.1:8082/consumers/my%20group/instances/a%20b",
    }
    assert (await http.get(answer.json()["base_uri"] + "/subscription")).json() == {"topics": []}
    assert (await http.delete(answer.json()["base_uri"])).status_code == 204
    assert (await http.delete(answer.json()["base_uri"])).status_code == 404


@pytest.mark.parametrize("content", [b"", b" ", b"{}", b'{"name":null}', b'{"name":""}'])
async def test_an_instance_without_a_name_gets_one(http: httpx.AsyncClient, content: bytes) -> None:
    answers = [
        await http.post("/consumers/g", content=content, headers={"content-type": V2}) for _ in range(2)
    ]
    names = {answer.json()["instance_id"] for answer in answers}
    assert len(names) == 2 and all(names)


def info(app: Application, group: Group, instance: str = "i") -> ConsumerInfo:
    return app.shared.broker.consumers.get(group.name, instance)


@pytest.mark.parametrize(
    ("options", "start", "auto_commit", "settings"),
    [
        ({}, "latest", True, ("binary", "1", "1000")),
        ({"format": "json", "auto.offset.reset": "earliest"}, "earliest", True, ("json", "1", "1000")),
        ({"format": "TEXT", "auto.offset.reset": "NONE"}, "none", True, ("text", "1", "1000")),
        ({"auto.offset.reset": "smallest"}, "earliest", True, ("binary", "1", "1000")),
        ({"auto.offset.reset": "largest"}, "latest", True, ("binary", "1", "1000")),
        ({"auto.commit.enable": False}, "latest", False, ("binary", "1", "1000")),
        ({"auto.commit.enable": "false"}, "latest", False, ("binary", "1", "1000")),
        ({"auto.commit.enable": "TRUE"}, "latest", True, ("binary", "1", "1000")),
        ({"fetch.min.bytes": 100, "consumer.request.timeout.ms": 5}, "latest", True, ("binary", "100", "5")),
        (
            {"fetch.min.bytes": "100", "consumer.request.timeout.ms": "5"},
            "latest",
            True,
            ("binary", "100", "5"),
        ),
        ({"fetch.min.bytes": -1}, "latest", True, ("binary", "1", "1000")),
        ({"responseMinBytes": "7", "requestWaitMs": 0}, "latest", True, ("binary", "7", "0")),
        ({"format": "Avro"}, "latest", True, ("avro", "1", "1000")),
        ({"format": "jsonschema"}, "latest", True, ("jsonschema", "1", "1000")),
        ({"format": "protobuf"}, "latest", True, ("protobuf", "1", "1000")),
        ({"isolation.level": "read_committed"}, "latest", True, ("binary", "1", "1000")),
        ({"topic.metadata.refresh.interval.ms": 100}, "latest", True, ("binary", "1", "1000")),
    ],
)
async def test_options_are_strings_or_of_their_own_type(
    http: httpx.AsyncClient, app: Application, group: Group,
    options: dict[str, Any], start: str, auto_commit: bool, settings: tuple[str, str, str],
) -> None:  # fmt: skip
    assert (await http.post(f"/consumers/{group.name}", json={"name": "i"} | options)).status_code == 200
    made = info(app, group).options
    assert (made.start, made.auto_commit, made.ttl_ms) == (start, auto_commit, 300_000)
    assert tuple(made.settings.values()) == settings
    assert tuple(made.settings) == ("format", "fetch.min.bytes", "consumer.request.timeout.ms")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"format": "xml"}, "format"),
        ({"format": 1}, "format"),
        ({"auto.offset.reset": "yesterday"}, "auto.offset.reset"),
        ({"auto.commit.enable": "perhaps"}, "auto.commit.enable"),
        ({"fetch.min.bytes": -2}, "fetch.min.bytes"),
        ({"fetch.min.bytes": 10_000_001}, "fetch.min.bytes"),
        ({"fetch.min.bytes": "many"}, "fetch.min.bytes"),
        ({"consumer.request.timeout.ms": -1}, "consumer.request.timeout.ms"),
        ({"isolation.level": "none"}, "isolation.level"),
        ({"no.such.option": 1}, "no.such.option"),
        ({"name": "a/b"}, "name"),
        ({"name": ".."}, "name"),
        ({"name": "."}, "name"),
        ({"name": "a\n"}, "name"),
        ({"name": "x" * 250}, "name"),
        ({"id": "a\x7f"}, "name"),
        ([], "object"),
    ],
    ids=str,
)
async def test_a_bad_option_is_42204(
    http: httpx.AsyncClient, refused: Refused, options: dict[str, Any], word: str
) -> None:
    message = refused(await http.post("/consumers/bad", json=options), 422, 42204, word)
    assert message.startswith("Invalid consumer configuration")


async def test_a_name_is_taken_once_in_a_group(
    http: httpx.AsyncClient, group: Group, refused: Refused
) -> None:
    await group.create("reader")
    refused(await http.post(f"/consumers/{group.name}", json={"name": "reader"}), 409, 40902, "reader")
    refused(await http.post(f"/consumers/{group.name}", json={"id": "reader", "name": "x"}), 409, 40902)
    assert (await http.post(f"/consumers/{group.name}-2", json={"name": "reader"})).status_code == 200
    assert (await http.delete(f"/consumers/{group.name}/instances/reader/")).status_code == 204
    assert (await http.post(f"/consumers/{group.name}/", json={"name": "reader"})).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "", None),
        ("POST", "subscription", {"topics": ["t"]}),
        ("GET", "subscription", None),
        ("DELETE", "subscription", None),
        ("POST", "assignments", {"partitions": []}),
        ("GET", "assignments", None),
        ("GET", "records", None),
        ("POST", "offsets", None),
        ("POST", "offsets", {"offsets": []}),
        ("GET", "offsets?topic=t&partition=0", None),
        ("POST", "positions", {"offsets": []}),
        ("POST", "positions/beginning", {"partitions": []}),
        ("POST", "positions/end", {"partitions": []}),
    ],
)
async def test_an_instance_that_is_not_there_is_40403(
    http: httpx.AsyncClient, refused: Refused, method: str, path: str, body: Any
) -> None:
    url = f"/consumers/nobody/instances/none/{path}".rstrip("/")
    for address in (url, url.replace("?", "/?") if "?" in url else url + "/"):
        refused(await http.request(method, address, json=body) if body else await http.request(method, address),
                404, 40403, "none")  # fmt: skip


@pytest.mark.parametrize(
    "path", ["subscription", "assignments", "positions", "positions/beginning", "positions/end"]
)
@pytest.mark.parametrize(
    ("content", "media_type", "status", "code"),
    [
        (b"", V2, 422, 422),
        (b"{", V2, 400, 400),
        (b"[]", V2, 422, 422),
        (b'{"unknown":1}', V2, 422, 422),
        (b'{"topics":1,"partitions":1,"offsets":1}', V2, 422, 422),
        (b"{}", "text/plain", 415, 415),
        (b"{}", "application/json;charset=utf-16", 415, 415),
        (b'{"topics":["\xff"]}', V2, 400, 400),
    ],
)
async def test_a_body_that_is_not_right_is_refused(
    http: httpx.AsyncClient, group: Group, refused: Refused,
    path: str, content: bytes, media_type: str, status: int, code: int,
) -> None:  # fmt: skip
    instance = await group.create()
    headers = {"content-type": media_type}
    refused(await http.post(f"{instance.base_uri}/{path}", content=content, headers=headers), status, code)


async def test_of_a_member_that_occurs_more_than_once_the_last_one_counts(
    http: httpx.AsyncClient, group: Group
) -> None:
    instance = await group.create()
    url = f"{instance.base_uri}/subscription"
    body = b'{"topics":["a"],"topics":["b"]}'
    answer = await http.post(url, content=body, headers={"content-type": V2})
    assert answer.status_code == 204
    assert (await http.get(url)).json() == {"topics": ["b"]}


# --- subscription -------------------------------------------------------------------------------------------


async def test_a_subscription_can_be_read_replaced_and_ended(http: httpx.AsyncClient, group: Group) -> None:
    instance = await group.create()
    for topics in (["sub-b", "sub-a"], ["sub-c"]):
        await instance.subscribe(*topics)
        assert (await instance.call("GET", "subscription")).json() == {"topics": topics}
    await instance.done("DELETE", "subscription")
    assert (await instance.call("GET", "subscription")).json() == {"topics": []}
    await instance.subscribe("sub-a")
    await instance.subscribe()
    assert (await instance.call("GET", "subscription")).json() == {"topics": []}


async def test_a_pattern_means_the_topics_that_match(http: httpx.AsyncClient, group: Group) -> None:
    instance = await group.create(format="json", auto_offset_reset="earliest")
    for name in ("pat-1", "pat-2", "other-pat-3"):
        await write(http, name, name)
    await instance.done("POST", "subscription", {"topic_pattern": "pat-.*"})
    assert (await instance.call("GET", "subscription")).json() == {"topics": ["pat-1", "pat-2"]}
    assert sorted(await instance.values()) == ["pat-1", "pat-2"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 422, 422),
        ({"topics": None}, 422, 422),
        ({"topics": "t"}, 422, 422),
        ({"topics": [1]}, 422, 422),
        ({"topic_pattern": ["t"]}, 422, 422),
        ({"topics": ["t"], "topic_pattern": "t"}, 409, 40903),
        ({"topics": ["no good"]}, 422, 40002),
        ({"topics": [".."]}, 422, 40002),
        ({"topic_pattern": "("}, 422, 40002),
    ],
    ids=str,
)
async def test_a_subscription_that_makes_no_sense_is_refused(
    group: Group, refused: Refused, body: Any, status: int, code: int
) -> None:
    instance = await group.create()
    refused(await instance.call("POST", "subscription", body), status, code)


async def test_topics_and_partitions_exclude_each_other(
    http: httpx.AsyncClient, group: Group, topic: str, refused: Refused
) -> None:
    await write(http, topic, 1)
    subscribed, assigned = await group.create("s"), await Group(http, f"{group.name}-a").create("a")
    await subscribed.subscribe(topic)
    await assigned.assign((topic, 0))
    partitions = {"partitions": places((topic, 0))}
    words = "Subscription to topics, partitions and pattern are mutually exclusive"
    refused(await subscribed.call("POST", "assignments", partitions), 409, 40903, words)
    refused(await assigned.call("POST", "subscription", {"topics": [topic]}), 409, 40903)
    refused(await assigned.call("POST", "subscription", {"topic_pattern": "x"}), 409, 40903)
    await assigned.done("DELETE", "subscription")
    await assigned.subscribe(topic)


async def test_partitions_can_be_assigned_and_replaced(
    http: httpx.AsyncClient, app: Application, group: Group, topic: str, refused: Refused
) -> None:
    await app.shared.broker.topics.create(topic, partitions=2)
    instance = await group.create()
    assert (await instance.call("GET", "assignments")).json() == {"partitions": []}
    for partitions in (places((topic, 0), (topic, 1)), places((topic, 1))):
        await instance.done("POST", "assignments", {"partitions": partitions})
        assert (await instance.call("GET", "assignments")).json() == {"partitions": partitions}
    strings = [{"topic": topic, "partition": "0"}]
    await instance.done("POST", "assignments", {"partitions": strings})
    for place, code in [((topic, 2), 40402), (("nothing", 0), 40401)]:
        refused(await instance.call("POST", "assignments", {"partitions": places(place)}), 404, code)
    assert (await instance.call("GET", "assignments")).json() == {"partitions": places((topic, 0))}


async def test_what_a_subscription_gives_can_be_seen(
    http: httpx.AsyncClient, group: Group, topic: str
) -> None:
    await write(http, topic, 1)
    instance = await group.create()
    await instance.subscribe(topic)
    await instance.read("timeout=500")
    assert (await instance.call("GET", "assignments")).json() == {"partitions": places((topic, 0))}


async def test_where_no_topic_may_be_made_a_missing_one_is_40401(
    tmp_path_factory: pytest.TempPathFactory, refused: Refused
) -> None:
    app = create_app(config_for(tmp_path_factory.mktemp("none") / "data", auto_create_topics=False))
    async with app.lifespan(), client_of(app) as http:
        instance = await Group(http, "g").create()
        refused(await instance.call("POST", "subscription", {"topics": ["t"]}), 404, 40401)


# --- records ------------------------------------------------------------------------------------------------


async def test_records_come_once_and_in_order(http: httpx.AsyncClient, group: Group, topic: str) -> None:
    await write(http, topic, *range(5))
    instance = await group.create(format="json", auto_offset_reset="earliest")
    await instance.subscribe(topic)
    # The first poll waits for the group.
    first = await instance.read()
    assert [record["value"] for record in first] == [0, 1, 2, 3, 4]
    assert set(first[0]) == {"topic", "key", "value", "partition", "offset", "timestamp", "headers"}
    assert await instance.values("timeout=1") == []
    await write(http, topic, "next")
    assert await instance.values() == ["next"]


async def test_a_poll_is_answered_on_first_data(
    http: httpx.AsyncClient, app: Application, group: Group, topic: str
) -> None:
    instance = await group.create(format="json")
    await instance.subscribe(topic)
    assert await instance.values("timeout=200") == []
    waiting = asyncio.create_task(instance.values("timeout=60000"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await write(http, topic, "now")
    assert await asyncio.wait_for(waiting, 60) == ["now"]


@pytest.mark.parametrize("query", ["", "timeout=-1", "timeout=0", "timeout="])
async def test_without_a_timeout_the_instance_says_how_long(group: Group, topic: str, query: str) -> None:
    instance = await group.create(consumer_request_timeout_ms="50")
    await instance.subscribe(topic[:100])
    loop = asyncio.get_running_loop()
    await instance.read("timeout=500")
    start = loop.time()
    assert await instance.read(query) == []
    assert 0.04 <= loop.time() - start < 1


@pytest.mark.parametrize(
    ("query", "code"), [("timeout=x", 422), ("max_bytes=many", 422), ("timeout=%FF", 400)]
)
async def test_a_query_that_cannot_be_read_is_refused(
    group: Group, refused: Refused, query: str, code: int
) -> None:
    instance = await group.create()
    refused(await instance.call("GET", f"records?{query}"), code, code)


async def test_a_poll_before_a_subscription_is_40903(group: Group, refused: Refused) -> None:
    refused(await (await group.create()).call("GET", "records"), 409, 40903, "subscribe")


@pytest.mark.parametrize(
    ("format_name", "media_type", "value"),
    [("json", JSON, {"a": 1}), ("binary", BINARY, "eyJhIjoxfQ=="), ("text", TEXT, '{"a":1}')],
)
async def test_records_have_the_format_of_the_instance(
    app: Application, group: Group, refused: Refused, format_name: str, media_type: str, value: Any
) -> None:
    records = [NewRecord(None, b'{"a":1}', (("h", b"x"),), 5), NewRecord(b'"k"', None)]
    await app.shared.broker.records.produce(f"format-{format_name}", records)
    for number, (accept, answered) in enumerate(
        [
            (media_type, media_type),
            (V2, V2),
            ("*/*", "application/json"),
            ("application/json", "application/json"),
        ]
    ):
        instance = await group.create(f"i{number}", format=format_name)
        await instance.assign((f"format-{format_name}", 0))
        await instance.done("POST", "positions/beginning", {"partitions": []})
        answer = await instance.call("GET", "records", accept=accept)
        assert answer.headers["content-type"] == answered
        first, second = answer.json()
        assert (first["key"], first["value"], first["timestamp"]) == (None, value, 5)
        assert first["headers"] == [{"name": "h", "value": "eA=="}]
        assert second["key"] is not None and second["value"] is None and second["offset"] == 1
    for other in {JSON, BINARY, TEXT} - {media_type}:
        refused(await instance.call("GET", "records", accept=other), 406, 40601, format_name)
    refused(await instance.call("GET", "records", accept="text/html"), 406, 406)


async def test_a_record_that_does_not_fit_is_passed_by_on_request_alone(
    app: Application, group: Group, topic: str, refused: Refused
) -> None:
    await app.shared.broker.records.produce(
        topic, [NewRecord(None, v) for v in (b"0", b"1", b"no JSON", b"3")]
    )
    instance = await group.create(format="json", auto_offset_reset="earliest", auto_commit_enable=False)
    await instance.subscribe(topic)
    assert await instance.values() == [0, 1]
    for _ in range(2):
        refused(await instance.call("GET", "records"), 422, 42203, "offset 2", "continue at offset 3")
    assert (await instance.call("POST", "offsets")).status_code == 200
    assert await instance.committed(topic) == 2
    await instance.done("POST", "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 3}]})
    assert await instance.values() == [3]


@pytest.mark.parametrize("format_name", ["avro", "jsonschema", "protobuf"])
async def test_a_format_with_schemas_shows_what_needs_no_registry(
    app: Application, group: Group, refused: Refused, format_name: str
) -> None:
    topic, media_type = f"schemas-{format_name}", f"application/vnd.kafka.{format_name}.v2+json"
    with_schema = b"\x00\x00\x00\x00\x07data"
    records = [
        (b"k", None), (None, None), (b"", None), (b"\x00\x00", None),
        (None, b"plain"), (None, b""), (None, b"\x00\x00"), (b"k", with_schema), (with_schema, None),
    ]  # fmt: skip
    await app.shared.broker.records.produce(topic, [NewRecord(key, value) for key, value in records])
    instance = await group.create(format=format_name, auto_offset_reset="earliest")
    await instance.assign((topic, 0))
    answer = await instance.call("GET", "records", accept=media_type)
    assert answer.headers["content-type"] == media_type
    assert [(r["key"], r["value"]) for r in answer.json()] == [
        ("aw==", None), (None, None), ("", None), ("AAA=", None),
    ]  # fmt: skip
    for offset, words in [
        (4, ("value", "magic byte")),
        (5, ("value", "magic byte")),
        (6, ("value", "too short")),
        (7, ("value", "schema 7", "no schema registry")),
        (8, ("key", "schema 7", "no schema registry")),
    ]:
        await instance.done(
            "POST", "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]}
        )
        answer = await instance.call("GET", "records", accept=media_type)
        refused(answer, 422, 42203, f"offset {offset}", f"continue at offset {offset + 1}", *words)
    refused(await instance.call("GET", "records", accept=BINARY), 406, 40601, format_name)


async def test_max_bytes_bounds_a_poll_but_one_record_always_comes(
    app: Application, group: Group, topic: str
) -> None:
    for number in range(4):
        await app.shared.broker.records.produce(topic, [NewRecord(None, b"x" * 1000 + b"%d" % number)])
    instance = await group.create(format="text", auto_offset_reset="earliest")
    await instance.subscribe(topic)
    assert [len(await instance.read(f"timeout=5000&max_bytes={n}")) for n in (1, 1, 10_000)] == [1, 1, 2]


async def test_fetch_min_bytes_is_waited_for(http: httpx.AsyncClient, group: Group, topic: str) -> None:
    instance = await group.create(format="json", auto_offset_reset="earliest", fetch_min_bytes="2000")
    await instance.subscribe(topic)
    await instance.read("timeout=300")
    await write(http, topic, "small")
    waiting = asyncio.create_task(instance.values("timeout=60000"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await write(http, topic, "x" * 3000)
    assert len(await asyncio.wait_for(waiting, 60)) == 2


async def test_fetch_min_bytes_above_max_bytes_does_not_wait(
    http: httpx.AsyncClient, group: Group, topic: str
) -> None:
    await write(http, topic, *["x" * 300] * 20)
    instance = await group.create(format="json", auto_offset_reset="earliest", fetch_min_bytes="100000")
    await instance.assign((topic, 0))
    # Less than fetch.min.bytes is there, but more than the answer may hold.
    first = await asyncio.wait_for(instance.read("timeout=60000&max_bytes=1000"), 15)
    assert 1 <= len(first) < 20


async def test_a_record_that_does_not_fit_is_waited_for_once(
    app: Application, group: Group, topic: str
) -> None:
    await app.shared.broker.records.produce(topic, [NewRecord(None, v) for v in (b"0", b"no JSON")])
    instance = await group.create(format="json", auto_offset_reset="earliest", fetch_min_bytes="100000")
    await instance.assign((topic, 0))
    polls: list[int] = []
    poll = app.shared.broker.consumers.poll

    async def counted(*args: Any, **options: Any) -> Batch:
        polls.append(options["wait_ms"])
        return await poll(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.shared.broker.consumers, "poll", counted)
        assert await instance.values("timeout=300") == [0]
    assert polls == [300, 0]


async def test_two_instances_share_the_partitions(
    http: httpx.AsyncClient, app: Application, group: Group, topic: str
) -> None:
    await app.shared.broker.topics.create(topic, partitions=4)
    body = {"records": [{"value": n, "partition": n % 4} for n in range(40)]}
    assert (await http.post(f"/topics/{topic}", json=body)).status_code == 200
    instances = [await group.create(name, format="json", auto_offset_reset="earliest") for name in "ab"]
    for instance in instances:
        await instance.subscribe(topic)
    seen: list[int] = []
    while len(seen) < 40:
        for instance in instances:
            seen += await instance.values("timeout=100")
    assert sorted(seen) == list(range(40))
    owned = [(await i.call("GET", "assignments")).json()["partitions"] for i in instances]
    assert [len(one) for one in owned] == [2, 2]


async def test_a_poll_whose_client_has_disconnected_moves_nothing(
    http: httpx.AsyncClient, app: Application, group: Group, topic: str
) -> None:
    instance = await group.create(format="json")
    await instance.subscribe(topic)
    await instance.read("timeout=300")
    path = instance.base_uri.removeprefix("http://127.0.0.1:8082") + "/records"
    async with streaming(app, path, "timeout=60000", accept="*/*", wait=False) as gone:
        await asyncio.sleep(0.1)
        gone.leave()
        # Both at once: the record is there and the client is not.
        await write(http, topic, "kept")
    assert gone.status == 0
    assert await instance.values() == ["kept"]
