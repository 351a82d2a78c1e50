"""Groups of a cluster through a gateway: views, committed offsets, lag, resets, and what other clients see."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.facade import Facade
from core.records.record import NewRecord
from core.types import TopicPartition
from core.upstream.remote_broker import RemoteBroker
from core.vocabulary.groups import NO_MEMBER, Commit, CommitRequest, Target
from tests.core.upstream.gateways import with_gateway
from tests.upstream.cluster import Cluster
from tests.upstream.faults import OFFSET_COMMIT, OFFSET_FETCH

DESCRIBE_GROUPS, LIST_GROUPS = 15, 16


async def filled(cluster: Cluster, partitions: int = 2, records: int = 10) -> None:
    """Topic t, with records in each partition."""
    await cluster.broker.topics.create("t", partitions=partitions)
    for partition in range(partitions):
        values = [NewRecord(key=None, value=b"%d" % n, timestamp=1_000 + n) for n in range(records)]
        await cluster.broker.records.produce("t", values, partition=partition)


def committed(cluster: Cluster, group: str = "g") -> dict[int, int]:
    return {p: c.offset for _, p, c in cluster.broker.groups.all_committed(group)}


def test_positions_are_set_shown_reset_and_deleted(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        facade: Facade = gateway
        await filled(cluster)
        groups = facade.groups
        await groups.positions.set("g", CommitRequest([Commit("t", 0, 4, metadata="m"), Commit("t", 1, 10)]))
        assert committed(cluster) == {0: 4, 1: 10}
        await facade.look_at_group("g")
        assert [(t, p, c.offset, c.metadata) for t, p, c in groups.all_committed("g")] == [
            ("t", 0, 4, "m"), ("t", 1, 10, ""),
        ]  # fmt: skip
        assert [(one.next_offset, one.lag) for one in groups.positions.lag("g")] == [(4, 6), (10, 0)]
        for target, after in (
            (Target(earliest=True), [0, 0]),
            (Target(latest=True), [10, 10]),
            (Target(time=1_003), [3, 3]),
            (Target(time=9_999), [10, 10]),
            (Target(offset=99), [10, 10]),
            (Target(shift=-2), [8, 8]),
        ):
            resets = await groups.positions.reset("g", target)
            assert [one.after for one in resets] == after, target
            assert committed(cluster) == dict(enumerate(after))
        assert [one.after for one in await groups.positions.reset("g", Target(offset=1), ["t"], dry_run=True)] == [
            1, 1,
        ]  # fmt: skip
        assert committed(cluster) == {0: 8, 1: 8}
        await groups.positions.forget("g", "t", 1)
        assert committed(cluster) == {0: 8}
        await groups.delete("g")
        assert cluster.broker.groups.describe("g") is None
        await facade.look_at_group("g")
        assert groups.describe("g") is None
        for refused in (groups.delete("g"), groups.positions.forget("g", "t")):
            with pytest.raises(BrokerError) as error:
                await refused
            assert error.value.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    with_gateway(tmp_path, scenario, nodes=3)


def test_all_groups_of_all_brokers_are_listed_and_filtered(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await filled(cluster)
        for group, node in (("a", 1), ("b", 2), ("c", 3)):
            cluster.coordinate(group, node)
            await cluster.broker.groups.commit(group, CommitRequest([Commit("t", 0, 1)]))
        before = cluster.asked[LIST_GROUPS]
        await gateway.look_at_groups()
        assert cluster.asked[LIST_GROUPS] == before + 3
        assert [(one.group_id, one.state, one.group_type) for one in gateway.groups.list()] == [
            ("a", "Empty", "classic"), ("b", "Empty", "classic"), ("c", "Empty", "classic"),
        ]  # fmt: skip
        assert gateway.groups.list(["stable"]) == [] and gateway.groups.list([], ["consumer"]) == []

    with_gateway(tmp_path, scenario, nodes=3)


def test_what_is_refused_is_refused_with_a_sentence(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await filled(cluster)
        positions = gateway.groups.positions
        for code, work in (
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, positions.set("g", CommitRequest([Commit("t", 9, 1)]))),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, positions.set("g", CommitRequest([Commit("x", 0, 1)]))),
            (ErrorCode.UNKNOWN_MEMBER_ID, positions.set("g", CommitRequest([Commit("t", 0, 1)], "me", 1))),
            (ErrorCode.GROUP_ID_NOT_FOUND, positions.reset("none", Target(latest=True))),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, positions.reset("g", Target(latest=True), ["x"])),
        ):
            with pytest.raises(BrokerError) as refused:
                await work
            assert refused.value.code is code
            assert len(refused.value.message) > 10
        with pytest.raises(BrokerError) as refused:
            gateway.groups.committed("never-seen", "t", 0)
        assert refused.value.code.retriable
        with pytest.raises(BrokerError) as refused:
            await gateway.groups.lines.join("g", "t", "m")
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(BrokerError, match="must not be empty"):
            gateway.groups.require_name(NO_MEMBER)

    with_gateway(tmp_path, scenario)


def test_a_commit_whose_answer_is_lost_is_sent_again_and_one_to_a_moved_coordinator_finds_it(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await filled(cluster)
        cluster.coordinate("g", 1)
        lost = cluster.faults.add(OFFSET_COMMIT, close_after=True)
        assert await gateway.groups.commit("g", CommitRequest([Commit("t", 0, 3)])) == [ErrorCode.NONE]
        assert lost.used == 1 and committed(cluster) == {0: 3}
        cluster.coordinate("g", 3)
        assert await gateway.groups.commit("g", CommitRequest([Commit("t", 0, 5)])) == [ErrorCode.NONE]
        assert committed(cluster) == {0: 5}
        cluster.faults.add(OFFSET_COMMIT, times=2, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert await gateway.groups.commit("g", CommitRequest([Commit("t", 0, 6)])) == [ErrorCode.NONE]
        assert committed(cluster) == {0: 6}
        cluster.faults.add(OFFSET_COMMIT, times=-1, close_before=True)
        with pytest.raises(BrokerError) as error:
            await gateway.groups.commit("g", CommitRequest([Commit("t", 0, 9)]))
        assert error.value.code.retriable and committed(cluster) == {0: 6}

    with_gateway(tmp_path, scenario, nodes=3)


def test_offsets_that_a_transaction_holds_are_waited_for(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await filled(cluster)
        await cluster.broker.groups.commit("g", CommitRequest([Commit("t", 0, 2)]))
        unstable = cluster.faults.add(OFFSET_FETCH, times=3, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        await gateway.groups.bring("g", [TopicPartition("t", 0), TopicPartition("t", 1)], fresh=True)
        assert unstable.used == 3
        found = gateway.groups.committed("g", "t", 0)
        assert found is not None and found.offset == 2
        assert gateway.groups.committed("g", "t", 1) is None

    with_gateway(tmp_path, scenario)
