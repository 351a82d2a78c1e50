"""The cluster client against an embedded broker: metadata, coordinators, leaders, another broker after a failure."""

from __future__ import annotations

import asyncio

import pytest

from core.client.cluster import ClusterClient
from core.client.coordinators import CoordinatorKind
from core.client.failures import LinkLost
from core.client.links import ALONE
from core.client.offsets import EARLIEST, LATEST, list_offsets
from core.client.settings import Address, ClientSettings
from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from core.protocol.messages.heartbeat import HeartbeatRequest
from core.protocol.messages.list_groups import ListGroupsRequest
from core.records.record import NewRecord
from core.types import TimestampOffset, TopicPartition
from tests.core.client.conftest import Served


async def test_open_learns_the_cluster_and_refresh_its_topics(served: Served, cluster: ClusterClient) -> None:
    assert cluster.cluster_id == served.broker.cluster_id
    assert [one.address for one in cluster.brokers.values()] == [served.address]
    await served.broker.topics.create("a", partitions=3)
    with pytest.raises(BrokerError) as caught:
        cluster.topic("a")
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await cluster.refresh(["a", "missing"])
    found = cluster.topic("a")
    assert (found.name, found.topic_id) == ("a", served.broker.topics.get("a").topic_id)
    assert [one.partition for one in found.partitions] == [0, 1, 2]
    assert cluster.leader(TopicPartition("a", 2)) in cluster.brokers
    assert cluster.errors == {"missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert not any(topic.name == "missing" for topic in served.broker.topics.all()), "it is not created"


async def test_a_refresh_of_all_topics_forgets_those_that_were_deleted_and_tells_what_changed(
    served: Served, client_settings: ClientSettings
) -> None:
    told: list[set[str]] = []
    cluster = ClusterClient(client_settings, Clock(), changed=lambda names: told.append(set(names)))
    await cluster.open()
    await served.broker.topics.create("a")
    await served.broker.topics.create("b")
    await cluster.refresh()
    await cluster.refresh()
    await served.broker.topics.delete("a")
    await served.broker.topics.create_partitions("b", 2)
    await cluster.refresh()
    assert set(cluster.topics) == {"b"}
    assert told == [{"a", "b"}, {"a", "b"}]
    await cluster.close()


async def test_callers_share_one_metadata_request_and_fresh_answers_need_none(
    served: Served, cluster: ClusterClient
) -> None:
    await served.broker.topics.create("a")

    def metadata_requests() -> int:
        return sum(meter.count for key, meter in served.broker.counters.requests.items() if key == 3)

    before = metadata_requests()
    await asyncio.gather(*(cluster.refresh(["a"]) for _ in range(50)))
    assert metadata_requests() - before == 1
    await cluster.refresh(["a"], max_age_ms=60_000)
    assert metadata_requests() - before == 1
    await cluster.refresh(["b"], max_age_ms=60_000)
    assert metadata_requests() - before == 2


async def test_the_broker_of_before_is_asked_again_after_its_restart(
    served: Served, cluster: ClusterClient
) -> None:
    await served.stop()
    with pytest.raises(LinkLost):
        await cluster.ask(next(iter(cluster.brokers)), ListGroupsRequest())
    await served.start()
    await cluster.refresh(())
    answer = await cluster.ask(next(iter(cluster.brokers)), ListGroupsRequest())
    assert answer.groups == []


async def test_bootstrap_addresses_that_do_not_answer_are_passed_over(served: Served) -> None:
    settings = ClientSettings(bootstrap=(Address("127.0.0.1", 1), served.address))
    cluster = ClusterClient(settings, Clock())
    await cluster.open()
    assert cluster.cluster_id == served.broker.cluster_id
    await cluster.close()


async def test_no_bootstrap_address_answers() -> None:
    settings = ClientSettings(bootstrap=(Address("127.0.0.1", 1),), request_timeout_ms=50)
    cluster = ClusterClient(settings, Clock())
    with pytest.raises(LinkLost, match=r"No connection to the broker at 127\.0\.0\.1:1"):
        await cluster.open()
    await cluster.close()


async def test_offsets_of_many_partitions(served: Served, cluster: ClusterClient) -> None:
    await served.broker.topics.create("a", partitions=2)
    await served.broker.records.produce("a", [NewRecord(value=b"x", timestamp=1_000)] * 3, partition=1)
    a0, a1, missing = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
    found = await list_offsets(cluster, {a0: LATEST, a1: LATEST, missing: LATEST})
    assert found[a0] == TimestampOffset(-1, 0, 0) and found[a1] == TimestampOffset(-1, 3, 0)
    error = found[missing]
    assert isinstance(error, BrokerError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = await list_offsets(cluster, {a0: EARLIEST, a1: 1_000}, committed=True)
    assert found[a0] == TimestampOffset(-1, 0, 0) and found[a1] == TimestampOffset(1_000, 0, 0)


async def test_the_coordinator_of_a_group_and_of_a_transactional_id(cluster: ClusterClient) -> None:
    assert await cluster.find_coordinator("g") in cluster.brokers
    assert await cluster.find_coordinator("t", CoordinatorKind.TRANSACTION) in cluster.brokers
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    for lane in ("", ALONE):
        answer = await cluster.ask_coordinator("g", request, lane=lane)
        assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_controller_creates_a_topic(served: Served, cluster: ClusterClient) -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic("made", 2, 1, [], [])], timeout_ms=1_000)
    answer = await cluster.ask_controller(request)
    assert [topic.error_code for topic in answer.topics] == [0]
    assert served.broker.topics.get("made").partitions == 2
