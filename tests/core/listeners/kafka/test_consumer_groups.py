"""ConsumerGroupHeartbeat and ConsumerGroupDescribe at the Kafka listener, and what other APIs say of such groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.broker.broker import Broker
from core.config import Config
from core.errors import ErrorCode
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from core.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from core.protocol.messages.delete_groups import DeleteGroupsRequest
from core.protocol.messages.describe_groups import DescribeGroupsRequest
from core.protocol.messages.list_groups import ListGroupsRequest
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
from core.security.acl import Acl, Operation, PatternType, Permission, ResourceType
from core.security.principal import Principal
from tests.core.listeners.kafka.conftest import Client

HEARTBEAT, DESCRIBE = 68, 69
SETTINGS = {"group_initial_rebalance_delay_ms": 0, "group_consumer_assignment_interval_ms": 0}
NONE, MISSING = ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND


@pytest.fixture
async def topic_id(client: Client, broker: Broker) -> UUID:
    await client.create("t", 2)
    return broker.topics.get("t").topic_id


async def beat(client: Client, epoch: int, version: int = 1, **fields: Any) -> Any:
    fields = {"group_id": "g", "member_id": "m", **fields}
    return await client.ask(HEARTBEAT, version, ConsumerGroupHeartbeatRequest(member_epoch=epoch, **fields))


async def join(client: Client, version: int = 1, **fields: Any) -> Any:
    fields = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
        **fields,
    }
    answer = await beat(client, 0, version, **fields)
    assert answer.error_code == NONE, answer
    return answer


async def describe(client: Client, group: str = "g", version: int = 1) -> Any:
    (found,) = (await client.ask(DESCRIBE, version, ConsumerGroupDescribeRequest([group], True))).groups
    return found


async def commit(client: Client, epoch: int, version: int = 9, member: str = "m", group: str = "g") -> int:
    topics = [OffsetCommitRequestTopic("t", partitions=[OffsetCommitRequestPartition(0, 1)])]
    request = OffsetCommitRequest(group, epoch, member, topics=topics)
    (topic,) = (await client.ask(8, version, request)).topics
    return int(topic.partitions[0].error_code)


async def fetch(client: Client, member: str | None, epoch: int, group: str = "g") -> tuple[int, list[int]]:
    topics = [OffsetFetchRequestTopics("t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, member, epoch, topics)])
    (found,) = (await client.ask(9, 9, request)).groups
    return found.error_code, [p.committed_offset for topic in found.topics for p in topic.partitions]


def partitions(answer: Any) -> dict[UUID, list[int]]:
    return {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}


# --- heartbeats ----------------------------------------------------------------------------------------------


async def test_a_member_joins_gets_its_partitions_stays_and_leaves(client: Client, topic_id: UUID) -> None:
    joined = await join(client)
    assert (joined.member_id, joined.heartbeat_interval_ms) == ("m", 5000)
    assert partitions(joined) == {topic_id: [0, 1]}
    again = await beat(client, joined.member_epoch)
    assert (again.error_code, again.member_epoch, again.assignment) == (NONE, joined.member_epoch, None)
    owned = [TopicPartitions(topic_id, [0, 1])]
    full = await beat(
        client, joined.member_epoch, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=owned
    )  # fmt: skip
    assert partitions(full) == {topic_id: [0, 1]}, "a full request gets a full answer"
    left = await beat(client, -1)
    assert (left.error_code, left.member_epoch) == (NONE, -1)
    assert (await beat(client, joined.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_broker_makes_the_member_id_of_version_0_alone(client: Client, topic_id: UUID) -> None:
    joined = await join(client, 0, member_id="")
    assert len(joined.member_id) == 22
    assert (await beat(client, joined.member_epoch, 0, member_id=joined.member_id)).error_code == NONE
    refused = await beat(
        client, 0, 1, member_id="", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (-3, {}, ErrorCode.INVALID_REQUEST),
        (-2, {}, ErrorCode.INVALID_REQUEST),
        (0, {}, ErrorCode.INVALID_REQUEST),
        (7, {"group_id": "none"}, ErrorCode.GROUP_ID_NOT_FOUND),
        (7, {"group_id": ""}, ErrorCode.INVALID_REQUEST),
        (99, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, {"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (1, {"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (1, {"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
async def test_what_is_wrong_with_a_heartbeat_is_told(
    client: Client, topic_id: UUID, epoch: int, fields: dict[str, Any], code: int
) -> None:
    await join(client)
    answer = await beat(client, epoch, **fields)
    assert answer.error_code == code, answer
    assert answer.error_message and answer.assignment is None


# --- describe, list, delete ----------------------------------------------------------------------------------


async def test_a_group_is_described_with_epochs_assignments_and_kinds(client: Client, topic_id: UUID) -> None:
    joined = await join(client, rack_id="r", instance_id="i")
    found = await describe(client)
    assert (found.error_code, found.group_state, found.assignor_name) == (NONE, "Stable", "uniform")
    assert found.group_epoch == found.assignment_epoch == joined.member_epoch
    assert found.authorized_operations > 0
    (member,) = found.members
    assert (member.member_id, member.instance_id, member.rack_id, member.client_id, member.client_host) == (
        "m", "i", "r", "test", "/127.0.0.1",
    )  # fmt: skip
    (share,) = member.assignment.topic_partitions
    assert (share.topic_id, share.topic_name, share.partitions) == (topic_id, "t", [0, 1])
    assert member.target_assignment == member.assignment
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], None)
    assert member.member_type == 1
    assert (await describe(client, version=0)).members[0].member_type == -1, "version 0 does not have it"


async def test_each_api_describes_its_own_type_of_group_alone(client: Client, topic_id: UUID) -> None:
    await join(client)
    assert await commit(client, -1, member="", group="classic") == NONE
    missing = await describe(client, "none")
    assert (missing.error_code, missing.error_message) == (MISSING, "Group none not found.")
    other = await describe(client, "classic")
    assert (other.error_code, other.error_message) == (
        MISSING, "Group classic is not a consumer group, but a classic group.",
    )  # fmt: skip
    (old,) = (await client.ask(15, 5, DescribeGroupsRequest(["g"]))).groups
    assert (old.error_code, old.group_state, old.members) == (NONE, "Dead", [])
    (new,) = (await client.ask(15, 6, DescribeGroupsRequest(["g"]))).groups
    assert (new.error_code, new.group_state) == (MISSING, "Dead")
    assert new.error_message == "Group g is not a classic group, but a consumer group."


async def test_groups_are_listed_by_type_and_state(client: Client, topic_id: UUID) -> None:
    await join(client)
    await commit(client, -1, member="", group="classic")

    async def listed(states: list[str], types: list[str]) -> list[tuple[str, str, str, str]]:
        answer = await client.ask(16, 5, ListGroupsRequest(states, types))
        return [(one.group_id, one.group_type, one.group_state, one.protocol_type) for one in answer.groups]

    mine = ("g", "consumer", "Stable", "consumer")
    assert await listed([], ["Consumer"]) == [mine]
    assert await listed(["stable"], []) == [mine]
    assert await listed(["empty"], ["consumer"]) == []
    assert {one[0] for one in await listed([], [])} == {"g", "classic"}
    assert [one[0] for one in await listed([], ["classic"])] == ["classic"]


async def test_a_group_is_deleted_once_its_members_have_left(client: Client, topic_id: UUID) -> None:
    joined = await join(client)
    assert await commit(client, joined.member_epoch) == NONE

    async def delete() -> int:
        (result,) = (await client.newest(42, DeleteGroupsRequest(["g"]))).results
        return int(result.error_code)

    assert await delete() == ErrorCode.NON_EMPTY_GROUP
    await beat(client, -1)
    assert await delete() == NONE
    assert await delete() == MISSING
    assert await fetch(client, None, -1) == (NONE, [-1])


# --- offsets -------------------------------------------------------------------------------------------------


async def test_a_member_commits_with_its_epoch(client: Client, topic_id: UUID) -> None:
    epoch = (await join(client)).member_epoch
    assert await commit(client, epoch) == NONE
    assert await commit(client, epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert await commit(client, epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert await commit(client, epoch, member="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await commit(client, -1, member="") == ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"
    assert await commit(client, epoch, group="none") == MISSING
    await beat(client, -1)
    assert await commit(client, -1, member="") == NONE


async def test_a_member_fetches_with_its_epoch(client: Client, topic_id: UUID) -> None:
    epoch = (await join(client)).member_epoch
    await commit(client, epoch)
    assert await fetch(client, "m", epoch) == (NONE, [1])
    assert await fetch(client, None, -1) == (NONE, [1]), "tools fetch without a member"
    assert await fetch(client, "m", epoch + 1) == (ErrorCode.STALE_MEMBER_EPOCH, [])
    assert await fetch(client, "stranger", epoch) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


# --- rights --------------------------------------------------------------------------------------------------


class TestWithRules:
    """Alice begins without a right."""

    @pytest.fixture
    def config(self, tmp_path: Path) -> Config:
        return Config(data_dir=tmp_path, super_users=("User:ANONYMOUS",))

    @pytest.fixture
    def alice(self, listener: KafkaListener) -> Client:
        made = Client(listener)
        made.session.act_as(Principal("User", "alice"))
        return made

    @pytest.fixture
    async def allow(self, broker: Broker) -> Any:
        async def rule(operation: Operation, kind: ResourceType, name: str) -> None:
            made = Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, Permission.ALLOW)
            assert await broker.acls.create([made]) == [None]

        return rule

    async def test_a_member_needs_to_see_the_topics_that_it_names(
        self, client: Client, alice: Client, allow: Any, topic_id: UUID
    ) -> None:
        await allow(Operation.READ, ResourceType.GROUP, "g")
        fields: dict[str, Any] = {
            "rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"], "topic_partitions": [],
        }  # fmt: skip
        refused = await beat(alice, 0, **fields)
        assert (refused.error_code, refused.error_message) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        await allow(Operation.DESCRIBE, ResourceType.TOPIC, "t")
        assert (await beat(alice, 0, **fields)).error_code == NONE

    async def test_a_pattern_finds_no_topic_that_the_member_may_not_see(
        self, client: Client, alice: Client, allow: Any, topic_id: UUID
    ) -> None:
        await client.create("secret")
        await allow(Operation.READ, ResourceType.GROUP, "g")
        await allow(Operation.DESCRIBE, ResourceType.TOPIC, "t")
        joined = await join(alice, subscribed_topic_names=None, subscribed_topic_regex=".*")
        assert partitions(joined) == {topic_id: [0, 1]}

    async def test_a_group_is_described_to_those_that_may_see_its_topics_alone(
        self, client: Client, alice: Client, allow: Any, topic_id: UUID
    ) -> None:
        """CVE-2026-41115: names of topics by the description of a group."""
        await join(client)
        denied = await describe(alice)
        assert (denied.error_code, denied.members) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
        await allow(Operation.DESCRIBE, ResourceType.GROUP, "g")
        denied = await describe(alice)
        assert (denied.error_code, denied.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        assert "t" not in (denied.error_message or "").split()
        await allow(Operation.DESCRIBE, ResourceType.TOPIC, "t")
        assert len((await describe(alice)).members) == 1
