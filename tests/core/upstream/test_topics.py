"""Topics of a gateway: what the cluster has, and changes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BrokerError, ErrorCode, StartupError
from core.metadata.topics import put_setting
from core.records.record import NewRecord
from core.types import TopicPartition
from core.upstream.remote_broker import RemoteBroker
from tests.core.upstream.gateways import with_gateway
from tests.upstream.cluster import Cluster


def test_a_topic_of_the_cluster_is_at_hand_after_a_look(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        made = await cluster.broker.topics.create("orders", partitions=3, configs={"retention.ms": "1000"})
        with pytest.raises(BrokerError, match="no topic named 'orders'"):
            gateway.topics.get("orders")
        await gateway.look(("orders",), configs=True)
        found = gateway.topics.get("orders")
        assert (found.partitions, found.topic_id) == (3, made.topic_id)
        assert found.overrides == {"retention.ms": "1000"}
        assert found.config.retention_ms == 1000
        assert gateway.topics.name_of(made.topic_id) == "orders"
        entries = {one.name: one for one in gateway.topics.describe_configs("orders")}
        assert entries["retention.ms"].source == "topic"
        assert entries["cleanup.policy"].source == "default"
        assert gateway.cluster_id == cluster.broker.cluster_id

    with_gateway(tmp_path, scenario, nodes=3)


def test_all_topics_are_listed_by_name(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        for name in ("b", "a", "bc"):
            await cluster.broker.topics.create(name)
        await gateway.look(None)
        assert [one.name for one in gateway.topics.list()] == ["a", "b", "bc"]
        assert [one.name for one in gateway.topics.list("b")] == ["b", "bc"]
        await cluster.broker.topics.delete("b")
        await gateway.look(None)
        assert {one.name for one in gateway.topics.all()} == {"a", "bc"}

    with_gateway(tmp_path, scenario)


def test_a_topic_is_created_changed_and_deleted(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        planned = await gateway.topics.create("orders", partitions=2, validate_only=True)
        assert planned.partitions == 2
        assert cluster.broker.topics.list() == []
        made = await gateway.topics.create("orders", partitions=2, configs={"cleanup.policy": "compact"})
        assert (made.partitions, gateway.topics.get("orders")) == (2, made)
        with pytest.raises(BrokerError) as refused:
            await gateway.topics.create("orders")
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await gateway.look(("orders",), configs=True)
        before = gateway.topics.get("orders").version
        changed = await gateway.topics.alter_configs("orders", {"retention.ms": "5", "cleanup.policy": None})
        assert changed.overrides == {"retention.ms": "5"}
        assert changed.version != before
        assert cluster.broker.topics.get("orders").overrides == {"retention.ms": "5"}
        assert (await gateway.topics.create_partitions("orders", 5)).partitions == 5
        await gateway.topics.delete("orders")
        with pytest.raises(BrokerError, match="no topic named"):
            gateway.topics.get("orders")
        with pytest.raises(BrokerError, match="no topic named"):
            await gateway.topics.delete("orders")

    with_gateway(tmp_path, scenario, nodes=3)


def test_refusals_of_the_cluster_have_its_code_and_its_words(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await gateway.topics.create("orders", partitions=2)
        for code, work in (
            (ErrorCode.INVALID_CONFIG, gateway.topics.create("x", configs={"retention.ms": "soon"})),
            (ErrorCode.INVALID_PARTITIONS, gateway.topics.create("x", partitions=0)),
            (ErrorCode.INVALID_TOPIC_EXCEPTION, gateway.topics.create("a/b")),
            (ErrorCode.INVALID_PARTITIONS, gateway.topics.create_partitions("orders", 1)),
            (ErrorCode.INVALID_CONFIG, gateway.topics.alter_configs("orders", {"no.such": "1"})),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gateway.topics.alter_configs("none", {})),
        ):
            with pytest.raises(BrokerError) as refused:
                await work
            assert refused.value.code is code
            assert len(refused.value.message) > 10

    with_gateway(tmp_path, scenario)


def test_a_missing_topic_is_created_if_the_settings_allow_it(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        made = await gateway.topics.get_or_create("orders")
        assert cluster.broker.topics.get("orders").topic_id == made.topic_id

    async def refused(cluster: Cluster, gateway: RemoteBroker) -> None:
        with pytest.raises(BrokerError, match="no topic named"):
            await gateway.topics.get_or_create("orders")
        assert cluster.broker.topics.list() == []

    with_gateway(tmp_path / "1", scenario)
    with_gateway(tmp_path / "2", refused, gateway={"auto_create_topics": False})


def test_a_topic_that_is_created_again_is_another_one(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        first = await gateway.topics.create("orders", partitions=2)
        heard: list[str] = []
        gateway.topics.deleted.append(heard.append)
        await cluster.broker.topics.delete("orders")
        await cluster.broker.topics.create("orders", partitions=1)
        await gateway.look(("orders",), configs=True)
        second = gateway.topics.get("orders")
        assert second.topic_id != first.topic_id
        assert heard == ["orders"]
        with pytest.raises(BrokerError):
            gateway.topics.name_of(first.topic_id)

    with_gateway(tmp_path, scenario)


def test_a_topic_that_is_hidden_for_a_while_was_not_deleted(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await gateway.topics.create("orders", partitions=2)
        heard: list[str] = []
        gateway.topics.deleted.append(heard.append)
        metadata = gateway.cluster.topics.pop("orders")
        gateway.topics.take({"orders"})
        with pytest.raises(BrokerError, match="no topic named"):
            gateway.topics.get("orders")
        gateway.cluster.topics["orders"] = metadata
        gateway.topics.take({"orders"})
        assert gateway.topics.get("orders").partitions == 2
        assert heard == []
        await gateway.topics.delete("orders")
        assert heard == ["orders"]

    with_gateway(tmp_path, scenario)


def test_bounds_come_from_the_leaders(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        await cluster.broker.topics.create("orders", partitions=3)
        records = [NewRecord(None, b"v", (), 1_000 + n, 1) for n in range(5)]
        await cluster.broker.records.produce("orders", records)
        await cluster.broker.partitions.delete_records([(TopicPartition("orders", 1), 2)])
        await gateway.look(("orders",), bounds=True)
        assert [b[:3] for b in gateway.partitions.bounds("orders", range(3))] == [
            (0, 0, 0), (2, 5, 5), (0, 0, 0),
        ]  # fmt: skip
        tp = TopicPartition("orders", 1)
        info = gateway.partitions.info(tp)
        assert (info.leader, info.size, info.leads) == (2, None, False)
        await gateway.look(partitions=(tp,), moment=1_003)
        assert gateway.partitions.offset_for_time(tp, 1_003).offset == 3
        assert await gateway.partitions.delete_records([(tp, 4)]) == [4]
        assert gateway.partitions.offsets(tp).log_start_offset == 4
        (refused,) = await gateway.partitions.delete_records([(tp, 9)])
        assert isinstance(refused, BrokerError)
        assert refused.code is ErrorCode.OFFSET_OUT_OF_RANGE
        (refused,) = await gateway.partitions.delete_records([(TopicPartition("orders", 9), 1)])
        assert isinstance(refused, BrokerError)
        assert "no partition 9" in refused.message
        with pytest.raises(BrokerError, match="no partition 7"):
            gateway.partitions.info(TopicPartition("orders", 7))

    with_gateway(tmp_path, scenario, nodes=3)


def test_a_store_belongs_to_one_cluster(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster, gateway: RemoteBroker) -> None:
        assert gateway.ready
        await gateway.store.submit([put_setting("upstream.cluster.id", "another")])

    with_gateway(tmp_path, scenario)
    with pytest.raises(StartupError, match="Choose another directory"):
        with_gateway(tmp_path, scenario)
