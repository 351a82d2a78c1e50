"""What Kafka's own Java client can say beyond the words that all drivers share: the cluster, and groups."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from core.errors import ErrorCode
from tests.broker_process import BrokerProcess
from tests.clients.driver import Driver, RefusedError
from tests.clients.drivers.java_client import JAVA, JavaClient
from tests.clients.every_client import GetClient, case
from tests.clients.members.member import Member
from tests.clients.wire import Wire

BROKER_ENVIRONMENT = {
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "100",
    "SLUICE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
}
RELEASES = [case(driver) for driver in JAVA]


@pytest.fixture
def java(client: GetClient, driver: type[Driver]) -> JavaClient:
    """The Java client of one release."""
    found = client(driver)
    assert isinstance(found, JavaClient)
    return found


@pytest.fixture
def topic(wire: Wire) -> str:
    """A topic with two partitions and three records, all in the first."""
    name = f"topic-{uuid.uuid4().hex}"
    wire.create_topic(name, partitions=2)
    wire.write(name, "0", "1", "2")
    return name


@pytest.mark.parametrize("driver", RELEASES)
def test_the_cluster_is_described(java: JavaClient, broker: BrokerProcess) -> None:
    found: dict[str, Any] = java.call("cluster")
    assert (found["controller"], found["nodes"]) == (1, [broker.kafka])
    assert len(found["id"]) == 22


@pytest.mark.parametrize("driver", RELEASES)
def test_a_group_is_described_with_its_assignor_and_its_coordinator(
    java: JavaClient, broker: BrokerProcess, topic: str
) -> None:
    group = f"group-{uuid.uuid4().hex}"
    member = Member(java.name, broker, group, topic)
    try:
        member.wait_for(lambda member: len(member.reads) == 3)
        found = java.call("describe_group", group=group, topic=topic)
        assert (found["state"], found["assignor"], found["coordinator"]) == ("Stable", "roundrobin", 1)
        assert found["hosts"] == ["/127.0.0.1"]
        assert [sorted(owned) for owned in found["members"].values()] == [[0, 1]]
        with pytest.raises(RefusedError) as refused:
            java.call("delete_group_offset", group=group, topic=topic, partition=0)
        assert refused.value.code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    finally:
        member.leave()


@pytest.mark.parametrize("driver", RELEASES)
def test_the_offsets_of_an_empty_group_can_be_set_and_deleted(java: JavaClient, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex}"
    for partition, offset in ((0, 2), (1, 0)):
        where = {"group": group, "topic": topic, "partition": partition}
        java.call("set_group_offset", **where, offset=offset, metadata="by hand")
    assert java.group_offsets(group, topic) == {0: 2, 1: 0}
    assert java.call("group_metadata", group=group, topic=topic, partition=0) == "by hand"
    java.call("delete_group_offset", group=group, topic=topic, partition=1)
    assert java.group_offsets(group, topic) == {0: 2}
    java.delete_group(group)
    assert java.group_offsets(group, topic) == {}
