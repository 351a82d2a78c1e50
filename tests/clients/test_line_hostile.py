"""Any bytes on the line protocol's port: BAD_REQUEST or a closed connection, and no other client is affected."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import time

import pytest

from core.line_protocol.codec import COMMANDS
from tests.broker_process import BrokerProcess
from tests.clients.line import LineConnection, read_answer, say

BROKER_SCHEMES = ("text",)
BROKER_ENVIRONMENT = {
    "SLUICE_TEXT_MAX_LINE_BYTES": "20000",
    "SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "10",
    "SLUICE_TEXT_ACKS_TIMEOUT_MS": "200",
}
LIMIT = 20_000
SEED = 20
# Bytes sent to the port in all, by mutation of lines that make sense.
LINES = 4_000
_ANSWER = re.compile(rb"V1\|[^\n]*\|(OK(\|[^|\n]*)?|ERR\|[A-Z_]+\|[^|\n]*)", re.DOTALL)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\n",
        b"\xff\xfe\xfd\n",
        b"||||||||\n",
        b"V1|\n",
        b"GET / HTTP\r\n",
        struct.pack(">ihhih", 20, 18, 3, 1, -1) + b"\n",
        b"\xff\xfb\x01\xff\xfd\x03\n",
        b"V1|1|PRODUCE\n",
        b"\n",
        b" \n",
        b"V1|1|PING||\n",
    ],
)
def test_what_is_no_line_is_a_bad_request_without_a_client_id(broker: BrokerProcess, data: bytes) -> None:
    answer = read_answer(say(broker.line_address, data))
    assert (answer.correlation_id, answer.code) == ("0", "BAD_REQUEST")


def test_a_client_that_speaks_tls_is_closed(broker: BrokerProcess) -> None:
    assert say(broker.line_address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n") == b""
    assert "it speaks TLS, and this listener does not" in broker.read_log()


@pytest.mark.parametrize("first", [b"POST / HTTP/1.1\r\n", b"x /y HTTP/1.0\n", b"Host: 127.0.0.1\r\n"])
def test_a_web_page_cannot_say_lines_through_a_browser(broker: BrokerProcess, first: bytes) -> None:
    body = b"V1|1|CREATE|by-a-web-page\n"
    with socket.create_connection(broker.line_address, timeout=30) as connection:
        connection.sendall(first + b"\r\n" + body)
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(65_536) == b""
    with LineConnection(broker.line_address) as line:
        assert "by-a-web-page" not in line.ask("TOPICS")["topics"]


def test_bytes_without_an_end_are_refused_and_the_connection_closed(broker: BrokerProcess) -> None:
    for data in (b"\x00" * 1_000, b"V1|1|PRODUCE|orders k:cut", b"x" * LIMIT):
        answer = read_answer(say(broker.line_address, data))
        assert (answer.correlation_id, answer.code) == ("0", "BAD_REQUEST")
    assert say(broker.line_address, b"") == b""
    with LineConnection(broker.line_address) as line:
        assert "orders" not in line.ask("TOPICS")["topics"], "a line that was cut is not executed"


def test_a_long_line_is_refused_and_the_next_one_is_read(broker: BrokerProcess) -> None:
    for length in (LIMIT + 1, 1_000_000):
        with LineConnection(broker.line_address) as line:
            line.send(b"V1|1|PRODUCE|long k:" + b"x" * length + b"\nV1|2|PING|\n")
            refused = read_answer(line.line())
            assert (refused.correlation_id, refused.code) == ("0", "BAD_REQUEST")
            assert refused.payload == "the line is longer than 20000 bytes"
            assert line.line() == b"V1|2|OK\n"


def test_a_value_may_be_as_long_as_a_line(broker: BrokerProcess) -> None:
    value = bytes(c for c in range(256) if c not in b"|\n\r")
    value *= 60
    with LineConnection(broker.line_address) as line:
        assert line.ask("PRODUCE", b"bytes k:" + value).payload == "partition=0 offset=0 hw=1"
        assert line.ask("CONSUME", "bytes 0 0").messages() == [(0, value)]


def test_lines_are_answered_in_order_however_many_are_sent_at_once(broker: BrokerProcess) -> None:
    count = 3_000
    data = b"".join(
        b"V1|%d|PRODUCE|many k:%d%s\r\n" % (n, n, b" acks=all" if n % 100 == 0 else b"") for n in range(count)
    )
    answers = say(broker.line_address, data).splitlines()
    assert [line.split(b"|")[1] for line in answers] == [b"%d" % n for n in range(count)]
    offsets = [int(re.search(rb"offset=(\d+)", line)[1]) for line in answers]  # type: ignore[index]
    assert offsets == list(range(count))


def test_a_word_that_is_too_long_or_too_strange_is_refused(broker: BrokerProcess) -> None:
    long = "x" * 15_000
    with LineConnection(broker.line_address) as line:
        for command, args in (
            ("PRODUCE", f"{long} k:v"),
            ("CREATE", long),
            ("CREATE", "many partitions=1000000000"),
            ("CREATE", "none partitions=0"),
            ("CREATE", "far replication_factor=9223372036854775807"),
            ("CONSUME", f"{long} 0 0"),
            ("CONSUME", "bytes -1 0"),
            ("CONSUME", "bytes 9223372036854775807 0"),
            ("CONSUME", "bytes 0 -1"),
            ("JOIN", f"{long} bytes c1"),
            ("JOIN", f"g bytes {long}"),
            ("JOIN", "g bytes \x1b[2J"),
            ("COMMIT", "g bytes c1 -1 0 0"),
            ("SET_PARTITION_ROLE", "nowhere 0 leader"),
        ):
            answer = line.ask(command, args)
            assert answer.code in ("BAD_REQUEST", "GENERATION_MISMATCH"), (command, answer)
            assert len(answer.payload) < 1_000 and "\x1b" not in answer.payload
        assert line.ask("OFFSET", f"{long} bytes 0").payload == "offset=-1"


def _mutated(chance: random.Random) -> bytes:
    """A line that made sense once."""
    name = chance.choice(list(COMMANDS))
    args = {
        "PRODUCE": b"fuzz k:v acks=all",
        "CONSUME": b"fuzz 0 0",
        "JOIN": b"g%d fuzz c assignor=range" % chance.randrange(3),
        "COMMIT": b"g0 fuzz c 1 0 0",
        "OFFSET": b"g0 fuzz 0",
        "REPLICA_FETCH": b"fuzz 0 1 0",
        "SET_PARTITION_ROLE": b"fuzz 0 leader",
        "CREATE": b"fuzz partitions=1",
        "TOPICS": b"fu",
        "HELP": b"PING",
        "PING": b"",
    }.get(name, b"g0 fuzz c 1")
    line = bytearray(b"V1|%d|%b|%b" % (chance.randrange(1000), name.encode(), args))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        place = chance.randrange(len(line) + 1)
        match chance.randrange(4):
            case 0:
                line[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                line[place:place] = chance.choice(
                    (b"|", b" ", b"\r", b"\x00", b"9" * 20, "ü".encode(), b"acks=")
                )
            case 2:
                del line[place : place + chance.randrange(8)]
            case _:
                line[place:place] = line[: chance.randrange(20)]
    return bytes(line).replace(b"\n", b"")


def test_mutated_lines_get_one_answer_each(broker: BrokerProcess) -> None:
    chance = random.Random(SEED)
    with LineConnection(broker.line_address) as healthy:
        for _ in range(LINES // 40):
            lines = [_mutated(chance) for _ in range(40)]
            answers = say(broker.line_address, b"\n".join(lines) + b"\n").split(b"\n")
            assert answers.pop() == b""
            assert len(answers) == len(lines)
            for line, answer in zip(lines, answers, strict=True):
                assert _ANSWER.fullmatch(answer), (line, answer)
            assert not healthy.ask("PING").code


def test_random_bytes_cut_anywhere_do_no_harm(broker: BrokerProcess) -> None:
    chance = random.Random(SEED)
    for _ in range(60):
        with socket.create_connection(broker.line_address, timeout=30) as connection:
            for _ in range(chance.randrange(1, 6)):
                connection.sendall(chance.randbytes(chance.choice((1, 10, 300, 70_000))))
            if chance.random() < 0.5:
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65_536):
                    pass
    with LineConnection(broker.line_address) as line:
        start = time.monotonic()
        assert not line.ask("PING").code
        assert time.monotonic() - start < 5
