"""Committed offsets beyond the end of a log, where the broker that keeps the groups also leads the partition."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.errors import ErrorCode
from core.log.checkpoint import CLEAN_SHUTDOWN, RECOVERY_POINTS, read_offsets
from core.log.log import Log
from core.records.record import NewRecord
from core.types import TopicPartition
from core.vocabulary.groups import Commit, CommitRequest
from core.vocabulary.replicas import METADATA
from tests.core.replication.brokers import Brokers, until

TP = TopicPartition("t", 0)


async def write(broker: Broker, count: int) -> None:
    """Append `count` batches of one record."""
    for _ in range(count):
        (done,) = await broker.records.produce("t", [NewRecord(value=b"value")], acks=1)
        assert done.error is None, done.error


def lose_power(directory: Path, size: int) -> None:
    """Leave only that number of bytes of the log, and nothing that says where it had ended."""
    (directory / CLEAN_SHUTDOWN).unlink()
    (directory / RECOVERY_POINTS).unlink()
    for snapshot in (directory / str(TP)).glob("*.snapshot"):
        snapshot.unlink()
    os.truncate(directory / str(TP) / f"{0:020d}.log", size)


def committed(broker: Broker) -> int:
    found = broker.groups.committed("g", "t", 0)
    return -1 if found is None else found.offset


async def commit(broker: Broker, offset: int) -> None:
    assert await broker.groups.commit("g", CommitRequest([Commit("t", 0, offset)])) == [ErrorCode.NONE]


async def test_a_partition_of_one_broker_that_keeps_the_groups_again(tmp_path: Path) -> None:
    async with Brokers(tmp_path) as two:
        await two.create("t", replication_factor=1)
        await write(two[1], 2)
        size = two[1].partitions.log(TP).size
        await write(two[1], 3)
        await commit(two[1], 5)
        await two.stop(1)
        lose_power(tmp_path / "1", size)
        await two.start(1)
        # The log may grow before this broker is known to keep the groups.
        await write(two[1], 6)
        await two.serving(1)
        assert committed(two[1]) == 2
        assert two[1].partitions.info(TP).leader_epoch == two[1].leader_epochs.current > 0
        assert two[2].roles.placed(two[2].topics.get("t"), 0).leader_epoch == -1
        assert two[1].partitions.end_offset_for_epoch(TP, 0) == (0, 2)


async def test_a_leader_with_a_shorter_log(tmp_path: Path) -> None:
    async with Brokers(tmp_path, metadata_min_insync_replicas=1) as two:
        await two.create("t", configs={"min.insync.replicas": "1"})
        await write(two[1], 2)
        await until(lambda: two[2].partitions.log(TP).offsets.log_end_offset == 2)
        size = two[2].partitions.log(TP).size
        await write(two[1], 3)
        await two.in_sync(TP)
        await commit(two[1], 5)
        behind = two[2].replicas.get(METADATA)
        end = two[1].partitions.info(METADATA).offsets.log_end_offset
        assert behind is not None
        await until(lambda: behind.log.offsets.log_end_offset == end, "the commit to be copied")
        await two.stop(1)
        await two.stop(2)
        lose_power(tmp_path / "2", size)
        await two.start(2)
        await two[2].roles.set(METADATA, "leader", unclean=True)
        await two.serving(2)
        assert committed(two[2]) == 5
        await two[2].roles.set(TP, "leader", unclean=True)
        assert (committed(two[2]), two[2].partitions.log(TP).offsets.log_end_offset) == (2, 2)
        assert two[2].counters.positions_cut_back == 1


async def test_a_follower_that_begins_its_log_again_first_lowers_its_recovery_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a crash between the two would make recovery look for records that were dropped on purpose."""
    recovery_points: list[int | None] = []
    start_at = Log.start_at

    def noted(log: Log, offset: int) -> None:
        stored = read_offsets(str(tmp_path / "2" / RECOVERY_POINTS)) or {}
        recovery_points.append(stored.get(log.tp))
        start_at(log, offset)

    monkeypatch.setattr(Log, "start_at", noted)
    async with Brokers(tmp_path, replica_lag_time_max_ms=300) as two:
        await two.create("t", configs={"min.insync.replicas": "1"})
        await write(two[1], 3)
        await until(lambda: two[2].partitions.info(TP).offsets.high_watermark == 3)
        await two.stop(2)
        assert (read_offsets(str(tmp_path / "2" / RECOVERY_POINTS)) or {})[TP] == 3
        await write(two[1], 3)
        await until(lambda: two[1].partitions.info(TP).offsets.high_watermark == 6)
        assert await two[1].partitions.delete_records([(TP, 6)]) == [6]
        await two.start(2)
        await until(lambda: recovery_points and two[2].partitions.info(TP).offsets.log_start_offset == 6)
        assert recovery_points == [0]
