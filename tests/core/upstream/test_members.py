"""Members over HTTP in a group of the cluster, together with members that talk to the cluster themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.groups.hosted import offers
from core.types import TopicPartition
from core.upstream.remote_broker import RemoteBroker
from core.vocabulary.groups import Joining, JoinReply, JoinRequest, SyncRequest
from core.vocabulary.member_metadata import assigned_partitions
from tests.core.upstream.gateways import open_gateway, with_gateway
from tests.upstream.cluster import Cluster
from tests.upstream.faults import HEARTBEAT, JOIN_GROUP, SYNC_GROUP

SESSION_MS, REBALANCE_MS = 10_000, 20_000


def request(member_id: str = "", instance: str | None = None, client_id: str = "curl") -> JoinRequest:
    return JoinRequest(
        member_id, "consumer", (), SESSION_MS, REBALANCE_MS, client_id, group_instance_id=instance
    )


async def join(gateway: RemoteBroker, member_id: str = "", **how: str) -> JoinReply:
    """Join to read topic t, as a script does: ask again until the round is over."""
    while True:
        joining: Joining = await gateway.groups.members.join_topics(
            "g", request(member_id, **how), ["t"], wait_ms=1_000
        )
        member_id = joining.member_id
        if joining.reply is not None:
            return joining.reply


async def sync(gateway: RemoteBroker, reply: JoinReply) -> set[int]:
    found = await gateway.groups.members.sync(
        "g", SyncRequest(reply.member_id, reply.generation), wait_ms=5_000
    )
    assert found is not None
    return {tp.partition for tp in assigned_partitions(found.assignment)}


class Native:
    """A member that talks to the cluster's coordinator itself, as a Kafka client does."""

    def __init__(self, cluster: Cluster) -> None:
        self.groups = cluster.broker.groups
        self.member_id, self.generation = "", -1
        self.owned: set[int] = set()
        self.rounds = 0

    async def join(self) -> None:
        while True:
            joined = await self.groups.join(
                "g", JoinRequest(self.member_id, "consumer", offers(["t"]), SESSION_MS, REBALANCE_MS, "java")
            )
            self.member_id = joined.member_id
            if joined.error:
                assert joined.error is ErrorCode.REBALANCE_IN_PROGRESS
                continue
            if joined.leader_id == joined.member_id:
                await self.groups.hosted.lead("g", joined.member_id, joined.generation)
            synced = await self.groups.sync("g", SyncRequest(joined.member_id, joined.generation))
            if not synced.error:
                break
        self.generation = joined.generation
        self.owned = {tp.partition for tp in assigned_partitions(synced.assignment)}
        self.rounds += 1

    async def live(self) -> None:
        """Send heartbeats, and rejoin when they say so."""
        while True:
            error = self.groups.heartbeat("g", self.member_id, self.generation)
            if error:
                await self.join()
            await asyncio.sleep(1.0)


def test_a_script_joins_leads_shares_with_a_kafka_client_and_leaves(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=4)
        members = gateway.groups.members
        alone = await join(gateway)
        assert alone.leader_id == alone.member_id and alone.member_id.startswith("curl-")
        assert await sync(gateway, alone) == {0, 1, 2, 3}
        # Kafka refuses newer versions without the protocol's name, which the script has not given.
        assert cluster.versions[SYNC_GROUP] == 4
        await members.heartbeat("g", alone.member_id, alone.generation)

        native = Native(cluster)
        joining = asyncio.create_task(native.join())
        await asyncio.sleep(0.1)
        with pytest.raises(BrokerError) as error:
            await members.heartbeat("g", alone.member_id, alone.generation)
        assert error.value.code is ErrorCode.REBALANCE_IN_PROGRESS
        again = await join(gateway, alone.member_id)
        assert again.member_id == alone.member_id and again.generation == alone.generation + 1
        await joining
        mine = await sync(gateway, again)
        assert mine | native.owned == {0, 1, 2, 3} and not mine & native.owned

        await gateway.look_at_group("g")
        view = gateway.groups.describe("g")
        assert view is not None and view.state == "Stable"
        assert sorted(member.client_id for member in view.members) == ["curl", "java"]
        assert gateway.groups.positions.lag("g")[0].member_id in (again.member_id, native.member_id)
        await members.leave("g", again.member_id)
        with pytest.raises(BrokerError) as error:
            await members.heartbeat("g", again.member_id, again.generation)
        assert error.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        with pytest.raises(BrokerError) as error:
            await gateway.groups.delete("g")
        assert error.value.code is ErrorCode.NON_EMPTY_GROUP

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_join_that_waits_continues_at_another_gateway(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=2)
        other = await open_gateway(cluster, tmp_path / "other")
        native = Native(cluster)
        await native.join()
        first = await gateway.groups.members.join_topics("g", request(), ["t"], wait_ms=100)
        assert first.reply is None and first.member_id
        # The round waits for the native member. Meanwhile the load balancer sends the client to another gateway.
        second = await other.groups.members.join_topics("g", request(first.member_id), ["t"], wait_ms=100)
        assert second == Joining(first.member_id, None)
        await native.join()
        done = await other.groups.members.join_topics("g", request(first.member_id), ["t"], wait_ms=1_000)
        assert done.reply is not None and done.reply.member_id == first.member_id
        found = await other.groups.members.sync(
            "g", SyncRequest(first.member_id, done.reply.generation), wait_ms=5_000
        )
        assert found is not None
        assert assigned_partitions(found.assignment) | {
            TopicPartition("t", p) for p in native.owned
        } == {TopicPartition("t", 0), TopicPartition("t", 1)}  # fmt: skip
        await other.close()

    with_gateway(tmp_path, scenario)


def test_a_static_member_keeps_its_partitions_over_a_new_join(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=2)
        first = await join(gateway, instance="pod-1")
        assert await sync(gateway, first) == {0, 1}
        again = await join(gateway, instance="pod-1")
        assert again.member_id != first.member_id and again.generation == first.generation
        with pytest.raises(BrokerError) as error:
            await gateway.groups.members.heartbeat("g", first.member_id, first.generation, "pod-1")
        assert error.value.code is ErrorCode.FENCED_INSTANCE_ID

    with_gateway(tmp_path, scenario)


def test_lost_answers_to_join_and_heartbeat_change_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=2)
        lost = cluster.faults.add(JOIN_GROUP, close_after=True, when=lambda asked: bool(asked.member_id))
        beat = cluster.faults.add(HEARTBEAT, close_after=True)
        reply = await join(gateway)
        assert lost.used == 1
        assert await sync(gateway, reply) == {0, 1}
        await gateway.groups.members.heartbeat("g", reply.member_id, reply.generation)
        assert beat.used == 1
        view = cluster.broker.groups.describe("g")
        assert view is not None and [m.member_id for m in view.members] == [reply.member_id]

    with_gateway(tmp_path, scenario)
