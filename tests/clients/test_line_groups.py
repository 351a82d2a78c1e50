"""Members that say lines and members that are Kafka's clients are one group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.clients.line import LineConnection

BROKER_SCHEMES = ("text",)
BROKER_ENVIRONMENT = {"SLUICE_GROUP_INITIAL_REBALANCE_DELAY_MS": "50"}


class Member:
    """A member on librdkafka that polls in a thread; `owned` are its partitions."""

    def __init__(self, broker: BrokerProcess, group: str, topic: str, strategy: str) -> None:
        self.owned: set[int] = set()
        self.read: list[bytes] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.kafka,
                "group.id": group,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": strategy,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll)
        self._thread.start()

    def _assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.owned = {one.partition for one in partitions}

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.owned -= {one.partition for one in partitions}

    def _poll(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.05)
            if message is not None and not message.error():
                self.read.append(message.value())
        self._consumer.close()

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within 30 s")


@pytest.fixture
def line(broker: BrokerProcess) -> Iterator[LineConnection]:
    with LineConnection(broker.line_address) as line:
        yield line


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "range,roundrobin"])
def test_librdkafka_and_a_line_share_a_topic(
    broker: BrokerProcess, line: LineConnection, strategy: str
) -> None:
    topic = group = f"shared.{strategy.replace(',', '.')}"
    assert not line.ask("CREATE", f"{topic} partitions=4").code
    assert line.ask("JOIN", f"{group} {topic} c1").numbers("assigned") == [0, 1, 2, 3]
    member = Member(broker, group, topic, strategy)
    try:
        until(lambda: len(member.owned) == 2)
        refused = line.ask("HEARTBEAT", f"{group} {topic} c1 1")
        assert refused.code == "GENERATION_MISMATCH"
        mine = line.ask("JOIN", f"{group} {topic} c1")
        assert set(mine.numbers("assigned")) | member.owned == {0, 1, 2, 3}
        assert len(mine.numbers("assigned")) == 2
        generation = mine.number("generation")
        partition = mine.numbers("assigned")[0]
        committed = line.ask("COMMIT", f"{group} {topic} c1 {generation} {partition} 0")
        assert committed.payload == "committed=true"
        theirs = min(member.owned)
        refused = line.ask("COMMIT", f"{group} {topic} c1 {generation} {theirs} 0")
        assert refused.code == "GENERATION_MISMATCH"
        for number in range(8):
            line.ask("PRODUCE", f"{topic} key-{number}:{number}")
        kept = [line.ask("CONSUME", f"{topic} {p} 0").messages() for p in sorted(member.owned)]
        expected = sorted(value for messages in kept for _, value in messages)
        until(lambda: sorted(member.read) == expected)
        view = httpx.get(f"{broker.http}/api/v1/groups/{group}").json()
        assert sorted(len(one["partitions"]) for one in view["members"]) == [2, 2]
    finally:
        member.stop()
    mine = line.ask("JOIN", f"{group} {topic} c1")
    assert mine.numbers("assigned") == [0, 1, 2, 3]
    assert not line.ask("LEAVE", f"{group} {topic} c1 {mine.number('generation')}").code


def test_a_line_comes_second_and_leaves_again(broker: BrokerProcess, line: LineConnection) -> None:
    topic = group = "second"
    line.ask("CREATE", f"{topic} partitions=3")
    member = Member(broker, group, topic, "range,roundrobin")
    try:
        until(lambda: len(member.owned) == 3)
        mine = line.ask("JOIN", f"{group} {topic} c1 assignor=round_robin")
        assert not mine.code
        until(lambda: set(mine.numbers("assigned")) | member.owned == {0, 1, 2} and len(member.owned) < 3)
        assert not line.ask("LEAVE", f"{group} {topic} c1 {mine.number('generation')}").code
        until(lambda: len(member.owned) == 3)
    finally:
        member.stop()
