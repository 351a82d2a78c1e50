"""One topic, written in turn by clients of every age and client; each reads all of it, in order, values equal.

What a reader sees of keys, timestamps and headers is `Driver.sees`; docs/guides/kafka-clients.md has it as a table.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.driver import Driver, Message
from tests.clients.drivers.confluent import Confluent
from tests.clients.drivers.kafka07 import SCHEMES, NpmKafka, Prozess
from tests.clients.drivers.kafka_js import KafkaJs
from tests.clients.drivers.kafka_node import KafkaNode
from tests.clients.drivers.kafka_python import KafkaPython
from tests.clients.drivers.kcat import OLD_KCAT
from tests.clients.drivers.old_kafka_python import OLD_KAFKA_PYTHON
from tests.clients.every_client import GetClient
from tests.clients.line import LineConnection
from tests.clients.wire import NOW, Wire

TOPIC = "everybody"
ROUNDS = 2


class Curl(Driver):
    """The program curl: a value is the body as it is, the rest is in the query and in header lines."""

    name = "curl"
    installed_as = "curl"

    def _curl(self, url: str, *options: str, data: bytes = b"") -> bytes:
        curl = shutil.which("curl")
        assert curl is not None
        command = [curl, "-sSf", *options, f"{self.broker.http}/api/v1/topics/{url}"]
        return subprocess.run(command, input=data, capture_output=True, check=True).stdout

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        for one in messages:
            assert one.value is not None
            key = "" if one.key is None else f"&key={one.key.decode()}"
            headers = [f"X-Kafka-Header-{name}: {(value or b'').decode()}" for name, value in one.headers]
            options = [part for line in ["Content-Type: text/plain", *headers] for part in ("-H", line)]
            url = f"{topic}/records?partition={partition}&timestamp={one.timestamp}{key}"
            self._curl(url, "--data-binary", "@-", *options, data=one.value)

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        url = f"{topic}/partitions/{partition}/records?offset={offset}&limit={count}&encoding=base64"
        return [
            Message(
                None if one["key"] is None else base64.b64decode(one["key"]),
                None if one["value"] is None else base64.b64decode(one["value"]),
                tuple((header["name"], base64.b64decode(header["value"])) for header in one["headers"]),
                -1 if one["timestamp_ms"] is None else one["timestamp_ms"],
                one["offset"],
            )
            for one in json.loads(self._curl(url))["records"]
        ]


class Line(Driver):
    """A line protocol client."""

    name = "line"
    sets_timestamps = False
    message_format = 0
    writes_null = False

    @classmethod
    def sees(cls, message: Message) -> Message:
        """Values and offsets; null is empty."""
        return Message(None, message.value or b"", (), -1, message.offset)

    def write(self, topic: str, partition: int, messages: Sequence[Message], codec: str = "none") -> None:
        with LineConnection(self.broker.line_address) as line:
            for one in messages:
                said = b"%s %s:%s acks=all" % (topic.encode(), one.key or b"", one.value)
                assert line.ask("PRODUCE", said).number("partition") == partition

    def read(self, topic: str, partition: int, offset: int, count: int) -> list[Message]:
        found: list[Message] = []
        with LineConnection(self.broker.line_address) as line:
            while len(found) < count:
                answer = line.ask("CONSUME", f"{topic} {partition} {offset + len(found)}").messages()
                assert answer, found
                found += [Message(None, value, (), -1, at) for at, value in answer]
        return found[:count]


_OLD = {driver.name: driver for driver in (*OLD_KAFKA_PYTHON, *OLD_KCAT)}
WRITERS: tuple[type[Driver], ...] = (
    NpmKafka,
    Prozess,
    _OLD["kafka-python-1.4.7-as-0.8.2"],
    _OLD["kcat-as-0.8.2"],
    _OLD["kafka-python-2.0.2-as-0.10"],
    KafkaNode,
    _OLD["kafka-python-2.0.2-as-0.11.0"],
    Confluent,
    KafkaPython,
    KafkaJs,
    Curl,
    Line,
)
READERS = (*WRITERS, _OLD["kafka-python-1.4.7-as-0.11.0"], _OLD["kcat-as-0.9.0"])
_INSTALLED = {one.installed_as for one in READERS if one.installed_as}
EVERYBODY = [
    pytest.param(reader, id=reader.name, marks=[pytest.mark.client(name) for name in sorted(_INSTALLED)])
    for reader in READERS
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with every client."""
    data_dir = tmp_path_factory.mktemp("everybody") / "data"
    process = BrokerProcess(data_dir, schemes=[*SCHEMES, "text"]).start()
    yield process
    process.kill()
    assert "Traceback" not in process.read_log(), process.read_log()


def _says(writer: type[Driver], turn: int) -> list[Message]:
    """What a writer writes in its turn: all that it can say, in text that every client can read."""
    seen = writer.message_format > 1
    name = writer.name.encode()
    messages = [
        Message(b"key-%d" % turn, b"the first of %s in round %d" % (name, turn)),
        Message(None, b"one without a key by " + name),
        Message(b"long", b"%s says a lot. " % name * 20),
    ]
    if writer.writes_null and writer.writes_empty and writer is not Curl:
        messages.append(Message(b"gone", None))
    if writer.name in (NpmKafka.name, Prozess.name):
        messages = [one._replace(key=None) for one in messages]
    return [
        one._replace(
            headers=(("by", name), ("round", b"%d" % turn)) if seen else (),
            timestamp=NOW + turn if writer.sets_timestamps else None,
        )
        for one in messages
    ]


@pytest.fixture(scope="module")
def expected(client: GetClient, broker: BrokerProcess) -> list[Message]:
    """Everything that was written, as the broker's own decoder sees it once it has been checked."""
    with Wire(broker.kafka_address) as wire:
        wire.create_topic(TOPIC, retention_ms="-1")
        said: list[Message] = []
        for turn in range(ROUNDS):
            for writer in WRITERS:
                messages = _says(writer, turn)
                client(writer).write(TOPIC, 0, messages, writer.codecs[turn % len(writer.codecs)])
                said += messages
        stored = wire.read_all(TOPIC)
    assert [one.offset for one in stored] == list(range(len(said)))
    assert [one._replace(offset=-1, timestamp=None) for one in stored] == [
        one._replace(timestamp=None) for one in said
    ]
    asked = [(one.timestamp, found.timestamp) for one, found in zip(said, stored, strict=True)]
    assert all(time in (None, found) for time, found in asked)
    return stored


@pytest.mark.parametrize("reader", EVERYBODY)
def test_every_client_reads_what_all_have_written_in_turn(
    client: GetClient, expected: list[Message], reader: type[Driver]
) -> None:
    found = client(reader).read(TOPIC, 0, 0, len(expected))
    assert [one.value for one in found] == [reader.sees(one).value for one in expected]
    if reader.name in (NpmKafka.name, Prozess.name):  # their offsets are places in bytes
        found = [one._replace(offset=-1) for one in found]
        expected = [one._replace(offset=-1) for one in expected]
    assert found == [reader.sees(one) for one in expected]


def test_what_has_no_timestamp_has_none_and_the_rest_has_one(expected: list[Message]) -> None:
    """Magic 0 and 0.7 carry none; a line and a client of today have the time of their writing."""
    untimed = {one.value for one in expected if one.timestamp == -1}
    by_old = {
        m.value
        for turn in range(ROUNDS)
        for w in WRITERS
        if w.message_format == 0 and w is not Line
        for m in _says(w, turn)
    }
    assert untimed == by_old
