"""The options of a read: what they mean, and in which words nonsense is refused."""

from __future__ import annotations

import pytest

from core.vocabulary.partition import EARLIEST, LATEST
from pipeline.source.options import OptionError, columns_of, read_options
from pipeline.wire.security import Login, Security, Tls

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
        ({"dataDir": "/data"}, "dataDir is for transport=segments alone"),
        ({"security.protocol": "TLS"}, "kafka.security.protocol must be plaintext or ssl or sasl_plaintext"),
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


LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "scram-sha-256",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": "canary",
}


def test_security_has_names_with_and_without_the_prefix_of_kafka() -> None:
    files = {
        "kafka.ssl.ca.location": "/ca.pem",
        "kafka.ssl.certificate.location": "/c.pem",
        "kafka.ssl.key.location": "/c.key",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    long = {**LOGIN, **files}
    short = {name.removeprefix("kafka.").upper(): value for name, value in long.items()}
    found = [read_options({**TOPIC, **given}, streaming=False).settings.security for given in (long, short)]
    tls = Tls("/ca.pem", "/c.pem", "/c.key", check_host=False)
    assert found == 2 * [Security(tls, Login("SCRAM-SHA-256", "alice", "canary"))]
    read = read_options({**TOPIC, **LOGIN}, streaming=False)
    assert read.settings.security.tls == Tls()
    assert "canary" not in repr(read)
    assert read_options(TOPIC, streaming=False).settings.security == Security()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sasl.username": "bob"}, "kafka.sasl.username and sasl.username are one option"),
        ({"kafka.security.protocol": "SSL"}, "kafka.sasl.mechanism means nothing with .* SSL"),
        (
            {"kafka.security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": "x"},
            "kafka.ssl.ca.location means nothing with kafka.security.protocol SASL_PLAINTEXT",
        ),
        ({"kafka.sasl.mechanism": "GSSAPI"}, "must be PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512, not 'GSSAPI'"),
        ({"kafka.sasl.mechanism": ""}, "must be PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512$"),
        ({"kafka.sasl.username": ""}, "a login needs kafka.sasl.username, and"),
        ({"kafka.sasl.password": ""}, "a login needs kafka.sasl.username, and"),
        ({"sasl.password.file": "/f"}, "kafka.sasl.password and kafka.sasl.password.file contradict"),
        ({"ssl.key.location": "/k"}, "kafka.ssl.key.location means nothing without kafka.ssl.certificate"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "algorithm must be https or none"),
        (
            {"kafka.sasl.jaas.config": 'Module required username="a" password="canary";'},
            "kafka.sasl.jaas.config is not supported: use kafka.sasl.username and kafka.sasl.password",
        ),
        ({"kafka.ssl.truststore.location": "/t"}, "use kafka.ssl.ca.location, a file in PEM format"),
        (
            {"ssl.keystore.password": "canary"},
            "use kafka.ssl.certificate.location and kafka.ssl.key.location",
        ),
        ({"sasl.passwort": "canary"}, "unknown option 'sasl.passwort'"),
    ],
)
def test_a_login_that_makes_no_sense_is_refused_without_its_secrets(
    options: dict[str, str], says: str
) -> None:
    with pytest.raises(OptionError, match=says) as raised:
        read_options({**TOPIC, **LOGIN, **options}, streaming=False)
    assert "canary" not in str(raised.value)
