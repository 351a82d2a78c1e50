"""What the two brokers are asked about groups, about the cluster, and in requests that no client should send."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from core.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from tests.peers.differential import Side
from tests.peers.scripts import UNKNOWN_ID, batch, make, produce, silently, wait_for


def joining(side: Side) -> None:
    """One member's whole life in each version of JoinGroup, then each error of each membership API."""
    ask = side.ask
    name = make(side, "joined", 2)
    _wake(side)
    for version in side.versions("JoinGroup"):
        _life(side, name, version)
    group = side.name("errors")
    joined = _join(side, name, group, "errors", side.versions("JoinGroup")[-1])
    member, generation = joined["member_id"], joined["generation_id"]
    _sync(side, name, group, member, generation, case="sync errors' group")
    for case, who, when, of in (
        ("unknown member", "nobody", generation, group),
        ("empty member", "", generation, group),
        ("old generation", member, generation - 1, group),
        ("new generation", member, generation + 1, group),
        ("unknown group", member, generation, side.name("no-group")),
        ("empty group", member, generation, ""),
    ):
        one = {"group_id": of, "member_id": who, "generation_id": when}
        ask(f"heartbeat: {case}", "Heartbeat", one)
        ask(f"sync: {case}", "SyncGroup", one)
        commit = _commit(side, of, name, member=who, generation=when)
        ask(f"commit: {case}", "OffsetCommit", commit)
        if "generation" not in case:
            members = [{"member_id": who}]
            ask(
                f"leave: {case}",
                "LeaveGroup",
                {"group_id": of, "member_id": who, "members": members},
                versions=range(2 if who != member else 9, 99),
            )
    ask(
        "sync: another protocol",
        "SyncGroup",
        {
            "group_id": group,
            "member_id": member,
            "generation_id": generation,
            "protocol_type": "x",
            "protocol_name": "y",
        },
        versions=(5,),
    )
    one = {"group_id": group, "member_id": member, "generation_id": generation, "group_instance_id": "ghost"}
    ask("heartbeat: unknown instance", "Heartbeat", one, versions=range(3, 99))
    _refused_joins(side, name, group)
    ask("delete groups", "DeleteGroups", {"groups_names": [group, side.name("no-group"), ""]})


def _refused_joins(side: Side, topic: str, group: str) -> None:
    versions = side.versions("JoinGroup")
    for case, more in {
        "empty group": {"group_id": ""},
        "short session": {"session_timeout_ms": 1},
        "long session": {"session_timeout_ms": 2_000_000_000},
        "unknown member": {"member_id": "nobody"},
        "no protocols": {"protocols": []},
        "no protocol type": {"protocol_type": ""},
        "another protocol type": {"group_id": group, "protocol_type": "connect"},
        "another protocol": {"group_id": group, "protocols": [{"name": "other", "metadata": b""}]},
    }.items():
        request = {**_joins(topic, side.name("refused")), **more}
        few = versions[-1:] if "protocol" in case else {versions[0], 3, versions[-1]}
        side.ask(f"join: {case}", "JoinGroup", request, versions=few)


def _wake(side: Side) -> None:
    """Have the coordinators' topics made and loaded."""
    for kind in (0, 1):
        request = {"key_type": kind, "key": side.name("first"), "coordinator_keys": [side.name("first")]}
        wait_for(side, "FindCoordinator", 4, request)
    wait_for(side, "DescribeGroups", 5, {"groups": [side.name("first")]})


def _joins(topic: str, group: str, member: str = "", **more: Any) -> dict[str, Any]:
    blob = encode_subscription(Subscription(topics=[topic]), 0)
    protocols = [{"name": "range", "metadata": blob}]
    return {
        "group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "member_id": member,
        "protocol_type": "consumer", "protocols": protocols, **more,
    }  # fmt: skip


def _join(side: Side, topic: str, group: str, case: str, version: int, **more: Any) -> dict[str, Any]:
    joined = side.ask(f"join {case}", "JoinGroup", _joins(topic, group, **more), versions=(version,))
    if joined.get("error_code") == 79:  # MEMBER_ID_REQUIRED: join again with the id that the broker made
        again = _joins(topic, group, joined["member_id"], **more)
        joined = side.ask(f"join again {case}", "JoinGroup", again, versions=(version,))
    return joined


def _sync(
    side: Side, topic: str, group: str, member: str, generation: int, *, case: str, version: int = 99
) -> None:
    blob = encode_assignment(Assignment([TopicPartitions(topic, [0, 1])]), 0)
    one = {
        "group_id": group, "member_id": member, "generation_id": generation, "protocol_type": "consumer",
        "protocol_name": "range", "assignments": [{"member_id": member, "assignment": blob}],
    }  # fmt: skip
    side.ask(case, "SyncGroup", one, versions=(min(version, side.versions("SyncGroup")[-1]),))


def _life(side: Side, topic: str, version: int) -> None:
    group = side.name(f"life-{version}")
    instance = {"group_instance_id": "one"} if version % 2 and version >= 5 else {}
    joined = _join(side, topic, group, "life", version, **instance)
    member, generation = joined["member_id"], joined["generation_id"]
    _sync(side, topic, group, member, generation, case="sync life", version=version)
    _sync(side, topic, group, member, generation, case="sync again", version=version)
    one = {"group_id": group, "member_id": member, "generation_id": generation, **instance}
    side.ask("heartbeat", "Heartbeat", one)
    side.ask("describe stable", "DescribeGroups", {"groups": [group]})
    side.ask(
        "commit",
        "OffsetCommit",
        _commit(side, group, topic, member=member, generation=generation, **instance),
    )
    side.ask("commit without generation", "OffsetCommit", _commit(side, group, topic))
    side.ask("delete a group in use", "DeleteGroups", {"groups_names": [group]})
    deletes = {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]}
    side.ask("delete offsets in use", "OffsetDelete", deletes)
    if instance:
        side.ask(
            "leave, unknown instance",
            "LeaveGroup",
            {"group_id": group, "members": [{"group_instance_id": "two"}]},
            versions=range(3, 99),
        )
    leaves = {"group_id": group, "member_id": member, "members": [{"member_id": member, **instance}]}
    side.ask("leave", "LeaveGroup", leaves, versions=(min(version, side.versions("LeaveGroup")[-1]),))
    side.ask("describe empty", "DescribeGroups", {"groups": [group]})
    side.ask("delete group", "DeleteGroups", {"groups_names": [group]}, versions=(version % 3,))


def _commit(
    side: Side,
    group: str,
    topic: str,
    *,
    offset: int = 5,
    partition: int = 0,
    member: str = "",
    generation: int = -1,
    **more: Any,
) -> dict[str, Any]:
    metadata = more.pop("metadata", "meta")
    one = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": 0,
        "committed_metadata": metadata,
    }
    topics = [{"name": topic, "topic_id": side.ids.get(topic, UNKNOWN_ID), "partitions": [one]}]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member,
        "topics": topics,
        **more,
    }


def committing(side: Side) -> None:
    """OffsetCommit, OffsetFetch and OffsetDelete of a group without members, and the group APIs beside."""
    ask = side.ask
    name, group = make(side, "committed", 2), side.name("positions")
    _wake(side)
    for case, request in {
        "first": _commit(side, group, name),
        "backwards": _commit(side, group, name, offset=2),
        "negative": _commit(side, group, name, offset=-1),
        "null metadata": _commit(side, group, name, metadata=None),
        "long metadata": _commit(side, group, name, metadata="x" * 5000),
        "unknown topic": _commit(side, group, side.name("nowhere")),
        "unknown partition": _commit(side, group, name, partition=7),
        "no topics": {"group_id": group, "topics": []},
        "empty group": _commit(side, "", name),
        "generation without member": _commit(side, side.name("fresh"), name, generation=3),
        "member without generation": _commit(side, side.name("fresh"), name, member="nobody"),
    }.items():
        ask(f"commit {case}", "OffsetCommit", request)
    for case, group_, topic, partitions in (
        ("known", group, name, [0, 1]),
        ("unknown partition", group, name, [7]),
        ("unknown topic", group, side.name("nowhere"), [0]),
        ("unknown group", side.name("no-group"), name, [0]),
        ("empty group", "", name, [0]),
        ("nothing", group, name, []),
    ):
        ask(f"fetch offsets: {case}", "OffsetFetch", _offsets_of(side, group_, topic, partitions))
        stable = _offsets_of(side, group_, topic, partitions)
        ask(
            f"fetch stable offsets: {case}",
            "OffsetFetch",
            {**stable, "require_stable": True},
            versions=range(7, 99),
        )
    everything = {"group_id": group, "topics": None, "groups": [{"group_id": group, "topics": None}]}
    ask("fetch all offsets", "OffsetFetch", everything, versions=range(2, 99))
    unknown = {
        "group_id": side.name("no-group"),
        "topics": None,
        "groups": [{"group_id": side.name("no-group"), "topics": None}],
    }
    ask("fetch all offsets of an unknown group", "OffsetFetch", unknown, versions=range(2, 99))
    one = _offsets_of(side, group, name, [0])
    one["groups"][0].update(member_id="nobody", member_epoch=3)
    ask("fetch offsets: as a member", "OffsetFetch", one, versions=range(9, 99))
    several = {"groups": [*_offsets_of(side, group, name, [0])["groups"], *unknown["groups"]]}
    ask("fetch offsets: two groups", "OffsetFetch", several, versions=range(8, 99))
    _group_table(side, name, group)


def _offsets_of(side: Side, group: str, topic: str, partitions: list[int]) -> dict[str, Any]:
    one = {"name": topic, "partition_indexes": partitions}
    by_id = {**one, "topic_id": side.ids.get(topic, UNKNOWN_ID)}
    return {"group_id": group, "topics": [one], "groups": [{"group_id": group, "topics": [by_id]}]}


def _group_table(side: Side, topic: str, group: str) -> None:
    ask, missing = side.ask, side.name("no-group")
    ask("describe", "DescribeGroups", {"groups": [group]})
    ask(
        "describe, operations",
        "DescribeGroups",
        {"groups": [group], "include_authorized_operations": True},
        versions=range(3, 99),
    )
    ask("describe unknown", "DescribeGroups", {"groups": [missing]})
    ask("describe empty name", "DescribeGroups", {"groups": [""]})
    ask("describe twice", "DescribeGroups", {"groups": [group, group]})
    for state in ("Dead", "Stable", "nonsense"):
        ask(
            f"list {state}",
            "ListGroups",
            {"states_filter": [state], "types_filter": ["Share"]},
            versions=range(5, 99),
        )
    for partition, topic_ in ((0, topic), (7, topic), (0, side.name("nowhere"))):
        deletes = {
            "group_id": group,
            "topics": [{"name": topic_, "partitions": [{"partition_index": partition}]}],
        }
        ask(f"delete offset of {topic_.removeprefix(side.prefix)} {partition}", "OffsetDelete", deletes)
    ask("delete offsets, unknown group", "OffsetDelete", {"group_id": missing, "topics": []})
    ask("delete offsets, empty group", "OffsetDelete", {"group_id": "", "topics": []})
    ask("delete", "DeleteGroups", {"groups_names": [group]}, versions=(0,))
    ask("delete again", "DeleteGroups", {"groups_names": [group, missing, ""]})
    ask("delete twice", "DeleteGroups", {"groups_names": [missing, missing]})
    versions = side.versions("FindCoordinator")
    for kind in (0, 1, 2, 9):
        one = {"key": group, "key_type": kind, "coordinator_keys": [group]}
        ask(
            f"coordinator of type {kind}",
            "FindCoordinator",
            one,
            versions=versions if kind == 0 else range(1, 99),
        )
    ask("coordinator of nothing", "FindCoordinator", {"key": "", "coordinator_keys": [""]})
    ask("coordinators of none", "FindCoordinator", {"coordinator_keys": []}, versions=range(4, 99))


def cluster(side: Side) -> None:
    """DescribeCluster, DescribeLogDirs, DescribeQuorum and what else tools ask a cluster for."""
    ask = side.ask
    name = make(side, "sized", 2)
    silently(side, "Produce", 9, produce(side, name, batch(b"a", b"b", b"c")))
    ask("cluster", "DescribeCluster", {})
    ask("cluster, operations", "DescribeCluster", {"include_cluster_authorized_operations": True})
    ask("cluster, controllers", "DescribeCluster", {"endpoint_type": 2}, versions=range(1, 99))
    ask("cluster, type 9", "DescribeCluster", {"endpoint_type": 9}, versions=range(1, 99))
    ask("cluster, fenced", "DescribeCluster", {"include_fenced_brokers": True}, versions=range(2, 99))
    ask("log dirs", "DescribeLogDirs", {"topics": [{"topic": name, "partitions": [0, 1, 7]}]})
    ask(
        "log dirs, unknown topic",
        "DescribeLogDirs",
        {"topics": [{"topic": side.name("nowhere"), "partitions": [0]}]},
    )
    ask("log dirs, nothing", "DescribeLogDirs", {"topics": []})
    ask("list reassignments", "ListPartitionReassignments", {"topics": None})
    ask(
        "list reassignments of one",
        "ListPartitionReassignments",
        {"topics": [{"name": name, "partition_indexes": [0]}]},
    )
    for case, topic, partition, replicas in (
        ("the same", name, 0, [1]), ("unknown broker", name, 0, [7]), ("cancel", name, 0, None),
        ("empty", name, 0, []), ("twice", name, 0, [1, 1]), ("unknown partition", name, 7, [1]),
        ("unknown topic", side.name("nowhere"), 0, [1]),
    ):  # fmt: skip
        moves = [{"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
        ask(f"reassign: {case}", "AlterPartitionReassignments", {"topics": moves, "timeout_ms": 5000})
    moves = [{"path": "/no/such/dir", "topics": [{"name": name, "partitions": [0]}]}]
    ask("alter log dirs", "AlterReplicaLogDirs", {"dirs": moves})
    _security(side, name)


def _security(side: Side, topic: str) -> None:
    ask = side.ask
    ask("scram users", "DescribeUserScramCredentials", {"users": [{"name": "nobody"}]})
    ask("scram users, all", "DescribeUserScramCredentials", {"users": None})
    ask("quotas", "DescribeClientQuotas", {"components": [], "strict": False})
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    ask("acls", "DescribeAcls", every)
    rule = {"resource_type": 2, "resource_name": topic, "principal": "User:a", "host": "*", "operation": 3}
    ask("create acls", "CreateAcls", {"creations": [{**rule, "permission_type": 3}]})
    ask("delete acls", "DeleteAcls", {"filters": [every]})


def refused_frames(side: Side) -> None:
    """ApiVersions, and requests that cannot be read: unknown APIs and versions, bodies that are cut."""
    software = {"client_software_name": "raw", "client_software_version": "1.0"}
    side.ask("versions", "ApiVersions", software)
    for answer in side.peer.answers:  # what is served is not the same, and the scripts ask only what is
        assert isinstance(answer.body, dict)
        answer.body["api_keys"] = []
    unknown = {
        "unknown version": struct.pack(">hhih", 3, 99, 1, -1) + b"\0",
        "unknown version of ApiVersions": struct.pack(">hhih", 18, 99, 1, -1) + b"\0",
        "unknown API": struct.pack(">hhih", 999, 0, 1, -1),
        "negative API": struct.pack(">hhih", -1, 0, 1, -1),
        "cut header": b"\0\3\0",
        "cut body": struct.pack(">hhih", 3, 1, 1, -1) + b"\0\0\0\5",
        "no body": struct.pack(">hhih", 18, 3, 1, -1),
        "negative length": struct.pack(">hhihi", 3, 1, 1, -1, -9),
        "bytes after the end": struct.pack(">hhih", 18, 0, 1, -1) + b"more",
        "software with a space": struct.pack(">hhih", 18, 3, 1, -1) + b"\0\4a b\4a b\0",
        "empty frame": b"",
    }
    for case, frame in unknown.items():
        key, version = struct.unpack(">hh", frame[:4]) if len(frame) >= 4 else (-1, -1)
        answer = side.peer.exchange_frame(case, key, version, frame)
        if isinstance(answer.body, dict) and "api_keys" in answer.body:
            answer.body["api_keys"] = [one for one in answer.body["api_keys"] if one["api_key"] == 18]
        side.peer.answers.append(answer)
        side.peer.close()


SCRIPTS: tuple[Callable[[Side], None], ...] = (joining, committing, cluster, refused_frames)
