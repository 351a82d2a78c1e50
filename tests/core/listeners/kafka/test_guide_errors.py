"""The errors that the protocol guides list, per API: each is provoked in the versions they describe, or stands in
`NEVER` with the reason why a broker that stands alone has no occasion for it.

The guides leave Produce's list as "TODO"; here it is what their table of codes says of produce requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from core.broker.broker import Broker
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from core.protocol.messages.leave_group import LeaveGroupRequest
from core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from core.protocol.messages.sync_group import SyncGroupRequest
from core.records.message_set import encode_message

from .conftest import Client, produce_request

PRODUCE, FETCH, LIST_OFFSETS, METADATA, COMMIT, COMMITTED, COORDINATOR = 0, 1, 2, 3, 8, 9, 10
JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = 11, 12, 13, 14, 15, 16

GUIDE: dict[int, set[int]] = {
    PRODUCE: {2, 3, 4, 5, 6, 7, 10, 17, 18, 19, 20, 21, 29},
    FETCH: {1, 3, 6, 9, -1},
    LIST_OFFSETS: {3, 6, -1, 43},
    METADATA: {3, 5, 17, 29},
    COORDINATOR: {15, 30},
    COMMIT: {12, 14, 15, 16, 22, 25, 27, 28, 29, 30},
    COMMITTED: {3, 14, 16, 22, 25, 29, 30},
    JOIN: {14, 15, 16, 23, 24, 25, 26, 30},
    SYNC: {15, 16, 22, 25, 27, 30},
    HEARTBEAT: {15, 16, 22, 25, 27, 30},
    LEAVE: {14, 15, 16, 25, 30},
    LIST: {15, 29},
    DESCRIBE: {14, 15, 16, 29},
}
NEVER: dict[int, str] = {
    -1: "an unexpected failure closes the connection, with a line in the log",
    4: "a message of negative size is corrupt, as Kafka says since 0.8",
    6: "alone it leads every partition; in a cluster it is the replication's answer",
    7: "alone it waits for the disk only; in a cluster it is the replication's answer",
    9: "a replica that is not there is no reason to keep a partition from a client",
    14: "groups are there before the port is open",
    15: "the one broker coordinates every group; while it closes its connections end",
    16: "the one broker coordinates every group",
    20: "alone it is checked before the append; in a cluster it is the replication's answer",
    28: "oversized metadata is 12, and no other size is refused",
    29: "there are no rights yet",
    30: "there are no rights yet",
    43: "the log knows timestamps in every topic",
}
# What holds for one API alone.
NEVER_HERE: dict[tuple[int, int], str] = {
    (PRODUCE, 5): "a topic that is being made is unknown (3) until it is there",
    (PRODUCE, 17): "an illegal name is one that is unknown (3), and no topic is internal",
    (COMMITTED, 22): "a request that only asks is not fenced, and has no generation",
    (COMMITTED, 25): "a request that only asks is not fenced, and has no member",
}

Provoke = Callable[[Client, int], Awaitable[Any]]
SCENARIOS: list[tuple[int, int, int, Provoke]] = []


def provokes(api: int, code: int, *versions: int) -> Callable[[Provoke], Provoke]:
    """Register a scenario that gives an answer, or an error code, in each of these versions."""

    def register(scenario: Provoke) -> Provoke:
        SCENARIOS.extend((api, code, version, scenario) for version in versions)
        return scenario

    return register


def message(version: int, value: bytes = b"v") -> bytes:
    return encode_message(1 if version == 2 else 0, 0, 0, 0, b"k", value)


async def produced(client: Client, version: int, data: bytes, **options: Any) -> int:
    answer = await client.ask(PRODUCE, version, produce_request(options.pop("topic", "t"), data, **options))
    return int(answer.responses[0].partition_responses[0].error_code)


# --- records -----------------------------------------------------------------------------------------------


@provokes(PRODUCE, 2, 0, 1, 2)
async def a_wrong_checksum(client: Client, version: int) -> int:
    data = bytearray(message(version))
    data[-1] ^= 1
    return await produced(client, version, bytes(data))


@provokes(PRODUCE, 2, 0, 1, 2)
async def a_negative_size(client: Client, version: int) -> int:
    data = bytearray(message(version))
    data[8:12] = b"\xff\xff\xff\xff"
    return await produced(client, version, bytes(data))


@provokes(PRODUCE, 3, 0, 1, 2)
async def an_unknown_partition(client: Client, version: int) -> int:
    return await produced(client, version, message(version), partition=9)


@provokes(PRODUCE, 10, 0, 1, 2)
async def a_message_that_is_too_large(client: Client, version: int) -> int:
    await client.create("small", max_message_bytes="1000")
    return await produced(client, version, message(version, b"x" * 2000), topic="small")


@provokes(PRODUCE, 18, 0, 1, 2)
async def a_list_that_no_segment_holds(client: Client, version: int) -> int:
    await client.create("short", segment_bytes="1000")
    return await produced(client, version, message(version, b"x" * 100) * 20, topic="short")


@provokes(PRODUCE, 19, 0, 1, 2)
async def too_few_replicas(client: Client, version: int) -> int:
    await client.create("safe", min_insync_replicas="2")
    return await produced(client, version, message(version), topic="safe", acks=-1)


@provokes(PRODUCE, 21, 0, 1, 2)
async def acks_that_mean_nothing(client: Client, version: int) -> int:
    return await produced(client, version, message(version), acks=2)


async def fetched(client: Client, version: int, partition: int, offset: int) -> int:
    asked = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1000)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic("t", partitions=[asked])])
    answer = await client.ask(FETCH, version, request)
    return int(answer.responses[0].partitions[0].error_code)


@provokes(FETCH, 1, 0, 1, 2, 3)
async def an_offset_beyond_the_end(client: Client, version: int) -> int:
    return await fetched(client, version, 0, 1000)


@provokes(FETCH, 3, 0, 1, 2, 3)
async def a_fetch_of_an_unknown_partition(client: Client, version: int) -> int:
    return await fetched(client, version, 9, 0)


@provokes(LIST_OFFSETS, 3, 0, 1)
async def offsets_of_an_unknown_partition(client: Client, version: int) -> int:
    asked = ListOffsetsPartition(9, timestamp=-1, max_num_offsets=1)
    answer = await client.ask(
        LIST_OFFSETS, version, ListOffsetsRequest(topics=[ListOffsetsTopic("t", [asked])])
    )
    return int(answer.topics[0].partitions[0].error_code)


# --- topics ------------------------------------------------------------------------------------------------


async def asked_for(client: Client, version: int, name: str) -> int:
    answer = await client.ask(METADATA, version, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    return int(answer.topics[0].error_code)


@provokes(METADATA, 3, 0, 1)
async def a_topic_that_is_not_there(client: Client, version: int) -> int:
    broker = client.listener.broker
    broker.config = replace(broker.config, auto_create_topics=False)
    return await asked_for(client, version, "nobody")


@provokes(METADATA, 5, 0, 1)
async def a_topic_that_is_being_made(client: Client, version: int) -> int:
    return await asked_for(client, version, "new")


@provokes(METADATA, 17, 0, 1)
async def a_name_that_no_topic_may_have(client: Client, version: int) -> int:
    return await asked_for(client, version, "a/b")


# --- groups ------------------------------------------------------------------------------------------------


async def joined(client: Client, version: int, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol("range", b"")],
        **changes,
    }
    return await client.ask(JOIN, version, JoinGroupRequest(**fields))


async def member(client: Client) -> tuple[str, int]:
    answer = await joined(client, 0)
    assert answer.error_code == 0
    return answer.member_id, answer.generation_id


async def code_of(answer: Awaitable[Any]) -> int:
    return int((await answer).error_code)


@provokes(JOIN, 23, 0, 1)
async def another_kind_of_member(client: Client, version: int) -> int:
    await member(client)
    return await code_of(joined(client, version, protocol_type="connect"))


@provokes(JOIN, 24, 0, 1)
async def a_group_without_a_name(client: Client, version: int) -> int:
    return await code_of(joined(client, version, group_id=""))


@provokes(JOIN, 25, 0, 1)
async def an_unknown_member_that_joins(client: Client, version: int) -> int:
    return await code_of(joined(client, version, member_id="nobody"))


@provokes(JOIN, 26, 0, 1)
async def a_session_that_is_too_short(client: Client, version: int) -> int:
    return await code_of(joined(client, version, session_timeout_ms=1))


@provokes(SYNC, 22, 0, 1)
@provokes(HEARTBEAT, 22, 0, 1)
@provokes(COMMIT, 22, 1, 2)
async def another_generation(client: Client, version: int, api: int = -1) -> int:
    member_id, generation = await member(client)
    return await said(client, api, version, member_id, generation + 1)


@provokes(SYNC, 25, 0, 1)
@provokes(HEARTBEAT, 25, 0, 1)
@provokes(LEAVE, 25, 0, 1)
@provokes(COMMIT, 25, 1, 2)
async def an_unknown_member(client: Client, version: int, api: int = -1) -> int:
    _, generation = await member(client)
    return await said(client, api, version, "nobody", generation)


@provokes(SYNC, 27, 0, 1)
@provokes(HEARTBEAT, 27, 0, 1)
@provokes(COMMIT, 27, 1, 2)
async def a_rebalance_under_way(client: Client, version: int, api: int = -1) -> int:
    member_id, generation = await member(client)
    if api == COMMIT:  # joined, and not synchronised yet
        return await said(client, api, version, member_id, generation)
    done = await client.ask(SYNC, 0, SyncGroupRequest("g", generation, member_id))
    assert done.error_code == 0
    second = Client(client.listener)
    task = asyncio.get_running_loop().create_task(joined(second, 0))
    await asyncio.sleep(0.01)
    try:
        return await said(client, api, version, member_id, generation)
    finally:
        task.cancel()


async def said(client: Client, api: int, version: int, member_id: str, generation: int) -> int:
    """The error of one request of a member."""
    if api == SYNC:
        return await code_of(client.ask(SYNC, version, SyncGroupRequest("g", generation, member_id)))
    if api == HEARTBEAT:
        return await code_of(client.ask(HEARTBEAT, version, HeartbeatRequest("g", generation, member_id)))
    if api == LEAVE:
        return await code_of(client.ask(LEAVE, version, LeaveGroupRequest("g", member_id)))
    return await committed(client, version, member_id=member_id, generation=generation)


async def committed(
    client: Client, version: int, *, metadata: str = "", member_id: str = "", generation: int = -1
) -> int:
    one = OffsetCommitRequestPartition(0, committed_offset=1, committed_metadata=metadata)
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[one])],
    )
    answer = await client.ask(COMMIT, version, request)
    return int(answer.topics[0].partitions[0].error_code)


@provokes(COMMIT, 12, 0, 1, 2)
async def metadata_that_is_too_long(client: Client, version: int) -> int:
    return await committed(client, version, metadata="m" * 5000)


@provokes(COMMITTED, 3, 0)
async def the_position_in_an_unknown_partition(client: Client, version: int) -> int:
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [9])])
    answer = await client.ask(COMMITTED, version, request)
    return int(answer.topics[0].partitions[0].error_code)


# --- all of them -------------------------------------------------------------------------------------------


SETTINGS = {"group_initial_rebalance_delay_ms": 0}


@pytest.mark.parametrize(
    ("api", "code", "version", "scenario"),
    [pytest.param(*one, id=f"{one[0]}-v{one[2]}-{one[1]}-{one[3].__name__}") for one in SCENARIOS],
)
async def test_an_error_of_the_guides_is_answered(
    client: Client, broker: Broker, api: int, code: int, version: int, scenario: Any
) -> None:
    await client.create("t")
    shared = "api" in scenario.__code__.co_varnames[: scenario.__code__.co_argcount]
    answered = await (scenario(client, version, api) if shared else scenario(client, version))
    assert answered == code


def test_every_error_of_the_guides_is_provoked_or_has_a_reason_not_to_be() -> None:
    provoked = {(api, code) for api, code, _, _ in SCENARIOS}
    listed = {(api, code) for api, codes in GUIDE.items() for code in codes}
    excused = {(api, code) for api, code in listed if code in NEVER or (api, code) in NEVER_HERE}
    assert provoked <= listed
    assert listed - provoked - excused == set()
    assert provoked & excused == set()
