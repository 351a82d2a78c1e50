"""Every row of the protocol's tables, said over a socket to a running broker, byte for byte."""

# ruff: noqa: E501 (a line of the protocol is one line here, too)

from __future__ import annotations

import re

import httpx
import pytest

from tests.broker_process import BrokerProcess
from tests.clients.line import say

BROKER_SCHEMES = ("text",)
# Members of a test come one after the other; the usual three seconds are for those that start together.
BROKER_ENVIRONMENT = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "50"}


@pytest.fixture(scope="module")
def broker(broker_process: BrokerProcess) -> BrokerProcess:
    """A broker with real sockets."""
    return broker_process


def transcript(broker: BrokerProcess, lines: str) -> None:
    """Lines that begin with `>` are said, the others must come back, all of it on one connection."""
    rows = [row.strip() for row in lines.strip().splitlines()]
    said = b"".join(row[2:].encode() + b"\n" for row in rows if row.startswith("> "))
    expected = b"".join(row.encode() + b"\n" for row in rows if not row.startswith("> "))
    assert say(broker.line_address, said).decode() == expected.decode()


def test_the_examples_of_the_text(broker: BrokerProcess) -> None:
    transcript(
        broker,
        """
        > V1|42|PRODUCE|orders user1:created
        V1|42|OK|partition=0 offset=0 hw=1
        > V1|43|PRODUCE|orders user1:created acks=all
        V1|43|OK|partition=0 offset=1 hw=2
        > V1|99|PING|
        V1|99|OK
        """,
    )


def test_the_parser_demands_four_fields_a_version_an_id_and_a_command(broker: BrokerProcess) -> None:
    transcript(
        broker,
        """
        > V1|99|PING
        V1|0|ERR|BAD_REQUEST|a line has four fields, separated by three bars; this one has 3
        > V1|99|PING||
        V1|0|ERR|BAD_REQUEST|a line has four fields, separated by three bars; this one has 5
        > V2|99|PING|
        V1|0|ERR|BAD_REQUEST|the version must be V1, not 'V2'
        > V1||PING|
        V1|0|ERR|BAD_REQUEST|the correlation id is empty
        > V1|99||
        V1|0|ERR|BAD_REQUEST|the command is empty
        > V1|99|FLY|
        V1|99|ERR|UNKNOWN_COMMAND|there is no command 'FLY'; HELP lists them
        """,
    )


def test_produce_and_consume(broker: BrokerProcess) -> None:
    transcript(
        broker,
        """
        > V1|1|CREATE|events partitions=1
        V1|1|OK|topic=events partitions=1 replication_factor=1
        > V1|2|CONSUME|events 0 0
        V1|2|OK|messages= hw=0
        > V1|3|PRODUCE|events a:one acks=0
        V1|3|OK|partition=0 offset=0 hw=1
        > V1|4|PRODUCE|events a:two words acks=1
        V1|4|OK|partition=0 offset=1 hw=2
        > V1|5|PRODUCE|events a:three acks=all
        V1|5|OK|partition=0 offset=2 hw=3
        > V1|6|CONSUME|events 0 0
        V1|6|OK|messages=0:one,1:two words,2:three hw=3
        > V1|7|CONSUME|events 0 2
        V1|7|OK|messages=2:three hw=3
        > V1|8|CONSUME|events 0 3
        V1|8|OK|messages= hw=3
        > V1|9|CONSUME|events 0 300
        V1|9|OK|messages= hw=3
        > V1|10|TOPICS|ev
        V1|10|OK|topics=events:1
        """,
    )


def test_a_group_of_two(broker: BrokerProcess) -> None:
    transcript(
        broker,
        """
        > V1|1|CREATE|shared partitions=3
        V1|1|OK|topic=shared partitions=3 replication_factor=1
        > V1|2|JOIN|team shared c1 assignor=round_robin
        V1|2|OK|generation=1 assigned=[0,1,2]
        > V1|3|HEARTBEAT|team shared c1 1
        V1|3|OK|heartbeat=ok
        > V1|4|OFFSET|team shared 1
        V1|4|OK|offset=-1
        > V1|5|COMMIT|team shared c1 1 1 7
        V1|5|OK|committed=true
        > V1|6|OFFSET|team shared 1
        V1|6|OK|offset=7
        > V1|7|JOIN|team shared c2 assignor=round_robin
        V1|7|OK|generation=2 assigned=[1]
        > V1|8|HEARTBEAT|team shared c1 1
        V1|8|ERR|GENERATION_MISMATCH|ILLEGAL_GENERATION: This is not the present generation of group 'team'; join again.
        > V1|9|SYNC|team shared c1 1
        V1|9|ERR|GENERATION_MISMATCH|ILLEGAL_GENERATION: This is not the present generation of group 'team'; join again.
        > V1|10|JOIN|team shared c1 assignor=round_robin
        V1|10|OK|generation=2 assigned=[0,2]
        > V1|11|SYNC|team shared c1 2
        V1|11|OK|generation=2 assigned=[0,2]
        > V1|12|COMMIT|team shared c1 2 1 8
        V1|12|ERR|GENERATION_MISMATCH|ILLEGAL_GENERATION: Partition 1 of 'shared' is not assigned to 'c1' in generation 2.
        > V1|13|COMMIT|team shared c2 2 1 8
        V1|13|OK|committed=true
        > V1|14|LEAVE|team shared c2 1
        V1|14|ERR|GENERATION_MISMATCH|ILLEGAL_GENERATION: This is not the present generation of group 'team'; join again.
        > V1|15|LEAVE|team shared c2 2
        V1|15|OK|left=true
        > V1|16|JOIN|team shared c1 assignor=round_robin
        V1|16|OK|generation=3 assigned=[0,1,2]
        > V1|17|LEAVE|team shared c1 3
        V1|17|OK|left=true
        > V1|18|OFFSET|team shared 1
        V1|18|OK|offset=8
        """,
    )


@pytest.mark.parametrize("command", ["SYNC", "HEARTBEAT", "LEAVE", "COMMIT"])
def test_a_client_that_is_no_member_gets_a_mismatch(broker: BrokerProcess, command: str) -> None:
    end = " 0 1" if command == "COMMIT" else ""
    transcript(
        broker,
        f"""
        > V1|1|{command}|nobodys orders c1 1{end}
        V1|1|ERR|GENERATION_MISMATCH|UNKNOWN_MEMBER_ID: Group 'nobodys' has no member 'c1': it never joined, has \
left, or sent no heartbeat for its session timeout. Join again without a member id.
        """,
    )


_MEMBER = "<group> <topic> <consumer_id> <generation>"
WRITTEN = {
    "JOIN": "; JOIN is written: JOIN <group> <topic> <consumer_id> [assignor=round_robin,range]",
    "SYNC": f"; SYNC is written: SYNC {_MEMBER}",
    "HEARTBEAT": f"; HEARTBEAT is written: HEARTBEAT {_MEMBER}",
    "LEAVE": f"; LEAVE is written: LEAVE {_MEMBER}",
    "COMMIT": f"; COMMIT is written: COMMIT {_MEMBER} <partition> <offset>",
    "OFFSET": "; OFFSET is written: OFFSET <group> <topic> <partition>",
    "REPLICA_FETCH": "; REPLICA_FETCH is written: REPLICA_FETCH <topic> <partition> <replica_id> <offset>",
    "SET_PARTITION_ROLE": "; SET_PARTITION_ROLE is written: SET_PARTITION_ROLE <topic> <partition> <leader,follower>",
    "PRODUCE": "; PRODUCE is written: PRODUCE <topic> <key>:<value> [acks=0,1,all]",
    "CONSUME": "; CONSUME is written: CONSUME <topic> <partition> <offset>",
}


@pytest.mark.parametrize(
    ("command", "args", "message"),
    [
        ("PRODUCE", "events created", "the message must be <key>:<value>"),
        ("PRODUCE", "events a:b acks=two", "the ack mode must be acks=0, acks=1 or acks=all, not 'acks=two'"),
        ("CONSUME", "events zero 0", "partition must be a whole number, not 'zero'"),
        ("CONSUME", "events 0 zero", "offset must be a whole number, not 'zero'"),
        ("SYNC", "g events c1 one", "generation must be a whole number, not 'one'"),
        ("HEARTBEAT", "g events c1 one", "generation must be a whole number, not 'one'"),
        ("LEAVE", "g events c1 one", "generation must be a whole number, not 'one'"),
        ("COMMIT", "g events c1 one 0 0", "generation must be a whole number, not 'one'"),
        ("COMMIT", "g events c1 1 zero 0", "partition must be a whole number, not 'zero'"),
        ("COMMIT", "g events c1 1 0 zero", "offset must be a whole number, not 'zero'"),
        ("OFFSET", "g events zero", "partition must be a whole number, not 'zero'"),
        ("REPLICA_FETCH", "events zero 1 0", "partition must be a whole number, not 'zero'"),
        ("REPLICA_FETCH", "events 0 one 0", "replica_id must be a whole number, not 'one'"),
        ("REPLICA_FETCH", "events 0 1 zero", "offset must be a whole number, not 'zero'"),
        ("SET_PARTITION_ROLE", "events 0 boss", "the role must be leader or follower, not 'boss'"),
        (
            "JOIN",
            "g events c1 assignor=sticky",
            "the fourth word can be assignor=round_robin or assignor=range alone",
        ),
    ],
)
def test_args_that_break_a_rule(broker: BrokerProcess, command: str, args: str, message: str) -> None:
    transcript(broker, f"> V1|7|{command}|{args}\nV1|7|ERR|BAD_REQUEST|{message}{WRITTEN[command]}")


def test_lines_are_counted_by_command_and_code(broker: BrokerProcess) -> None:
    say(broker.line_address, b"V1|1|PING|\nV1|1|FLY|\nV1|1|OFFSET|\n")
    scraped = httpx.get(f"{broker.http}/metrics").text
    for sample in (
        'sluice_text_requests_total{command="PING"}',
        'sluice_text_errors_total{code="UNKNOWN_COMMAND",command="unreadable"}',
        'sluice_text_errors_total{code="BAD_REQUEST",command="unreadable"}',
        'sluice_tcp_accepted_connections_total{door="text"}',
    ):
        assert re.search(f"^{re.escape(sample)} [1-9]", scraped, re.MULTILINE), sample


def test_what_the_broker_refuses_has_kafkas_name_for_it(broker: BrokerProcess) -> None:
    transcript(
        broker,
        """
        > V1|7|CONSUME|nowhere 0 0
        V1|7|ERR|BAD_REQUEST|UNKNOWN_TOPIC_OR_PARTITION: There is no topic named 'nowhere'.
        > V1|8|CREATE|orders
        V1|8|ERR|BAD_REQUEST|TOPIC_ALREADY_EXISTS: Topic 'orders' already exists.
        """,
    )


def test_the_refusal_of_an_offset_below_the_log_names_the_log_start_offset(broker: BrokerProcess) -> None:
    transcript(
        broker,
        """
        > V1|1|CREATE|cut partitions=1
        V1|1|OK|topic=cut partitions=1 replication_factor=1
        > V1|2|PRODUCE|cut :first
        V1|2|OK|partition=0 offset=0 hw=1
        > V1|3|PRODUCE|cut :second
        V1|3|OK|partition=0 offset=1 hw=2
        """,
    )
    cut = {"partitions": [{"partition": 0, "before_offset": 1}]}
    httpx.post(f"{broker.http}/api/v1/topics/cut:truncate", json=cut).raise_for_status()
    # A script has no other way to find the log start offset.
    transcript(
        broker,
        """
        > V1|4|CONSUME|cut 0 0
        V1|4|ERR|BAD_REQUEST|OFFSET_OUT_OF_RANGE: Offset 0 of cut-0 is out of range: the log holds 1 up to 2.
        > V1|5|CONSUME|cut 0 1
        V1|5|OK|messages=1:second hw=2
        """,
    )
