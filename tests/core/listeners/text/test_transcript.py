"""Every row of the protocol's tables, said over a socket to a running broker, byte for byte."""

from __future__ import annotations

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.text_line import say

BROKER_SCHEMES = ("text",)


def transcript(broker: BrokerProcess, lines: str) -> None:
    """Lines that begin with `>` are said, the others must come back, all of it on one connection."""
    rows = [row.strip() for row in lines.strip().splitlines()]
    said = b"".join(row[2:].encode() + b"\n" for row in rows if row.startswith("> "))
    expected = b"".join(row.encode() + b"\n" for row in rows if not row.startswith("> "))
    assert say(broker.text_address, said).decode() == expected.decode()


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


WRITTEN = {
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
    ],
)
def test_args_that_break_a_rule(broker: BrokerProcess, command: str, args: str, message: str) -> None:
    transcript(broker, f"> V1|7|{command}|{args}\nV1|7|ERR|BAD_REQUEST|{message}{WRITTEN[command]}")


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
