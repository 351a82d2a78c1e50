"""One right, all ways in: what an access rule allows or denies, each client is allowed or denied.

The clients have not authenticated, so that all of them are `User:ANONYMOUS`. The rules are written by a first run of
the broker, in which that is a super user; in the run under test it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from core.security.acl import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from tests.broker_process import BrokerProcess
from tests.clients.wire import Wire
from tests.contract.clients import ClientError, KafkaClient, having

DENIED = "AUTHORIZATION_FAILED"
TOPICS = ("readable", "writable", "visible", "hidden")
RULES = [
    (ResourceType.TOPIC, "readable", PatternType.LITERAL, Operation.READ),
    (ResourceType.TOPIC, "writable", PatternType.LITERAL, Operation.WRITE),
    (ResourceType.TOPIC, "visible", PatternType.LITERAL, Operation.DESCRIBE),
    (ResourceType.TOPIC, "mine-", PatternType.PREFIXED, Operation.ALL),
    (ResourceType.GROUP, "readers", PatternType.PREFIXED, Operation.READ),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    # Otherwise the first generation of each group takes three seconds.
    environment = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
    process = BrokerProcess(_data_dir(tmp_path_factory), environment=environment, schemes=["text"])
    process.options = ["--super-user", "User:ANONYMOUS"]
    process.start()
    try:
        kafka = KafkaClient(process)
        for topic in TOPICS:
            kafka.create_topic(topic)
            kafka.produce(topic, 0, [(None, b"first")])
        kafka.close()
        wire = Wire(process.kafka_address)
        rules = [
            AclCreation(kind, name, pattern, "User:ANONYMOUS", "*", operation, Permission.ALLOW)
            for kind, name, pattern, operation in RULES
        ]
        answer = wire.call(30, CreateAclsRequest(rules), 3)
        assert not any(one.error_code for one in answer.results), answer
        wire.close()
        process.stop()
        process.options = ["--super-user", "User:admin"]
        process.start()
        yield process
    finally:
        process.kill()


def _data_dir(factory: pytest.TempPathFactory) -> Path:
    return factory.mktemp("rights") / "data"


def each(*verbs: str) -> Any:
    return pytest.mark.parametrize("client", having(*verbs), indirect=True, ids=lambda d: d.name)


def denied(call: Callable[..., Any], *arguments: Any) -> None:
    with pytest.raises(ClientError, match=DENIED):
        call(*arguments)


@each("read")
def test_records_are_read_with_read(client: Any) -> None:
    assert [one.value for one in client.read("readable", 0, 0)] == [b"first"]
    for topic in ("writable", "visible", "hidden", "nowhere"):
        denied(client.read, topic, 0, 0)


@each("write")
def test_records_are_written_with_write(client: Any) -> None:
    assert len(client.produce("writable", 0, [(None, b"more")])) == 1
    for topic in ("readable", "visible", "hidden", "nowhere"):
        denied(client.produce, topic, 0, [(None, b"more")])


@each("bounds")
def test_offsets_are_seen_with_describe(client: Any) -> None:
    for topic in ("readable", "writable", "visible"):
        assert client.bounds(topic, 0)[0] == 0
    for topic in ("hidden", "nowhere"):
        denied(client.bounds, topic, 0)


@each("topics")
def test_topics_are_changed_with_rights_on_their_prefix(client: Any) -> None:
    topic = f"mine-{client.name}"
    client.create_topic(topic, 1, {"retention.ms": "123456"})
    client.grow(topic, 2)
    assert client.partitions(topic) == 2
    assert client.config(topic)["retention.ms"] == "123456"
    client.delete_topic(topic)
    denied(client.create_topic, "other", 1)
    for name in ("readable", "hidden", "nowhere"):
        denied(client.grow, name, 5)
        denied(client.delete_topic, name)
    for name in ("hidden", "nowhere"):
        denied(client.partitions, name)


@each("truncate")
def test_records_are_deleted_with_delete(client: Any) -> None:
    for topic in ("readable", "writable", "hidden", "nowhere"):
        denied(client.truncate, topic, 0, 1)


@each("commit")
def test_offsets_are_committed_with_read_on_group_and_topic(client: Any) -> None:
    group = f"readers-{client.name}"
    client.commit(group, "readable", 0, 1)
    assert client.committed(group, "readable", 0) == 1
    denied(client.commit, group, "writable", 0, 1)
    denied(client.commit, "others", "readable", 0, 1)


@each("join")
def test_a_group_is_joined_with_read(client: Any) -> None:
    member = client.join(f"readers-j-{client.name}", ["readable"])
    client.leave(member)
    denied(client.join, "others", ["readable"])


def test_the_cluster_is_not_open_to_a_client_without_rights_on_it(broker: BrokerProcess) -> None:
    wire = Wire(broker.kafka_address)
    rule = AclCreation(
        ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.ALL,
        Permission.ALLOW,
    )  # fmt: skip
    assert wire.call(30, CreateAclsRequest([rule]), 3).results[0].error_code == 31
    wire.close()
