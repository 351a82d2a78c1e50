"""What a node answers to a request that it does not carry out, or only in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from core.errors import ErrorCode
from core.protocol.apis import APIS
from core.protocol.messages import (
    delete_groups,
    delete_records,
    describe_groups,
    fetch,
    find_coordinator,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from core.protocol.primitives import NIL


class Led(NamedTuple):
    """Where requests and answers of an API keep the partitions, each of which has its leader."""

    topics: str
    partitions: str
    number: str
    answered: str
    answered_partitions: str
    answered_index: str
    topic_type: Any
    partition_type: Any


LED: dict[int, Led] = {
    0: Led("topic_data", "partition_data", "index", "responses", "partition_responses", "index",
           produce.TopicProduceResponse, produce.PartitionProduceResponse),
    1: Led("topics", "partitions", "partition", "responses", "partitions", "partition_index",
           fetch.FetchableTopicResponse, fetch.PartitionData),
    2: Led("topics", "partitions", "partition_index", "topics", "partitions", "partition_index",
           list_offsets.ListOffsetsTopicResponse, list_offsets.ListOffsetsPartitionResponse),
    21: Led("topics", "partitions", "partition_index", "topics", "partitions", "partition_index",
            delete_records.DeleteRecordsTopicResult, delete_records.DeleteRecordsPartitionResult),
    23: Led("topics", "partitions", "partition", "topics", "partitions", "partition",
            offset_for_leader_epoch.OffsetForLeaderTopicResult, offset_for_leader_epoch.EpochEndOffset),
}  # fmt: skip

Refused = tuple[Any, int, ErrorCode]
"""A topic of a request, one of its partitions, and why it is refused."""


def name_of(topic: Any) -> str:
    """Return the name of a topic in a request or an answer; empty if it has an id only."""
    return getattr(topic, "name", None) or getattr(topic, "topic", None) or ""


def take_out(key: int, request: Any, judge: Callable[[Any, Any], ErrorCode]) -> list[Refused]:
    """Take the partitions out of a request that `judge` refuses; return them."""
    led, refused = LED[key], []
    left = []
    for topic in getattr(request, led.topics):
        kept = []
        for one in getattr(topic, led.partitions):
            code = judge(topic, one)
            if code:
                refused.append((topic, getattr(one, led.number), code))
            else:
                kept.append(one)
        if kept:
            setattr(topic, led.partitions, kept)
            left.append(topic)
    setattr(request, led.topics, left)
    return refused


def put_in(key: int, response: Any, refused: list[Refused], leader: Callable[[Any, int], Any]) -> None:
    """Add the refusals of partitions to an answer, with the leader that the client should ask (KIP-951)."""
    led = LED[key]
    topics = list(getattr(response, led.answered))
    for topic, index, code in refused:
        answer = led.partition_type(**{led.answered_index: index, "error_code": code})
        if key == 0:
            answer.base_offset = -1
        hint = leader(topic, index)
        if hint is not None and code == ErrorCode.NOT_LEADER_OR_FOLLOWER and key in (0, 1):
            module = produce if key == 0 else fetch
            answer.current_leader = module.LeaderIdAndEpoch(*hint)
        same = [t for t in topics if name_of(t) == name_of(topic) and _id(t) == _id(topic)]
        if not same:
            named = "topic" if key in (1, 23) else "name"
            made = led.topic_type(**{named: name_of(topic), led.answered_partitions: []})
            if hasattr(made, "topic_id"):
                made.topic_id = _id(topic)
            topics.append(made)
            same = [made]
        setattr(same[0], led.answered_partitions, [*getattr(same[0], led.answered_partitions), answer])
    setattr(response, led.answered, topics)


def _id(topic: Any) -> Any:
    return getattr(topic, "topic_id", NIL)


def refuse(key: int, version: int, request: Any, code: ErrorCode) -> Any:
    """Return the answer that refuses a whole request."""
    if key in LED:
        response = APIS[key].response_type()
        put_in(key, response, take_out(key, request, lambda _topic, _one: code), lambda _topic, _index: None)
        return response
    make = _WHOLE.get(key)
    if make is not None:
        return make(version, request, code)
    return APIS[key].response_type(error_code=code)


def _metadata(version: int, request: Any, code: ErrorCode) -> Any:
    return metadata.MetadataResponse(
        topics=[metadata.MetadataResponseTopic(code, t.name, t.topic_id) for t in request.topics or ()]
    )


def _commit(version: int, request: Any, code: ErrorCode) -> Any:
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(
                t.name,
                t.topic_id,
                [offset_commit.OffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions],
            )
            for t in request.topics
        ]
    )


def _committed(version: int, request: Any, code: ErrorCode) -> Any:
    groups = [offset_fetch.OffsetFetchResponseGroup(g.group_id, [], code) for g in request.groups]
    return offset_fetch.OffsetFetchResponse(error_code=code, groups=groups)


def _coordinator(version: int, request: Any, code: ErrorCode) -> Any:
    keys = request.coordinator_keys
    found = [find_coordinator.Coordinator(k, -1, "", -1, code) for k in keys]
    return find_coordinator.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1, coordinators=found)


def _described(version: int, request: Any, code: ErrorCode) -> Any:
    groups = [describe_groups.DescribedGroup(code, group_id=g) for g in request.groups]
    return describe_groups.DescribeGroupsResponse(groups=groups)


def _deleted(version: int, request: Any, code: ErrorCode) -> Any:
    results = [delete_groups.DeletableGroupResult(g, code) for g in request.groups_names]
    return delete_groups.DeleteGroupsResponse(results=results)


_WHOLE: dict[int, Callable[[int, Any, ErrorCode], Any]] = {
    3: _metadata, 8: _commit, 9: _committed, 10: _coordinator, 15: _described, 42: _deleted,
}  # fmt: skip

# Requests for the coordinator of a group, and the groups that they name.
COORDINATED: dict[int, Callable[[Any], list[str]]] = {
    **{key: lambda request: [request.group_id] for key in (8, 11, 12, 13, 14, 47, 68)},
    9: lambda request: [g.group_id for g in request.groups] or [request.group_id],
    15: lambda request: list(request.groups),
    42: lambda request: list(request.groups_names),
    69: lambda request: list(request.group_ids),
}
