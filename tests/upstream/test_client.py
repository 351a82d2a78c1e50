"""The client of a cluster: brokers that move, older brokers, coordinators that change, sessions that end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.client.link import Link
from core.client.settings import Login
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.types import TopicPartition
from tests.upstream.cluster import Cluster
from tests.upstream.faults import FIND_COORDINATOR, HEARTBEAT, METADATA, OFFSET_COMMIT
from tests.upstream.running import client_of, now, with_cluster

TOPIC = "orders"


# --- case 32 -----------------------------------------------------------------------------------------------


def test_every_broker_has_a_new_address_and_one_refresh_finds_them(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client_of(cluster, bootstrap=(1,)) as client:
            assert sorted(b.address.host for b in client.brokers.values()) == ["broker-1", "broker-2"]
            # One after the other, as in a rolling replacement: the client learns of each from the other.
            cluster.move_to(2, "fresh-2")
            await client.refresh()
            cluster.move_to(1, "fresh-1")
            began = now()
            await client.refresh()
            assert sorted(b.address.host for b in client.brokers.values()) == ["fresh-1", "fresh-2"]
            assert now() - began < 2
            assert (
                await client.ask(1, HeartbeatRequest("g", 1, "m"))
            ).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    with_cluster(tmp_path, scenario, nodes=2)


def test_when_all_known_brokers_are_replaced_the_bootstrap_addresses_are_asked_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client_of(cluster, bootstrap=(1,)) as client:
            # All at once: only the name that the client began with leads to the cluster.
            cluster.move_to(1, "elsewhere-1")
            cluster.move_to(2, "elsewhere-2")
            cluster.alias("broker-1", 2)
            await client.refresh()
            hosts = sorted(b.address.host for b in client.brokers.values())
            assert hosts == ["elsewhere-1", "elsewhere-2"]

    with_cluster(tmp_path, scenario, nodes=2)


def test_a_cluster_that_cannot_be_reached_is_said_in_time(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client_of(cluster, request_timeout_ms=5_000) as client:
            cluster.stop(1)
            began = now()
            with pytest.raises(BrokerError) as refused:
                await client.refresh()
            assert refused.value.code.retriable and 4 < now() - began < 20
            cluster.start(1)
            await client.refresh()

    with_cluster(tmp_path, scenario)


def test_many_callers_share_one_request_for_metadata(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            cluster.asked.clear()
            await asyncio.gather(*(client.refresh() for _ in range(200)))
            assert cluster.asked[METADATA] <= 2

    with_cluster(tmp_path, scenario)


# --- case 33 -----------------------------------------------------------------------------------------------


def test_a_broker_that_knows_version_0_of_api_versions_alone(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.max_versions |= {18: 0, 0: 7, 1: 11, 3: 8, 10: 3, 68: -1}
        await cluster.broker.topics.create(TOPIC, partitions=2)
        async with client_of(cluster) as client:
            await client.refresh()
            assert client.topics[TOPIC].partition(1) is not None
            assert cluster.versions[METADATA] == 8
            assert await client.find_coordinator("g") == 1
            assert cluster.versions[FIND_COORDINATOR] == 3

    with_cluster(tmp_path, scenario)


def test_a_broker_that_comes_back_older_is_asked_again_for_its_versions(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            await client.refresh()
            assert cluster.versions[METADATA] == 13
            cluster.max_versions |= {18: 0, 3: 9}
            cluster.disconnect()
            await client.refresh()
            assert cluster.versions[METADATA] == 9

    with_cluster(tmp_path, scenario)


# --- case 16 -----------------------------------------------------------------------------------------------


def commit(offset: int) -> OffsetCommitRequest:
    one = OffsetCommitRequestPartition(0, offset)
    return OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic(TOPIC, partitions=[one])])


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_commit_waits_for_its_coordinator(tmp_path: Path, code: ErrorCode) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=1)
        async with client_of(cluster) as client:
            cluster.faults.add(OFFSET_COMMIT, error=code, times=3)
            cluster.faults.add(FIND_COORDINATOR, error=ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2)
            answer = await client.ask_coordinator("g", commit(7))
            assert answer.topics[0].partitions[0].error_code == 0
            committed = cluster.broker.groups.committed("g", TOPIC, 0)
            assert committed is not None and committed.offset == 7
            assert cluster.asked[OFFSET_COMMIT] == 4

    with_cluster(tmp_path, scenario)


def test_the_coordinator_moves_and_is_found_again(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            first = await client.ask_coordinator("g", HeartbeatRequest("g", 1, "m"))
            cluster.coordinate("g", 2)
            second = await client.ask_coordinator("g", HeartbeatRequest("g", 1, "m"))
            cluster.stop(2)
            third = await client.ask_coordinator("g", HeartbeatRequest("g", 1, "m"))
            codes = [one.error_code for one in (first, second, third)]
            assert codes == [ErrorCode.UNKNOWN_MEMBER_ID] * 3
            assert cluster.asked[HEARTBEAT] >= 4

    with_cluster(tmp_path, scenario, nodes=2)


# --- case 28 -----------------------------------------------------------------------------------------------


def test_a_session_is_renewed_before_its_lifetime_ends(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.broker.users.create("gateway", "a right password")
        passwords = ["a right password"]

        async def secret() -> str:
            return passwords[0]

        login = Login("SCRAM-SHA-256", "gateway", secret)
        async with client_of(cluster, login=login) as client:
            links: set[Link] = set()
            for _ in range(30):
                await client.refresh()
                links.add(await client.link(1))
                await asyncio.sleep(1)
            # Over 30 s of sessions of 5 s, nothing failed and the connection is still the first.
            assert len(links) == 1

    settings = {"max_reauth_ms": 5_000}
    with_cluster(tmp_path, scenario, options=(("auth", "scram-sha-256"),), settings=settings)


def test_a_wrong_password_is_said_as_that(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.broker.users.create("gateway", "a right password")

        async def secret() -> str:
            return "another"

        with pytest.raises(BrokerError) as refused:
            async with client_of(cluster, login=Login("PLAIN", "gateway", secret)):
                pass
        assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED

    with_cluster(tmp_path, scenario, options=(("auth", "plain"),))


# --- leaders -----------------------------------------------------------------------------------------------


def test_the_leader_that_is_at_hand_follows_the_cluster(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.broker.topics.create(TOPIC, partitions=2)
        async with client_of(cluster) as client:
            await client.refresh()
            assert client.leader(TopicPartition(TOPIC, 1)) == 2
            cluster.stop(2)
            await client.refresh()
            assert client.leader(TopicPartition(TOPIC, 1)) == 1

    with_cluster(tmp_path, scenario, nodes=2)
