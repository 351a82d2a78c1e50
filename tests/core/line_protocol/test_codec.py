"""core.line_protocol.codec: every rule of the envelope and of each command's args, and every payload."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.line_protocol import codec


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"V1|42|PRODUCE|orders user1:created", codec.Produce("orders", b"user1", b"created", 1)),
        (b"V1|43|PRODUCE|orders user1:created acks=all", codec.Produce("orders", b"user1", b"created", -1)),
        (b"V1|1|PRODUCE|orders k:v acks=0", codec.Produce("orders", b"k", b"v", 0)),
        (b"V1|1|PRODUCE|orders k:v acks=1", codec.Produce("orders", b"k", b"v", 1)),
        (b"V1|1|PRODUCE|orders my key:a b: c  d ", codec.Produce("orders", b"my key", b"a b: c  d ", 1)),
        (b"V1|1|PRODUCE|orders k:", codec.Produce("orders", b"k", b"", 1)),
        (b"V1|1|PRODUCE|orders :v", codec.Produce("orders", None, b"v", 1)),
        (b"V1|1|PRODUCE|orders k:v acks=all acks=1", codec.Produce("orders", b"k", b"v acks=all", 1)),
        (b"V1|1|PRODUCE|orders acks=no:v", codec.Produce("orders", b"acks=no", b"v", 1)),
        ("V1|1|PRODUCE|orders ü:☃ €".encode(), codec.Produce("orders", "ü".encode(), "☃ €".encode(), 1)),
        (b"V1|1|PRODUCE|orders k:\x00\xff,%41", codec.Produce("orders", b"k", b"\x00\xff,%41", 1)),
        (b"V1|1|CONSUME|orders 0 12", codec.Consume("orders", 0, 12)),
        (b"V1|1|CONSUME| orders\t0   -1 ", codec.Consume("orders", 0, -1)),
        (b"V1|1|JOIN|g orders c1", codec.Join("g", "orders", "c1", "")),
        (b"V1|1|JOIN|g orders c1 assignor=round_robin", codec.Join("g", "orders", "c1", "round_robin")),
        (b"V1|1|JOIN|g orders c1 assignor=range", codec.Join("g", "orders", "c1", "range")),
        (b"V1|1|SYNC|g orders c1 3", codec.Member("g", "orders", "c1", 3)),
        (b"V1|1|HEARTBEAT|g orders c1 3", codec.Member("g", "orders", "c1", 3)),
        (b"V1|1|LEAVE|g orders c1 3", codec.Member("g", "orders", "c1", 3)),
        (b"V1|1|COMMIT|g orders c1 3 0 7", codec.Commit("g", "orders", "c1", 3, 0, 7)),
        (b"V1|1|OFFSET|g orders 0", codec.Offset("g", "orders", 0)),
        (b"V1|1|REPLICA_FETCH|orders 0 1 5", codec.ReplicaFetch("orders", 0, 1, 5)),
        (b"V1|1|SET_PARTITION_ROLE|orders 0 leader", codec.SetPartitionRole("orders", 0, "leader")),
        (b"V1|1|SET_PARTITION_ROLE|orders 0 follower", codec.SetPartitionRole("orders", 0, "follower")),
        (b"V1|99|PING|", codec.Ping()),
        (b"V1|1|CREATE|orders", codec.Create("orders", None, None)),
        (
            b"V1|1|CREATE|orders replication_factor=2 partitions=3",
            codec.Create("orders", 3, 2),
        ),
        (b"V1|1|TOPICS|", codec.Topics("")),
        (b"V1|1|TOPICS|ord", codec.Topics("ord")),
        (b"V1|1|HELP|", codec.Help("")),
        (b"V1|1|HELP|PRODUCE", codec.Help("PRODUCE")),
    ],
)
def test_a_line_is_read(line: bytes, command: codec.Command) -> None:
    request = codec.parse(line)
    assert (request.command, type(request.command)) == (command, type(command))
    assert line.split(b"|")[1:3] == [request.correlation_id, request.name.encode()]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "four fields"),
        (b"V1|1|PING", "four fields"),
        (b"V1|1|PRODUCE|orders k:a|b", "four fields"),
        (b"V2|1|PING|", "version must be V1"),
        (b"v1|1|PING|", "version must be V1"),
        (b"|1|PING|", "version must be V1"),
        (b"V1||PING|", "correlation id is empty"),
        (b"V1|1||", "command is empty"),
    ],
)
def test_what_breaks_the_envelope_is_answered_without_a_client_id(line: bytes, reason: str) -> None:
    with pytest.raises(codec.LineError, match=reason) as refused:
        codec.parse(line)
    assert (refused.value.code, refused.value.correlation_id) == ("BAD_REQUEST", b"0")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (b"PRODUCE|", "<key>:<value>"),
        (b"PRODUCE|orders", "<key>:<value>"),
        (b"PRODUCE|orders created", "<key>:<value>"),
        (b"PRODUCE|orders acks=all", "<key>:<value>"),
        (b"PRODUCE|orders k:v acks=2", "acks=0, acks=1 or acks=all"),
        (b"PRODUCE|orders k:v acks=ALL", "acks=0, acks=1 or acks=all"),
        (b"PRODUCE|orders k:v acks=", "acks=0, acks=1 or acks=all"),
        (b"PRODUCE|\xff k:v", "no UTF-8"),
        (b"CONSUME|orders 0", "3 words are needed, 2"),
        (b"CONSUME|orders 0 0 0", "3 words are needed, 4"),
        (b"CONSUME|orders x 0", "partition must be a whole number"),
        (b"CONSUME|orders 0 1.5", "offset must be a whole number"),
        (b"CONSUME|orders 0 1_0", "offset must be a whole number"),
        (b"CONSUME|orders 0 +1", "offset must be a whole number"),
        (b"CONSUME|orders 0 9223372036854775808", "offset must be a whole number"),
        ("CONSUME|orders 0 ٣".encode(), "offset must be a whole number"),
        (b"JOIN|g orders", "3 words are needed"),
        (b"JOIN|g orders c1 range", "assignor=round_robin or assignor=range"),
        (b"JOIN|g orders c1 assignor=sticky", "assignor=round_robin or assignor=range"),
        (b"JOIN|g orders c1 assignor=range x", "3 words are needed, 5"),
        (b"SYNC|g orders c1 one", "generation must be a whole number"),
        (b"HEARTBEAT|g orders c1 one", "generation must be a whole number"),
        (b"LEAVE|g orders c1 one", "generation must be a whole number"),
        (b"COMMIT|g orders c1 x 0 0", "generation must be a whole number"),
        (b"COMMIT|g orders c1 1 x 0", "partition must be a whole number"),
        (b"COMMIT|g orders c1 1 0 x", "offset must be a whole number"),
        (b"COMMIT|g orders c1 1 0", "6 words are needed, 5"),
        (b"OFFSET|g orders x", "partition must be a whole number"),
        (b"REPLICA_FETCH|orders x 1 0", "partition must be a whole number"),
        (b"REPLICA_FETCH|orders 0 x 0", "replica_id must be a whole number"),
        (b"REPLICA_FETCH|orders 0 1 x", "offset must be a whole number"),
        (b"SET_PARTITION_ROLE|orders x leader", "partition must be a whole number"),
        (b"SET_PARTITION_ROLE|orders 0 Leader", "leader or follower"),
        (b"PING|x", "0 words are needed, 1"),
        (b"CREATE|", "a topic must be named"),
        (b"CREATE|orders 3", "neither partitions="),
        (b"CREATE|orders partitions=x", "partitions must be a whole number"),
        (b"CREATE|orders partitions=1 partitions=2", "neither partitions="),
        (b"TOPICS|a b", "one word at most"),
        (b"HELP|nope", "no command 'nope'"),
        (b"HELP|a b", "one word at most"),
    ],
)
def test_args_that_break_a_rule_are_answered_under_their_id(args: bytes, reason: str) -> None:
    with pytest.raises(codec.LineError) as refused:
        codec.parse(b"V1|7|" + args)
    error = refused.value
    assert reason in error.message
    assert (error.code, error.correlation_id) == ("BAD_REQUEST", b"7")
    assert b"\n" not in codec.refused(b"7", error.code, error.message)[:-1]


@pytest.mark.parametrize("word", [b"produce", b"NOPE", b" PING", b"\x1b[2J", b"\xff"])
def test_a_command_that_there_is_not_is_told_so(word: bytes) -> None:
    with pytest.raises(codec.LineError) as refused:
        codec.parse(b"V1|7|" + word + b"|x")
    error = refused.value
    expected = codec.BAD_REQUEST if word == b"\xff" else codec.UNKNOWN_COMMAND
    assert (error.code, error.correlation_id) == (expected, b"7")
    assert "\x1b" not in error.message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_line_error(data: bytes) -> None:
    for line in (data, b"V1|1|" + data, b"V1|1|PRODUCE|" + data, b"V1|1|CREATE|" + data):
        try:
            codec.parse(line)
        except codec.LineError as error:
            answer = codec.refused(error.correlation_id, error.code, error.message)
            assert answer.count(b"\n") == (1 + error.correlation_id.count(b"\n")), answer


def test_answers_have_the_fields_of_the_protocol() -> None:
    assert codec.ok(b"99") == b"V1|99|OK\n"
    assert codec.ok(b"7", "offset=3") == b"V1|7|OK|offset=3\n"
    assert codec.refused(b"0", "BAD_REQUEST", "a|b\nc\udcff") == b"V1|0|ERR|BAD_REQUEST|a b c \n"


def test_payloads_are_as_written() -> None:
    assert codec.produced(2, 10, 11) == "partition=2 offset=10 hw=11"
    assert codec.messages([(3, b"a"), (4, b"b c")], 5) == "messages=3:a,4:b c hw=5"
    assert codec.messages([], 5) == "messages= hw=5"
    assert codec.assigned(1, [0, 2]) == "generation=1 assigned=[0,2]"
    assert codec.assigned(1, []) == "generation=1 assigned=[]"
    assert codec.replica_fetched(1, 5, 5, [0, 1], False) == (
        "replica=1 acked_offset=5 hw=5 isr=[0,1] under_replicated=false"
    )
    assert codec.replica_fetched(1, 5, 0, [0], True).endswith("hw=0 isr=[0] under_replicated=true")
    assert codec.role_set("orders", 0, "follower", 9) == "topic=orders partition=0 role=follower hw=9"
    assert codec.created("orders", 3, 1) == "topic=orders partitions=3 replication_factor=1"
    assert codec.listing([("a", 1), ("b", 2)]) == "topics=a:1,b:2"
    assert codec.listing([]) == "topics="
    assert codec.usage("PING") == "usage=PING"
    assert codec.usage("OFFSET") == "usage=OFFSET <group> <topic> <partition>"
    assert codec.usage("").startswith("commands=PRODUCE,CONSUME,")


def test_every_command_says_how_it_is_written_without_bars() -> None:
    assert all("|" not in reader.usage for reader in codec.COMMANDS.values())


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"created", "created"),
        (b"hello world", "hello world"),
        ("ключ ☃".encode(), "ключ ☃"),
        (b"a,b", "a%2Cb"),
        (b"a|b", "a%7Cb"),
        (b"a\nb\r\x00\x7f", "a%0Ab%0D%00%7F"),
        (b"100%", "100%"),
        (b"%2C", "%252C"),
        (b"x hw=99", "x%20hw=99"),
        (b"a = b", "a = b"),
        (b"\xff\xfe", "%FF%FE"),
        ("\u2028\x9b".encode(), "\u2028%C2%9B"),
        (b"", ""),
        (None, ""),
    ],
)
def test_values_stand_as_they_are_but_where_they_would_be_misread(value: bytes | None, shown: str) -> None:
    assert codec.shown(value) == shown


@given(st.lists(st.binary(max_size=30) | st.text(max_size=20).map(str.encode), max_size=5))
def test_every_list_of_values_can_be_read_back(values: list[bytes]) -> None:
    payload = codec.messages(enumerate(values), 77)
    assert "\n" not in payload and "|" not in payload
    match = re.fullmatch(r"messages=(.*) hw=([0-9]+)", payload, re.DOTALL)
    assert match and match[2] == "77"
    listed = match[1].split(",") if match[1] else []
    assert [unquote_to_bytes(one.partition(":")[2]) for one in listed] == values
    assert len(re.findall(r" [a-z]+=", payload)) == 1
