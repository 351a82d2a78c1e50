"""The options of a read: what they mean, and in which words nonsense is refused."""

from __future__ import annotations

import pytest

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.source.options import OptionError, columns_of, read_options

SERVERS = {"kafka.bootstrap.servers": "one:9092"}
TOPIC = {**SERVERS, "subscribe": "t"}


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    batch = read_options({**SERVERS, "SUBSCRIBE": "a, b"}, streaming=False)
    assert (batch.topics, batch.start.position, batch.end.position) == (("a", "b"), EARLIEST, LATEST)
    assert (batch.fail_on_data_loss, batch.transport, batch.min_partitions) == (True, "wire", None)
    assert batch.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert read_options(TOPIC, streaming=True).start.position == LATEST
    assert read_options(TOPIC, streaming=True).max_trigger_delay_s == 900


def test_servers_may_be_several_with_names_and_addresses_of_both_kinds() -> None:
    options = {**TOPIC, "kafka.bootstrap.servers": "a.example:1, [::1]:2,PLAINTEXT://10.0.0.1:65535"}
    assert read_options(options, streaming=False).settings.bootstrap == (
        ("a.example", 1), ("::1", 2), ("10.0.0.1", 65_535),
    )  # fmt: skip


def test_offsets_and_times_are_given_for_each_partition_in_sparks_shape() -> None:
    options = read_options(
        {
            **TOPIC,
            "startingOffsets": '{"t":{"0":-2,"1":7}}',
            "endingOffsetsByTimestamp": '{"t":{"0":5,"1":6}}',
        },
        streaming=False,
    )
    assert options.start.each == {("t", 0): EARLIEST, ("t", 1): 7}
    assert (options.end.each, options.end.by_time) == ({("t", 0): 5, ("t", 1): 6}, True)
    latest = {**TOPIC, "startingTimestamp": "99", "startingOffsetsByTimestampStrategy": "latest"}
    start = read_options(latest, streaming=False).start
    assert (start.position, start.by_time, start.strict) == (99, True, False)


def test_columns_are_chosen_by_name_and_headers_come_with_them() -> None:
    assert columns_of({**TOPIC, "columns": "value, OFFSET"}) == ("value", "offset")
    assert columns_of({**TOPIC, "includeHeaders": "true"})[-1] == "headers"
    assert columns_of({**TOPIC, "columns": "headers"}) == ("headers",)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"startingOffset": "earliest"},
            "unknown option 'startingOffset'; the options are .*startingOffsets",
        ),
        ({"kafka.linger.ms": "5"}, "unknown option 'kafka.linger.ms'"),
        ({"path": "x"}, "unknown option 'path'"),
        ({"assign": '{"t":[0]}'}, "subscribe and assign contradict each other"),
        ({"startingOffsets": "latest"}, "startingOffsets must not be latest in a batch read"),
        ({"endingOffsets": "earliest"}, "endingOffsets must not be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "endingOffsets must not be earliest"),
        (
            {"startingOffsets": "soon"},
            "startingOffsets must be earliest, latest or JSON such as .* not 'soon'",
        ),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "that of t partition 0 is -3"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "contradict each other"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp must be a whole number, not 'yesterday'"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "means nothing without a starting timestamp"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false, not 'maybe'"),
        ({"minPartitions": "0"}, "minPartitions must be at least 1, not 0"),
        ({"minPartitions": "9", "maxTasks": "3"}, "minPartitions 9 is more than maxTasks 3"),
        ({"columns": "value,size"}, "there is no column 'size'"),
        ({"columns": "value,value"}, "a name occurs twice"),
        ({"columns": "value", "includeHeaders": "true"}, "includeHeaders=true and columns=value contradict"),
        ({"transport": "pigeon"}, "transport must be wire or segments, not 'pigeon'"),
        ({"transport": "segments", "kafka.isolation.level": "read_committed"}, "contradicts kafka.isolation"),
        ({"dataDir": "/data"}, "dataDir is for transport=segments alone"),
        ({"kafka.security.protocol": "SASL_SSL"}, "SASL_SSL is not supported yet"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is not for batch reads"),
        ({"commitGroup": "g"}, "commitGroup is not for batch reads"),
        ({"kafka.bootstrap.servers": "one"}, "'one' is no host:port"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"subscribe": " , "}, "subscribe names no topic"),
    ],
)
def test_nonsense_is_refused_before_anything_is_read(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        read_options({**TOPIC, **options}, streaming=False)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is not for streams"),
        ({"pushdown": "true"}, "pushdown is not for streams"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "9 is more than maxOffsetsPerTrigger 3"),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay means nothing without minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "'soon' is no time such as 500ms"),
        ({"commitGroup": ""}, "commitGroup must not be empty"),
    ],
)
def test_nonsense_of_streams_is_refused(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        read_options({**TOPIC, **options}, streaming=True)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "one of subscribe, subscribePattern and assign is needed"),
        ({"subscribePattern": "a["}, "subscribePattern is no regular expression"),
        ({"assign": "t:0"}, "assign must look like"),
        ({"assign": '{"t":[]}'}, "that of 't' is"),
        ({"assign": '{"t":[-1]}'}, r"that of 't' is \[-1\]"),
    ],
)
def test_a_read_must_say_what_it_reads(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        read_options({**SERVERS, **options}, streaming=False)
