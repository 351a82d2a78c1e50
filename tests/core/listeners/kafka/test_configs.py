"""Settings over the wire: topics, brokers, loggers; refusals in the codes and words that Apache Kafka 4.1.0 has."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.broker.broker import Broker
from core.broker.broker_configs import DYNAMIC, FIXED
from core.clock import ManualClock
from core.config import Config, Endpoint, Peer
from core.errors import BrokerError, ErrorCode
from core.listeners.kafka.dispatch import HANDLERS
from core.listeners.kafka.listener import KafkaListener
from core.protocol.messages import alter_configs as alter
from core.protocol.messages import incremental_alter_configs as incremental
from core.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from core.protocol.messages.list_config_resources import ListConfigResourcesRequest
from core.topic_config import described
from core.types import TopicPartition
from tests.core.listeners.kafka.conftest import Client

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG

# All 33 with values that are not the defaults, as a Terraform resource that spells out everything would send.
ALL_SETTINGS = {
    "cleanup.policy": "compact,delete", "compression.gzip.level": "9", "compression.lz4.level": "12",
    "compression.type": "zstd", "compression.zstd.level": "-7", "delete.retention.ms": "1000",
    "file.delete.delay.ms": "60000", "flush.messages": "10000", "flush.ms": "1000",
    "follower.replication.throttled.replicas": "0:1", "index.interval.bytes": "8192",
    "leader.replication.throttled.replicas": "*", "local.retention.bytes": "-1", "local.retention.ms": "-1",
    "max.compaction.lag.ms": "86400000", "max.message.bytes": "2097152",
    "message.timestamp.after.max.ms": "7200000", "message.timestamp.before.max.ms": "86400000",
    "message.timestamp.type": "LogAppendTime", "min.cleanable.dirty.ratio": "0.25",
    "min.compaction.lag.ms": "10", "min.insync.replicas": "2", "preallocate": "true",
    "remote.log.copy.disable": "true", "remote.log.delete.on.disable": "true", "remote.storage.enable": "false",
    "retention.bytes": "1073741824", "retention.ms": "3600000", "segment.bytes": "1048576",
    "segment.index.bytes": "1048576", "segment.jitter.ms": "100", "segment.ms": "600000",
    "unclean.leader.election.enable": "true",
}  # fmt: skip


async def describe(client: Client, kind: int, name: str, *keys: str) -> DescribeConfigsResult:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, list(keys) or None)], True, True)
    (result,) = (await client.newest(32, request)).results
    assert isinstance(result, DescribeConfigsResult)
    return result


async def entries(
    client: Client, kind: int, name: str, *keys: str
) -> dict[str, DescribeConfigsResourceResult]:
    result = await describe(client, kind, name, *keys)
    assert result.error_code == 0, result.error_message
    return {entry.name: entry for entry in result.configs}


async def change(
    client: Client, kind: int, name: str, *ops: tuple[str, int, str | None], validate: bool = False
) -> tuple[int, str | None]:
    items = [incremental.AlterableConfig(*op) for op in ops]
    resource = incremental.AlterConfigsResource(kind, name, items)
    request = incremental.IncrementalAlterConfigsRequest([resource], validate)
    (result,) = (await client.newest(44, request)).responses
    return result.error_code, result.error_message


async def alter_all(client: Client, kind: int, name: str, **configs: str | None) -> tuple[int, str | None]:
    items = [alter.AlterableConfig(key.replace("_", "."), value) for key, value in configs.items()]
    request = alter.AlterConfigsRequest([alter.AlterConfigsResource(kind, name, items)])
    (result,) = (await client.newest(33, request)).responses
    return result.error_code, result.error_message


def shown(entry: DescribeConfigsResourceResult) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    return entry.value, entry.config_source, [(s.name, s.value, s.source) for s in entry.synonyms]


# --- topics -------------------------------------------------------------------------------------------------


async def test_a_topic_takes_all_33_settings_and_shows_them(client: Client) -> None:
    assert set(ALL_SETTINGS) == {one.name for one in described()}
    await client.create("t", **{name.replace(".", "_"): value for name, value in ALL_SETTINGS.items()})
    found = await entries(client, TOPIC, "t")
    assert {name: entry.value for name, entry in found.items()} == ALL_SETTINGS
    assert {entry.config_source for entry in found.values()} == {1}
    assert not any(entry.read_only or entry.is_sensitive for entry in found.values())
    assert {name: entry.config_type for name, entry in found.items()} == {
        one.name: {"BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "DOUBLE": 6, "LIST": 7}[one.type]
        for one in described()
    }


async def test_settings_of_older_kafkas_are_taken_and_shown_where_they_are_set(client: Client) -> None:
    older = {
        "message_format_version": "2.8",
        "message_downconversion_enable": "false",
        "message_timestamp_difference_max_ms": "1000",
    }
    await client.create("old", **older)
    await client.create("new")
    names = {name.replace("_", ".") for name in older}
    assert names <= set(await entries(client, TOPIC, "old"))
    assert not names & set(await entries(client, TOPIC, "new"))
    assert len(await entries(client, TOPIC, "new")) == 33


async def test_a_null_value_is_refused_where_a_topic_is_created(client: Client) -> None:
    topic = CreatableTopic("t", 1, 1, [], [CreatableTopicConfig("retention.ms", None)])
    (result,) = (await client.newest(19, CreateTopicsRequest([topic]))).topics
    assert (result.error_code, result.error_message) == (
        INVALID_CONFIG, "Null value not supported for topic configs: retention.ms",
    )  # fmt: skip


# Recorded from Apache Kafka 4.1.0.
TOPIC_REFUSALS: list[tuple[str, list[tuple[str, int, str | None]], int, str]] = [
    ("nope", [("retention.ms", SET, "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
    ("", [("retention.ms", SET, "1")], INVALID_REQUEST, "Default topic resources are not allowed."),
    ("t", [("nosuch", SET, "1")], INVALID_CONFIG, "Unknown topic config name: nosuch"),
    (
        "t", [("retention.ms", SET, "x")], INVALID_CONFIG,
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    ),
    ("t", [("retention.ms", SET, None)], INVALID_REQUEST, "Null value not supported for : retention.ms"),
    (
        "t", [("retention.ms", APPEND, "1")], INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    (
        "t", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], INVALID_REQUEST,
        "Error due to duplicate config keys",
    ),
    (
        "t", [("remote.storage.enable", SET, "true")], INVALID_CONFIG,
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
    ("t", [("retention.ms", 9, "1")], INVALID_REQUEST, "Unknown operations type 9"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ops", "code", "message"), TOPIC_REFUSALS)
async def test_a_change_of_a_topic_is_refused_as_kafka_does(
    client: Client, name: str, ops: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    await client.create("t")
    found = await change(client, TOPIC, name, *ops)
    assert found[0] == code
    assert found[1] == message or not message


async def test_a_resource_that_is_named_again_is_refused_each_time(client: Client) -> None:
    await client.create("t")
    one = incremental.AlterConfigsResource(TOPIC, "t", [incremental.AlterableConfig("retention.ms", 0, "9")])
    answer = await client.newest(44, incremental.IncrementalAlterConfigsRequest([one, one]))
    assert [(r.error_code, r.error_message) for r in answer.responses] == [
        (INVALID_REQUEST, "Each resource must appear at most once.")
    ] * 2
    other = alter.AlterConfigsResource(TOPIC, "t", [])
    answer = await client.newest(33, alter.AlterConfigsRequest([other, other]))
    assert [r.error_code for r in answer.responses] == [INVALID_REQUEST] * 2


async def test_lists_are_appended_to_and_subtracted_from(client: Client) -> None:
    await client.create("t")
    throttled = "leader.replication.throttled.replicas"
    assert await change(client, TOPIC, "t", (throttled, APPEND, "0:1,1:1")) == (0, None)
    assert await change(client, TOPIC, "t", (throttled, SUBTRACT, "0:1")) == (0, None)
    assert (await entries(client, TOPIC, "t", throttled))[throttled].value == "1:1"
    assert await change(client, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == (0, None)
    assert (await entries(client, TOPIC, "t", "cleanup.policy"))["cleanup.policy"].value == "delete,compact"


async def test_a_setting_that_does_not_exist_may_be_deleted(client: Client) -> None:
    await client.create("t")
    assert await change(client, TOPIC, "t", ("nosuch", DELETE, None)) == (0, None)
    assert await change(client, BROKER, "1", ("nosuch", DELETE, None)) == (0, None)
    assert (await change(client, TOPIC, "nope", ("nosuch", DELETE, None)))[0] != 0


# --- brokers ------------------------------------------------------------------------------------------------


async def test_the_broker_names_what_it_has_an_equivalent_for(client: Client, config: Config) -> None:
    found = await entries(client, BROKER, "1")
    assert set(found) == {*DYNAMIC, *(one.name for one in FIXED)}
    assert {name for name, entry in found.items() if not entry.read_only} == set(DYNAMIC)
    assert all(entry.documentation and not entry.is_sensitive for entry in found.values())
    for name, value, source, kind in [
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:9092", 4, 2),
        ("auto.create.topics.enable", "true", 5, 1),
        ("broker.id", "1", 4, 3),
        ("group.max.session.timeout.ms", "1800000", 5, 3),
        ("listeners", "PLAINTEXT://127.0.0.1:9092", 4, 2),
        ("log.cleaner.min.cleanable.ratio", "0.5", 5, 6),
        ("log.cleanup.policy", "delete", 5, 7),
        ("log.dirs", str(config.data_dir), 4, 2),
        ("log.retention.hours", "168", 5, 3),
        ("log.segment.bytes", "1073741824", 5, 3),
        ("message.max.bytes", "1048588", 5, 3),
        ("node.id", "1", 4, 3),
        ("num.partitions", "1", 5, 3),
        ("offsets.retention.minutes", "10080", 5, 3),
        ("process.roles", "broker,controller", 4, 7),
    ]:
        entry = found[name]
        assert (entry.value, entry.config_source, entry.config_type) == (value, source, kind), name
    # As in Kafka the time in milliseconds has no default of its own.
    assert shown(found["log.retention.ms"]) == (None, 5, [])
    assert shown(found["num.partitions"]) == ("1", 5, [("num.partitions", "1", 5)])


async def test_a_broker_is_asked_for_by_its_own_number(client: Client) -> None:
    assert (await describe(client, BROKER, "")).configs == []
    for name, message in [
        ("2", "Unexpected broker id, expected 1 or empty string, but received 2"),
        ("x", "Broker id must be an integer, but it is: x"),
    ]:
        result = await describe(client, BROKER, name)
        assert (result.error_code, result.error_message) == (INVALID_REQUEST, message)


async def test_defaults_of_topics_are_changed_at_run_time(client: Client, broker: Broker) -> None:
    await client.create("t")
    await client.create("own", retention_ms="5")
    assert await change(client, BROKER, "", ("log.retention.ms", SET, "888")) == (0, None)
    assert broker.topics.get("t").config.retention_ms == 888
    hours = ("log.retention.hours", "168", 5)
    name = "retention.ms"
    assert shown((await entries(client, TOPIC, "t", name))[name]) == (
        "888", 3, [("log.retention.ms", "888", 3), hours],
    )  # fmt: skip
    assert await change(client, BROKER, "1", ("log.retention.ms", SET, " 777 ")) == (0, None)
    chain = [("log.retention.ms", "777", 2), ("log.retention.ms", "888", 3), hours]
    assert shown((await entries(client, TOPIC, "t", name))[name]) == ("777", 2, chain)
    assert shown((await entries(client, TOPIC, "own", name))[name]) == (
        "5", 1, [("retention.ms", "5", 1), *chain],
    )  # fmt: skip
    assert shown((await entries(client, BROKER, "1", "log.retention.ms"))["log.retention.ms"]) == (
        "777", 2, chain,
    )  # fmt: skip
    assert shown((await entries(client, BROKER, ""))["log.retention.ms"]) == (
        "888", 3, [("log.retention.ms", "888", 3)],
    )  # fmt: skip
    assert broker.partitions.log(TopicPartition("t", 0)).config.retention_ms == 777
    assert broker.topics.get("own").config.retention_ms == 5
    assert await change(client, BROKER, "1", ("log.retention.ms", DELETE, None)) == (0, None)
    assert await change(client, BROKER, "", ("log.retention.ms", DELETE, "")) == (0, None)
    assert broker.topics.get("t").config.retention_ms == 604_800_000


async def test_a_changed_limit_holds_for_the_next_record(client: Client) -> None:
    await client.create("t")
    assert (await client.produce("t", [b"x" * 3000])).error_code == 0
    assert await change(client, BROKER, "1", ("message.max.bytes", SET, "2000")) == (0, None)
    assert (await client.produce("t", [b"x" * 3000])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert await change(client, BROKER, "1", ("message.max.bytes", DELETE, None)) == (0, None)
    assert (await client.produce("t", [b"x" * 3000])).error_code == 0


# Recorded from Apache Kafka 4.1.0, but for settings that do not exist, which it stores.
BROKER_REFUSALS: list[tuple[str, tuple[str, int, str | None], str]] = [
    ("1", ("num.partitions", SET, "3"), "Cannot update these configs dynamically: Set(num.partitions)"),
    ("", ("log.dirs", SET, "/x"), "Cannot update these configs dynamically: Set(log.dirs)"),
    ("1", ("nonsense", SET, "3"), "Cannot update these configs dynamically: Set(nonsense)"),
    ("1", ("retention.ms", SET, "5"), "Cannot update these configs dynamically: Set(retention.ms)"),
    ("2", ("log.retention.ms", SET, "1"), "Unexpected broker id, expected 1, but received 2"),
    ("x", ("log.retention.ms", SET, "1"), "Node id must be an integer, but it is: x"),
    (
        "1", ("log.retention.ms", SET, "soon"),
        "Invalid value soon for configuration log.retention.ms: Not a number of type LONG",
    ),
    ("1", ("log.retention.ms", SET, None), "Null value not supported for : log.retention.ms"),
    (
        "1", ("log.cleanup.policy", SET, "burn"),
        "Invalid value burn for configuration log.cleanup.policy: String must be one of: compact, delete",
    ),
    (
        "", ("message.max.bytes", SET, "-1"),
        "Invalid value -1 for configuration message.max.bytes: Value must be at least 0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "op", "message"), BROKER_REFUSALS)
async def test_a_change_of_a_broker_is_refused_as_kafka_does(
    client: Client, broker: Broker, name: str, op: tuple[str, int, str | None], message: str
) -> None:
    assert await change(client, BROKER, name, op) == (INVALID_REQUEST, message)
    assert broker.broker_configs.topic_defaults == {}


async def test_a_default_that_a_topic_cannot_have_is_refused(client: Client, broker: Broker) -> None:
    await client.create("t", min_compaction_lag_ms="20")
    code, message = await change(client, BROKER, "1", ("log.cleaner.max.compaction.lag.ms", SET, "10"))
    assert code == INVALID_REQUEST and "min.compaction.lag.ms (20) > max.compaction.lag.ms (10)" in str(
        message
    )
    assert broker.topics.get("t").config.max_compaction_lag_ms > 20


async def test_a_change_that_is_only_checked_changes_nothing(client: Client, broker: Broker) -> None:
    assert await change(client, BROKER, "1", ("log.retention.ms", SET, "5"), validate=True) == (0, None)
    assert broker.broker_configs.dynamic("1") == {}


async def test_the_old_alter_replaces_all_that_was_set_at_run_time(client: Client, broker: Broker) -> None:
    ops = [("log.retention.ms", SET, "777"), ("message.max.bytes", SET, "5000")]
    assert await change(client, BROKER, "1", *ops) == (0, None)
    assert await alter_all(client, BROKER, "1", log_retention_ms="999") == (0, None)
    assert broker.broker_configs.dynamic("1") == {"log.retention.ms": "999"}
    assert await alter_all(client, BROKER, "1") == (0, None)
    assert broker.broker_configs.dynamic("1") == {}


async def test_changes_are_there_after_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    first = Broker(Config(data_dir=tmp_path), clock)
    await first.open()
    await first.topics.create("t")
    await first.broker_configs.alter("", {"log.retention.ms": "888", "min.insync.replicas": "1"})
    await first.broker_configs.alter("1", {"producer.id.expiration.ms": "5000", "log.segment.bytes": "1000"})
    await first.broker_configs.alter("", {"min.insync.replicas": None})
    await first.close()
    second = Broker(Config(data_dir=tmp_path), clock)
    await second.open()
    config = second.topics.get("t").config
    assert (config.retention_ms, config.segment_bytes) == (888, 1000)
    assert second.logs.producer_id_expiration_ms == 5000
    assert second.broker_configs.dynamic("") == {"log.retention.ms": "888"}
    await second.close()


async def test_what_the_process_was_started_with_is_a_level_of_its_own(tmp_path: Path) -> None:
    config = Config(
        data_dir=tmp_path, compaction_min_dirty_ratio=0.25, index_interval_bytes=100, default_partitions=4,
        topic_defaults={"retention.ms": "60000", "message.format.version": "2.8"},
    )  # fmt: skip
    broker = Broker(config, ManualClock())
    await broker.open()
    listener = KafkaListener(broker, HANDLERS)
    listener.bound(Endpoint("kafka", "127.0.0.1", 9092))
    client = Client(listener)
    await client.create("t", 1)
    found = await entries(client, TOPIC, "t")
    assert shown(found["min.cleanable.dirty.ratio"]) == (
        "0.25", 4,
        [("log.cleaner.min.cleanable.ratio", "0.25", 4), ("log.cleaner.min.cleanable.ratio", "0.5", 5)],
    )  # fmt: skip
    assert shown(found["retention.ms"])[:2] == ("60000", 4)
    topic = broker.topics.get("t").config
    assert (topic.min_cleanable_dirty_ratio, topic.index_interval_bytes) == (0.25, 100)
    found = await entries(client, BROKER, "1", "num.partitions")
    assert shown(found["num.partitions"]) == (
        "4",
        4,
        [("num.partitions", "4", 4), ("num.partitions", "1", 5)],
    )
    # A change at run time wins, and gives way again.
    assert await change(client, BROKER, "", ("log.retention.ms", SET, "5")) == (0, None)
    assert broker.topics.get("t").config.retention_ms == 5
    assert await change(client, BROKER, "", ("log.retention.ms", DELETE, None)) == (0, None)
    assert broker.topics.get("t").config.retention_ms == 60_000
    await broker.close()


async def test_defaults_that_a_stored_topic_cannot_have_do_not_stop_the_start(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    first = Broker(Config(data_dir=tmp_path), clock)
    await first.open()
    await first.topics.create("t", configs={"min.compaction.lag.ms": "20", "retention.ms": "7"})
    await first.close()
    second = Broker(Config(data_dir=tmp_path, topic_defaults={"max.compaction.lag.ms": "10"}), clock)
    await second.open()
    assert second.topics.get("t").config.retention_ms == 7
    assert "the broker's defaults do not hold for it" in caplog.text
    await second.close()


async def test_the_settings_of_another_broker_of_the_cluster_can_be_set(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = (Peer(2, "127.0.0.1", 9), Peer(3, "127.0.0.1", 9))
    monkeypatch.setattr(broker.broker_configs, "_config", replace(broker.config, peers=peers))
    await broker.broker_configs.alter("2", {"log.retention.ms": "5"})
    assert broker.broker_configs.topic_defaults == {}
    with pytest.raises(BrokerError, match="expected 1 or 2 or 3, but received 4"):
        await broker.broker_configs.alter("4", {"log.retention.ms": "5"})


# --- loggers, groups, metrics -------------------------------------------------------------------------------


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("core.test_of_levels")
    root = logging.getLogger().level
    yield made
    made.setLevel(logging.NOTSET)
    logging.getLogger().setLevel(root)


async def test_loggers_are_described_and_set(client: Client, logger: logging.Logger) -> None:
    assert await change(client, LOGGER, "1", (logger.name, SET, "FATAL")) == (0, None)
    assert logger.level == logging.CRITICAL
    found = await entries(client, LOGGER, "1")
    assert shown(found[logger.name]) == ("FATAL", 6, [])
    assert "root" in found and "core.broker.broker" in found
    assert await change(client, LOGGER, "1", (logger.name, SET, "TRACE"), validate=True) == (0, None)
    assert logger.level == logging.CRITICAL
    assert await change(client, LOGGER, "1", (logger.name, DELETE, None), ("root", SET, "WARN")) == (0, None)
    assert logger.level == logging.NOTSET
    assert (await entries(client, LOGGER, "1"))[logger.name].value == "WARN"


LOGGER_REFUSALS: list[tuple[str, tuple[str, int, str | None], int, str]] = [
    ("1", ("nosuch", SET, "INFO"), INVALID_CONFIG, "Logger nosuch does not exist!"),
    (
        "1", ("root", SET, "NOISE"), INVALID_CONFIG,
        "Cannot set the log level of root to NOISE as it is not a supported log level. Valid log levels are DEBUG, "
        "ERROR, FATAL, INFO, TRACE, WARN",
    ),
    ("1", ("root", DELETE, None), INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
    (
        "1", ("root", APPEND, "INFO"), INVALID_REQUEST,
        "APPEND operation is not allowed for the BROKER_LOGGER resource",
    ),
    ("2", ("root", SET, "INFO"), INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "op", "code", "message"), LOGGER_REFUSALS)
async def test_a_change_of_a_logger_is_refused_as_kafka_does(
    client: Client, name: str, op: tuple[str, int, str | None], code: int, message: str
) -> None:
    level = logging.getLogger().level
    assert await change(client, LOGGER, name, op) == (code, message)
    assert logging.getLogger().level == level
    assert (await alter_all(client, LOGGER, "1", root="INFO"))[1] == "Unknown resource type 8"


async def test_a_group_is_described_with_its_own_settings_before_those_of_the_broker(client: Client) -> None:
    assert await change(client, GROUP, "g", ("consumer.session.timeout.ms", SET, " 050000")) == (0, None)
    found = await entries(client, GROUP, "g")
    name = "consumer.session.timeout.ms"
    assert shown(found[name]) == ("50000", 8, [(name, "50000", 8)])
    name = "share.auto.offset.reset"
    assert shown(found[name]) == ("latest", 5, [(name, "latest", 5)])
    assert found["share.renew.acknowledge.enable"].config_type == 1
    assert not any(entry.read_only for entry in found.values())
    assert (await entries(client, GROUP, "other"))["consumer.session.timeout.ms"].value == "45000"
    assert await change(client, GROUP, "g", ("consumer.session.timeout.ms", DELETE, None)) == (0, None)
    assert (await entries(client, GROUP, "g"))["consumer.session.timeout.ms"].config_source == 5


@pytest.mark.settings(group_consumer_session_timeout_ms=50_000)
async def test_a_group_is_described_with_what_the_broker_was_started_with(client: Client) -> None:
    found = await entries(client, GROUP, "g")
    assert shown(found["consumer.session.timeout.ms"]) == (
        "50000", 4, [("group.consumer.session.timeout.ms", "50000", 4)]
    )  # fmt: skip


async def test_alter_configs_replaces_the_settings_of_a_group(client: Client) -> None:
    assert await alter_all(client, GROUP, "g", share_isolation_level="read_committed") == (0, None)
    assert await alter_all(client, GROUP, "g", share_delivery_count_limit="3") == (0, None)
    found = await entries(client, GROUP, "g")
    assert {name: e.value for name, e in found.items() if e.config_source == 8} == {
        "share.delivery.count.limit": "3"
    }


async def test_groups_with_settings_are_listed(client: Client) -> None:
    await change(client, GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "6000"))
    await change(client, GROUP, "h", ("consumer.heartbeat.interval.ms", SET, "6000"))
    await change(client, GROUP, "h", ("consumer.heartbeat.interval.ms", DELETE, None))
    answer = await client.newest(74, ListConfigResourcesRequest([GROUP]))
    assert [(one.resource_name, one.resource_type) for one in answer.config_resources] == [("g", GROUP)]


@pytest.mark.parametrize(
    ("group", "op", "code", "message"),
    [
        ("", ("consumer.session.timeout.ms", SET, "50000"), INVALID_REQUEST,
         "Default group resources are not allowed."),
        ("g", ("group.session", SET, "1"), INVALID_CONFIG, "Unknown group config name: group.session"),
        ("g", ("consumer.session.timeout.ms", APPEND, "1"), INVALID_CONFIG,
         "Can't APPEND to key consumer.session.timeout.ms because its type is not LIST."),
        ("g", ("consumer.session.timeout.ms", SET, "70000"), INVALID_CONFIG,
         "consumer.session.timeout.ms must be less than or equal to group.consumer.max.session.timeout.ms (60000)"),
    ],
)  # fmt: skip
async def test_a_change_of_a_group_is_refused_as_kafka_does(
    client: Client, group: str, op: tuple[str, int, str | None], code: int, message: str
) -> None:
    assert await change(client, GROUP, group, op) == (code, message)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (GROUP, "Group name must not be empty"),
        (METRICS, "Client metrics subscription name must not be empty"),
        (LOGGER, "Broker id must not be empty"),
    ],
)
async def test_other_resources_answer_a_list(client: Client, kind: int, missing: str) -> None:
    if kind == METRICS:
        assert await entries(client, kind, "x") == {}
        code, message = await change(client, kind, "x", ("consumer.session.timeout.ms", SET, "50000"))
        assert code in (INVALID_CONFIG, INVALID_REQUEST) and message
    result = await describe(client, kind, "")
    assert (result.error_code, result.error_message) == (INVALID_REQUEST, missing)


@pytest.mark.parametrize("kind", [0, 1, 3, 64])
async def test_an_unknown_resource_is_refused(client: Client, kind: int) -> None:
    result: Any = await describe(client, kind, "x")
    assert (result.error_code, result.error_message) == (INVALID_REQUEST, f"Unknown resource type {kind}")
    assert await change(client, kind, "x", ("a", SET, "1")) == (
        INVALID_REQUEST,
        f"Unknown resource type {kind}",
    )
