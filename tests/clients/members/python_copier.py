"""A group member that consumes, transforms and produces: `python_copier.py CLIENT BOOTSTRAP GROUP TOPIC`.

It copies each record of TOPIC into the same partition of TOPIC-copy, ten at most in one transaction with the group's
offsets (KIP-447), and says what python_member.py says. What is refused is aborted, and the member begins again from
the committed offsets. With the variable HOLD it stops in its first transaction, says {"holding": true}, and continues
when the file of that name is there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from tests.clients.members.python_member import HEARTBEAT_MS, POLL_SECONDS, SESSION_MS, say

BATCH = 10
TRANSACTIONAL_ID = f"copier-{uuid.uuid4().hex}"
TIMEOUT_MS = int(os.environ.get("TRANSACTION_TIMEOUT_MS", "60000"))
stopping = False


def hold() -> None:
    """Stand still, once, if a test asked for it."""
    if name := os.environ.pop("HOLD", None):
        say(holding=True)
        while not Path(name).exists():
            time.sleep(0.02)


def confluent(bootstrap: str, group: str, topic: str) -> None:
    """librdkafka, until something is refused."""
    from confluent_kafka import KafkaException, TopicPartition

    consumer, producer, about = _confluent_clients(bootstrap, group, topic)
    try:
        while not stopping:
            records = [one for one in consumer.consume(BATCH, timeout=POLL_SECONDS) if not one.error()]
            if records:
                producer.begin_transaction()
                for one in records:
                    producer.produce(f"{topic}-copy", one.value(), partition=one.partition())
                producer.flush()
                hold()
                offsets = {one.partition(): one.offset() + 1 for one in records}
                moved = [TopicPartition(topic, *one) for one in offsets.items()]
                producer.send_offsets_to_transaction(moved, about[0])
                producer.commit_transaction()
                say(committed=offsets)
    except KafkaException as error:
        say(refused=str(error))
        if error.args[0].txn_requires_abort():
            producer.abort_transaction()
    finally:
        consumer.close()


def _confluent_clients(bootstrap: str, group: str, topic: str) -> tuple[Any, Any, list[Any]]:
    """A consumer, a producer, and a list with the generation of what the consumer was given last."""
    from confluent_kafka import Consumer, Producer

    settings = {"bootstrap.servers": bootstrap, "log_level": 0}
    about: list[Any] = []

    def given(client: Consumer, partitions: list[Any]) -> None:
        # Asked for later it may be that of no member, which a broker does not refuse.
        about[:] = [client.consumer_group_metadata()]
        say(assigned=sorted(one.partition for one in partitions))

    reading = {
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "roundrobin",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "fetch.wait.max.ms": 50,
    }
    writing = {
        "transactional.id": TRANSACTIONAL_ID,
        "transaction.timeout.ms": TIMEOUT_MS,
        "linger.ms": 0,
    }
    consumer, producer = Consumer(settings | reading), Producer(settings | writing)
    producer.init_transactions()
    consumer.subscribe([topic], on_assign=given)
    return consumer, producer, about


def kafka_python(bootstrap: str, group: str, topic: str) -> None:
    """kafka-python, until something is refused."""
    from kafka import TopicPartition
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    consumer, producer, about = _kafka_python_clients(bootstrap, group, topic)
    try:
        while not stopping:
            polled = consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
            records = [one for found in polled.values() for one in found]
            if records:
                producer.begin_transaction()
                for one in records:
                    producer.send(f"{topic}-copy", value=one.value, partition=one.partition)
                producer.flush()
                hold()
                offsets = {one.partition: one.offset + 1 for one in records}
                moved = {
                    TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
                    for partition, offset in offsets.items()
                }
                producer.send_offsets_to_transaction(moved, about[0])
                producer.commit_transaction()
                say(committed=offsets)
    except KafkaError as error:
        say(refused=repr(error))
    finally:
        # The next producer of the id aborts what is open.
        producer.close(timeout=5)
        consumer.close(autocommit=False)


def _kafka_python_clients(bootstrap: str, group: str, topic: str) -> tuple[Any, Any, list[Any]]:
    """As those of librdkafka."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    about: list[Any] = []

    class Listener(ConsumerRebalanceListener):
        """Keeps the generation of what it was given."""

        def on_partitions_revoked(self, revoked: Any) -> None:
            """Nothing is kept."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            """Say it."""
            about[:] = [consumer.group_metadata()]
            say(assigned=[one.partition for one in assigned])

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=50,
        max_poll_records=BATCH,
    )
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=TRANSACTIONAL_ID,
        transaction_timeout_ms=TIMEOUT_MS,
    )
    producer.init_transactions()
    consumer.subscribe([topic], listener=Listener())
    return consumer, producer, about


COPIERS = {"confluent-kafka": confluent, "kafka-python": kafka_python}


def main() -> None:
    """Run until SIGTERM."""
    client, bootstrap, group, topic = sys.argv[1:]

    def stop(*_: object) -> None:
        global stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    while not stopping:
        COPIERS[client](bootstrap, group, topic)


if __name__ == "__main__":
    main()
