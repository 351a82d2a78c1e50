"""Records through a gateway: produce, reads, waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode
from core.records.record import NewRecord
from core.types import TopicPartition
from core.upstream.remote_broker import RemoteBroker
from tests.core.upstream.gateways import with_gateway
from tests.upstream.cluster import Cluster

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
