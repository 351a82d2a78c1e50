"""Topic settings: what is known is parsed and bounded, what is not known is refused, in Kafka's words."""

from __future__ import annotations

import pytest

from core.errors import BrokerError, ErrorCode
from core.topic_config import (
    DEFINITIONS,
    INT_MAX,
    LONG_MAX,
    STORED_ONLY,
    TopicConfig,
    definition,
    described,
    parse_topic_config,
)

# What DescribeConfigs of Apache Kafka 4.1.0 answers for a topic: name, type, default, the broker's setting. Ours
# differs in one default (file.delete.delay.ms), which stands below.
KAFKA_4_1 = """
cleanup.policy LIST delete log.cleanup.policy
compression.gzip.level INT -1 compression.gzip.level
compression.lz4.level INT 9 compression.lz4.level
compression.type STRING producer compression.type
compression.zstd.level INT 3 compression.zstd.level
delete.retention.ms LONG 86400000 log.cleaner.delete.retention.ms
file.delete.delay.ms LONG 60000 log.segment.delete.delay.ms
flush.messages LONG 9223372036854775807 log.flush.interval.messages
flush.ms LONG 9223372036854775807 log.flush.interval.ms
follower.replication.throttled.replicas LIST
index.interval.bytes INT 4096 log.index.interval.bytes
leader.replication.throttled.replicas LIST
local.retention.bytes LONG -2 log.local.retention.bytes
local.retention.ms LONG -2 log.local.retention.ms
max.compaction.lag.ms LONG 9223372036854775807 log.cleaner.max.compaction.lag.ms
max.message.bytes INT 1048588 message.max.bytes
message.timestamp.after.max.ms LONG 3600000 log.message.timestamp.after.max.ms
message.timestamp.before.max.ms LONG 9223372036854775807 log.message.timestamp.before.max.ms
message.timestamp.type STRING CreateTime log.message.timestamp.type
min.cleanable.dirty.ratio DOUBLE 0.5 log.cleaner.min.cleanable.ratio
min.compaction.lag.ms LONG 0 log.cleaner.min.compaction.lag.ms
min.insync.replicas INT 1 min.insync.replicas
preallocate BOOLEAN false log.preallocate
remote.log.copy.disable BOOLEAN false
remote.log.delete.on.disable BOOLEAN false
remote.storage.enable BOOLEAN false
retention.bytes LONG -1 log.retention.bytes
retention.ms LONG 604800000 log.retention.ms
segment.bytes INT 1073741824 log.segment.bytes
segment.index.bytes INT 10485760 log.index.size.max.bytes
segment.jitter.ms LONG 0 log.roll.jitter.ms
segment.ms LONG 604800000 log.roll.ms
unclean.leader.election.enable BOOLEAN false unclean.leader.election.enable
"""


def test_the_table_has_the_settings_of_kafka_4_1_with_their_types_and_defaults() -> None:
    differences = {"file.delete.delay.ms": "1000"}
    expected = []
    for line in KAFKA_4_1.strip().splitlines():
        name, kind, *rest = line.split()
        if kind == "LIST" and name != "cleanup.policy":
            rest = ["", *rest]
        default = differences.get(name, rest[0])
        expected.append((name, kind, default, rest[1] if len(rest) > 1 else ""))
    assert [(one.name, one.type, one.default, one.broker) for one in described()] == expected
    assert len(expected) == 33


def test_older_settings_are_described_where_they_are_set() -> None:
    older = {"message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms"}
    assert {name for name, one in DEFINITIONS.items() if one.older} == older
    names = [one.name for one in described(["message.format.version", "retention.ms"])]
    assert names == sorted([*(one.name for one in described()), "message.format.version"])


def test_the_defaults_of_the_table_are_those_of_the_class() -> None:
    assert parse_topic_config({one.name: one.default for one in described()}) == TopicConfig()
    assert parse_topic_config({}) == TopicConfig()


def test_a_topics_own_setting_wins_over_the_brokers() -> None:
    config = parse_topic_config({"retention.ms": "1"}, {"retention.ms": "2", "segment.ms": "3"})
    assert (config.retention_ms, config.segment_ms) == (1, 3)


@pytest.mark.parametrize(
    ("policy", "compacted", "deletes"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact, delete", True, True),
        ("delete,delete", False, True),
        ("", False, False),
    ],
)
def test_a_cleanup_policy_is_a_list_that_may_be_empty(policy: str, compacted: bool, deletes: bool) -> None:
    config = parse_topic_config({"cleanup.policy": policy})
    assert (config.compacted, config.deletes) == (compacted, deletes)


# Recorded from Apache Kafka 4.1.0, but for segment.bytes, whose minimum is 1 MiB there since 4.1 and 14 before.
@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("retention.ms", "soon", "Not a number of type LONG"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", str(2**63), "Not a number of type LONG"),
        ("retention.ms", "9" * 5000, "Not a number of type LONG"),
        ("segment.bytes", "13", "Value must be at least 14"),
        ("segment.bytes", str(INT_MAX + 1), "Not a number of type INT"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("compression.zstd.level", "-131073", "Value must be at least -131072"),
        ("min.insync.replicas", "0", "Value must be at least 1"),
        ("preallocate", "maybe", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "x", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "NaN", "Not a number of type DOUBLE"),
        ("segment.index.bytes", "3", "Value must be at least 4"),
        ("max.compaction.lag.ms", "0", "Value must be at least 1"),
        ("compression.type", "brotli", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("message.format.version", "new", "Version must look like 3.0 or 2.8-IV1"),
    ],
)  # fmt: skip
def test_a_value_out_of_bounds_is_refused_in_kafkas_words(name: str, text: str, why: str) -> None:
    with pytest.raises(BrokerError) as refused:
        parse_topic_config({name: text})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.message == f"Invalid value {text[:200]} for configuration {name}: {why}"


def test_a_bad_item_of_a_list_is_named() -> None:
    with pytest.raises(
        BrokerError, match=r"Invalid value burn for configuration cleanup\.policy: String must be"
    ):
        parse_topic_config({"cleanup.policy": "compact,burn"})
    name = "leader.replication.throttled.replicas"
    for good in ("", "*", "0:1", "0:1, 12:3"):
        parse_topic_config({name: good})
    for bad in ("x", "none", "0:1,*", "0", "0:1:2"):
        with pytest.raises(BrokerError, match="must be the literal '\\*' or a list of replicas"):
            parse_topic_config({name: bad})


@pytest.mark.parametrize("name", ["", "nonsense", "retention", "internal.segment.bytes"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(BrokerError) as refused:
        parse_topic_config({name: "1"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.message == f"Unknown topic config name: {name}"


def test_tiered_storage_is_refused() -> None:
    parse_topic_config({"remote.storage.enable": "false", "remote.log.copy.disable": "true"})
    with pytest.raises(BrokerError, match="Tiered Storage functionality is disabled in the broker"):
        parse_topic_config({"remote.storage.enable": "TRUE"})


def test_compaction_lags_that_exclude_each_other_are_refused() -> None:
    lags = {"min.compaction.lag.ms": "20", "max.compaction.lag.ms": "10"}
    with pytest.raises(BrokerError, match=r"min.compaction.lag.ms \(20\) > max.compaction.lag.ms \(10\)"):
        parse_topic_config(lags)


def test_the_older_bound_on_timestamps_is_both_of_todays() -> None:
    older = "message.timestamp.difference.max.ms"
    config = parse_topic_config({older: "5"})
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (5, 5)
    config = parse_topic_config({older: "5", "message.timestamp.after.max.ms": "7"})
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (5, 7)
    # A topic's own wins over the broker's, whatever its name.
    config = parse_topic_config({older: "5"}, {"message.timestamp.before.max.ms": "9"})
    assert config.message_timestamp_before_max_ms == 5


def test_a_segment_of_a_compacted_topic_is_rolled_before_its_records_are_overdue() -> None:
    settings = {"segment.ms": "100", "max.compaction.lag.ms": "30"}
    assert parse_topic_config(settings).roll_ms == 100
    assert parse_topic_config({**settings, "cleanup.policy": "compact"}).roll_ms == 30
    assert parse_topic_config({"segment.ms": "100", "cleanup.policy": "compact"}).roll_ms == 100


def test_the_level_is_that_of_the_topics_codec() -> None:
    levels = {"compression.gzip.level": "9", "compression.lz4.level": "3", "compression.zstd.level": "-7"}
    found = {
        codec: parse_topic_config({"compression.type": codec, **levels}).compression_level
        for codec in ("gzip", "lz4", "zstd", "snappy", "producer", "uncompressed")
    }
    assert found == {
        "gzip": 9, "lz4": 3, "zstd": -7, "snappy": None, "producer": None, "uncompressed": None,
    }  # fmt: skip


def test_what_has_no_effect_is_known_by_name() -> None:
    assert {
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
        "local.retention.bytes", "local.retention.ms", "message.downconversion.enable",
        "message.format.version", "preallocate", "remote.log.copy.disable", "remote.log.delete.on.disable",
        "remote.storage.enable", "unclean.leader.election.enable",
    } == STORED_ONLY  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("retention.ms", " +07 ", "7"),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", ".50", "0.5"),
        ("cleanup.policy", " delete , compact ", "delete,compact"),
        ("compression.type", " gzip ", "gzip"),
        # Earlier releases have taken and stored such numbers.
        ("retention.ms", "1_000", "1000"),
    ],
)
def test_values_are_shown_in_one_form(name: str, text: str, shown: str) -> None:
    assert definition(name).normal(text) == shown
    assert parse_topic_config({name: text}) == parse_topic_config({name: shown})


@pytest.mark.parametrize("one", DEFINITIONS.values(), ids=DEFINITIONS)
def test_every_setting_takes_its_bounds(one: object) -> None:
    found = definition(getattr(one, "name", ""))
    for bound in (found.minimum, found.maximum, found.alone):
        if bound is not None:
            assert found.parse(f" {bound} ") == bound
    if found.type == "LONG" and found.maximum is None:
        assert found.parse(str(LONG_MAX)) == LONG_MAX
    for choice in found.choices:
        assert found.parse(choice) in (choice, frozenset({choice}))
    assert found.doc.endswith(".")
