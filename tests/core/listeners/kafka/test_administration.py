"""Reassignments, access rules, credentials, quotas, features, quorum, resources: error codes as in a Kafka 4.1.

Each row was put to a Kafka 4.1.1 of one combined node as well. Where its answer differs, a comment says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.errors import ErrorCode
from core.protocol.messages import alter_client_quotas as quotas
from core.protocol.messages import alter_partition_reassignments as moves
from core.protocol.messages import alter_replica_log_dirs as directories
from core.protocol.messages import alter_user_scram_credentials as credentials
from core.protocol.messages import describe_client_quotas as quota_filters
from core.protocol.messages import describe_quorum as quorum
from core.protocol.messages import offset_commit, offset_fetch
from core.protocol.messages.api_versions import ApiVersionsRequest
from core.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from core.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from core.protocol.messages.describe_acls import DescribeAclsRequest
from core.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from core.protocol.messages.list_config_resources import ListConfigResourcesRequest
from core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from core.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from core.protocol.primitives import NIL
from tests.clients.wire import Wire
from tests.core.listeners.kafka.test_roles import ask
from tests.core.replication.brokers import Brokers, until

from .conftest import Client

QUORUM = "__cluster_metadata"
NONE, INVALID, NOT_FOUND = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.RESOURCE_NOT_FOUND
UNKNOWN, MISPLACED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICA_ASSIGNMENT
STRANGER = UUID(int=12_345)


# --- reassignments -----------------------------------------------------------------------------------------


async def test_no_reassignment_is_in_progress(client: Client) -> None:
    await client.create("t")
    for topics in (
        None,
        [ListPartitionReassignmentsTopics("t", [0, 7]), ListPartitionReassignmentsTopics("u")],
    ):
        answer = await client.newest(46, ListPartitionReassignmentsRequest(topics=topics))
        assert (answer.error_code, answer.topics) == (NONE, [])


@pytest.mark.parametrize(
    ("topic", "partition", "replicas", "code"),
    [
        ("t", 0, [1], NONE),
        ("t", 0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ("t", 0, [], MISPLACED),
        ("t", 0, [2], MISPLACED),
        ("t", 0, [1, 2], MISPLACED),
        ("t", 0, [1, 1], MISPLACED),
        ("t", 2, [1], UNKNOWN),
        ("t", -1, None, UNKNOWN),
        ("u", 0, [1], UNKNOWN),
        ("u", 0, None, UNKNOWN),
    ],
)
async def test_a_replica_moves_to_where_it_is_and_nowhere_else(
    client: Client, topic: str, partition: int, replicas: list[int] | None, code: ErrorCode
) -> None:
    await client.create("t", 2)
    asked = moves.ReassignableTopic(topic, [moves.ReassignablePartition(partition, replicas)])
    answer = await client.newest(45, moves.AlterPartitionReassignmentsRequest(topics=[asked]))
    (one,) = answer.responses[0].partitions
    assert (answer.error_code, one.partition_index, one.error_code) == (NONE, partition, code)
    assert bool(one.error_message) is (code is not NONE)


async def test_a_replica_stays_in_the_one_directory(client: Client, tmp_path: Path) -> None:
    await client.create("t")
    topics = [
        directories.AlterReplicaLogDirTopic("t", [0, 7]),
        directories.AlterReplicaLogDirTopic("u", [0]),
    ]
    for path, codes in (
        (str(tmp_path), [NONE, UNKNOWN, UNKNOWN]),
        ("/elsewhere", [ErrorCode.LOG_DIR_NOT_FOUND] * 3),
    ):
        request = directories.AlterReplicaLogDirsRequest([directories.AlterReplicaLogDir(path, topics)])
        answer = await client.newest(34, request)
        assert [p.error_code for topic in answer.results for p in topic.partitions] == codes


# --- access ------------------------------------------------------------------------------------------------


async def test_access_rules_are_disabled(client: Client) -> None:
    described = await client.newest(29, DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    rule = AclCreation(2, "t", 3, "User:a", "*", 3, 3)
    created = await client.newest(30, CreateAclsRequest([rule, rule]))
    assert [one.error_code for one in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = await client.newest(31, DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]))
    assert [(one.error_code, one.matching_acls) for one in deleted.filter_results] == [
        (ErrorCode.SECURITY_DISABLED, [])
    ]


@pytest.mark.parametrize(
    ("users", "codes"),
    [
        (None, {}),
        ([], {}),
        (["a", "b"], {"a": NOT_FOUND, "b": NOT_FOUND}),
        (["a", "a"], {"a": ErrorCode.DUPLICATE_RESOURCE}),
    ],
)
async def test_there_are_no_users(
    client: Client, users: list[str] | None, codes: dict[str, ErrorCode]
) -> None:
    names = None if users is None else [UserName(name) for name in users]
    answer = await client.newest(50, DescribeUserScramCredentialsRequest(names))
    assert answer.error_code == NONE
    assert {one.user: one.error_code for one in answer.results} == codes


def set_credential(name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"s") -> Any:
    return credentials.ScramCredentialUpsertion(name, mechanism, iterations, salt, b"salted")


async def altered(client: Client, deletions: Any = (), upsertions: Any = ()) -> dict[str, int]:
    dropped = [credentials.ScramCredentialDeletion(*one) for one in deletions]
    request = credentials.AlterUserScramCredentialsRequest(dropped, list(upsertions))
    answer = await client.newest(51, request)
    return {one.user: one.error_code for one in answer.results}


async def described(client: Client, *names: str) -> dict[str, list[tuple[int, int]]]:
    answer = await client.newest(50, DescribeUserScramCredentialsRequest([UserName(name) for name in names]))
    return {one.user: [(i.mechanism, i.iterations) for i in one.credential_infos] for one in answer.results}


@pytest.mark.settings(super_users=("User:ANONYMOUS",))
async def test_credentials_are_set_described_and_removed(client: Client) -> None:
    set_two = [set_credential("a"), set_credential("b", 2, 16384)]
    assert await altered(client, upsertions=set_two) == {"a": NONE, "b": NONE}
    assert await altered(client, upsertions=[set_credential("a", 2, 8192)]) == {"a": NONE}
    assert await described(client) == {"a": [(1, 4096), (2, 8192)], "b": [(2, 16384)]}
    assert await described(client, "b", "nobody") == {"b": [(2, 16384)], "nobody": []}
    assert await altered(client, [("a", 1), ("b", 1)]) == {"a": NONE, "b": NOT_FOUND}
    assert await altered(client, [("a", 2), ("b", 2)]) == {"a": NONE, "b": NONE}
    assert await described(client) == {}


@pytest.mark.settings(super_users=("User:ANONYMOUS",))
async def test_a_credential_that_is_not_right_is_refused_and_the_others_are_set(client: Client) -> None:
    wrong = [
        set_credential("few", iterations=4095), set_credential("many", iterations=16385), set_credential(""),
        set_credential("bland", salt=b""), set_credential("what", mechanism=3), set_credential("fine"),
        set_credential("twice"), set_credential("twice", 2),
    ]  # fmt: skip
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert await altered(client, [("gone", 9)], wrong) == {
        "few": unacceptable, "many": unacceptable, "": unacceptable, "bland": unacceptable,
        "what": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "gone": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "twice": ErrorCode.DUPLICATE_RESOURCE, "fine": NONE,
    }  # fmt: skip
    assert await described(client) == {"fine": [(1, 4096)]}


async def test_a_credential_is_not_taken_over_a_connection_that_others_can_read(client: Client) -> None:
    client.session.connected("192.0.2.1", "192.0.2.2")
    assert await altered(client, upsertions=[set_credential("a")]) == {"a": ErrorCode.SECURITY_DISABLED}
    assert await described(client) == {}


# --- quotas ------------------------------------------------------------------------------------------------

EXACT, DEFAULT, ANY = 0, 1, 2


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([], NONE),
        ([("user", EXACT, "a")], NONE),
        ([("user", DEFAULT, None), ("client-id", ANY, None)], NONE),
        ([("ip", ANY, None)], NONE),
        ([("user", ANY, None), ("ip", ANY, None)], INVALID),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], INVALID),
        ([("user", EXACT, None)], INVALID),
        ([("user", DEFAULT, "a")], INVALID),
        ([("user", 7, None)], INVALID),
        ([("", ANY, None)], INVALID),
        ([("host", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_filters_of_quotas_that_cannot_be_are_refused(
    client: Client, components: list[Any], code: ErrorCode
) -> None:
    asked = [quota_filters.ComponentData(*one) for one in components]
    answer = await client.newest(48, quota_filters.DescribeClientQuotasRequest(asked))
    assert (answer.error_code, answer.entries) == (code, [] if code is NONE else None)
    assert bool(answer.error_message) is (code is not NONE)


@pytest.mark.parametrize(
    ("entity", "ops", "code"),
    [
        ([("user", "a")], [("producer_byte_rate", 0.0, True)], NONE),
        ([("user", None)], [], NONE),
        ([("user", "a")], [("producer_byte_rate", 1000.0, False)], NONE),
        ([("user", "a")], [("producer_byte_rate", 0.0, False)], INVALID),
        ([("user", "a")], [("producer_byte_rate", 1.5, False)], INVALID),
        ([("user", "a")], [("request_percentage", 1.5, False)], NONE),
        ([("user", "a")], [("connection_creation_rate", 1.0, False)], INVALID),
        ([("user", "a")], [("connection_creation_rate", 1.0, True)], NONE),
        ([("user", "a")], [("leader.replication.throttled.rate", 1.0, False)], INVALID),
        ([("user", "")], [("producer_byte_rate", 1000.0, False)], INVALID),
        ([("ip", "::1")], [("connection_creation_rate", 5.0, False)], NONE),
        ([("ip", None)], [("connection_creation_rate", 5.0, False)], NONE),
        ([("ip", "::1")], [("producer_byte_rate", 5.0, False)], INVALID),
        ([("ip", "no.such.host.invalid")], [("connection_creation_rate", 5.0, False)], INVALID),
        ([("ip", "localhost")], [("connection_creation_rate", 5.0, False)], INVALID),  # Kafka asks DNS
        ([], [("producer_byte_rate", 0.0, True)], INVALID),
        ([("host", "a")], [("producer_byte_rate", 0.0, True)], INVALID),
        ([("user", "a"), ("ip", "::1")], [("producer_byte_rate", 0.0, True)], INVALID),
    ],
)
async def test_quotas_that_cannot_be_are_refused(
    client: Client, entity: list[Any], ops: list[Any], code: ErrorCode
) -> None:
    entry = quotas.EntryData([quotas.EntityData(*one) for one in entity], [quotas.OpData(*op) for op in ops])
    answer = await client.newest(49, quotas.AlterClientQuotasRequest([entry]))
    (one,) = answer.entries
    assert (one.error_code, one.entity) == (code, entry.entity)


# --- features and resources --------------------------------------------------------------------------------


async def test_features_are_announced_with_their_levels(client: Client) -> None:
    answer = await client.ask(18, 4, ApiVersionsRequest("test", "1"))
    levels = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
    finalized = {
        one.name: (one.min_version_level, one.max_version_level) for one in answer.finalized_features
    }
    assert levels.items() >= {"group.version": (0, 1), "transaction.version": (0, 2)}.items()
    assert finalized == {name: (level, level) for name, (_, level) in levels.items()}
    assert ("share.version" in levels) is (76 in {one.api_key for one in answer.api_keys})


@pytest.mark.parametrize(
    ("name", "level", "message"),
    [
        ("group.version", 0, "Its level is 1, and the levels of this broker are fixed."),
        ("transaction.version", 3, "Its level is 2, and the levels of this broker are fixed."),
        ("metadata.version", 1, "This broker does not have this feature."),
    ],
)
async def test_an_update_to_another_level_is_refused(
    client: Client, name: str, level: int, message: str
) -> None:
    updates = [FeatureUpdateKey("group.version", 1), FeatureUpdateKey(name, level)]
    answer = await client.newest(57, UpdateFeaturesRequest(feature_updates=updates))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message == f"Invalid update version {level} for feature {name!r}. {message}"


async def test_an_update_to_the_level_that_there_is_does_nothing(client: Client) -> None:
    assert (await client.newest(57, UpdateFeaturesRequest())).error_code == NONE
    updates = [FeatureUpdateKey("group.version", 1), FeatureUpdateKey("transaction.version", 2)]
    assert (await client.newest(57, UpdateFeaturesRequest(feature_updates=updates))).error_code == NONE


@pytest.mark.parametrize(
    ("types", "found"),
    [
        ([], {("t", 2), ("u", 2), ("1", 4), ("1", 8)}),
        ([2], {("t", 2), ("u", 2)}),
        ([4, 4], {("1", 4)}),
        ([8], {("1", 8)}),
        ([16, 32], set()),
    ],
)
async def test_config_resources_are_listed_by_type(
    client: Client, types: list[int], found: set[tuple[str, int]]
) -> None:
    await client.create("t")
    await client.create("u")
    answer = await client.newest(74, ListConfigResourcesRequest(types))
    listed = [(one.resource_name, one.resource_type) for one in answer.config_resources]
    assert (answer.error_code, set(listed), len(listed)) == (NONE, found, len(found))


async def test_unknown_types_of_config_resources_are_refused(client: Client) -> None:
    for types in ([0], [3], [2, 99]):
        answer = await client.newest(74, ListConfigResourcesRequest(types))
        assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
    metrics = await client.ask(74, 0, ListConfigResourcesRequest())
    assert (metrics.error_code, metrics.config_resources) == (NONE, []), (
        "version 0 lists client metrics alone"
    )


# --- quorum ------------------------------------------------------------------------------------------------


def quorum_of(*asked: tuple[str, int]) -> quorum.DescribeQuorumRequest:
    return quorum.DescribeQuorumRequest(
        [
            quorum.DescribeQuorumTopic(topic, [quorum.DescribeQuorumPartition(partition)])
            for topic, partition in asked
        ]
    )


async def test_one_broker_is_a_quorum(client: Client, clock: ManualClock) -> None:
    answer = await client.newest(55, quorum_of((QUORUM, 0)))
    (partition,) = answer.topics[0].partitions
    (voter,) = partition.current_voters
    assert (answer.error_code, partition.error_code, partition.leader_id, voter.replica_id) == (
        NONE,
        NONE,
        1,
        1,
    )
    assert voter.log_end_offset == partition.high_watermark
    assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp == clock.wall_ms()
    assert partition.observers == []
    assert [(n.node_id, [(one.host, one.port) for one in n.listeners]) for n in answer.nodes] == [
        (1, [("127.0.0.1", 9092)])
    ]


@pytest.mark.parametrize("asked", [[(QUORUM, 1)], [("t", 0)], [("t", 0), (QUORUM, 0)]])
async def test_there_is_no_other_quorum(client: Client, asked: list[tuple[str, int]]) -> None:
    answer = await client.newest(55, quorum_of(*asked))
    codes = [(t.topic_name, p.partition_index, p.error_code) for t in answer.topics for p in t.partitions]
    assert (answer.error_code, codes) == (NONE, [(*one, UNKNOWN) for one in asked])


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with Brokers(tmp_path) as brokers:
        await brokers.create("t")
        yield brokers


def told_by(address: tuple[str, int]) -> Any:
    """What a client is told of the quorum by the broker at an address."""
    with Wire(address) as wire:
        return wire.call(55, quorum_of((QUORUM, 0)), 2)


async def test_every_broker_tells_how_far_the_quorum_is(two: Brokers) -> None:
    await until(lambda: two[2].roles.metadata_leader == 1)
    for number in (1, 2):
        answer = await asyncio.to_thread(told_by, ("127.0.0.1", two.ports[number]))
        (partition,) = answer.topics[0].partitions
        end = partition.high_watermark
        assert (partition.error_code, partition.leader_id) == (NONE, 1)
        assert partition.leader_epoch == two[1].metadata.serving  # type: ignore[union-attr]
        assert [(v.replica_id, v.log_end_offset) for v in partition.current_voters] == [(1, end), (2, end)]
        assert end > 0 and all(v.last_caught_up_timestamp > 0 for v in partition.current_voters)
        assert {node.node_id: node.listeners[0].port for node in answer.nodes} == two.ports
    # What a broker forwards is not forwarded again.
    answer = await ask(two, 2, 55, 2, quorum_of((QUORUM, 0)))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await two.stop(1)
    answer = await asyncio.to_thread(told_by, ("127.0.0.1", two.ports[2]))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- offsets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "first_version", "offset"), [(-1, 1, 3), (-2, 1, 1), (-4, 8, 1), (-5, 9, -1), (-6, 11, -1)]
)
async def test_all_of_a_log_is_local_and_nothing_is_tiered(
    client: Client, timestamp: int, first_version: int, offset: int
) -> None:
    await client.create("t")
    await client.produce("t", [b"a", b"b", b"c"])
    below = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])
    await client.newest(21, DeleteRecordsRequest([below]))
    request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, timestamp)])])
    for version in range(1, 12):
        (one,) = (await client.ask(2, version, request)).topics[0].partitions
        if version < first_version:
            assert (one.error_code, one.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1), version
        else:
            assert (one.error_code, one.timestamp, one.offset) == (NONE, -1, offset), version


async def test_a_time_that_has_no_meaning_is_refused(client: Client) -> None:
    await client.create("t")
    request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -7)])])
    (one,) = (await client.newest(2, request)).topics[0].partitions
    assert one.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_offsets_are_committed_and_fetched_by_topic_id(client: Client, broker: Broker) -> None:
    await client.create("t")
    await client.create("gone")
    known, gone = broker.topics.get("t").topic_id, broker.topics.get("gone").topic_id
    await broker.topics.delete("gone")
    ids = [known, gone, STRANGER, NIL]
    codes = [NONE, *[ErrorCode.UNKNOWN_TOPIC_ID] * 3]

    partition = offset_commit.OffsetCommitRequestPartition(0, 5)
    topics = [offset_commit.OffsetCommitRequestTopic("", one, [partition]) for one in ids]
    committed = await client.ask(8, 10, offset_commit.OffsetCommitRequest("g", topics=topics))
    assert [(t.topic_id, t.partitions[0].error_code) for t in committed.topics] == [
        *zip(ids, codes, strict=True)
    ]

    wanted = [offset_fetch.OffsetFetchRequestTopics("", one, [0]) for one in ids]
    for asked, found in (
        (wanted, [*zip(ids, codes, [5, -1, -1, -1], strict=True)]),
        (None, [(known, NONE, 5)]),
    ):
        group = offset_fetch.OffsetFetchRequestGroup("g", topics=asked)
        fetched = await client.ask(9, 10, offset_fetch.OffsetFetchRequest(groups=[group]))
        assert [
            (t.topic_id, p.error_code, p.committed_offset)
            for t in fetched.groups[0].topics
            for p in t.partitions
        ] == found
