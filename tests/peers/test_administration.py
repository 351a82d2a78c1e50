"""The same administrative requests to a real Kafka and to Sluice: the answers are compared field by field.

What differs by nature is made equal first: the wording of messages, ids of topics, the order of lists, times, and how
long the metadata log is. `DIFFERENCES` lists what else differs, with the reason.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from core.protocol.apis import APIS
from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire
from tests.peers.kafka import START_SECONDS, KafkaProcess, Tools

TOPIC = "administered"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
# The placeholder of the data directory of the broker that is asked.
DIRECTORY = "<directory>"


class Case(NamedTuple):
    """A request, as its fields; `versions` that both serve."""

    name: str
    key: int
    versions: tuple[int, ...]
    fields: dict[str, Any]


def moves(*partitions: tuple[int, list[int] | None], topic: str = TOPIC) -> dict[str, Any]:
    found = [{"partition_index": number, "replicas": replicas} for number, replicas in partitions]
    return {"topics": [{"name": topic, "partitions": found}]}


def credential(name: str, mechanism: int = 1, iterations: int = 0) -> dict[str, Any]:
    """A SCRAM credential to remove, or with iterations to set."""
    if not iterations:
        return {"name": name, "mechanism": mechanism}
    secret = {"salt": b"salt", "salted_password": b"salted password"}
    return {"name": name, "mechanism": mechanism, "iterations": iterations, **secret}


def quotas(*components: tuple[str, int, str | None]) -> dict[str, Any]:
    return {"components": [{"entity_type": t, "match_type": m, "match": name} for t, m, name in components]}


def quota(
    entity: list[tuple[str, str | None]],
    *,
    remove: bool = True,
    key: str = "producer_byte_rate",
    value: float = 1e9,
    set_it: bool = False,
) -> dict[str, Any]:
    # Mostly only validated; what is set belongs to users that no test is, for the real one must not limit others.
    return {
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "ops": [{"key": key, "value": value, "remove": remove}],
            }
        ],
        "validate_only": not set_it,
    }


def quorum(*asked: tuple[str, int]) -> dict[str, Any]:
    return {
        "topics": [
            {"topic_name": name, "partitions": [{"partition_index": number}]} for name, number in asked
        ]
    }


def times(timestamp: int) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "topics": [{"name": TOPIC, "partitions": [{"timestamp": timestamp}]}],
        "timeout_ms": 1000,
    }


def cleared(*names: str) -> dict[str, Any]:
    configs = [{"name": name, "config_operation": 1, "value": None} for name in names]
    return {"resources": [{"resource_type": 4, "resource_name": "1", "configs": configs}]}


def feature(level: int) -> dict[str, Any]:
    return {"feature_updates": [{"feature": "none.such", "max_version_level": level}]}


def directory(path: str) -> dict[str, Any]:
    topics = [{"name": TOPIC, "partitions": [0, 7]}, {"name": "none-such", "partitions": [0]}]
    return {"dirs": [{"path": path, "topics": topics}]}


ACL = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3}
ANY = {"resource_name_filter": None, "principal_filter": None, "host_filter": None, "operation": 1}
DESCRIBE_QUOTAS, DESCRIBE_CREDENTIALS = 48, 50
READS = 100
CASES = (
    *(Case(f"time {one}", 2, tuple(range(1, 11)), times(one)) for one in (-1, -2, -3, -4, -5, -6, -7)),
    Case("list rules", 29, (1, 2, 3), {**ANY, "resource_type_filter": 1, "permission_type": 1}),
    Case("add rules", 30, (1, 2, 3), {"creations": [{**ACL, "permission_type": 3}] * 2}),
    Case(
        "drop rules", 31, (1, 2, 3), {"filters": [{**ANY, "resource_type_filter": 1, "permission_type": 1}]}
    ),
    Case("the directory", 34, (1, 2), directory(DIRECTORY)),
    Case("another directory", 34, (1, 2), directory("/none/such")),
    Case("no election", 43, (1, 2), {"topic_partitions": [{"topic": TOPIC, "partitions": [0, 7]}]}),
    Case("throttles", 44, (0, 1), cleared("leader.replication.throttled.rate", "none.such", "broker.id")),
    Case("as it is", 45, (0, 1), moves((0, [1]))),
    Case("cancelled", 45, (0, 1), moves((1, [1]), (9, None))),
    Case("elsewhere", 45, (0, 1), moves((0, [2]), (1, []), (9, [1]))),
    Case("named again", 45, (0, 1), moves((0, [1, 1]), (1, [-1]))),
    Case("of no topic", 45, (0, 1), moves((0, [1]), topic="none-such")),
    Case("all moves", 46, (0,), {"topics": None}),
    Case("some moves", 46, (0,), {"topics": [{"name": TOPIC, "partition_indexes": [0, 7]}]}),
    Case("all quotas", 48, (0, 1), quotas()),
    Case("quotas of a user", 48, (0, 1), quotas(("user", 0, "a"), ("client-id", 1, None))),
    Case("quotas of ips", 48, (0, 1), quotas(("ip", 2, None))),
    Case("quotas of both", 48, (0, 1), quotas(("ip", 2, None), ("user", 2, None))),
    Case("quotas of no type", 48, (0, 1), quotas(("", 2, None))),
    Case("quotas of another type", 48, (0, 1), quotas(("host", 2, None))),
    Case("quotas without a name", 48, (0, 1), quotas(("user", 0, None))),
    Case("quotas with a name", 48, (0, 1), quotas(("user", 1, "a"))),
    Case("quotas matched oddly", 48, (0, 1), quotas(("user", 7, None))),
    Case("quotas of two users", 48, (0, 1), quotas(("user", 0, "a"), ("user", 0, "b"))),
    Case("quota dropped", 49, (0, 1), quota([("user", "a")])),
    Case("quota of nothing", 49, (0, 1), quota([])),
    Case("quota of another type", 49, (0, 1), quota([("host", "a")])),
    Case("quota of both", 49, (0, 1), quota([("user", "a"), ("ip", "127.0.0.1")])),
    Case("quota set", 49, (0, 1), quota([("user", "a")], remove=False)),
    Case("quota of an empty name", 49, (0, 1), quota([("user", "")], remove=False)),
    Case("quota of zero", 49, (0, 1), quota([("user", "a")], remove=False, value=0.0)),
    Case("quota below zero", 49, (0, 1), quota([("user", "a")], remove=False, value=-1.0)),
    Case("half a byte", 49, (0, 1), quota([("user", "a")], remove=False, value=1.5)),
    Case(
        "half a percent",
        49,
        (0, 1),
        quota([("user", "a")], remove=False, key="request_percentage", value=0.5),
    ),
    Case("an unknown key", 49, (0, 1), quota([("user", "a")], remove=False, key="bytes")),
    Case("an unknown key dropped", 49, (0, 1), quota([("user", "a")], key="bytes")),
    Case(
        "connections of a user",
        49,
        (0, 1),
        quota([("user", "a")], remove=False, key="connection_creation_rate"),
    ),
    Case(
        "connections of an ip",
        49,
        (0, 1),
        quota([("ip", "10.0.0.1")], remove=False, key="connection_creation_rate", value=5.0),
    ),
    Case("bytes of an ip", 49, (0, 1), quota([("ip", "10.0.0.1")], remove=False)),
    Case(
        "no ip",
        49,
        (0, 1),
        quota([("ip", "no such host")], remove=False, key="connection_creation_rate", value=5.0),
    ),
    Case("quota of x", 49, (1,), quota([("user", "x")], remove=False, set_it=True)),
    Case(
        "quota of x and app",
        49,
        (1,),
        quota([("client-id", "app"), ("user", "x")], remove=False, set_it=True),
    ),
    Case(
        "quota of x and all", 49, (1,), quota([("client-id", None), ("user", "x")], remove=False, set_it=True)
    ),
    Case(
        "percent of x",
        49,
        (1,),
        quota([("user", "x")], remove=False, set_it=True, key="request_percentage", value=2.5),
    ),
    Case("quotas of x", 48, (0, 1), quotas(("user", 0, "x"))),
    Case("quotas of x alone", 48, (0, 1), {**quotas(("user", 0, "x")), "strict": True}),
    Case("quotas of x and a client", 48, (0, 1), quotas(("user", 0, "x"), ("client-id", 2, None))),
    Case("quotas of x and all clients", 48, (0, 1), quotas(("user", 2, None), ("client-id", 1, None))),
    Case("quotas of nothing alone", 48, (0, 1), {**quotas(), "strict": True}),
    Case("quotas of clients alone", 48, (0, 1), {**quotas(("client-id", 2, None)), "strict": True}),
    Case("quota of x dropped", 49, (1,), quota([("user", "x")], set_it=True)),
    Case("percent of x dropped", 49, (1,), quota([("user", "x")], set_it=True, key="request_percentage")),
    Case("quotas of x that are left", 48, (0, 1), quotas(("user", 0, "x"))),
    Case("quota of x and app dropped", 49, (1,), quota([("client-id", "app"), ("user", "x")], set_it=True)),
    Case("quota of x and all dropped", 49, (1,), quota([("client-id", None), ("user", "x")], set_it=True)),
    Case("no quotas are left", 48, (0, 1), quotas()),
    Case("all users", 50, (0,), {"users": None}),
    Case("users", 50, (0,), {"users": [{"name": "a"}, {"name": "b"}, {"name": ""}]}),
    Case("users twice", 50, (0,), {"users": [{"name": "a"}, {"name": "a"}]}),
    Case("users dropped", 51, (0,), {"deletions": [{"name": "a", "mechanism": 1}]}),
    Case(
        "users set",
        51,
        (0,),
        {
            "deletions": [credential("gone"), credential("odd", 9)],
            "upsertions": [
                credential("a", 1, 4096),
                credential("b", 2, 16384),
                credential("few", 1, 4095),
                credential("many", 1, 16385),
                credential("none", 0, 4096),
                credential("", 1, 4096),
                credential("twice", 1, 4096),
                credential("twice", 2, 4096),
            ],
        },
    ),
    Case("users that were set", 50, (0,), {"users": [{"name": "a"}, {"name": "b"}, {"name": "few"}]}),
    Case(
        "users set again",
        51,
        (0,),
        {"deletions": [credential("b", 2)], "upsertions": [credential("a", 1, 8192)]},
    ),
    Case("all users that are left", 50, (0,), {"users": None}),
    Case("the last user dropped", 51, (0,), {"deletions": [credential("a", 1), credential("a", 2)]}),
    Case("the last user dropped alone", 51, (0,), {"deletions": [credential("a", 1)]}),
    Case("no user is left", 50, (0,), {"users": []}),
    Case("the quorum", 55, (0, 1, 2), quorum(("__cluster_metadata", 0))),
    Case("another partition", 55, (0, 1, 2), quorum(("__cluster_metadata", 1))),
    Case("another topic", 55, (0, 1, 2), quorum((TOPIC, 0), ("__cluster_metadata", 0))),
    Case("no quorum", 55, (0, 1, 2), quorum()),
    Case("no features", 57, (0, 1, 2), {}),
    Case("a feature up", 57, (0, 1, 2), feature(1)),
    Case("a feature down", 57, (0, 1, 2), feature(0)),
    Case("client metrics", 74, (0,), {}),
    Case("brokers and loggers", 74, (1,), {"resource_types": [4, 8]}),
    Case("groups", 74, (1,), {"resource_types": [16]}),
    Case("unknown resources", 74, (1,), {"resource_types": [2, 99]}),
)
DIFFERENCES: dict[str, str] = {}


def _wait_until_led(wire: Wire) -> None:
    """Wait for the partitions: Kafka answers CreateTopics before its broker leads them."""
    deadline = time.monotonic() + START_SECONDS
    while any(wire.list_offset(TOPIC, -1, partition=partition).error_code for partition in (0, 1)):
        assert time.monotonic() < deadline, "the topic has no leader"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def clients(kafka: KafkaProcess, sluice: BrokerProcess) -> Iterator[dict[str, tuple[Wire, str]]]:
    """A connection to each broker, with its data directory."""
    both = {
        "kafka": (Wire(kafka.address), str(kafka.logs)),
        "sluice": (Wire(sluice.kafka_address), str(sluice.data_dir)),
    }
    for wire, _ in both.values():
        wire.create_topic(TOPIC, partitions=2)
        _wait_until_led(wire)
        wire.write(TOPIC, "a", "b")
        wire.write(TOPIC, "c")
    yield both
    for wire, _ in both.values():
        wire.close()


def filled(value: Any, known: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: filled(one, known) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(one, known) for one in value]
    return known.get(value, value) if isinstance(value, str) else value


def told(wire: Wire, data_dir: str, key: int, version: int, fields: dict[str, Any]) -> Any:
    """The answer as plain data, with what differs by nature made equal."""
    message = msgspec.convert(filled(fields, {DIRECTORY: data_dir}), APIS[key].request_type)
    return plain(msgspec.to_builtins(wire.call(key, message, version)))


def plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {one: plain(inner, one) for one, inner in value.items()}
    if isinstance(value, list):
        return sorted((plain(one) for one in value), key=repr)
    if name == "error_message":
        return "text" if value else "none"
    if name in ("leader_epoch", "high_watermark", "log_end_offset", "port") and value != -1:
        return name
    if name.endswith("_timestamp") and value > 0:
        return name
    return "PLAINTEXT" if value == "CONTROLLER" else value


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{APIS[case.key].name}-{re.sub(' ', '-', case.name)}"
)
def test_both_answer_the_same(clients: dict[str, tuple[Wire, str]], case: Case) -> None:
    same = case.name not in DIFFERENCES
    for version in case.versions:
        # Kafka answers a change before its broker has applied it, so that a read may still show what was before.
        for _ in range(READS if case.key in (DESCRIBE_QUOTAS, DESCRIBE_CREDENTIALS) else 1):
            kafka, sluice = (told(*client, case.key, version, case.fields) for client in clients.values())
            if (kafka == sluice) is same:
                break
            time.sleep(0.1)
        assert (kafka == sluice) is same, (version, kafka, sluice)


def test_the_tool_for_reassignments_ends_well_on_both(
    kafka: KafkaProcess, sluice: BrokerProcess, clients: object, tools: Tools, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [1]}]})
    )
    for step in ("--execute", "--verify", "--cancel"):
        said = [
            tools.run(REASSIGN, "--bootstrap-server", one, step, "--reassignment-json-file", str(plan))
            for one in (kafka.bootstrap, sluice.kafka)
        ]
        assert said[0] == said[1]
        assert said[0].exit == 0, said[0]
