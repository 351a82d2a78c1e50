"""ElectLeaders, and what Metadata says of leaders, over sockets between two brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from core.config import Peer
from core.errors import ErrorCode
from core.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from core.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.find_coordinator import FindCoordinatorRequest
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.replication.peer import PeerConnection
from core.types import TopicPartition
from tests.core.replication.brokers import Brokers, until

TP = TopicPartition("t", 0)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with Brokers(tmp_path) as brokers:
        await brokers.create("t")
        yield brokers


async def ask(two: Brokers, number: int, key: int, version: int, message: Any) -> Any:
    """One request to one broker."""
    connection = PeerConnection(Peer(number, "127.0.0.1", two.ports[number]), two.config(number))
    try:
        return await connection.request(key, version, message, wait_ms=5_000)
    finally:
        await connection.wait_closed()


def election(kind: int, *partitions: int) -> ElectLeadersRequest:
    return ElectLeadersRequest(kind, [TopicPartitions("t", list(partitions))])


async def elect(two: Brokers, number: int, request: ElectLeadersRequest) -> list[int]:
    answer = await ask(two, number, 43, 2, request)
    return [one.error_code for topic in answer.replica_election_results for one in topic.partition_result]


async def test_the_broker_that_is_asked_leads(two: Brokers) -> None:
    assert await elect(two, 1, election(0, 0)) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert await elect(two, 2, election(0, 0)) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert await elect(two, 2, election(1, 0, 7)) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert two[2].partitions.info(TP).leads
    assert await elect(two, 1, ElectLeadersRequest(0, None)) == [0], "the other one is led already"
    assert (await ask(two, 1, 43, 2, election(7, 0))).error_code == ErrorCode.INVALID_REQUEST


async def test_metadata_name_the_brokers_and_follow_a_promotion(two: Brokers) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    await two[2].roles.set(TP, "leader")
    await two.in_sync(TP)
    await until(lambda: two[1].partitions.info(TP).leader == 2)
    for number in (1, 2):
        answer = await ask(two, number, 3, 12, request)
        assert [(b.node_id, b.port) for b in answer.brokers] == sorted(two.ports.items())
        (partition,) = answer.topics[0].partitions
        assert (partition.leader_id, partition.replica_nodes, answer.controller_id) == (2, [1, 2], 1)
        assert partition.leader_epoch == two[2].partitions.info(TP).leader_epoch
        assert 2 in partition.isr_nodes
        described = await ask(two, number, 75, 0, DescribeTopicPartitionsRequest([TopicRequest("t")]))
        (one,) = described.topics[0].partitions
        assert (one.leader_id, one.replica_nodes) == (2, [1, 2])
        found = await ask(two, number, 10, 4, FindCoordinatorRequest(coordinator_keys=["g"]))
        assert [(c.node_id, c.port) for c in found.coordinators] == [(1, two.ports[1])]


async def test_epochs_that_are_over_or_to_come_are_refused(two: Brokers) -> None:
    info = await two[2].roles.set(TP, "leader")
    await two.in_sync(TP)
    topic_id = two[2].topics.get("t").topic_id
    for epoch, code in (
        (info.leader_epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (info.leader_epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (info.leader_epoch, ErrorCode.NONE),
    ):
        asked = FetchPartition(0, epoch, 0, partition_max_bytes=1000)
        request = FetchRequest(topics=[FetchTopic("", topic_id, [asked])], max_bytes=1000)
        answer = await ask(two, 2, 1, 13, request)
        assert answer.responses[0].partitions[0].error_code == code
    answer = await ask(
        two, 1, 1, 13, FetchRequest(topics=[FetchTopic("", topic_id, [FetchPartition(0)])], max_bytes=1000)
    )
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_that_fetches_with_a_newer_epoch_tells_a_stale_leader(two: Brokers) -> None:
    topic_id = two[1].topics.get("t").topic_id
    epoch = two[1].partitions.info(TP).leader_epoch
    await two.stop(2)
    asked = FetchPartition(0, epoch + 1, 0, partition_max_bytes=1000)
    request = FetchRequest(replica_id=2, topics=[FetchTopic("", topic_id, [asked])], max_bytes=1000)
    answer = await ask(two, 1, 1, 13, request)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not two[1].partitions.info(TP).leads


@pytest.mark.parametrize("replica", [0, 1, 9])
async def test_a_broker_that_is_no_peer_is_no_follower(two: Brokers, replica: int) -> None:
    answer = await ask(two, 1, 1, 13, FetchRequest(replica_id=replica))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    await asyncio.sleep(0)
