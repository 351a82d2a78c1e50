"""What one user asked, another one does not get: caches, consumers and keys; and what is no page."""

from __future__ import annotations

import pytest

from core.protocol.messages.metadata import MetadataRequest
from core.security.acl import Operation, ResourceType

from .conftest import ADMIN, World

WRITE = Operation.WRITE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


@pytest.fixture
async def pair(world: World) -> World:
    """`alice` may do all with `hers`, `bob` with `his`; both with the group `shared`, and each with a group."""
    for user, topic in (("alice", "hers"), ("bob", "his")):
        await world.add(user)
        await world.broker.topics.create(topic)
        await world.allow(user, Operation.ALL, TOPIC, topic)
        await world.allow(user, Operation.ALL, GROUP, f"group-of-{user}")
        await world.allow(user, Operation.ALL, GROUP, "shared")
        written = {"records": [{"value": f"secret of {user}", "partition": 0}]}
        answer = await world.http(ADMIN, "POST", f"/api/v1/topics/{topic}/records", written)
        assert answer.status_code == 200, answer.text
    return world


async def test_the_same_requests_in_turn_have_each_users_answers(pair: World) -> None:
    """Each request twice for each user, so that what was kept for one could be given to the other."""
    for _ in range(2):
        for user, own in (("alice", "hers"), ("bob", "his")):
            listed = (await pair.http(user, "GET", "/api/v1/topics")).json()["items"]
            assert [one["name"] for one in listed] == [own]
            assert (await pair.http(user, "GET", "/topics")).json() == [own]
            client = await pair.kafka(user)
            for version in (1, 9, 12):
                topics = (await client.ask(3, version, MetadataRequest(topics=None))).topics
                assert [topic.name for topic in topics] == [own], version
            for topic in ("hers", "his"):
                path = f"/api/v1/topics/{topic}/partitions/0/records/0"
                answer = await pair.http(user, "GET", path)
                assert answer.status_code == (200 if topic == own else 403)
                assert ("secret" in answer.text) is (topic == own)
                merged = await pair.http(user, "GET", f"/api/v1/topics/{topic}/records?from=earliest")
                assert ("secret" in merged.text) is (topic == own), merged.text


async def test_a_conditional_read_of_another_user_is_denied(pair: World) -> None:
    path = "/api/v1/topics/hers/partitions/0/records/0"
    known = (await pair.http("alice", "GET", path)).headers["etag"]
    assert (await pair.http("alice", "GET", path, **{"if-none-match": known})).status_code == 304
    assert (await pair.http("bob", "GET", path, **{"if-none-match": known})).status_code == 403


async def test_an_idempotency_key_is_that_of_one_user(pair: World) -> None:
    await pair.allow("bob", WRITE, TOPIC, "hers")
    body = {"records": [{"value": "v", "partition": 0}]}
    offsets = []
    for user in ("alice", "bob", "alice", "bob"):
        answer = await pair.http(
            user, "POST", "/api/v1/topics/hers/records", body, **{"idempotency-key": "the same"}
        )
        offsets.append(answer.json()["records"][0]["offset"])
    assert offsets == [1, 2, 1, 2]


async def test_a_consumer_of_a_shared_group_gives_no_records_without_the_right_to_read_them(
    pair: World,
) -> None:
    wanted = {"name": "c", "assignments": [{"topic": "hers", "partition": 0}], "start": "earliest"}
    made = await pair.http("alice", "POST", "/api/v1/groups/shared/consumers", wanted)
    assert made.status_code == 201, made.text
    refused = await pair.http("bob", "POST", "/api/v1/groups/shared/consumers/c:poll", {"wait_ms": 0})
    assert refused.status_code == 403 and "secret" not in refused.text
    given = await pair.http("alice", "POST", "/api/v1/groups/shared/consumers/c:poll", {"wait_ms": 0})
    assert "secret of alice" in given.text


@pytest.mark.parametrize(
    "value",
    [
        "<html><script>alert(1)</script>", "<svg onload='alert(1)'/>", "%PDF-1.4\n", "GIF89a", "\x89PNG\r\n",
        "<?xml version='1.0'?><x/>", "#!/bin/sh", "BM", "PK\x03\x04", "",
    ],
)  # fmt: skip
async def test_a_value_is_no_page_of_this_server(pair: World, value: str) -> None:
    body = {"records": [{"value": value, "partition": 0}]}
    await pair.http("alice", "POST", "/api/v1/topics/hers/records", body)
    answer = await pair.http(
        "alice", "GET", "/api/v1/topics/hers/partitions/0/records/1", accept="application/octet-stream"
    )
    assert answer.content == value.encode()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment"
