"""Queues in a cluster: served where groups are served and the partition is led; cut back when either moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.types import TopicPartition
from core.vocabulary.queues import EARLIEST, Outcome, QueueSettings, Receive, Received, Settle, Start, Verb
from core.vocabulary.replicas import METADATA
from tests.core.replication.brokers import Brokers, until
from tests.core.replication.test_cut_back import TP, lose_power, write

SETTINGS = QueueSettings(("t",), start=Start(EARLIEST))


async def receive(broker: Broker) -> Received:
    return await broker.queues.receive("q", Receive(100))


async def accept_all(broker: Broker) -> Received:
    got = await receive(broker)
    items = [Settle(Verb.ACCEPT, leased.receipt) for leased in got.records]
    outcomes = await broker.queues.settle("q", items)
    assert {settled.outcome for settled in outcomes} <= {Outcome.SETTLED}
    return got


def offsets(received: Received) -> list[int]:
    return [leased.record.offset for leased in received.records]


async def test_a_partition_of_one_broker_that_serves_queues_again(tmp_path: Path) -> None:
    async with Brokers(tmp_path) as two:
        await two.create("t", replication_factor=1)
        await two[1].queues.put("q", SETTINGS)
        await write(two[1], 2)
        size = two[1].partitions.log(TP).size
        await write(two[1], 3)
        assert offsets(await accept_all(two[1])) == [0, 1, 2, 3, 4]
        await two.stop(1)
        lose_power(tmp_path / "1", size)
        await two.start(1)
        # The log may grow before this broker is known to serve queues.
        await write(two[1], 6)
        await two.serving(1)
        assert offsets(await accept_all(two[1])) == [2, 3, 4, 5, 6, 7]


async def test_a_leader_with_a_shorter_log(tmp_path: Path) -> None:
    async with Brokers(tmp_path, metadata_min_insync_replicas=1) as two:
        await two.create("t", configs={"min.insync.replicas": "1"})
        await write(two[1], 2)
        await until(lambda: two[2].partitions.log(TP).offsets.log_end_offset == 2)
        size = two[2].partitions.log(TP).size
        await write(two[1], 3)
        await two.in_sync(TP)
        await two[1].queues.put("q", SETTINGS)
        await until(lambda: two[1].partitions.info(TP).offsets.high_watermark == 5)
        got = await accept_all(two[1])
        assert offsets(got) == [0, 1, 2, 3, 4]
        copy = two[2].replicas.get(METADATA)
        end = two[1].partitions.info(METADATA).offsets.log_end_offset
        assert copy is not None
        await until(lambda: copy.log.offsets.log_end_offset == end, "the settlement to be copied")
        await two.stop(1)
        await two.stop(2)
        lose_power(tmp_path / "2", size)
        await two.start(2)
        await two[2].roles.set(METADATA, "leader", unclean=True)
        await two.serving(2)
        await two[2].roles.set(TP, "leader", unclean=True)
        await write(two[2], 4)
        items = [Settle(Verb.ACCEPT, leased.receipt) for leased in got.records]
        assert {one.outcome for one in await two[2].queues.settle("q", items)} == {Outcome.GONE}
        await until(lambda: two[2].partitions.info(TP).offsets.high_watermark == 6)
        assert offsets(await accept_all(two[2])) == [2, 3, 4, 5]


async def test_leases_follow_to_the_next_broker(tmp_path: Path) -> None:
    async with Brokers(tmp_path) as two:
        await two.create("t")
        await two[1].queues.put("q", SETTINGS)
        await write(two[1], 3)
        await until(lambda: two[1].partitions.info(TP).offsets.high_watermark == 3)
        got = await receive(two[1])
        assert offsets(got) == [0, 1, 2]
        with pytest.raises(BrokerError) as refused:
            await receive(two[2])
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        for tp in (TP, METADATA):
            await until(lambda: two[2].partitions.info(TP).offsets.high_watermark == 3)
            await two[2].roles.set(tp, "leader")
        await two.serving(2)
        assert (await receive(two[2])).records == ()
        items = [Settle(Verb.ACCEPT, leased.receipt) for leased in got.records]
        assert {one.outcome for one in await two[2].queues.settle("q", items)} == {Outcome.SETTLED}


async def test_a_partition_that_another_broker_leads_is_unserved(tmp_path: Path) -> None:
    async with Brokers(tmp_path) as two:
        serving = await two.serving()
        other = two[2] if serving is two[1] else two[1]
        await two.create("t")
        await serving.queues.put("q", SETTINGS)
        await write(serving, 3)
        await until(lambda: other.partitions.info(TP).offsets.high_watermark == 3)
        got = await receive(serving)
        await other.roles.set(TP, "leader")
        await until(lambda: not serving.partitions.info(TP).leads)
        assert (await receive(serving)).blocked == "unserved"
        (stats,) = serving.queues.stats("q").partitions
        assert (stats.tp, stats.served) == (TopicPartition("t", 0), False)
        with pytest.raises(BrokerError) as refused:
            await serving.queues.settle("q", [Settle(Verb.ACCEPT, got.records[0].receipt)])
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
