"""Client quotas on the Kafka listener and over HTTP's facade, in the broker's clock."""

from __future__ import annotations

from typing import Any

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config
from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from core.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from core.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from core.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from core.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from core.records.batch import build_batch
from core.records.record import NewRecord
from core.security.principal import ANONYMOUS, Caller
from core.types import TopicPartition
from tests.core.listeners.kafka.conftest import Client, produce_request

THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
EVERY_USER: list[tuple[str, str | None]] = [("user", None)]


async def set_quota(
    client: Client,
    entity: list[tuple[str, str | None]],
    *,
    validate_only: bool = False,
    **values: float | None,
) -> int:
    ops = [OpData(key, value or 0.0, value is None) for key, value in values.items()]
    entry = EntryData([EntityData(*one) for one in entity], ops)
    answer = await client.newest(49, AlterClientQuotasRequest([entry], validate_only))
    return int(answer.entries[0].error_code)


async def described(client: Client) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = await client.newest(48, DescribeClientQuotasRequest([]))
    assert answer.error_code == 0
    return {
        tuple((one.entity_type, one.entity_name) for one in entry.entity): {
            one.key: one.value for one in entry.values
        }
        for entry in answer.entries
    }


async def produce(client: Client, size: int, *, acks: int = 1, version: int = 9) -> Any:
    data = bytes(build_batch([NewRecord(value=bytes(size))], now_ms=client.listener.broker.clock.wall_ms()))
    return await client.ask(0, version, produce_request("t", data, acks=acks))


async def fetch(client: Client, *, max_bytes: int = 1 << 20, wait_ms: int = 0) -> Any:
    topic = FetchTopic("t", partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
    return await client.ask(
        1, 11, FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, topics=[topic])
    )


def records_of(answer: Any) -> int:
    return sum(len(one.records) for topic in answer.responses for one in topic.partitions)


def muted(client: Client) -> int:
    """What the session asks its connection for, taken as the connection takes it."""
    milliseconds, client.session.mute_ms = client.session.mute_ms, 0
    return milliseconds


async def test_quotas_are_set_described_and_removed(client: Client) -> None:
    assert await set_quota(client, [("client-id", "b"), ("user", "a")], request_percentage=12.5) == 0
    assert await set_quota(client, EVERY_USER, producer_byte_rate=1000, consumer_byte_rate=2000) == 0
    assert await set_quota(client, EVERY_USER, validate_only=True, producer_byte_rate=1) == 0
    found = {
        (("user", "a"), ("client-id", "b")): {"request_percentage": 12.5},
        (("user", None),): {"producer_byte_rate": 1000, "consumer_byte_rate": 2000},
    }
    assert await described(client) == found
    # All or none: the second key is none that a user has.
    assert (
        await set_quota(client, EVERY_USER, producer_byte_rate=1, bytes_per_day=1)
        == ErrorCode.INVALID_REQUEST
    )
    assert await described(client) == found
    filtered = await client.newest(
        48, DescribeClientQuotasRequest([ComponentData("user", 0, "a")], strict=True)
    )
    assert filtered.entries == []
    assert await set_quota(client, EVERY_USER, producer_byte_rate=None) == 0
    assert (await described(client))[(("user", None),)] == {"consumer_byte_rate": 2000}


async def test_quotas_are_in_the_store(tmp_path: Any) -> None:
    config = Config(data_dir=tmp_path)
    entity = (("user", 'a"ü'), ("client-id", None))
    for start in range(2):
        broker = Broker(config, ManualClock())
        await broker.open()
        if not start:
            await broker.quotas.alter(entity, {"producer_byte_rate": 7.0, "consumer_byte_rate": 8.0})
            await broker.quotas.alter(entity, {"consumer_byte_rate": None})
        assert [(key, value) for _, key, value in broker.quota_table] == [("producer_byte_rate", 7.0)]
        assert broker.quota_table.bucket("producer_byte_rate", 'a"ü', "any", 0.0) is not None
        await broker.close()


async def test_the_number_of_quotas_is_limited_by_a_setting(tmp_path: Any) -> None:
    broker = Broker(Config(data_dir=tmp_path, max_quotas=1), ManualClock())
    await broker.open()
    await broker.quotas.alter((("user", "a"),), {"producer_byte_rate": 7.0})
    await broker.quotas.alter((("user", "a"),), {"producer_byte_rate": 8.0})
    with pytest.raises(BrokerError) as refused:
        await broker.quotas.alter((("user", "b"),), {"producer_byte_rate": 7.0})
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    await broker.close()


async def test_without_a_quota_nothing_is_throttled_or_remembered(client: Client) -> None:
    await client.create("t")
    assert (await produce(client, 100_000)).throttle_time_ms == 0
    assert muted(client) == 0
    assert not client.listener.broker.quota_table._buckets


async def test_a_produce_beyond_the_quota_is_taken_and_throttled(client: Client, clock: ManualClock) -> None:
    await client.create("t")
    await set_quota(client, EVERY_USER, producer_byte_rate=1_000)
    first = await produce(client, 9_000)
    assert (first.throttle_time_ms, muted(client)) == (0, 0)
    second = await produce(client, 5_000)
    assert second.responses[0].partition_responses[0].error_code == 0
    # 14,000 bytes and the frames of two requests, less the 10,000 that a window of ten seconds takes.
    assert 4_000 < second.throttle_time_ms < 4_500
    assert muted(client) == second.throttle_time_ms
    # Other quotas, and other clients, are not affected.
    assert records_of(await fetch(client)) > 0
    clock.advance(60)
    assert (await produce(client, 1_000)).throttle_time_ms == 0


async def test_acks_0_counts_as_well(client: Client) -> None:
    await client.create("t")
    await set_quota(client, EVERY_USER, producer_byte_rate=1_000)
    assert await produce(client, 20_000, acks=0) is None
    assert muted(client) > 10_000


async def test_a_fetch_beyond_the_quota_is_empty_and_not_counted(client: Client, clock: ManualClock) -> None:
    await client.create("t")
    for _ in range(20):
        await produce(client, 1_000)
    await set_quota(client, EVERY_USER, consumer_byte_rate=500)
    first = await fetch(client)
    # What an empty window takes: ten seconds.
    assert 4_000 < records_of(first) <= 5_000
    assert first.throttle_time_ms == 0
    rest = await fetch(client)
    assert records_of(rest) > 0  # one batch fits in part, and is sent as a whole
    assert rest.throttle_time_ms == muted(client) > 0
    for _ in range(3):
        empty = await fetch(client)
        assert (empty.error_code, records_of(empty)) == (0, 0)
        assert 0 < empty.throttle_time_ms <= rest.throttle_time_ms
        assert muted(client) == empty.throttle_time_ms
    clock.advance(rest.throttle_time_ms / 1000 + 11)
    assert records_of(await fetch(client)) > 0


async def test_a_batch_larger_than_the_window_is_delivered(client: Client, clock: ManualClock) -> None:
    await client.create("t")
    await produce(client, 50_000)
    await set_quota(client, EVERY_USER, consumer_byte_rate=100)
    first = await fetch(client)
    assert records_of(first) > 50_000
    assert first.throttle_time_ms > 400_000
    clock.advance(100)
    assert records_of(await fetch(client)) == 0


async def test_all_connections_of_a_user_share_its_quota(client: Client, clock: ManualClock) -> None:
    await client.create("t")
    await set_quota(client, EVERY_USER, producer_byte_rate=1_000)
    clients = [Client(client.listener) for _ in range(10)]
    assert [(await produce(one, 800)).throttle_time_ms for one in clients] == [0] * 10
    assert (await produce(client, 2_000)).throttle_time_ms > 0


async def test_the_kafka_port_and_http_together_stay_within_the_quota(
    client: Client, clock: ManualClock
) -> None:
    await client.create("t")
    rate, seconds = 10_000, 150
    await set_quota(client, EVERY_USER, producer_byte_rate=rate)
    http = client.listener.broker.guards.of(Caller(ANONYMOUS, "10.0.0.9"))
    start, written, refused, free_at = clock.monotonic(), 0, 0, 0.0
    while clock.monotonic() < start + seconds:
        if clock.monotonic() >= free_at:
            answer = await produce(client, 7_000)
            written += 7_000
            free_at = clock.monotonic() + answer.throttle_time_ms / 1000
        try:
            await http.records.produce("t", [NewRecord(value=bytes(5_000))], acks=1)
            written += 5_000
        except BrokerError as error:
            assert error.code is THROTTLED
            assert int(str(error.details["retry_after"])) >= 1
            refused += 1
        clock.advance(0.5)
    assert refused > 100
    # Each second of the time, and the ten of the first window.
    assert rate * seconds * 0.9 < written <= rate * (seconds + 11)
    end = client.listener.broker.partitions.info(TopicPartition("t", 0)).offsets.high_watermark
    assert end < 1_000


async def test_http_reads_are_refused_beyond_the_quota(client: Client, clock: ManualClock) -> None:
    await client.create("t")
    for _ in range(20):
        await produce(client, 1_000)
    await set_quota(client, EVERY_USER, consumer_byte_rate=500)
    records = client.listener.broker.guards.of(Caller(ANONYMOUS, "10.0.0.9")).records
    tp = TopicPartition("t", 0)
    read = 0
    with pytest.raises(BrokerError) as refused:
        while True:
            read += len(records.read_now(tp, 0, max_bytes=1 << 20, max_records=100).records)
    assert refused.value.code is THROTTLED
    assert 4 <= read <= 7
    # The Kafka port counts in the same bucket.
    assert records_of(await fetch(client)) == 0
    with pytest.raises(BrokerError):
        await records.read(tp, 0, max_bytes=1 << 20, max_records=100)
    clock.advance(30)
    assert (await records.read(tp, 0, max_bytes=1 << 20, max_records=100)).records


def topics(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1) for name in names])


async def test_changes_of_topics_are_refused_from_the_versions_of_kip_599(
    client: Client, clock: ManualClock
) -> None:
    await set_quota(client, EVERY_USER, controller_mutation_rate=1)
    first = await client.ask(19, 6, topics("a", partitions=15))
    assert first.topics[0].error_code == 0
    assert 3_900 < first.throttle_time_ms <= 4_000
    assert muted(client) == first.throttle_time_ms
    refused = await client.ask(19, 6, topics("b"))
    assert (refused.topics[0].error_code, refused.throttle_time_ms) == (THROTTLED, first.throttle_time_ms)
    older = await client.ask(19, 5, topics("b"))
    assert older.topics[0].error_code == 0
    assert 4_900 < older.throttle_time_ms <= 5_000
    grown = CreatePartitionsRequest([CreatePartitionsTopic("b", 2)], 1000)
    assert (await client.ask(37, 3, grown)).results[0].error_code == THROTTLED
    assert (await client.ask(37, 2, grown)).results[0].error_code == 0
    gone = DeleteTopicsRequest([], ["b"])
    assert (await client.ask(20, 5, gone)).responses[0].error_code == THROTTLED
    assert (await client.ask(20, 4, gone)).responses[0].error_code == 0
    clock.advance(10)
    by_name = DeleteTopicsRequest([DeleteTopicState("a")])
    assert (await client.ask(20, 6, by_name)).responses[0].error_code == 0


async def test_a_change_that_fails_costs_nothing(client: Client) -> None:
    await client.create("a")
    await set_quota(client, EVERY_USER, controller_mutation_rate=1)
    for _ in range(30):
        answer = await client.ask(19, 6, topics("a"))
        assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert (await client.ask(19, 6, topics("b"))).throttle_time_ms == 0


async def test_time_on_the_event_loop_counts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    await client.create("t")
    await set_quota(client, EVERY_USER, request_percentage=1)
    now = client.listener.now
    ticks = iter(range(1_000_000))
    # Each look at the clock takes half a second more.
    monkeypatch.setattr(client.listener, "now", lambda: now() + next(ticks) / 2)
    await produce(client, 10)
    assert muted(client) == 1_000


async def test_quotas_need_rights_on_the_settings_of_the_cluster(tmp_path: Any) -> None:
    broker = Broker(Config(data_dir=tmp_path, authorizer=True), ManualClock())
    await broker.open()
    client = Client(KafkaListener(broker, HANDLERS))
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await set_quota(client, EVERY_USER, producer_byte_rate=1) == denied
    answer = await client.newest(48, DescribeClientQuotasRequest([]))
    assert (answer.error_code, answer.entries) == (denied, None)
    await broker.close()
