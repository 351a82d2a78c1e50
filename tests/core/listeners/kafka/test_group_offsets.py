"""OffsetCommit, OffsetFetch and OffsetDelete at the Kafka listener, in every version and with every error."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from core.broker.broker import Broker
from core.errors import ErrorCode
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.core.listeners.kafka.conftest import Client
from tests.core.listeners.kafka.test_groups import joining, member, versions

COMMIT, FETCH, DELETE = 8, 9, 47
NIL = UUID(int=0)
OTHER = UUID(int=7)


SETTINGS = {"group_initial_rebalance_delay_ms": 0, "offset_commit_max_bytes": 10_000}


@pytest.fixture
async def topic_id(client: Client, broker: Broker) -> UUID:
    await client.create("t", 2)
    return broker.topics.get("t").topic_id


def commit_request(
    *partitions: OffsetCommitRequestPartition, topic: str = "t", topic_id: UUID = NIL, **more: Any
) -> OffsetCommitRequest:
    group, generation = more.pop("group", "g"), more.pop("generation", -1)
    topics = [OffsetCommitRequestTopic(topic, topic_id, list(partitions))]
    return OffsetCommitRequest(
        group, generation, more.pop("member_id", ""), more.pop("instance", None), -1, topics
    )


def at(
    partition: int, offset: int, metadata: str | None = "", epoch: int = -1
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition, offset, epoch, -1, metadata)


async def commit(client: Client, version: int, request: OffsetCommitRequest) -> list[int]:
    answer = await client.ask(COMMIT, version, request)
    return [p.error_code for t in answer.topics for p in t.partitions]


def fetch_request(
    topic_id: UUID, *partitions: int, topic: str = "t", group: str = "g", everything: bool = False
) -> OffsetFetchRequest:
    """One question in the words of all versions."""
    named = None if everything else [OffsetFetchRequestTopic(topic, list(partitions))]
    by_id = None if everything else [OffsetFetchRequestTopics(topic, topic_id, list(partitions))]
    return OffsetFetchRequest(group, named, [OffsetFetchRequestGroup(group, None, -1, by_id)])


async def fetch(client: Client, version: int, request: OffsetFetchRequest) -> list[tuple[Any, ...]]:
    answer = await client.ask(FETCH, version, request)
    topics = answer.groups[0].topics if answer.groups else answer.topics
    return [
        (p.partition_index, p.committed_offset, p.metadata, p.error_code)
        for t in topics
        for p in t.partitions
    ]


@pytest.mark.parametrize("version", versions(COMMIT))
async def test_what_is_committed_in_any_version_is_fetched_in_every_other(
    client: Client, topic_id: UUID, version: int
) -> None:
    request = commit_request(at(0, 5, "note", 3), at(1, 6, None), topic_id=topic_id if version >= 10 else NIL)
    assert await commit(client, version, request) == [0, 0]
    for fetch_version in versions(FETCH):
        asked = fetch_request(topic_id if fetch_version >= 10 else NIL, 0, 1)
        # What version 0 wrote had no metadata, when it lay in ZooKeeper.
        note = "" if version == fetch_version == 0 else "note"
        assert await fetch(client, fetch_version, asked) == [(0, 5, note, 0), (1, 6, "", 0)]
    answer = await client.ask(FETCH, 9, fetch_request(NIL, 0))
    epoch = answer.groups[0].topics[0].partitions[0].committed_leader_epoch
    assert epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize("version", versions(FETCH))
async def test_what_was_never_committed_is_minus_one_and_no_error(
    client: Client, topic_id: UUID, version: int
) -> None:
    asked = fetch_request(topic_id if version >= 10 else NIL, 0, group="never")
    assert await fetch(client, version, asked) == [(0, -1, "", 0)]


@pytest.mark.parametrize("version", range(2, 11))
async def test_all_offsets_of_a_group_are_fetched_without_naming_topics(
    client: Client, topic_id: UUID, version: int
) -> None:
    await commit(client, 9, commit_request(at(1, 6)))
    answer = await client.ask(FETCH, version, fetch_request(NIL, everything=True))
    (topic,) = answer.groups[0].topics if answer.groups else answer.topics
    assert (topic.topic_id if version >= 10 else topic.name) == (topic_id if version >= 10 else "t")
    assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [(1, 6)]


async def test_many_groups_are_fetched_at_once(client: Client, topic_id: UUID) -> None:
    await commit(client, 9, commit_request(at(0, 5), group="a"))
    asked = [OffsetFetchRequestGroup(g, None, -1, [OffsetFetchRequestTopics("t", NIL, [0])]) for g in "ab"]
    answer = await client.ask(FETCH, 9, OffsetFetchRequest("", [], asked, True))
    found = [(g.group_id, g.error_code, g.topics[0].partitions[0].committed_offset) for g in answer.groups]
    assert found == [("a", 0, 5), ("b", 0, -1)]


async def test_partitions_that_are_not_there(client: Client, topic_id: UUID) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit(client, 9, commit_request(at(0, 1), at(7, 1))) == [0, unknown]
    assert await commit(client, 9, commit_request(at(0, 1), topic="nope")) == [unknown]
    assert await commit(client, 2, commit_request(at(7, 1))) == [0]  # as brokers of that time did
    assert await commit(client, 2, commit_request(at(0, 1), topic="nope")) == [unknown]
    by_id = commit_request(at(0, 1), topic_id=OTHER)
    assert await commit(client, 10, by_id) == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert await fetch(client, 0, fetch_request(NIL, 9)) == [(9, -1, "", unknown)]
    assert await fetch(client, 1, fetch_request(NIL, 9, topic="nope")) == [(9, -1, "", 0)]
    assert await fetch(client, 10, fetch_request(OTHER, 0)) == [(0, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)]


async def test_commits_are_refused_with_their_own_codes(client: Client, topic_id: UUID) -> None:
    one = await member(client, instance="i")

    async def code(version: int = 9, **more: Any) -> int:
        more = {"member_id": one, "generation": 1, "instance": "i", **more}
        (error,) = await commit(client, version, commit_request(more.pop("what", at(0, 1)), **more))
        return error

    assert await code() == 0
    assert await code(group="nope") == ErrorCode.GROUP_ID_NOT_FOUND
    assert await code(8, group="nope") == ErrorCode.ILLEGAL_GENERATION
    assert await code(generation=7) == ErrorCode.ILLEGAL_GENERATION
    assert await code(member_id="ghost", instance=None) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await code(member_id="", generation=-1, instance=None) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await code(member_id="ghost") == ErrorCode.FENCED_INSTANCE_ID
    assert await code(what=at(0, 1, "x" * 4097)) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    large = [at(n % 2, 1, "x" * 4000) for n in range(3)]
    request = commit_request(*large, member_id=one, generation=1, instance="i")
    assert await commit(client, 9, request) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 3
    await client.newest(11, joining(one, instance="i", protocols=joining().protocols))
    assert await code(generation=2) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_the_offsets_of_version_0_are_a_register_apart(client: Client, topic_id: UUID) -> None:
    await commit(client, 0, commit_request(at(0, 2, "zero")))
    await commit(client, 1, commit_request(at(0, 3, "one")))
    assert await fetch(client, 0, fetch_request(NIL, 0)) == [(0, 2, "", 0)]
    assert await fetch(client, 1, fetch_request(NIL, 0)) == [(0, 3, "one", 0)]
    answer = await client.ask(FETCH, 2, fetch_request(NIL, everything=True))
    assert [t.name for t in answer.topics] == ["t"]


async def test_a_retention_is_kept_with_the_offset(client: Client, topic_id: UUID, broker: Broker) -> None:
    request = commit_request(at(0, 5))
    request.retention_time_ms = 1_000
    await commit(client, 4, request)
    now = broker.clock.wall_ms()
    assert broker.groups.committed("g", "t", 0).expire_ms == now + 1_000  # type: ignore[union-attr]
    request.topics[0].partitions[0].commit_timestamp = 12_345
    await commit(client, 1, request)
    found = broker.groups.committed("g", "t", 0)
    assert found is not None and (found.commit_ms, found.expire_ms) == (12_345, -1)


async def delete(client: Client, *partitions: tuple[str, int], group: str = "g") -> tuple[int, list[int]]:
    topics = [OffsetDeleteRequestTopic(t, [OffsetDeleteRequestPartition(p)]) for t, p in partitions]
    answer = await client.newest(DELETE, OffsetDeleteRequest(group, topics))
    return answer.error_code, [p.error_code for t in answer.topics for p in t.partitions]


async def test_offsets_are_deleted_without_readers(client: Client, topic_id: UUID) -> None:
    assert (await delete(client, ("t", 0)))[0] == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await delete(client, ("t", 0), group=""))[0] == ErrorCode.INVALID_GROUP_ID
    await client.create("u")
    for topic in "tu":
        await commit(client, 0, commit_request(at(0, 5), topic=topic))
    subscribed = joining().protocols
    subscribed[0].metadata = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
    await member(client, protocols=subscribed)
    unknown, reads = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await delete(client, ("t", 0), ("nope", 0), ("u", 0)) == (0, [reads, unknown, 0])
    for version in (0, 1):
        assert (await fetch(client, version, fetch_request(NIL, 0)))[0][1] == 5
        assert (await fetch(client, version, fetch_request(NIL, 0, topic="u")))[0][1] == -1


async def test_a_stopping_broker_says_so_in_the_place_that_each_version_has(
    listener: KafkaListener, client: Client, topic_id: UUID
) -> None:
    listener.broker.drain()
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await commit(client, 9, commit_request(at(0, 5))) == [gone]
    assert await fetch(client, 1, fetch_request(NIL, 0)) == [(0, -1, "", gone)]
    assert (await client.ask(FETCH, 7, fetch_request(NIL, 0))).error_code == gone
    assert (await client.ask(FETCH, 9, fetch_request(NIL, 0))).groups[0].error_code == gone
    assert (await delete(client, ("t", 0)))[0] == gone
