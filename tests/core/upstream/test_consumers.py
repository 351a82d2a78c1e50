"""Managed consumers of a gateway: members of the cluster's groups that survive their process."""

from __future__ import annotations

import asyncio
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord
from core.types import TopicPartition
from core.upstream.remote_broker import RemoteBroker
from core.vocabulary.consumers import (
    Batch,
    ConsumerInfo,
    ConsumerOptions,
    PartitionCommit,
    Seek,
    Subscription,
)
from core.vocabulary.groups import Commit, CommitRequest, Target
from tests.core.upstream.gateways import open_gateway, with_gateway
from tests.core.upstream.test_members import Native
from tests.upstream.cluster import Cluster
from tests.upstream.faults import FETCH, HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT, OFFSET_FETCH, SYNC_GROUP
from tests.virtual_time import START_MS

G = "g"


async def produce(cluster: Cluster, *values: int, partition: int = 0, topic: str = "t") -> None:
    records = [NewRecord(key=None, value=b"%d" % value, timestamp=START_MS + value) for value in values]
    await cluster.broker.records.produce(topic, records, partition=partition)


async def create(gateway: RemoteBroker, name: str = "c", *topics: str, **options: Any) -> ConsumerInfo:
    return await gateway.consumers.create(
        G, name, subscription=Subscription(topics or ("t",)), options=ConsumerOptions(**options)
    )


async def poll(gateway: RemoteBroker, name: str = "c", **how: Any) -> Batch:
    limits: dict[str, Any] = {"limit": 100, "max_bytes": 1_000_000, "wait_ms": 5_000} | how
    return await gateway.consumers.poll(G, name, **limits)


async def drained(gateway: RemoteBroker, name: str = "c", ack: str | None = None) -> list[int]:
    """Poll and acknowledge until there is nothing left."""
    found: list[int] = []
    while True:
        batch = await poll(gateway, name, ack=ack, wait_ms=1_000)
        ack = batch.token
        if ack is None and batch.state == "stable":
            return found
        found += values_of(batch)


def values_of(batch: Batch) -> list[int]:
    return sorted(int(record.value or b"-1") for _, records in batch.records for record in records)


def info(gateway: RemoteBroker, name: str = "c") -> ConsumerInfo:
    (found,) = [one for one in gateway.consumers.of_group(G) if one.name == name]
    return found


def committed(cluster: Cluster) -> dict[int, int]:
    return {p: c.offset for _, p, c in cluster.broker.groups.all_committed(G)}


def members(cluster: Cluster) -> set[str]:
    view = cluster.broker.groups.describe(G)
    return set() if view is None else {one.member_id for one in view.members}


async def killed(gateway: RemoteBroker) -> None:
    """End a gateway as kill -9 does: nothing is said to the cluster, nothing more is stored."""
    gateway.cluster.links.close()
    await gateway.close()


def test_batches_are_delivered_acknowledged_and_committed_in_the_cluster(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=2)
        await produce(cluster, 1, 2, 3)
        await produce(cluster, 4, 5, partition=1)
        await create(gateway)
        first = await poll(gateway, limit=3)
        assert len(values_of(first)) == 3 and not first.redelivered
        assert values_of(await poll(gateway)) == values_of(first)
        assert committed(cluster) == {}
        second = await poll(gateway, ack=first.token)
        assert values_of(first) + values_of(second) == [1, 2, 3, 4, 5]
        done = await gateway.consumers.ack(G, "c", second.token or "")
        assert [one.partition for one in done.committed] == [1]
        assert committed(cluster) == {0: 3, 1: 2}
        assert info(gateway).member_id in members(cluster)

        waiting = asyncio.create_task(poll(gateway, wait_ms=60_000))
        await asyncio.sleep(20.0)
        await produce(cluster, 6, partition=1)
        assert values_of(await waiting) == [6]
        await gateway.consumers.delete(G, "c")
        assert members(cluster) == set()

    with_gateway(tmp_path, scenario, nodes=3)


@pytest.mark.parametrize("end", [RemoteBroker.close, killed])
def test_a_gateway_that_is_opened_again_continues_without_a_rebalance(tmp_path: Path, end: Any) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=4)
        for partition in range(4):
            await produce(cluster, *range(partition * 10, partition * 10 + 5), partition=partition)
        native = Native(cluster)
        await create(gateway)
        await poll(gateway, wait_ms=0)
        await native.join()
        living = asyncio.create_task(native.live())
        await asyncio.sleep(10.0)
        before = await poll(gateway)
        known, rounds, joins = info(gateway), native.rounds, cluster.asked[JOIN_GROUP]
        assert len(known.partitions) == 2
        await end(gateway)
        await asyncio.sleep(20.0)

        after = await open_gateway(cluster, tmp_path / "gateway")
        await asyncio.sleep(1.0)
        resumed = info(after)
        assert resumed.state == "stable"
        assert (resumed.member_id, resumed.generation) == (known.member_id, known.generation)
        assert [one[:3] for one in resumed.partitions] == [one[:3] for one in known.partitions]
        again = await poll(after)
        assert again.redelivered and again.token == before.token and values_of(again) == values_of(before)
        left = await drained(after, ack=again.token)
        assert sorted({*values_of(before), *left}) == sorted(values_of(before) + left)
        await asyncio.sleep(300.0)
        assert cluster.asked[JOIN_GROUP] == joins and native.rounds == rounds
        assert members(cluster) == {known.member_id, native.member_id}
        living.cancel()
        await after.close()

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_gateway_that_was_away_for_a_session_joins_as_new_and_reads_from_the_committed_offset(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t")
        await produce(cluster, *range(10))
        await create(gateway, session_timeout_ms=10_000, ttl_ms=3_600_000)
        batch = await poll(gateway, limit=6)
        await gateway.consumers.ack(G, "c", batch.token or "")
        assert values_of(await poll(gateway)) == [6, 7, 8, 9]
        known = info(gateway)
        await killed(gateway)
        await asyncio.sleep(60.0)
        assert members(cluster) == set()
        # An administrator resets the group meanwhile: the group's commit counts.
        await cluster.broker.groups.positions.reset(G, Target(offset=2))
        after = await open_gateway(cluster, tmp_path / "gateway")
        assert values_of(await poll(after)) == [2, 3, 4, 5, 6, 7, 8, 9]
        assert info(after).member_id != known.member_id
        await after.close()

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_commit_whose_answer_is_lost_is_repeated_and_one_before_a_crash_counts(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t")
        await produce(cluster, *range(6))
        await create(gateway)
        batch = await poll(gateway, limit=2)
        lost = cluster.faults.add(OFFSET_COMMIT, close_after=True)
        await gateway.consumers.ack(G, "c", batch.token or "")
        assert lost.used == 1 and committed(cluster) == {0: 2}

        second = await poll(gateway, limit=2)
        # The commit of an acknowledgement arrives, and the gateway dies before it has stored that.
        known = info(gateway)
        request = CommitRequest([Commit("t", 0, 4)], known.member_id, known.generation)
        assert await cluster.broker.groups.commit(G, request) == [ErrorCode.NONE]
        await killed(gateway)
        after = await open_gateway(cluster, tmp_path / "gateway")
        await asyncio.sleep(1.0)
        assert (await after.consumers.ack(G, "c", second.token or "")).committed == ()
        assert values_of(await poll(after)) == [4, 5]
        await after.close()

    with_gateway(tmp_path, scenario, nodes=3)


def test_an_acknowledgement_waits_for_a_coordinator_that_moves(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t")
        await produce(cluster, 1, 2)
        cluster.coordinate(G, 1)
        await create(gateway)
        batch = await poll(gateway)
        cluster.coordinate(G, 2)
        cluster.faults.add(OFFSET_COMMIT, times=2, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        cluster.faults.add(OFFSET_COMMIT, times=1, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await gateway.consumers.ack(G, "c", batch.token or "")
        assert committed(cluster) == {0: 2}
        generation = info(gateway).generation
        await asyncio.sleep(120.0)
        assert info(gateway).generation == generation and members(cluster) == {info(gateway).member_id}

    with_gateway(tmp_path, scenario, nodes=2)


def test_a_group_is_shared_with_a_kafka_client_that_comes_and_leaves(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=4)
        await create(gateway)
        await poll(gateway, wait_ms=0)
        await asyncio.sleep(5.0)
        assert len(info(gateway).partitions) == 4
        native = Native(cluster)
        await native.join()
        living = asyncio.create_task(native.live())
        await asyncio.sleep(10.0)
        mine = {one.partition for one in info(gateway).partitions}
        assert len(mine) == 2 and not mine & native.owned and mine | native.owned == {0, 1, 2, 3}
        for partition in range(4):
            await produce(cluster, partition, partition=partition)
        assert await drained(gateway) == sorted(mine)
        living.cancel()
        await cluster.broker.groups.members.leave(G, native.member_id)
        await asyncio.sleep(10.0)
        assert len(info(gateway).partitions) == 4
        assert await drained(gateway) == sorted(native.owned)

    with_gateway(tmp_path, scenario, nodes=3)


def test_consumers_of_three_gateways_share_a_group(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=6)
        others = [await open_gateway(cluster, tmp_path / f"gateway-{n}") for n in range(2)]
        gateways = [gateway, *others]
        for number, one in enumerate(gateways):
            await create(one, f"c{number}")
        await asyncio.sleep(20.0)
        for partition in range(6):
            await produce(cluster, partition, partition=partition)
        found = [await drained(one, f"c{number}") for number, one in enumerate(gateways)]
        assert [len(one) for one in found] == [2, 2, 2] and sorted(chain(*found)) == list(range(6))
        # One gateway dies. The others notice nothing before its session ends; then they read its partitions.
        await killed(others.pop())
        await asyncio.sleep(120.0)
        for partition in range(6):
            await produce(cluster, 10 + partition, partition=partition)
        left = [await drained(gateway, "c0"), await drained(others[0], "c1")]
        assert sorted(chain(*left)) == list(range(10, 16))
        await others[0].close()

    with_gateway(tmp_path, scenario, nodes=3)


def test_partitions_that_are_added_are_assigned_also_if_the_gateway_is_down(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=1)
        await create(gateway)
        await asyncio.sleep(5.0)
        assert len(info(gateway).partitions) == 1
        await cluster.broker.topics.create_partitions("t", 2)
        await asyncio.sleep(90.0)
        assert len(info(gateway).partitions) == 2
        known = info(gateway)
        await killed(gateway)
        await cluster.broker.topics.create_partitions("t", 3)
        after = await open_gateway(cluster, tmp_path / "gateway")
        await asyncio.sleep(5.0)
        assert len(info(after).partitions) == 3 and info(after).member_id == known.member_id
        await after.close()

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_pattern_reads_topics_that_are_created_later(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t-1")
        await gateway.consumers.create(G, "c", subscription=Subscription(pattern="t-.*"))
        await asyncio.sleep(5.0)
        assert gateway.consumers.subscribed_topics(G, "c") == ("t-1",)
        await cluster.broker.topics.create("t-2")
        await asyncio.sleep(90.0)
        await produce(cluster, 7, topic="t-2")
        assert await drained(gateway) == [7]

    with_gateway(tmp_path, scenario, nodes=2)


def test_another_client_takes_the_instance_id_and_the_consumer_is_fenced(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t")
        await create(gateway, group_instance_id="pod-1")
        await asyncio.sleep(5.0)
        assert info(gateway).state == "stable"
        other = await open_gateway(cluster, tmp_path / "other")
        await create(other, "d", group_instance_id="pod-1")
        await asyncio.sleep(10.0)
        assert (info(gateway).state, info(other, "d").state) == ("fenced", "stable")
        with pytest.raises(BrokerError) as error:
            await poll(gateway)
        assert error.value.code is ErrorCode.FENCED_INSTANCE_ID
        await other.close()

    with_gateway(tmp_path, scenario)


def test_where_a_consumer_begins_and_where_it_is_moved(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=2)
        await produce(cluster, *range(10))
        for name, start, first in (("e", "earliest", 0), ("l", "latest", None), ("t", START_MS + 4, 4)):
            await gateway.consumers.create(
                name, "c", subscription=Subscription(("t",)), options=ConsumerOptions(start=start)
            )
            batch = await gateway.consumers.poll(name, "c", limit=100, max_bytes=1_000_000, wait_ms=1_000)
            assert values_of(batch)[:1] == ([] if first is None else [first]), name
        moved = gateway.consumers.seek("e", "c", [Seek("t", 0, 7)])
        await moved
        batch = await gateway.consumers.poll("e", "c", limit=100, max_bytes=1_000_000, wait_ms=1_000)
        assert values_of(batch) == [7, 8, 9]
        await gateway.consumers.seek("e", "c", [Seek("t", 0, time_ms=START_MS + 2)])
        batch = await gateway.consumers.poll("e", "c", limit=2, max_bytes=1_000_000, wait_ms=1_000)
        assert values_of(batch) == [2, 3]
        await gateway.consumers.seek_everywhere("l", "c", "earliest")
        batch = await gateway.consumers.poll("l", "c", limit=2, max_bytes=1_000_000, wait_ms=1_000)
        assert values_of(batch) == [0, 1]
        with pytest.raises(BrokerError) as error:
            await gateway.consumers.seek("e", "c", [Seek("t", 0, 99)])
        assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    with_gateway(tmp_path, scenario, nodes=2)


def test_polls_that_advance_and_partitions_of_the_consumers_own_choice(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=2)
        await produce(cluster, *range(6))
        await gateway.consumers.create(G, "c")
        await gateway.consumers.assign(G, "c", [TopicPartition("t", 0)])
        assert values_of(await poll(gateway, limit=2, advance=True)) == [0, 1]
        assert values_of(await poll(gateway, limit=2, advance=True)) == [2, 3]
        assert await gateway.consumers.commit(G, "c") == [PartitionCommit("t", 0, 4)]
        assert committed(cluster) == {0: 4}
        await gateway.look_at_group(G)
        found = gateway.consumers.committed(G, "c", [TopicPartition("t", 0), TopicPartition("t", 1)])
        assert [one and one.offset for one in found] == [4, None]
        await gateway.close()
        after = await open_gateway(cluster, tmp_path / "gateway")
        assert values_of(await poll(after, limit=9, advance=True)) == [4, 5]
        await after.close()

    with_gateway(tmp_path, scenario, nodes=2)


def test_auto_commit_commits_what_was_delivered(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t")
        await produce(cluster, *range(6))
        await create(gateway, auto_commit=True, auto_commit_interval_ms=1_000)
        assert values_of(await poll(gateway, limit=4, advance=True)) == [0, 1, 2, 3]
        await asyncio.sleep(2.0)
        assert values_of(await poll(gateway, advance=True)) == [4, 5]
        assert committed(cluster) == {0: 4}
        await gateway.consumers.delete(G, "c")
        assert committed(cluster) == {0: 6}

    with_gateway(tmp_path, scenario)


def test_leaders_that_move_and_requests_that_are_lost_lose_and_repeat_no_record(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t", partitions=3)
        await create(gateway)
        found: list[int] = []
        ack: str | None = None
        for turn in range(12):
            await produce(cluster, turn, partition=turn % 3)
            if turn % 3 == 0:
                cluster.lead("t", turn % 3, 1 + turn % 2)
            if turn == 4:
                for api in (FETCH, HEARTBEAT, JOIN_GROUP, SYNC_GROUP, OFFSET_FETCH, OFFSET_COMMIT):
                    cluster.faults.add(api, close_after=True)
            if turn == 7:
                cluster.disconnect()
            batch = await poll(gateway, ack=ack, wait_ms=30_000)
            ack, found = batch.token, found + values_of(batch)
        found += await drained(gateway, ack=ack)
        assert found == list(range(12))
        assert sum(committed(cluster).values()) == 12

    with_gateway(tmp_path, scenario, nodes=2)


def test_a_cluster_that_is_away_makes_polls_wait_and_errors_that_may_pass(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t")
        await produce(cluster, 1)
        await create(gateway)
        batch = await poll(gateway)
        cluster.stop(1, elect=False)
        with pytest.raises(BrokerError) as error:
            await gateway.consumers.ack(G, "c", batch.token or "")
        assert error.value.code.retriable
        await killed(gateway)
        cluster.start(1)
        after = await open_gateway(cluster, tmp_path / "gateway")
        await after.consumers.ack(G, "c", batch.token or "")
        assert committed(cluster) == {0: 1}
        await after.close()

    with_gateway(tmp_path, scenario)


def test_a_topic_that_is_created_again_is_read_from_its_own_beginning(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t")
        await produce(cluster, *range(5))
        await create(gateway)
        assert await drained(gateway) == list(range(5))
        await cluster.broker.topics.delete("t")
        await cluster.broker.topics.create("t")
        await produce(cluster, 10, 11)
        await asyncio.sleep(120.0)
        assert await drained(gateway) == [10, 11]
        assert committed(cluster) == {0: 2}

    with_gateway(tmp_path, scenario, nodes=2)


def test_hundreds_of_consumers_are_resumed_and_their_heartbeats_are_bounded(tmp_path: Path) -> None:
    count = 300

    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("t")
        options = ConsumerOptions(ttl_ms=86_400_000)
        for number in range(count):
            await gateway.consumers.create(
                f"g{number}", "c", subscription=Subscription(("t",)), options=options
            )
        await asyncio.sleep(60.0)
        states = [gateway.consumers.of_group(f"g{number}")[0].state for number in range(count)]
        assert set(states) == {"stable"}
        await killed(gateway)
        joins = cluster.asked[JOIN_GROUP]
        after = await open_gateway(cluster, tmp_path / "gateway")
        await asyncio.sleep(30.0)
        before = cluster.asked[HEARTBEAT]
        await asyncio.sleep(60.0)
        sent = cluster.asked[HEARTBEAT] - before
        assert cluster.asked[JOIN_GROUP] == joins
        assert count * 60 / 4 * 0.8 <= sent <= count * 60 / 3 * 1.1
        await after.close()

    with_gateway(tmp_path, scenario)
