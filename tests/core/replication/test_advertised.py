"""Two broker processes, of which one advertises another address than the one that its peer uses."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.ports import free_ports

SECONDS = 30.0


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    first, second = free_ports(2)
    one = BrokerProcess(
        tmp_path / "1",
        options=["--broker-id", "1", "--peer", f"2=127.0.0.1:{second}"],
    )
    # The second one listens on two addresses of this machine: one for its peer, one for clients.
    two = BrokerProcess(
        tmp_path / "2",
        options=[
            *("--broker-id", "2", "--peer", f"1=127.0.0.1:{first}"),
            *("--listener", f"kafka://127.0.0.2:{second}", "--advertised", f"kafka://127.0.0.2:{second}"),
        ],
    )
    one.ports["kafka"], two.ports["kafka"] = first, second
    try:
        one.spawn()
        two.start()
        one.wait_ready()
        yield one, two
    finally:
        one.kill()
        two.kill()


def metadata(broker: BrokerProcess) -> Any:
    return AdminClient({"bootstrap.servers": broker.kafka}).list_topics(timeout=SECONDS)


def addresses(broker: BrokerProcess) -> dict[int, str]:
    """The brokers as a client of this one is told."""
    return {number: f"{one.host}:{one.port}" for number, one in metadata(broker).brokers.items()}


def post(broker: BrokerProcess, path: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(
        f"{broker.http}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    urllib.request.urlopen(request, timeout=SECONDS).read()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_clients_use_the_address_that_a_peer_advertises(two: tuple[BrokerProcess, BrokerProcess]) -> None:
    one, other = two
    wanted = {1: one.kafka, 2: f"127.0.0.2:{other.ports['kafka']}"}
    until(lambda: addresses(one) == addresses(other) == wanted)
    with urllib.request.urlopen(f"{one.http}/api/v1/brokers", timeout=SECONDS) as answer:
        assert {b["broker_id"]: b["kafka"] for b in json.load(answer)["items"]} == wanted

    admin = AdminClient({"bootstrap.servers": other.kafka})
    admin.create_topics([NewTopic("t", 1, 2)])["t"].result(SECONDS)
    until(lambda: "t" in metadata(other).topics)
    post(other, "/api/v1/topics/t/partitions/0:role", {"role": "leader"})
    producer = Producer({"bootstrap.servers": one.kafka, "acks": "all"})
    producer.produce("t", b"hello")
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({"bootstrap.servers": one.kafka, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    try:
        message = consumer.poll(SECONDS)
        assert message is not None and message.value() == b"hello", message
    finally:
        consumer.close()

    # It is known also while that broker is away.
    other.kill()
    one.kill()
    one.start()
    assert addresses(one) == wanted
