"""What a Kafka with SASL/PLAIN and StandardAuthorizer refuses: each API without a rule, then with single ones."""

from __future__ import annotations

import struct
import time
from typing import Any

from core.protocol.consumer_protocol import Subscription, encode_subscription
from tests.peers.raw import Data
from tests.peers.record import Recorder
from tests.peers.scripts import batch, topic

TOPIC, GROUP, TRANSACTION, CLUSTER = "secret", "readers", "payer", "kafka-cluster"
# Numbers of the protocol: resource types, operations, permissions.
RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional id": 5, "token": 6, "user": 7}
OPERATIONS = {
    "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8, "cluster action": 9,
    "describe configs": 10, "alter configs": 11, "idempotent write": 12,
}  # fmt: skip
DENY, ALLOW = 2, 3
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
Requests = dict[str, dict[str, Any]]
EVERY = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


def acls(to: Recorder) -> None:
    """Record how a client logs in, what it is denied, and the ACL APIs themselves."""
    _login(to)
    id_ = to.topic(TOPIC)
    records = {"index": 0, "records": batch(b"hidden")}
    data = [{"name": TOPIC, "partition_data": [records]}]
    to.ask("", "Produce", {"acks": -1, "timeout_ms": 5000, "topic_data": data}, versions=[9], keep=False)
    for kind, key in ((0, GROUP), (1, TRANSACTION)):
        asked = {"key_type": kind, "coordinator_keys": [key]}
        to.settled("", "FindCoordinator", asked, versions=[4], keep=False)
    to.settled(
        "", "InitProducerId", {"transactional_id": TRANSACTION, "transaction_timeout_ms": 60000}, keep=False
    )
    to.settled("", "DescribeGroups", {"groups": [GROUP]}, versions=[5], keep=False)
    requests = _requests(id_)
    for api, cases in requests.items():
        for case, request in cases.items():
            to.ask(f"denied: {case}", api, request, versions=to.ends(api), user="alice")
    _rules(to, requests)
    _describe_and_delete(to)


def _login(to: Recorder) -> None:
    peer = to.peer("alice")
    for case, frames in {
        "unknown mechanism": [(17, 1, b"\0\5OTHER")],
        "handshake v0": [(17, 0, b"\0\5PLAIN")],
        "handshake twice": [(17, 1, b"\0\5PLAIN"), (17, 1, b"\0\5PLAIN")],
        "right password": [(17, 1, b"\0\5PLAIN"), (36, 0, _token("alice", "alice-secret"))],
        "right password v1": [(17, 1, b"\0\5PLAIN"), (36, 1, _token("alice", "alice-secret"))],
        "wrong password": [(17, 1, b"\0\5PLAIN"), (36, 1, _token("alice", "wrong"))],
        "unknown user": [(17, 1, b"\0\5PLAIN"), (36, 1, _token("mallory", "x"))],
        "other authorization id": [(17, 1, b"\0\5PLAIN"), (36, 1, _token("alice", "alice-secret", "admin"))],
        "cut token": [(17, 1, b"\0\5PLAIN"), (36, 1, b"\0\0\0\5alice")],
        "no handshake": [(36, 1, _token("alice", "alice-secret"))],
        "versions before login": [(18, 0, b"")],
        "metadata before login": [(3, 1, b"\0\0\0\0")],
        "metadata after the handshake": [(17, 1, b"\0\5PLAIN"), (3, 1, b"\0\0\0\0")],
    }.items():
        peer.open(authenticate=False)
        for key, version, body in frames:
            to.keep(peer.exchange(f"login: {case}", key, version, body), "alice")
        peer.close()


def _token(name: str, password: str, authorization_id: str = "") -> bytes:
    token = f"{authorization_id}\0{name}\0{password}".encode()
    return struct.pack(">i", len(token)) + token


def _requests(id_: Any) -> Requests:
    """Return each API with requests that need a permission."""
    return {**_records(id_), **_groups(id_), **_transactions(), **_topics(id_), **_cluster()}


def _records(id_: Any) -> Requests:
    """Return requests for records and metadata."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    return {
        "Metadata": {
            "metadata": {"topics": [{"name": TOPIC}], "include_topic_authorized_operations": True},
            "metadata of all": lambda version: {"topics": None if version else []},
            "metadata, creation": {"topics": [{"name": "not-yet"}], "allow_auto_topic_creation": True},
        },
        "DescribeTopicPartitions": {"partitions": {"topics": [{"name": TOPIC}]}},
        "Produce": {"produce": lambda v: _produce(v, id_), "transactional produce": lambda v: _produce(v, id_, True)},
        "Fetch": {
            "fetch": {"max_wait_ms": 0, "topics": [{"topic": TOPIC, "topic_id": id_, "partitions": [partition]}]},
        },
        "ListOffsets": {
            "list offsets": {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [{"timestamp": -1}]}]},
        },
        "OffsetForLeaderEpoch": {
            "leader epoch": {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [{"leader_epoch": 0}]}]},
        },
    }  # fmt: skip


def _groups(id_: Any) -> Requests:
    """Return requests for groups and their offsets."""
    one = {"partition_index": 0, "committed_offset": 1}
    positions = [{"name": TOPIC, "topic_id": id_, "partitions": [one]}]
    wanted = [{"name": TOPIC, "topic_id": id_, "partition_indexes": [0]}]
    return {
        "FindCoordinator": {
            "group coordinator": {"key": GROUP, "coordinator_keys": [GROUP]},
            "transaction coordinator": lambda v: {
                "key": TRANSACTION, "key_type": min(v, 1), "coordinator_keys": [TRANSACTION],
            },
        },
        "JoinGroup": {"join": _join()},
        "SyncGroup": {
            "sync": {"group_id": GROUP, "member_id": "m", "protocol_type": "consumer", "protocol_name": "range"},
        },
        "Heartbeat": {"heartbeat": {"group_id": GROUP, "member_id": "m"}},
        "LeaveGroup": {"leave": {"group_id": GROUP, "member_id": "m", "members": [{"member_id": "m"}]}},
        "OffsetCommit": {"commit": {"group_id": GROUP, "topics": positions}},
        "OffsetFetch": {
            "fetch offsets": {
                "group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}],
                "groups": [{"group_id": GROUP, "topics": wanted}],
            },
        },
        "OffsetDelete": {
            "delete offsets": {
                "group_id": GROUP, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}],
            },
        },
        "ConsumerGroupHeartbeat": {
            "group heartbeat": {
                "group_id": GROUP, "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "rebalance_timeout_ms": 5000,
                "subscribed_topic_names": [TOPIC], "topic_partitions": [],
            },
        },
        "ConsumerGroupDescribe": {"describe consumer group": {"group_ids": [GROUP]}},
        "DescribeGroups": {"describe group": {"groups": [GROUP], "include_authorized_operations": True}},
        "ListGroups": {"list groups": {}},
        "DeleteGroups": {"delete group": {"groups_names": [GROUP]}},
    }  # fmt: skip


def _transactions() -> Requests:
    """Return requests of transactional producers."""
    producer = {"transactional_id": TRANSACTION, "producer_id": 0, "producer_epoch": 0}
    return {
        "InitProducerId": {
            "producer id": {"transactional_id": None, "transaction_timeout_ms": 60000},
            "transactional producer id": {"transactional_id": TRANSACTION, "transaction_timeout_ms": 60000},
        },
        "AddPartitionsToTxn": {"add partitions": lambda v: _add(producer, v)},
        "AddOffsetsToTxn": {"add offsets": {**producer, "group_id": GROUP}},
        "TxnOffsetCommit": {
            "transactional commit": {
                **producer, "group_id": GROUP,
                "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
            },
        },
        "EndTxn": {"end transaction": {**producer, "committed": True}},
        "WriteTxnMarkers": {"markers": {"markers": [{"topics": [{"name": TOPIC, "partition_indexes": [0]}]}]}},
        "DescribeTransactions": {"describe transaction": {"transactional_ids": [TRANSACTION]}},
        "ListTransactions": {"list transactions": {}},
        "DescribeProducers": {"producers": {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}},
    }  # fmt: skip


def _topics(id_: Any) -> Requests:
    """Return requests that administer topics and settings."""
    change = [{"name": "retention.ms", "value": "60000"}]
    setting = {"resource_type": 2, "resource_name": TOPIC, "configs": change}
    return {
        "CreateTopics": {"create": {"topics": [topic("not-yet")]}},
        "DeleteTopics": {
            "delete": {"topics": [{"name": TOPIC}], "topic_names": [TOPIC], "timeout_ms": 5000},
            "delete by id": lambda v: {"topics": [{"topic_id": id_}], "topic_names": ["nowhere"], "timeout_ms": 5000},
        },
        "DeleteRecords": {
            "delete records": {"topics": [{"name": TOPIC, "partitions": [{"offset": 1}]}], "timeout_ms": 5000},
        },
        "CreatePartitions": {
            "grow": {"topics": [{"name": TOPIC, "count": 3, "assignments": None}], "timeout_ms": 5000},
        },
        "DescribeConfigs": {
            "describe topic": {
                "resources": [{"resource_type": 2, "resource_name": TOPIC, "configuration_keys": ["retention.ms"]}],
            },
            "describe broker": {
                "resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": ["num.partitions"]}],
            },
        },
        "AlterConfigs": {"alter": {"resources": [setting]}},
        "IncrementalAlterConfigs": {
            "alter incrementally": {"resources": [setting]},
            "alter broker": {"resources": [{**setting, "resource_type": 4, "resource_name": "1"}]},
        },
        "ListConfigResources": {"config resources": {"resource_types": [16]}},
        "DescribeCluster": {"describe cluster": {"include_cluster_authorized_operations": True}},
        "DescribeLogDirs": {"log dirs": {"topics": [{"topic": TOPIC, "partitions": [0]}]}},
    }  # fmt: skip


def _cluster() -> Requests:
    """Return requests that administer the cluster."""
    rule = {
        "resource_type": 2,
        "resource_name": TOPIC,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
    }
    return {
        "ElectLeaders": {"elect": {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}], "timeout_ms": 5000}},
        "AlterPartitionReassignments": {
            "reassign": {
                "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
                "timeout_ms": 5000,
            },
        },
        "ListPartitionReassignments": {"reassignments": {"topics": None, "timeout_ms": 5000}},
        "AlterReplicaLogDirs": {"move": {"dirs": [{"path": "/x", "topics": [{"name": TOPIC, "partitions": [0]}]}]}},
        "DescribeAcls": {"describe acls": EVERY},
        "CreateAcls": {"create acl": {"creations": [{**rule, "permission_type": ALLOW}]}},
        "DeleteAcls": {"delete acls": {"filters": [EVERY]}},
        "DescribeClientQuotas": {"quotas": {"components": [], "strict": False}},
        "AlterClientQuotas": {
            "alter quotas": {
                "entries": [{
                    "entity": [{"entity_type": "user", "entity_name": "alice"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }],
            },
        },
        "DescribeUserScramCredentials": {"scram users": {"users": None}},
    }  # fmt: skip


def _produce(version: int, id_: Any, transactional: bool = False) -> Data:
    options = (
        {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        if transactional
        else {}
    )
    data = [
        {"name": TOPIC, "topic_id": id_, "partition_data": [{"index": 0, "records": batch(b"x", **options)}]}
    ]
    name = {"transactional_id": TRANSACTION} if transactional else {}
    return {"acks": -1, "timeout_ms": 5000, "topic_data": data, **name}


def _join() -> Data:
    blob = encode_subscription(Subscription(topics=[TOPIC]), 0)
    one = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": blob}]}
    return {"group_id": GROUP, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, **one}


def _add(producer: Data, version: int) -> Data:
    asked = [{"name": TOPIC, "partitions": [0]}]
    old = {f"v3_and_below_{name}": value for name, value in producer.items()}
    return {"transactions": [{**producer, "topics": asked}], **old, "v3_and_below_topics": asked}


def rule(operation: str, resource: str, name: str, /, **more: Any) -> dict[str, Any]:
    """Return a rule for alice, as CreateAcls has it."""
    return {
        "resource_type": RESOURCES[resource], "resource_name": name, "resource_pattern_type": LITERAL,
        "principal": "User:alice", "host": "*", "operation": OPERATIONS[operation], "permission_type": ALLOW, **more,
    }  # fmt: skip


def _rules(to: Recorder, requests: Requests) -> None:
    """Each step adds one rule, asks what it should change, and takes the rule back."""
    for case, one, apis in (
        ("describe topic", rule("describe", "topic", TOPIC),
         ("Metadata", "ListOffsets", "Produce", "Fetch", "DeleteTopics")),
        ("read topic", rule("read", "topic", TOPIC), ("Metadata", "Fetch", "OffsetCommit", "Produce")),
        ("write topic", rule("write", "topic", TOPIC), ("Metadata", "Produce", "InitProducerId")),
        ("all on topic", rule("all", "topic", TOPIC), ("Metadata", "Fetch", "DescribeConfigs", "AlterConfigs")),
        ("prefix", rule("read", "topic", "sec", resource_pattern_type=PREFIXED), ("Metadata", "Fetch")),
        ("wildcard", rule("describe", "topic", "*"), ("Metadata", "Fetch")),
        ("another host", rule("describe", "topic", TOPIC, host="192.0.2.1"), ("Metadata",)),
        ("every user", rule("describe", "topic", TOPIC, principal="User:*"), ("Metadata",)),
        ("read group", rule("read", "group", GROUP),
         ("FindCoordinator", "Heartbeat", "OffsetCommit", "OffsetFetch", "DescribeGroups")),
        ("describe group", rule("describe", "group", GROUP),
         ("FindCoordinator", "OffsetFetch", "ListGroups", "JoinGroup")),
        ("create on cluster", rule("create", "cluster", CLUSTER), ("CreateTopics",)),
        ("create topic", rule("create", "topic", "not-yet"), ("CreateTopics",)),
        ("describe cluster", rule("describe", "cluster", CLUSTER),
         ("DescribeCluster", "DescribeLogDirs", "ListGroups", "DescribeAcls")),
        ("alter cluster", rule("alter", "cluster", CLUSTER), ("DescribeAcls",)),
        ("describe configs of topic", rule("describe configs", "topic", TOPIC), ("DescribeConfigs",)),
        ("alter configs of topic", rule("alter configs", "topic", TOPIC),
         ("IncrementalAlterConfigs", "DescribeConfigs")),
        ("idempotent write", rule("idempotent write", "cluster", CLUSTER), ("InitProducerId",)),
        ("write transactional id", rule("write", "transactional id", TRANSACTION),
         ("InitProducerId", "FindCoordinator", "AddPartitionsToTxn", "AddOffsetsToTxn")),
        ("describe transactional id", rule("describe", "transactional id", TRANSACTION),
         ("DescribeTransactions", "ListTransactions", "FindCoordinator")),
    ):  # fmt: skip
        _with(to, case, [one], requests, apis)
    deny = rule("read", "topic", TOPIC, permission_type=DENY)
    _with(to, "deny wins", [rule("all", "topic", "*"), deny], requests, ("Fetch", "Metadata"))


def _with(
    to: Recorder,
    case: str,
    rules: list[dict[str, Any]],
    requests: Requests,
    apis: tuple[str, ...],
) -> None:
    to.ask(f"allow {case}", "CreateAcls", {"creations": rules})
    _wait_for(to, len(rules))
    for api in apis:
        # From version 4 on it is an API of brokers.
        versions = [3] if api == "AddPartitionsToTxn" else None
        for name, request in requests[api].items():
            to.ask(f"with {case}: {name}", api, request, user="alice", versions=versions)
    if "create" in case:
        to.ask("", "DeleteTopics", {"topics": [{"name": "not-yet"}], "timeout_ms": 5000}, keep=False)
    taken = [
        {
            **EVERY, "resource_type_filter": one["resource_type"], "resource_name_filter": one["resource_name"],
            "pattern_type_filter": one["resource_pattern_type"], "operation": one["operation"],
            "permission_type": one["permission_type"],
        }
        for one in rules
    ]  # fmt: skip
    to.ask(f"take back {case}", "DeleteAcls", {"filters": taken}, keep=case in ("prefix", "deny wins"))
    _wait_for(to, 0)


def _wait_for(to: Recorder, rules: int) -> None:
    """Wait until broker and controller know this many rules: they learn them after the answer."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        known = to.ask("", "DescribeAcls", EVERY, keep=False)["resources"]
        if sum(len(one["acls"]) for one in known) == rules:
            break
        time.sleep(0.02)
    time.sleep(0.1)  # the controller's, which no request shows


def _describe_and_delete(to: Recorder) -> None:
    """The ACL APIs: filters, rules that cannot be, rules that are there already."""
    several = [
        rule("read", "topic", TOPIC), rule("read", "topic", "sec", resource_pattern_type=PREFIXED),
        rule("read", "topic", "*"), rule("write", "topic", "other", permission_type=DENY, host="192.0.2.1"),
        rule("read", "group", GROUP, principal="User:bob"), rule("alter", "cluster", CLUSTER),
    ]  # fmt: skip
    to.ask("create several", "CreateAcls", {"creations": several}, versions=to.versions("CreateAcls"))
    for case, one in {
        "unknown operation": rule("read", "topic", TOPIC, operation=0),
        "any operation": rule("read", "topic", TOPIC, operation=1),
        "operation that topics lack": rule("idempotent write", "topic", TOPIC),
        "unknown resource": rule("read", "topic", TOPIC, resource_type=0),
        "any resource": rule("read", "topic", TOPIC, resource_type=1),
        "another cluster name": rule("alter", "cluster", "x"),
        "empty name": rule("read", "topic", ""),
        "principal without type": rule("read", "topic", TOPIC, principal="alice"),
        "empty principal": rule("read", "topic", TOPIC, principal=""),
        "empty host": rule("read", "topic", TOPIC, host=""),
        "any permission": rule("read", "topic", TOPIC, permission_type=1),
        "match pattern": rule("read", "topic", TOPIC, resource_pattern_type=MATCH),
        "any pattern": rule("read", "topic", TOPIC, resource_pattern_type=ANY),
    }.items():
        to.ask(f"create: {case}", "CreateAcls", {"creations": [one]})
    for case, more in {
        "all": {},
        "topics": {"resource_type_filter": 2},
        "one name": {"resource_name_filter": TOPIC},
        "literal name": {"resource_name_filter": TOPIC, "pattern_type_filter": LITERAL},
        "matching a name": {"resource_name_filter": TOPIC, "pattern_type_filter": MATCH},
        "prefixed": {"pattern_type_filter": PREFIXED},
        "one principal": {"principal_filter": "User:bob"},
        "one host": {"host_filter": "192.0.2.1"},
        "one operation": {"operation": 3},
        "denials": {"permission_type": DENY},
        "unknown operation": {"operation": 0},
        "unknown pattern": {"pattern_type_filter": 0},
    }.items():
        to.ask(
            f"describe: {case}",
            "DescribeAcls",
            {**EVERY, **more},
            versions=to.ends("DescribeAcls")[-1 if more else 0 :],
        )
    filters = [{**EVERY, "resource_name_filter": "other"}, {**EVERY, "principal_filter": "User:no"}]
    to.ask("delete: unknown operation", "DeleteAcls", {"filters": [{**EVERY, "operation": 0}]})
    to.ask("delete some", "DeleteAcls", {"filters": filters}, versions=to.versions("DeleteAcls"))
    to.ask("delete all", "DeleteAcls", {"filters": [EVERY]})
    to.ask("describe: nothing left", "DescribeAcls", EVERY)
