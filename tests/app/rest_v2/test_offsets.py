"""Offsets and positions of consumer instances over v2."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import Application, create_app
from core.records.record import NewRecord
from core.types import TopicPartition
from tests.app.conftest import client_of, config_for
from tests.app.rest_v2.conftest import V2, Group, Instance, Refused, places, write

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = {"group_initial_rebalance_delay_ms": 0}


async def reader(group: Group, topic: str, **options: Any) -> Instance:
    """An instance that reads JSON from the beginning of a topic, and commits nothing by itself."""
    wanted = {"format": "json", "auto_offset_reset": "earliest", "auto_commit_enable": "false"} | options
    instance = await group.create(**wanted)
    await instance.subscribe(topic)
    return instance


# --- commits ------------------------------------------------------------------------------------------------


async def test_a_commit_without_a_body_commits_what_was_delivered(
    http: httpx.AsyncClient, group: Group, topic: str
) -> None:
    for value in range(3):
        await write(http, topic, value)
    instance = await reader(group, topic)
    assert await instance.values("timeout=5000&max_bytes=1") == [0]
    assert await instance.committed(topic) is None
    answer = await instance.call("POST", "offsets", accept=V2)
    assert (answer.status_code, answer.json(), answer.headers["content-type"]) == (200, [], V2)
    assert await instance.committed(topic) == 1
    await write(http, topic, "never seen")
    await instance.call("POST", "offsets")
    assert await instance.committed(topic) == 1


@pytest.mark.parametrize("key", ["offsets", "partitions"])
async def test_an_offset_that_is_committed_is_that_of_the_last_record(
    http: httpx.AsyncClient, group: Group, topic: str, key: str
) -> None:
    await write(http, topic, *range(10))
    instance = await reader(group, topic)
    await instance.values()
    answer = await instance.call("POST", "offsets", {key: [{"topic": topic, "partition": "0", "offset": 4}]})
    assert (answer.status_code, answer.json()) == (200, [])
    assert await instance.committed(topic) == 5
    answer = await instance.call(
        "POST", "offsets?async=true", {key: [{"topic": topic, "partition": 0, "offset": 5}]}
    )
    assert (answer.status_code, await instance.committed(topic)) == (200, 6)


async def test_an_instance_with_partitions_of_its_own_commits_too(
    http: httpx.AsyncClient, group: Group, topic: str
) -> None:
    await write(http, topic, 0, 1)
    instance = await group.create()
    await instance.assign((topic, 0))
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 0, "metadata": "half"}]}
    assert (await instance.call("POST", "offsets", body)).status_code == 200
    answer = await instance.call("GET", "offsets", {"partitions": places((topic, 0))})
    assert answer.json() == {"offsets": [{"topic": topic, "partition": 0, "offset": 1, "metadata": "half"}]}


async def test_bodies_that_name_nothing(http: httpx.AsyncClient, group: Group, topic: str) -> None:
    await write(http, topic, 0)
    instance = await reader(group, topic)
    await instance.values()
    assert (await instance.call("POST", "offsets", {"offsets": []})).status_code == 200
    assert await instance.committed(topic) is None
    # Clients that always send an object mean no body by an empty one.
    assert (await instance.call("POST", "offsets", {})).status_code == 200
    assert await instance.committed(topic) == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"offsets": [{"topic": "t", "partition": 0}]}, 422, 422),
        ({"offsets": [{"topic": "t", "partition": 0, "offset": -1}]}, 422, 422),
        ({"offsets": [{"topic": "t", "partition": 0, "offset": "x"}]}, 422, 422),
        ({"offsets": [{"topic": "t", "partition": 0, "offset": 2**63 - 1}]}, 422, 422),
        ({"offsets": {}}, 422, 422),
        ({"offset": []}, 422, 422),
        ({"offsets": [{"topic": "nothing", "partition": 0, "offset": 1}]}, 404, 40401),
        ({"offsets": [{"topic": "commits", "partition": 9, "offset": 1}]}, 404, 40402),
    ],
    ids=str,
)
async def test_a_commit_that_makes_no_sense_is_refused(
    http: httpx.AsyncClient, group: Group, refused: Refused, body: Any, status: int, code: int
) -> None:
    await write(http, "commits", 1)
    instance = await reader(group, "commits")
    await instance.values()
    refused(await instance.call("POST", "offsets", body), status, code)


async def test_a_commit_before_a_subscription_is_40903(group: Group, refused: Refused) -> None:
    refused(await (await group.create()).call("POST", "offsets"), 409, 40903)


async def test_an_instance_continues_where_its_group_has_committed(
    http: httpx.AsyncClient, group: Group, topic: str
) -> None:
    await write(http, topic, *range(4))
    instance = await reader(group, topic)
    await instance.values()
    await instance.call("POST", "offsets", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]})
    await instance.done("DELETE", "")
    assert await (await reader(group, topic)).values() == [2, 3]


async def test_auto_commit_commits_what_was_delivered_at_the_end(
    http: httpx.AsyncClient, group: Group, topic: str
) -> None:
    await write(http, topic, 0, 1)
    instance = await reader(group, topic, auto_commit_enable="true")
    assert await instance.values() == [0, 1]
    await instance.done("DELETE", "")
    again = await reader(group, topic)
    assert await again.committed(topic) == 2
    assert await again.values("timeout=200") == []


async def test_committed_offsets_are_asked_for_in_two_ways(
    http: httpx.AsyncClient, app: Application, group: Group, topic: str, refused: Refused
) -> None:
    await app.shared.broker.topics.create(topic, partitions=3)
    instance = await group.create()
    await instance.assign((topic, 0), (topic, 1))
    body = {"offsets": [{"topic": topic, "partition": p, "offset": 6 + p} for p in (0, 1)]}
    await instance.call("POST", "offsets", body)
    both = [
        {"topic": topic, "partition": 0, "offset": 7, "metadata": ""},
        {"topic": topic, "partition": 1, "offset": 8, "metadata": ""},
    ]
    wanted = {"partitions": places((topic, 0), (topic, 1), (topic, 2), ("nothing", 0))}
    assert (await instance.call("GET", "offsets", wanted)).json() == {"offsets": both}
    one = await instance.call("GET", f"offsets?topic={topic}&partition=1")
    assert one.json() == {"offsets": both[1:]}
    assert (await instance.call("GET", f"offsets?topic={topic}&partition=2")).json() == {"offsets": []}
    refused(await instance.call("GET", "offsets"), 404, 40402)
    refused(await instance.call("GET", f"offsets?topic={topic}"), 404, 40402)
    refused(await instance.call("GET", f"offsets?topic={topic}&partition=x"), 404, 404)
    refused(await instance.call("GET", "offsets", {"partitions": [{"topic": topic}]}), 422, 422)


# --- positions ----------------------------------------------------------------------------------------------


async def test_seeks_go_anywhere(http: httpx.AsyncClient, group: Group, topic: str) -> None:
    await write(http, topic, *range(5))
    instance = await reader(group, topic)
    partitions = {"partitions": places((topic, 0))}
    await instance.done("POST", "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 3}]})
    assert await instance.values() == [3, 4]
    await instance.done("POST", "positions/beginning/", partitions)
    assert await instance.values() == [0, 1, 2, 3, 4]
    await instance.done("POST", "positions/end", partitions)
    await write(http, topic, "new")
    assert await instance.values() == ["new"]
    await instance.done("POST", "positions/beginning", {"partitions": []})
    assert len(await instance.values()) == 6


@pytest.mark.parametrize(
    ("moment", "values"),
    [
        (2000, [2, 3]),
        ("2000", [2, 3]),
        ("1970-01-01T00:00:01.500Z", [2, 3]),
        (datetime.fromtimestamp(3, UTC).isoformat(), [3]),
        (99999, []),
    ],
)
async def test_seeks_by_time(
    app: Application, group: Group, topic: str, moment: Any, values: list[int] | None
) -> None:
    records = [NewRecord(None, b"%d" % n, timestamp=n * 1000) for n in (1, 2, 3)]
    await app.shared.broker.records.produce(topic, records)
    instance = await reader(group, topic)
    answer = await instance.call(
        "POST", "positions", {"timestamps": [{"topic": topic, "partition": 0, "timestamp": moment}]}
    )
    assert answer.status_code == 204
    assert await instance.values("timeout=200") == values


@pytest.mark.parametrize(("reset", "values"), [("earliest", [1, 2]), ("latest", [])])
async def test_a_seek_to_a_missing_offset_obeys_the_reset(
    http: httpx.AsyncClient, app: Application, group: Group, topic: str, reset: str, values: list[int]
) -> None:
    await write(http, topic, 0, 1, 2)
    await app.shared.broker.partitions.delete_records([(TopicPartition(topic, 0), 1)])
    instance = await reader(group, topic, auto_offset_reset=reset)
    for offset in (0, 99):
        await instance.done(
            "POST", "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": offset}]}
        )
        assert await instance.values("timeout=200") == values


async def test_a_seek_to_nowhere_is_refused_without_a_reset(
    http: httpx.AsyncClient, group: Group, topic: str, refused: Refused
) -> None:
    await write(http, topic, 0)
    instance = await reader(group, topic, auto_offset_reset="none")
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 9}]}
    refused(await instance.call("POST", "positions", body), 416, 50002)
    refused(await instance.call("GET", "records"), 416, 50002)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("positions", {"offsets": [{"topic": "seeks", "partition": 7, "offset": 0}]}),
        ("positions", {"timestamps": [{"topic": "elsewhere", "partition": 0, "timestamp": 0}]}),
        ("positions/beginning", {"partitions": places(("elsewhere", 0))}),
        ("positions/end", {"partitions": places(("seeks", 0), ("seeks", 7))}),
    ],
)
async def test_a_seek_of_what_is_not_assigned_is_40903(
    http: httpx.AsyncClient, group: Group, refused: Refused, path: str, body: Any
) -> None:
    await write(http, "seeks", 0)
    instance = await reader(group, "seeks")
    await instance.values()
    refused(await instance.call("POST", path, body), 409, 40903, "not assigned")
    assert await instance.values("timeout=1") == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"offsets": None},
        {"partitions": []},
        {"offsets": [{"topic": "t", "partition": 0, "offset": -1}]},
        {"offsets": [{"topic": "t", "partition": -1, "offset": 0}]},
        {"timestamps": [{"topic": "t", "partition": 0, "timestamp": "soon"}]},
        {"timestamps": [{"topic": "t", "partition": 0, "timestamp": -1}]},
        {"timestamps": [{"topic": "t", "partition": 0}]},
    ],
    ids=str,
)
async def test_a_seek_that_makes_no_sense_is_refused(group: Group, refused: Refused, body: Any) -> None:
    refused(await (await group.create()).call("POST", "positions", body), 422, 422)


# --- dialects -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dialect", "stored", "status", "seek", "mixed", "start", "auto_commit"),
    [
        ("confluent", 2, 200, (409, 40903), 40903, "latest", True),
        ("karapace", 2, 204, (409, 40903), 40903, "earliest", True),
        ("strimzi", 1, 204, (404, 404), 409, "latest", True),
        ("redpanda", 1, 204, (409, 40903), 40903, "earliest", False),
    ],
)
async def test_commits_and_seeks_are_those_of_the_dialect(
    tmp_path: Path, refused: Refused, dialect: str, stored: int, status: int,
    seek: tuple[int, int], mixed: int, start: str, auto_commit: bool,
) -> None:  # fmt: skip
    app = create_app(config_for(tmp_path / "data", v2_dialect=dialect, **CONFIG))
    async with app.lifespan(), client_of(app) as http:
        await http.post("/topics/t", json={"records": [{"value": "YQ=="}]})
        instance = await Group(http, "g").create("i", format="binary")
        options = app.shared.broker.consumers.get("g", "i").options
        assert (options.start, options.auto_commit) == (start, auto_commit)
        assert options.settings["consumer.request.timeout.ms"] == {
            "confluent": "1000", "karapace": "11000", "strimzi": "100", "redpanda": "100",
        }[dialect]  # fmt: skip
        await instance.assign(("t", 0))
        answer = await instance.call(
            "POST", "offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}
        )
        assert (answer.status_code, answer.content) == (status, b"[]" if status == 200 else b"")
        assert await instance.committed("t") == stored
        body = {"offsets": [{"topic": "t", "partition": 5, "offset": 0}]}
        refused(await instance.call("POST", "positions", body), *seek)
        refused(await instance.call("POST", "subscription", {"topics": ["t"]}), 409, mixed)
        refused(await http.delete("/consumers/g/instances/x"), 404, 404 if dialect == "strimzi" else 40403)
