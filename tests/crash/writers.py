"""Clients of all protocols that write numbered values while the broker is killed again and again."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Callable

import httpx
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Delivered

from tests.broker_process import BrokerProcess
from tests.clients.line import LineConnection
from tests.clients.wire import Wire, batch
from tests.crash.history import History

PARTITIONS = 3
PAUSE = 0.004
# What a client sees of a broker that dies under it.
GONE = (OSError, AssertionError, ValueError, httpx.HTTPError)
Writer = Callable[[BrokerProcess, History], None]


def idempotent(broker: BrokerProcess, history: History) -> None:
    """librdkafka's idempotent producer; it retries what was not answered, also over a restart."""

    def delivered(error: KafkaError | None, message: Delivered) -> None:
        if error is not None:
            history.fail(f"the idempotent producer gave up on {message.value()!r}: {error}")
        else:
            history.acknowledge((message.topic(), message.partition(), message.offset()), message.value())

    producer = Producer(
        {
            "bootstrap.servers": broker.kafka,
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 120_000,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    number = 0
    while not history.enough.is_set():
        if len(producer) < 2000:
            value = b"idempotent-%d" % number
            producer.produce("idempotent", value, partition=number % PARTITIONS, on_delivery=delivered)
            number += 1
        producer.poll(0 if number % 10 else PAUSE)
    left = producer.flush(0 if history.failures else 60)
    if left and not history.failures:
        history.fail(f"{left} messages of the idempotent producer were never answered")


def plain(broker: BrokerProcess, history: History) -> None:
    """acks=1 in small batches over a raw connection; what gets no answer is not tried again."""
    number, wire = 0, None
    while not history.enough.is_set():
        values = [b"plain-%d" % (number + i) for i in range(3)]
        partition = number % PARTITIONS
        number += len(values)
        try:
            wire = wire or Wire(broker.kafka_address, timeout=10)
            answer = wire.produce("plain", batch(values), partition=partition, acks=1)
        except GONE:
            wire = _drop(wire)
            continue
        if answer.error_code:
            history.fail(f"plain produce was refused: {answer.error_code}")
            continue
        for i, value in enumerate(values):
            history.acknowledge(("plain", partition, answer.base_offset + i), value)
        time.sleep(PAUSE)
    _drop(wire)


def rest(broker: BrokerProcess, history: History) -> None:
    """Records over HTTP; what gets no answer is not tried again."""
    _post(broker, history, "rest", keyed=False)


def keyed(broker: BrokerProcess, history: History) -> None:
    """Records over HTTP under an Idempotency-Key, sent again until they are answered."""
    _post(broker, history, "keyed", keyed=True)


def _post(broker: BrokerProcess, history: History, topic: str, *, keyed: bool) -> None:
    number = 0
    with httpx.Client(base_url=broker.http, timeout=10, trust_env=False) as http:
        while not history.enough.is_set():
            partition = number % PARTITIONS
            values = [f"{topic}-{number + i}" for i in range(3)]
            records = [{"partition": partition, "value": value} for value in values]
            headers = {"Idempotency-Key": f"{topic}-{number}"} if keyed else {}
            number += len(values)
            while True:
                try:
                    answer = http.post(
                        f"/api/v1/topics/{topic}/records", json={"records": records}, headers=headers
                    )
                    again = answer.status_code in (409, 503)
                except httpx.HTTPError:
                    again = True
                if not (again and keyed and not history.failures):
                    break
                time.sleep(0.02)
            if again:
                continue
            if answer.status_code != 200:
                history.fail(f"{topic}: {answer.status_code} {answer.text}")
                continue
            for value, written in zip(values, answer.json()["records"], strict=True):
                history.acknowledge((topic, written["partition"], written["offset"]), value.encode())
            time.sleep(PAUSE)


def text(broker: BrokerProcess, history: History) -> None:
    """Lines of the line protocol with acks=all, one try each."""
    number, line = 0, None
    while not history.enough.is_set():
        value, key = f"text-{number}", f"k{number % 7}"
        number += 1
        try:
            line = line or LineConnection(broker.line_address, timeout=10)
            answer = line.ask("PRODUCE", f"text {key}:{value} acks=all")
        except GONE:
            line = _drop(line)
            continue
        if answer.code:
            history.fail(f"a line was refused: {answer}")
            continue
        place = ("text", answer.number("partition"), answer.number("offset"))
        history.acknowledge(place, value.encode())
        time.sleep(PAUSE)
    _drop(line)


def of_2012(broker: BrokerProcess, history: History) -> None:
    """PRODUCE of Kafka 0.7: nothing is ever answered."""
    number, connection = 0, None
    while not history.enough.is_set():
        value, partition = b"old-%d" % number, number % PARTITIONS
        number += 1
        message = struct.pack(">bbI", 1, 0, zlib.crc32(value)) + value
        message = struct.pack(">i", len(message)) + message
        topic = b"old"
        request = struct.pack(">hh", 0, len(topic)) + topic + struct.pack(">ii", partition, len(message))
        frame = request + message
        try:
            connection = connection or socket.create_connection(broker.kafka07_address(1), timeout=10)
            connection.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError:
            connection = _drop(connection)
        time.sleep(PAUSE)
    _drop(connection)


def _drop(connection: Wire | LineConnection | socket.socket | None) -> None:
    """Close what is broken, and give the broker a moment."""
    if connection is not None:
        connection.close()
    time.sleep(0.02)


WRITERS: dict[str, Writer] = {
    "idempotent": idempotent,
    "plain": plain,
    "rest": rest,
    "keyed": keyed,
    "text": text,
    "old": of_2012,
}
"""Each writes to the topic of its name."""
