"""Records through a gateway: produce, reads, waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord
from core.types import TopicPartition
from core.upstream.remote_broker import RemoteBroker
from core.vocabulary.records import FetchRead
from tests.core.upstream.gateways import with_gateway
from tests.upstream.cluster import Cluster
from tests.upstream.faults import FETCH

ORDERS = TopicPartition("orders", 0)


def values(*texts: str, partition: int | None = None) -> list[NewRecord]:
    return [NewRecord(None, text.encode(), (), None, partition) for text in texts]


def test_records_are_appended_to_the_partitions_of_their_keys(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("orders", partitions=3)
        records = [NewRecord(f"k{n}".encode(), b"v", (), 1_000 + n) for n in range(20)]
        done = await gateway.records.produce("orders", records)
        assert all(one.error is None for one in done)
        for record, result in zip(records, done, strict=True):
            tp = TopicPartition("orders", result.partition)
            read = await cluster.broker.records.read(tp, result.offset, max_bytes=1_000_000, max_records=1)
            assert (read.records[0].key, read.records[0].timestamp) == (record.key, record.timestamp)
            assert result.timestamp == record.timestamp
        assert len({one.partition for one in done}) == 3

    with_gateway(tmp_path, scenario, nodes=3)


def test_refused_records_say_why(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("orders", partitions=1, configs={"cleanup.policy": "compact"})
        records = [NewRecord(b"k", b"1"), NewRecord(None, b"2"), NewRecord(b"k", b"3")]
        done = await gateway.records.produce("orders", records)
        reasons = [one.error for one in done]
        assert all(error is not None and error.code is ErrorCode.INVALID_RECORD for error in reasons)
        assert [error is not None and "send this one again" in error.message for error in reasons] == [
            True, False, True,
        ]  # fmt: skip
        with pytest.raises(BrokerError, match="no partition 5"):
            await gateway.records.produce("orders", [NewRecord(b"k", b"1")], partition=5)
        elsewhere = await gateway.records.produce("orders", [NewRecord(b"k", b"1", (), None, 9)])
        assert elsewhere[0].error is not None
        assert elsewhere[0].error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_gateway(tmp_path, scenario)


def test_a_missing_topic_is_created_by_a_write(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        (done,) = await gateway.records.produce("orders", values("a"))
        assert (done.partition, done.offset, done.error) == (0, 0, None)
        assert cluster.broker.partitions.offsets(ORDERS).high_watermark == 1

    with_gateway(tmp_path, scenario)


async def read(gateway: RemoteBroker, offset: int, *, wait_ms: int = 0, limit: int = 1_000) -> list[str]:
    """Read as the HTTP surfaces do."""
    await gateway.bring((FetchRead(ORDERS, offset, 1 << 20, committed=True),), max_bytes=1 << 20)
    found = gateway.records.read_now(ORDERS, offset, max_bytes=1 << 20, max_records=limit)
    if not found.records and wait_ms:
        found = await gateway.records.read(
            ORDERS, offset, max_bytes=1 << 20, max_records=limit, wait_ms=wait_ms, first=found
        )
    return [(one.value or b"").decode() for one in found.records]


def test_records_are_read_from_an_offset_on(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("orders", partitions=1)
        for n in range(50):
            await cluster.broker.records.produce("orders", values(f"{n}a", f"{n}b"))
        assert await read(gateway, 0) == [f"{n}{x}" for n in range(50) for x in "ab"]
        assert await read(gateway, 7, limit=3) == ["3b", "4a", "4b"]
        assert await read(gateway, 100) == []
        with pytest.raises(BrokerError) as refused:
            await read(gateway, 101)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert refused.value.details["high_watermark"] == 100
        # At the end of a partition that is followed, another client's record is there at once.
        for n in range(5):
            await cluster.broker.records.produce("orders", values(f"new {n}"))
            assert await read(gateway, 100 + n) == [f"new {n}"]

    with_gateway(tmp_path, scenario, latency=0.003)


def test_a_read_waits_for_the_next_record(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("orders", partitions=1)
        loop = asyncio.get_running_loop()
        assert await read(gateway, 0, wait_ms=1_000) == []
        assert loop.time() == pytest.approx(1.0, abs=0.1)
        # Longer than an idle partition is followed.
        waiting = [asyncio.ensure_future(read(gateway, 0, wait_ms=200_000)) for _ in range(5)]
        await asyncio.sleep(100)
        await gateway.records.produce("orders", values("a"))
        began = loop.time()
        assert await asyncio.gather(*waiting) == [["a"]] * 5
        assert loop.time() - began < 0.1

    with_gateway(tmp_path, scenario, gateway={"max_wait_ms": 300_000})


def test_many_waits_cost_one_fetch_for_each_partition(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("orders", partitions=3)
        await gateway.look(("orders",), bounds=True)
        waits = [
            asyncio.ensure_future(gateway.changes.wait_for("orders", None, 60, token))
            for token in range(1_000)
        ]
        await asyncio.sleep(1.2)
        asked = cluster.asked[FETCH]
        assert asked <= 12
        await asyncio.sleep(20)
        assert cluster.asked[FETCH] - asked <= 3 * 45
        await cluster.broker.records.produce("orders", values("a", partition=2))
        assert all(await asyncio.gather(*waits))
        assert gateway.partitions.bounds("orders", (2,))[0].high_watermark == 1

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_wait_learns_of_new_partitions(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("orders", partitions=1)
        await gateway.look(("orders",), bounds=True)
        waiting = asyncio.ensure_future(gateway.changes.wait_for("orders", None, 600, "me"))
        await asyncio.sleep(1)
        await cluster.broker.topics.create_partitions("orders", 2)
        assert await waiting
        assert gateway.topics.get("orders").partitions == 2
        waiting = asyncio.ensure_future(gateway.changes.wait_for("orders", None, 600, "me"))
        await asyncio.sleep(1)
        await cluster.broker.records.produce("orders", values("a", partition=1))
        assert await waiting
        assert [one.high_watermark for one in gateway.partitions.bounds("orders", (0, 1))] == [0, 1]

    with_gateway(tmp_path, scenario)


def test_a_deleted_topic_ends_its_waits(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("orders", partitions=1)
        await gateway.look(("orders",), bounds=True)
        waiting = asyncio.ensure_future(gateway.changes.wait_for("orders", None, 600, "me"))
        await asyncio.sleep(1)
        await cluster.broker.topics.delete("orders")
        assert await waiting
        with pytest.raises(BrokerError, match="no topic named"):
            gateway.topics.get("orders")

    with_gateway(tmp_path, scenario)
