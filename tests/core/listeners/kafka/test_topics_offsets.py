"""Metadata, topics, configs and offsets through the listener, without a socket."""

from __future__ import annotations

import asyncio
import struct
from typing import Any
from uuid import UUID

import pytest

from core.broker.broker import Broker
from core.clock import ManualClock
from core.config import Config, Endpoint
from core.errors import ErrorCode
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.apis import APIS
from core.protocol.codec import decode_response
from core.protocol.messages import alter_configs as alter
from core.protocol.messages import incremental_alter_configs as incremental
from core.protocol.messages.api_versions import ApiVersionsRequest
from core.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from core.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from core.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from core.protocol.messages.describe_cluster import DescribeClusterRequest
from core.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from core.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from core.protocol.messages.describe_producers import DescribeProducersRequest
from core.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from core.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from core.protocol.messages.init_producer_id import InitProducerIdRequest
from core.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from core.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from .conftest import Client


def by_name(*names: str, create: bool = True) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=n) for n in names], create)


# --- versions ----------------------------------------------------------------------------------------------


async def test_what_is_advertised_is_what_is_served(client: Client) -> None:
    answer = await client.ask(18, 3, ApiVersionsRequest("a-client", "1.0"))
    assert answer.error_code == 0
    assert {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys} == {
        key: handler.versions for key, handler in HANDLERS.items()
    }
    assert min(k.min_version for k in answer.api_keys if k.api_key == 0) == 0, "librdkafka needs Produce v0"


async def test_an_unknown_version_of_api_versions_gets_version_0_and_the_table(client: Client) -> None:
    data = await client.raw(struct.pack(">hhih", 18, 99, 7, -1) + b"\x00anything")
    assert data is not None and struct.unpack_from(">i", data) == (7,)
    answer = decode_response(18, 0, data, 4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION and answer.api_keys


@pytest.mark.parametrize("name", ["", "-x", "x y", "a\nb", "x" * 300])
async def test_software_names_that_break_the_pattern_are_refused(client: Client, name: str) -> None:
    answer = await client.ask(18, 3, ApiVersionsRequest(name, "1.0"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-1, 3), (3, 99), (0, 14)])
async def test_what_is_not_served_is_answered_with_the_header_only(
    client: Client, key: int, version: int
) -> None:
    assert await client.raw(struct.pack(">hhih", key, version, 77, -1)) == struct.pack(">i", 77)


# --- metadata ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(14))
async def test_every_version_of_metadata_names_the_broker_and_the_topic(client: Client, version: int) -> None:
    await client.create("t", 3)
    answer = await client.ask(3, version, by_name("t"))
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", 9092)]
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, [p.partition_index for p in topic.partitions]) == (
        0,
        "t",
        [0, 1, 2],
    )
    assert all(p.leader_id == 1 and p.replica_nodes == [1] and p.isr_nodes == [1] for p in topic.partitions)


async def test_all_topics_are_asked_for_by_null_or_in_version_0_by_an_empty_list(client: Client) -> None:
    await client.create("a")
    await client.create("b")
    assert [t.name for t in (await client.ask(3, 0, MetadataRequest([]))).topics] == ["a", "b"]
    assert (await client.ask(3, 1, MetadataRequest([]))).topics == []
    assert [t.name for t in (await client.ask(3, 1, MetadataRequest(None))).topics] == ["a", "b"]


async def test_a_missing_topic_is_created_when_allowed_and_there_at_the_next_question(client: Client) -> None:
    first = await client.ask(3, 5, by_name("new", create=False))
    assert first.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    second = await client.ask(3, 5, by_name("new"))
    assert second.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    await asyncio.sleep(0.1)
    third = await client.ask(3, 5, by_name("new"))
    assert (third.topics[0].error_code, len(third.topics[0].partitions)) == (0, 1)
    illegal = await client.ask(3, 5, by_name("no/slash"))
    assert illegal.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_topics_are_found_by_id(client: Client) -> None:
    await client.create("t")
    topic_id = client.listener.broker.topics.get("t").topic_id
    unknown = client.listener.broker.clock.uuid4()
    wanted = [MetadataRequestTopic(topic_id, None), MetadataRequestTopic(unknown, None)]
    answer = await client.ask(3, 12, MetadataRequest(wanted))
    assert [(t.name, t.error_code) for t in answer.topics] == [("t", 0), (None, ErrorCode.UNKNOWN_TOPIC_ID)]


async def test_a_kept_answer_changes_with_the_topics(client: Client) -> None:
    await client.create("t")
    for _ in range(3):
        assert len((await client.ask(3, 9, by_name("t"))).topics[0].partitions) == 1
    await client.listener.broker.topics.create_partitions("t", 4)
    assert len((await client.ask(3, 9, by_name("t"))).topics[0].partitions) == 4
    await client.listener.broker.topics.delete("t")
    answer = await client.ask(3, 9, by_name("t", create=False))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_advertised_address_is_the_setting_or_what_was_dialled(listener: KafkaListener) -> None:
    listener.bound(Endpoint("kafka", "0.0.0.0", 1234))
    client = Client(listener)
    client.session.connected("10.0.0.1", "10.0.0.2")
    (broker,) = (await client.ask(3, 9, MetadataRequest(None))).brokers
    assert (broker.host, broker.port) == ("10.0.0.2", 1234)
    listener.advertised = Endpoint("kafka", "kafka.example", 9)
    (broker,) = (await client.ask(3, 9, MetadataRequest(None))).brokers
    assert (broker.host, broker.port) == ("kafka.example", 9)


async def test_the_cluster_is_described(client: Client) -> None:
    answer = await client.newest(60, DescribeClusterRequest())
    assert (answer.error_code, answer.cluster_id) == (0, client.listener.broker.cluster_id)
    assert [(b.broker_id, b.port) for b in answer.brokers] == [(1, 9092)]
    answer = await client.newest(60, DescribeClusterRequest(endpoint_type=2))
    assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


async def test_partitions_are_described_page_by_page(client: Client) -> None:
    await client.create("a", 3)
    await client.create("b", 2)
    seen: list[tuple[str, int]] = []
    cursor: Cursor | None = None
    for _ in range(10):
        answer = await client.ask(75, 0, DescribeTopicPartitionsRequest([], 2, cursor))
        seen += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]
    answer = await client.ask(75, 0, DescribeTopicPartitionsRequest([TopicRequest("zz")]))
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- topics ------------------------------------------------------------------------------------------------


async def create(client: Client, topic: CreatableTopic, **changes: Any) -> Any:
    return (await client.ask(19, 7, CreateTopicsRequest([topic], **changes))).topics[0]


async def test_a_topic_is_created_with_its_configs(client: Client) -> None:
    topic = CreatableTopic("t", 3, -1, [], [CreatableTopicConfig("retention.ms", "5000")])
    dry = await create(client, topic, validate_only=True)
    assert dry.error_code == 0 and client.listener.broker.topics.list() == []
    done = await create(client, topic)
    assert (done.error_code, done.num_partitions, done.replication_factor) == (0, 3, 1)
    assert {c.name: (c.value, c.config_source) for c in done.configs}["retention.ms"] == ("5000", 1)
    assert (await create(client, topic)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("sp ace", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("t", 2**31 - 1, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("t", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, 1, [], [CreatableTopicConfig("no.such", "1")]), ErrorCode.INVALID_CONFIG),
        (
            CreatableTopic("t", 1, 1, [], [CreatableTopicConfig("retention.ms", "x")]),
            ErrorCode.INVALID_CONFIG,
        ),
        (CreatableTopic("t", 1, 1, [CreatableReplicaAssignment(0, [1])]), ErrorCode.INVALID_REQUEST),
        (
            CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(3, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [1])]), ErrorCode.NONE),
    ],
)
async def test_what_cannot_be_created_is_refused_for_its_reason(
    client: Client, topic: CreatableTopic, code: ErrorCode
) -> None:
    done = await create(client, topic)
    assert done.error_code == code
    assert (done.error_message is None) == (code is ErrorCode.NONE)


async def test_a_name_that_is_named_again_is_refused_once(client: Client) -> None:
    answer = await client.ask(19, 7, CreateTopicsRequest([CreatableTopic("t", 1, 1)] * 2))
    assert [t.error_code for t in answer.topics] == [ErrorCode.INVALID_REQUEST]
    assert client.listener.broker.topics.list() == []


async def test_topics_are_deleted_by_name_and_by_id(client: Client) -> None:
    await client.create("a")
    await client.create("b")
    topic_id = client.listener.broker.topics.get("b").topic_id
    answer = await client.ask(20, 5, DeleteTopicsRequest(topic_names=["a", "a"]))
    assert [r.error_code for r in answer.responses] == [ErrorCode.INVALID_REQUEST]
    answer = await client.ask(20, 5, DeleteTopicsRequest(topic_names=["a", "x"]))
    assert [r.error_code for r in answer.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    answer = await client.ask(20, 6, DeleteTopicsRequest([DeleteTopicState(None, topic_id)] * 2))
    assert [r.error_code for r in answer.responses] == [ErrorCode.INVALID_REQUEST]
    wanted = [
        DeleteTopicState(None, topic_id),
        DeleteTopicState(None, UUID(int=1)),
        DeleteTopicState("x", topic_id),
    ]
    answer = await client.ask(20, 6, DeleteTopicsRequest(wanted))
    assert [(r.name, r.error_code) for r in answer.responses] == [
        ("b", 0),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("x", ErrorCode.INVALID_REQUEST),
    ]
    await client.create("a")
    assert (await client.produce("a", [b"fresh"])).base_offset == 0


async def test_partitions_are_added_never_taken(client: Client) -> None:
    await client.create("t", 2)
    for count, code in [(2, ErrorCode.INVALID_PARTITIONS), (1, ErrorCode.INVALID_PARTITIONS), (4, 0)]:
        answer = await client.newest(37, CreatePartitionsRequest([CreatePartitionsTopic("t", count, None)]))
        assert answer.results[0].error_code == code
    assert (await client.produce("t", [b"a"], partition=3)).error_code == 0
    answer = await client.newest(37, CreatePartitionsRequest([CreatePartitionsTopic("zz", 9, None)]))
    assert answer.results[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_log_dirs_and_producers_are_described(client: Client) -> None:
    await client.create("t", 2)
    await client.produce("t", [b"x" * 100], producer_id=7, producer_epoch=0, base_sequence=0)
    for topics in (None, [DescribableLogDirTopic("t", [0, 1, 9]), DescribableLogDirTopic("zz", [0])]):
        (result,) = (await client.newest(35, DescribeLogDirsRequest(topics))).results
        sizes = {p.partition_index: p.partition_size for t in result.topics for p in t.partitions}
        assert sizes[0] > 100 and sizes[1] == 0 and set(sizes) == {0, 1}
        assert 0 < result.usable_bytes <= result.total_bytes
    answer = await client.newest(61, DescribeProducersRequest([ProducersTopic("t", [0, 1, 5])]))
    producers = [
        (p.error_code, [s.producer_id for s in p.active_producers]) for p in answer.topics[0].partitions
    ]
    assert producers == [(0, [7]), (0, []), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])]
    # As a Kafka says of a producer without transactions.
    assert answer.topics[0].partitions[0].active_producers[0].coordinator_epoch == -1


# --- configs -----------------------------------------------------------------------------------------------


async def configs(client: Client, name: str = "t") -> dict[str, str | None]:
    request = DescribeConfigsRequest([DescribeConfigsResource(2, name, None)], True, True)
    (result,) = (await client.newest(32, request)).results
    assert result.error_code == 0
    assert all(c.documentation for c in result.configs)
    return {c.name: c.value for c in result.configs if c.config_source == 1}


async def test_configs_are_described_set_appended_and_deleted(client: Client) -> None:
    await client.create("t", retention_ms="1000")
    assert await configs(client) == {"retention.ms": "1000"}

    async def change(*ops: tuple[str, int, str | None]) -> int:
        items = [incremental.AlterableConfig(*op) for op in ops]
        resource = incremental.AlterConfigsResource(2, "t", items)
        answer = await client.newest(44, incremental.IncrementalAlterConfigsRequest([resource]))
        return int(answer.responses[0].error_code)

    assert await change(("segment.bytes", 0, "2000"), ("retention.ms", 1, None)) == 0
    assert await configs(client) == {"segment.bytes": "2000"}
    assert await change(("cleanup.policy", 2, "compact")) == 0
    assert (await configs(client))["cleanup.policy"] == "delete,compact"
    assert await change(("cleanup.policy", 3, "delete")) == 0
    assert (await configs(client))["cleanup.policy"] == "compact"
    before = await configs(client)
    for bad in [
        (("no.such", 0, "1"),),
        (("retention.ms", 0, None),),
        (("retention.ms", 0, "-5"),),
        (("retention.ms", 2, "1"),),
        (("retention.ms", 9, "1"),),
        (("retention.ms", 0, "1"), ("retention.ms", 0, "2")),
    ]:
        assert await change(*bad) in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert await configs(client) == before
    # As in Kafka 4.1 a topic may do neither.
    assert await change(("cleanup.policy", 3, "compact")) == 0
    assert (await configs(client))["cleanup.policy"] == ""


async def test_the_old_alter_replaces_everything(client: Client) -> None:
    await client.create("t", retention_ms="1000", segment_bytes="5000")
    resource = alter.AlterConfigsResource(2, "t", [alter.AlterableConfig("flush.messages", "7")])
    answer = await client.newest(33, alter.AlterConfigsRequest([resource], validate_only=True))
    assert answer.responses[0].error_code == 0
    assert set(await configs(client)) == {"retention.ms", "segment.bytes"}
    await client.newest(33, alter.AlterConfigsRequest([resource]))
    assert await configs(client) == {"flush.messages": "7"}


async def test_the_brokers_own_settings_can_be_read(client: Client) -> None:
    resources = [
        DescribeConfigsResource(4, "1", ["num.partitions"]),
        DescribeConfigsResource(4, "9", None),
        DescribeConfigsResource(2, "zz", None),
        DescribeConfigsResource(99, "", None),
    ]
    results = (await client.newest(32, DescribeConfigsRequest(resources))).results
    assert [(c.name, c.value, c.read_only) for c in results[0].configs] == [("num.partitions", "1", True)]
    assert [r.error_code for r in results[1:]] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]


# --- offsets -----------------------------------------------------------------------------------------------


async def list_offset(client: Client, timestamp: int, version: int = 7, **changes: Any) -> Any:
    one = ListOffsetsPartition(changes.get("partition", 0), changes.get("epoch", -1), timestamp, 10)
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(changes.get("topic", "t"), [one])])
    return (await client.ask(2, version, request)).topics[0].partitions[0]


async def test_offsets_are_found_by_time(client: Client, clock: ManualClock) -> None:
    await client.create("t")
    start = clock.wall_ms()
    for _ in range(5):
        await client.produce("t", [b"a", b"b"])
        clock.advance(1)
    for timestamp, offset in [(-1, 10), (-2, 0), (-3, 8), (0, 0), (start + 1, 2), (start + 4000, 8)]:
        assert (await list_offset(client, timestamp)).offset == offset, timestamp
    assert (await list_offset(client, start + 9000)).offset == -1
    assert (await list_offset(client, -7)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await list_offset(client, -1, topic="zz")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await list_offset(client, -1, epoch=9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_version_0_lists_segments_newest_first(client: Client) -> None:
    await client.create("t", segment_bytes="1000")
    for _ in range(6):
        await client.produce("t", [b"x" * 400])
    assert (await list_offset(client, -1, version=0)).old_style_offsets == [6, 4, 2, 0]
    assert (await list_offset(client, -2, version=0)).old_style_offsets == [0]


async def test_epochs_end_where_the_log_ends(client: Client) -> None:
    await client.create("t")
    await client.produce("t", [b"a"])
    topics = [
        OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0), OffsetForLeaderPartition(7, -1, 0)])
    ]
    answer = await client.newest(23, OffsetForLeaderEpochRequest(-1, topics))
    one, unknown = answer.topics[0].partitions
    assert (one.error_code, one.leader_epoch, one.end_offset) == (0, 0, 1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_records_are_deleted_below_an_offset(client: Client) -> None:
    await client.create("t")
    for _ in range(5):
        await client.produce("t", [b"a"])

    async def delete(offset: int) -> Any:
        topics = [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])]
        return (await client.newest(21, DeleteRecordsRequest(topics))).topics[0].partitions[0]

    assert (await delete(3)).low_watermark == 3
    assert (await list_offset(client, -2)).offset == 3
    assert (await delete(2)).low_watermark == 3
    assert (await delete(9)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await delete(-1)).low_watermark == 5


async def test_records_of_many_partitions_are_deleted_with_one_checkpoint(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t", 3)
    for partition in range(3):
        await client.produce("t", [b"a", b"b"], partition=partition)
    logs, checkpoints = client.listener.broker.logs, []
    begin = logs.begin_checkpoint
    monkeypatch.setattr(logs, "begin_checkpoint", lambda: checkpoints.append(1) or begin())

    async def delete(*asked: tuple[str, int, int]) -> list[tuple[int, int]]:
        topics = [DeleteRecordsTopic(name, [DeleteRecordsPartition(p, before)]) for name, p, before in asked]
        answer = await client.newest(21, DeleteRecordsRequest(topics))
        return [(p.low_watermark, p.error_code) for topic in answer.topics for p in topic.partitions]

    assert await delete(("t", 2, 1), ("t", 9, 0), ("t", 0, 3), ("none", 0, 0), ("t", 1, -1)) == [
        (1, 0),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, 0),
    ]
    assert len(checkpoints) == 1
    assert await delete(("t", 9, 0)) == [(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert len(checkpoints) == 1


async def test_topics_configs_and_records_are_there_after_a_restart(
    config: Config, clock: ManualClock
) -> None:
    ids = set()
    for attempt in range(3):
        broker = Broker(config, clock)
        await broker.open()
        client = Client(KafkaListener(broker, HANDLERS))
        if attempt == 0:
            await client.create("t", 2, retention_ms="123456")
        done = await client.produce("t", [b"a"], partition=1)
        assert done.base_offset == attempt
        assert await configs(client) == {"retention.ms": "123456"}
        ids.add((broker.cluster_id, broker.topics.get("t").topic_id))
        given = await client.newest(22, InitProducerIdRequest(None))
        ids.add(("producer", given.producer_id))
        await broker.close()
    assert len(ids) == 4


def test_every_handler_serves_versions_that_the_codec_knows() -> None:
    for key, handler in HANDLERS.items():
        low, high = handler.versions
        assert APIS[key].min_version <= low <= high <= APIS[key].max_version
