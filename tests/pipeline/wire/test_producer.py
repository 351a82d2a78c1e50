"""The idempotent producer: in order and once, also when answers are lost and brokers restart."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from core.records.record import NewRecord
from pipeline.wire import producer as producers
from pipeline.wire.cluster import ClientSettings, Cluster
from pipeline.wire.errors import ConnectionLostError, KafkaError
from pipeline.wire.producer import Producer
from tests.broker_process import BrokerProcess
from tests.clients.wire import NOW
from tests.pipeline.topics import Topics


@pytest.fixture
def producer(broker: BrokerProcess) -> Iterator[Producer]:
    """A producer of this file's broker."""
    with Cluster(ClientSettings((broker.kafka_address,))) as cluster:
        yield Producer(cluster, codec=4)


def send(producer: Producer, topic: str, numbers: range, partition: int = 0) -> None:
    """One batch of records with these numbers as values."""
    producer.send(topic, partition, [NewRecord(value=b"%d" % number) for number in numbers], now_ms=NOW)


def values(topics: Topics, topic: str, partition: int = 0) -> list[int]:
    """The numbers that lie in a partition."""
    return [int(record.value or b"") for record in topics.records(topic, partition)]


def test_batches_arrive_in_order_in_several_partitions(topics: Topics, producer: Producer) -> None:
    name = topics.create("ordered", partitions=2)
    for start in range(0, 300, 10):
        send(producer, name, range(start, start + 10), partition=start // 10 % 2)
    producer.flush()
    assert values(topics, name, 0) == [n for n in range(300) if n // 10 % 2 == 0]
    assert values(topics, name, 1) == [n for n in range(300) if n // 10 % 2]


def test_batches_whose_answers_were_lost_are_sent_again_and_stored_once(
    topics: Topics, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topics.create("lost-answers")
    lost = iter([5, 11])
    due, seen = next(lost), 0
    take = Producer._take

    def lossy(self: Producer, batch: producers._Batch) -> None:
        nonlocal due, seen
        take(self, batch)
        seen += 1
        if seen == due:
            due = next(lost, -1)
            raise ConnectionLostError("the answer was lost")

    monkeypatch.setattr(Producer, "_take", lossy)
    for start in range(0, 200, 10):
        send(producer, name, range(start, start + 10))
    producer.flush()
    assert seen > 20
    assert values(topics, name) == list(range(200))


@pytest.mark.slow
def test_a_restart_of_the_broker_in_between_loses_and_doubles_nothing(
    topics: Topics, broker: BrokerProcess, producer: Producer
) -> None:
    name = topics.create("restarted")
    for start in range(0, 50, 10):
        send(producer, name, range(start, start + 10))
    broker.kill()
    later = threading.Timer(0.5, broker.start)
    later.start()
    for start in range(50, 100, 10):
        send(producer, name, range(start, start + 10))
    producer.flush()
    later.join()
    with Topics(broker) as again:
        assert values(again, name) == list(range(100))


def test_a_refusal_names_the_partition_and_the_record(topics: Topics, producer: Producer) -> None:
    name = topics.create("refused", cleanup_policy="compact")
    send(producer, name, range(3))
    with pytest.raises(KafkaError, match=r"topic refused, partition 0: INVALID_RECORD .*record 0: .*key"):
        producer.flush()
