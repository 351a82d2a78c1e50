"""The cluster in memory, over which gateways are tested, does what the brokers of Kafka do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import ErrorCode
from core.protocol.messages.api_versions import ApiVersionsRequest
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.protocol.messages.find_coordinator import FindCoordinatorRequest
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.metadata import MetadataRequest
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.upstream.asking import Asking, batch
from tests.upstream.cluster import Cluster
from tests.upstream.faults import FETCH, PRODUCE
from tests.virtual_time import LoopClock, run

TOPIC = "orders"


def with_cluster(tmp_path: Path, scenario: Callable[[Cluster], Awaitable[None]], **how: Any) -> None:
    async def whole() -> None:
        async with Cluster.open(tmp_path / "data", LoopClock(), **how) as cluster:
            await cluster.broker.topics.create(TOPIC, partitions=3)
            await scenario(cluster)

    run(whole())


def writes(partition: int, *values: bytes) -> ProduceRequest:
    data = PartitionProduceData(partition, memoryview(batch(*values)))
    return ProduceRequest(None, -1, 30_000, [TopicProduceData(TOPIC, partition_data=[data])])


def reads(partition: int, offset: int, *, epoch: int = -1, wait_ms: int = 0) -> FetchRequest:
    one = FetchPartition(partition, epoch, offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[FetchTopic(TOPIC, partitions=[one])])


def only(response: Any) -> Any:
    (topic,) = response.responses
    (one,) = getattr(topic, "partition_responses", None) or topic.partitions
    return one


def test_each_node_answers_for_what_it_leads(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        first, second = Asking(cluster, 1), Asking(cluster, 2)
        seen = await first.ask(3, MetadataRequest(topics=None))
        assert [(b.node_id, b.host) for b in seen.brokers] == [
            (1, "broker-1"),
            (2, "broker-2"),
            (3, "broker-3"),
        ]
        assert [p.leader_id for p in seen.topics[0].partitions] == [1, 2, 3]
        assert only(await first.ask(PRODUCE, writes(0, b"a"), 12)).base_offset == 0
        refused = only(await second.ask(PRODUCE, writes(0, b"b"), 12))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (refused.current_leader.leader_id, refused.base_offset) == (1, -1)
        cluster.lead(TOPIC, 0, 2)
        assert only(await second.ask(PRODUCE, writes(0, b"b"), 12)).base_offset == 1
        assert only(await second.ask(FETCH, reads(0, 0), 12)).high_watermark == 2
        assert (
            only(await second.ask(FETCH, reads(0, 0, epoch=0), 12)).error_code
            == ErrorCode.FENCED_LEADER_EPOCH
        )

    with_cluster(tmp_path, scenario, nodes=3, hints=True)


def test_a_fetch_that_waits_is_answered_when_the_leader_moves(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = Asking(cluster, 1)
        asked = asyncio.ensure_future(first.ask(FETCH, reads(0, 0, wait_ms=60_000), 12))
        await asyncio.sleep(1)
        assert not asked.done()
        cluster.lead(TOPIC, 0, 2)
        assert only(await asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert asyncio.get_running_loop().time() < 2

    with_cluster(tmp_path, scenario, nodes=2)


def test_groups_have_their_coordinator(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        second = Asking(cluster, 2)
        found = await second.ask(10, FindCoordinatorRequest(coordinator_keys=["g"]))
        assert (found.coordinators[0].node_id, found.coordinators[0].host) == (1, "broker-1")
        refused = await second.ask(12, HeartbeatRequest("g", 1, "m"))
        assert refused.error_code == ErrorCode.NOT_COORDINATOR
        cluster.coordinate("g", 2)
        assert (await second.ask(12, HeartbeatRequest("g", 1, "m"))).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    with_cluster(tmp_path, scenario, nodes=2)


def test_faults_come_before_and_after_a_request(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.faults.add(PRODUCE, close_before=True)
        with pytest.raises(ConnectionResetError):
            await Asking(cluster, 1).ask(PRODUCE, writes(0, b"a"), 12)
        assert cluster.broker.partitions.bounds(TOPIC, [0])[0].log_end_offset == 0
        cluster.faults.add(PRODUCE, close_after=True)
        with pytest.raises(ConnectionResetError):
            await Asking(cluster, 1).ask(PRODUCE, writes(0, b"a"), 12)
        assert cluster.broker.partitions.bounds(TOPIC, [0])[0].log_end_offset == 1
        asking = Asking(cluster, 1)
        cluster.faults.add(PRODUCE, error=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, carried_out=True)
        assert only(await asking.ask(PRODUCE, writes(0, b"a"), 12)).error_code == 20
        cluster.faults.add(PRODUCE, throttle_ms=500)
        answer = await asking.ask(PRODUCE, writes(0, b"a"), 12)
        assert (answer.throttle_time_ms, only(answer).base_offset) == (500, 2)

    with_cluster(tmp_path, scenario)


def test_older_brokers_announce_fewer_versions(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.max_versions |= {18: 0, 0: 7, 1: 11, 68: -1}
        asking = Asking(cluster, 1)
        refused = await asking.ask(18, ApiVersionsRequest("test", "1"), 0)
        served = {one.api_key: one.max_version for one in refused.api_keys}
        assert (served[0], served[1], 68 in served) == (7, 11, False)

    with_cluster(tmp_path, scenario)


def test_a_node_that_stops_breaks_its_connections_and_another_leads(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        first = Asking(cluster, 1)
        await first.ask(3, MetadataRequest(topics=None))
        cluster.stop(1)
        with pytest.raises(ConnectionResetError):
            await first.ask(3, MetadataRequest(topics=None))
        with pytest.raises(ConnectionRefusedError):
            Asking(cluster, 1)
        assert cluster.leader(TOPIC, 0) == (2, 1)
        assert only(await Asking(cluster, 2).ask(PRODUCE, writes(0, b"a"), 12)).base_offset == 0

    with_cluster(tmp_path, scenario, nodes=2)
