"""The clients under one vocabulary: what a scenario says, said in each client's own words.

Every refusal becomes `ClientError` with Kafka's error name, as far as the client can say it. `VERBS` of a client says
what it has; a scenario is run over the clients that have what it needs, never skipped.
"""

from __future__ import annotations

import base64
import time
from typing import Any, ClassVar

import httpx
import msgspec

from core.errors import ErrorCode
from core.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from core.protocol.consumer_protocol import TopicPartitions as Owned
from core.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.protocol.messages.delete_groups import DeleteGroupsRequest
from core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from core.protocol.messages.describe_groups import DescribeGroupsRequest
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from core.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from core.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from core.records.batch import build_batch
from core.records.record import NewRecord
from tests.broker_process import BrokerProcess
from tests.clients.wire import KEYS, Wire
from tests.contract.line_client import LineClient
from tests.contract.vocabulary import ClientError, Membership, Read

__all__ = [
    "CLIENTS",
    "ClientError",
    "KafkaClient",
    "LineClient",
    "Membership",
    "NativeClient",
    "Read",
    "RestV2Client",
    "having",
]

V2_JSON = "application/vnd.kafka.v2+json"
V2_BINARY = "application/vnd.kafka.binary.v2+json"


class KafkaClient:
    """The binary protocol, one connection per member so that a waiting join blocks no other member."""

    name: ClassVar[str] = "kafka"
    VERBS: ClassVar[frozenset[str]] = frozenset(
        {"topics", "produce", "write", "read", "bounds", "truncate", "commit", "members", "join"}
    )

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._wire = Wire(broker.kafka_address)

    def close(self) -> None:
        self._wire.close()

    def _call(self, api: str, version: int, request: Any) -> Any:
        return self._wire.call(KEYS[api], request, version)

    # topics

    def create_topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        settings = [CreatableTopicConfig(k, v) for k, v in (configs or {}).items()]
        request = CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], settings)], 10_000)
        (result,) = self._call("CreateTopics", 7, request).topics
        _check(result.error_code, result.error_message)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=10_000)
        (result,) = self._call("DeleteTopics", 6, request).responses
        _check(result.error_code, result.error_message)

    def grow(self, name: str, partitions: int) -> None:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, partitions, None)], 10_000)
        (result,) = self._call("CreatePartitions", 3, request).results
        _check(result.error_code, result.error_message)

    def partitions(self, name: str) -> int:
        request = MetadataRequest([MetadataRequestTopic(name=name)], False)
        (topic,) = self._call("Metadata", 12, request).topics
        _check(topic.error_code)
        return len(topic.partitions)

    def config(self, name: str) -> dict[str, str]:
        request = DescribeConfigsRequest([DescribeConfigsResource(2, name, None)])
        (result,) = self._call("DescribeConfigs", 4, request).results
        _check(result.error_code, result.error_message)
        return {c.name: c.value for c in result.configs}

    # records

    def produce(
        self, topic: str, partition: int, records: list[tuple[bytes | None, bytes | None]]
    ) -> list[int]:
        new = [NewRecord(key, value) for key, value in records]
        data = bytes(build_batch(new, now_ms=time.time_ns() // 1_000_000))
        done = self._wire.produce(topic, data, partition=partition)
        _check(done.error_code, done.error_message)
        return list(range(done.base_offset, done.base_offset + len(records)))

    def read(self, topic: str, partition: int, offset: int) -> list[Read]:
        found = self._wire.fetch_partition(topic, offset, partition=partition)
        _check(found.error_code)
        messages = self._wire.read_from(topic, offset, partition=partition)
        return [Read(m.offset or 0, m.key, m.value) for m in messages]

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        found = [self._wire.list_offset(topic, at, partition=partition) for at in (-2, -1)]
        for one in found:
            _check(one.error_code)
        return found[0].offset, found[1].offset

    def truncate(self, topic: str, partition: int, before: int) -> None:
        topics = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, before)])]
        answer = self._call("DeleteRecords", 2, DeleteRecordsRequest(topics, 10_000))
        _check(answer.topics[0].partitions[0].error_code)

    # groups

    def commit(
        self, group: str, topic: str, partition: int, offset: int, member: Membership | None = None
    ) -> None:
        one = OffsetCommitRequestPartition(partition, offset)
        request = OffsetCommitRequest(
            group,
            member.generation if member else -1,
            member.member_id if member else "",
            topics=[OffsetCommitRequestTopic(topic, partitions=[one])],
        )
        answer = self._call("OffsetCommit", 8, request)
        _check(answer.topics[0].partitions[0].error_code)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        asked = OffsetFetchRequestGroup(
            group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[partition])]
        )
        (found,) = self._call("OffsetFetch", 8, OffsetFetchRequest(groups=[asked])).groups
        _check(found.error_code)
        offset: int = found.topics[0].partitions[0].committed_offset
        return None if offset == -1 else offset

    def join(self, group: str, topics: list[str], member_id: str = "") -> Membership:
        metadata = encode_subscription(Subscription(topics=topics))
        request = JoinGroupRequest(
            group, 10_000, 10_000, member_id, None, "consumer", [JoinGroupRequestProtocol("range", metadata)]
        )
        with Wire(self._broker.kafka_address) as wire:
            answer = wire.call(KEYS["JoinGroup"], request, 3)
            _check(answer.error_code)
            assignments = []
            if answer.leader == answer.member_id:
                assignments = self._assign(answer, topics)
            sync = SyncGroupRequest(group, answer.generation_id, answer.member_id, assignments=assignments)
            _check(wire.call(KEYS["SyncGroup"], sync, 3).error_code)
        return Membership(group, answer.member_id, answer.generation_id)

    def _assign(self, answer: Any, topics: list[str]) -> list[SyncGroupRequestAssignment]:
        """All partitions of each topic to the members in turn."""
        ids = sorted(m.member_id for m in answer.members)
        owned: dict[str, list[Owned]] = {i: [] for i in ids}
        for topic in topics:
            count = self.partitions(topic)
            for place, member_id in enumerate(ids):
                mine = list(range(place, count, len(ids)))
                if mine:
                    owned[member_id].append(Owned(topic, mine))
        return [SyncGroupRequestAssignment(i, encode_assignment(Assignment(owned[i]))) for i in ids]

    def owned(self, member: Membership) -> set[tuple[str, int]]:
        (group,) = self._call("DescribeGroups", 5, DescribeGroupsRequest([member.group])).groups
        for one in group.members:
            if one.member_id == member.member_id:
                assignment = decode_assignment(one.member_assignment)
                return {(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions}
        raise ClientError("UNKNOWN_MEMBER_ID")

    def heartbeat(self, member: Membership) -> None:
        request = HeartbeatRequest(member.group, member.generation, member.member_id)
        _check(self._call("Heartbeat", 3, request).error_code)

    def leave(self, member: Membership) -> None:
        request = LeaveGroupRequest(member.group, members=[MemberIdentity(member.member_id)])
        answer = self._call("LeaveGroup", 4, request)
        _check(answer.error_code)
        _check(answer.members[0].error_code)

    def delete_group(self, group: str) -> None:
        (result,) = self._call("DeleteGroups", 2, DeleteGroupsRequest([group])).results
        _check(result.error_code)


class NativeClient:
    """`/api/v1`."""

    name: ClassVar[str] = "native"
    VERBS: ClassVar[frozenset[str]] = KafkaClient.VERBS

    def __init__(self, broker: BrokerProcess) -> None:
        self._http = httpx.Client(base_url=f"{broker.http}/api/v1", timeout=30)

    def close(self) -> None:
        self._http.close()

    def _call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        answer = self._http.request(method, path, json=body, params=query or None)
        document = answer.json() if answer.content else None
        if answer.status_code >= 400:
            raise ClientError(document.get("kafka_error") or document["type"], document.get("detail", ""))
        return document

    # topics

    def create_topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
        self._call("PUT", f"/topics/{name}", {"partitions": partitions, "configs": configs or {}})

    def delete_topic(self, name: str) -> None:
        self._call("DELETE", f"/topics/{name}")

    def grow(self, name: str, partitions: int) -> None:
        answer = self._http.patch(
            f"/topics/{name}",
            content=msgspec.json.encode({"partitions": partitions}),
            headers={"content-type": "application/merge-patch+json"},
        )
        if answer.status_code >= 400:
            raise ClientError(answer.json()["kafka_error"], answer.json()["detail"])

    def partitions(self, name: str) -> int:
        return int(self._call("GET", f"/topics/{name}")["partitions"])

    def config(self, name: str) -> dict[str, str]:
        found = self._call("GET", f"/topics/{name}")["effective_configs"]
        return {key: one["value"] for key, one in found.items()}

    # records

    def produce(
        self, topic: str, partition: int, records: list[tuple[bytes | None, bytes | None]]
    ) -> list[int]:
        body = {"records": [{"partition": partition, **_embedded(key, value)} for key, value in records]}
        answer = self._call("POST", f"/topics/{topic}/records", body)
        return [one["offset"] for one in answer["records"]]

    def read(self, topic: str, partition: int, offset: int) -> list[Read]:
        path = f"/topics/{topic}/partitions/{partition}/records"
        answer = self._call("GET", path, offset=offset, encoding="base64")
        return [Read(r["offset"], _unbase64(r["key"]), _unbase64(r["value"])) for r in answer["records"]]

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        found = []
        for at in ("earliest", "latest"):
            offsets = self._call("GET", f"/topics/{topic}/offsets", at=at)["partitions"]
            known = {one["partition"]: one["offset"] for one in offsets}
            if partition not in known:
                raise ClientError("UNKNOWN_TOPIC_OR_PARTITION")
            found.append(known[partition])
        return found[0], found[1]

    def truncate(self, topic: str, partition: int, before: int) -> None:
        body = {"partitions": [{"partition": partition, "before_offset": before}]}
        self._call("POST", f"/topics/{topic}:truncate", body)

    # groups

    def commit(
        self, group: str, topic: str, partition: int, offset: int, member: Membership | None = None
    ) -> None:
        body: dict[str, Any] = {"offsets": [{"topic": topic, "partition": partition, "next_offset": offset}]}
        if member is not None:
            body |= {"member_id": member.member_id, "generation_id": member.generation}
        self._call("PATCH", f"/groups/{group}/offsets", body)

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        try:
            offsets = self._call("GET", f"/groups/{group}/offsets")["offsets"]
        except ClientError as refused:
            if refused.name == "GROUP_ID_NOT_FOUND":  # a group that never was is a resource that is not there
                return None
            raise
        for one in offsets:
            if (one["topic"], one["partition"]) == (topic, partition):
                return int(one["next_offset"])
        return None

    def join(self, group: str, topics: list[str], member_id: str = "") -> Membership:
        body = {"topics": topics, "member_id": member_id, "session_timeout_ms": 10_000, "wait_ms": 20_000}
        joined = self._call("POST", f"/groups/{group}/members", body)
        assert joined["joined"], joined
        member = Membership(group, joined["member_id"], joined["generation_id"])
        synced = self._call(
            "POST",
            f"/groups/{group}/members/{member.member_id}:sync",
            {"generation_id": member.generation, "wait_ms": 20_000},
        )
        assert synced["synced"], synced
        return member

    def owned(self, member: Membership) -> set[tuple[str, int]]:
        for one in self._call("GET", f"/groups/{member.group}")["members"]:
            if one["member_id"] == member.member_id:
                return {(p["topic"], p["partition"]) for p in one["partitions"]}
        raise ClientError("UNKNOWN_MEMBER_ID")

    def heartbeat(self, member: Membership) -> None:
        path = f"/groups/{member.group}/members/{member.member_id}:heartbeat"
        self._call("POST", path, {"generation_id": member.generation})

    def leave(self, member: Membership) -> None:
        self._call("DELETE", f"/groups/{member.group}/members/{member.member_id}")

    def delete_group(self, group: str) -> None:
        self._call("DELETE", f"/groups/{group}")


class RestV2Client:
    """The REST Proxy v2 surface."""

    name: ClassVar[str] = "proxy"
    VERBS: ClassVar[frozenset[str]] = frozenset({"produce", "write", "read", "bounds"})
    _NAMES: ClassVar[dict[int, str]] = {
        40401: "UNKNOWN_TOPIC_OR_PARTITION",
        40402: "UNKNOWN_TOPIC_OR_PARTITION",
        40403: "UNKNOWN_TOPIC_OR_PARTITION",
        413: "MESSAGE_TOO_LARGE",
        40301: "AUTHORIZATION_FAILED",
    }
    _SENTENCES: ClassVar[dict[str, str]] = {
        "out of range": "OFFSET_OUT_OF_RANGE",
        "a compacted topic needs one": "INVALID_RECORD",
        "min.insync.replicas": "NOT_ENOUGH_REPLICAS",
        "max.message.bytes": "MESSAGE_TOO_LARGE",
    }

    def __init__(self, broker: BrokerProcess) -> None:
        self._http = httpx.Client(base_url=broker.http, timeout=30)

    def close(self) -> None:
        self._http.close()

    def _call(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        headers = {"accept": V2_BINARY if "records" in path else V2_JSON}
        if body is not None:
            headers["content-type"] = V2_BINARY
        content = None if body is None else msgspec.json.encode(body)
        answer = self._http.request(method, path, content=content, headers=headers, params=query or None)
        document = answer.json()
        if answer.status_code >= 400:
            raise self._error(document["error_code"], document["message"])
        return document

    def _error(self, code: int, message: str) -> ClientError:
        """The surface has one code for many Kafka errors; its sentence tells them apart."""
        by_sentence = next((name for word, name in self._SENTENCES.items() if word in message), str(code))
        return ClientError(self._NAMES.get(code, by_sentence), message)

    def produce(
        self, topic: str, partition: int, records: list[tuple[bytes | None, bytes | None]]
    ) -> list[int]:
        body = {"records": [{"key": _base64(k), "value": _base64(v)} for k, v in records]}
        answer = self._call("POST", f"/topics/{topic}/partitions/{partition}", body)
        for one in answer["offsets"]:
            if one.get("error_code") is not None:
                raise self._error(one["error_code"], one["error"] or "")
        return [one["offset"] for one in answer["offsets"]]

    def read(self, topic: str, partition: int, offset: int) -> list[Read]:
        found = self._call("GET", f"/topics/{topic}/partitions/{partition}/records", offset=offset)
        return [Read(r["offset"], _unbase64(r["key"]), _unbase64(r["value"])) for r in found]

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        found = self._call("GET", f"/topics/{topic}/partitions/{partition}/offsets")
        return found["beginning_offset"], found["end_offset"]


CLIENTS: tuple[type[Any], ...] = (KafkaClient, NativeClient, RestV2Client, LineClient)


def having(*verbs: str) -> list[type[Any]]:
    """The clients that have all these verbs."""
    return [client for client in CLIENTS if set(verbs) <= client.VERBS]


def _check(code: int, message: str | None = None) -> None:
    if code:
        raise ClientError(ErrorCode(code).name, message or "")


def _embedded(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    record: dict[str, Any] = {"key": _base64(key), "value": _base64(value)}
    if key is not None:
        record["key_encoding"] = "base64"
    if value is not None:
        record["value_encoding"] = "base64"
    return record


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _unbase64(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
