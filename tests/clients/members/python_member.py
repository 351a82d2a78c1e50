"""A group member in a process of its own: `python_member.py CLIENT BOOTSTRAP GROUP TOPIC`.

It reads, commits what it has read, and says so in lines of JSON: {"assigned": [partition, …]},
{"read": [partition, offset, value]}, {"committed": {partition: next offset}}. SIGTERM makes it leave.
Its assignor is round robin; librdkafka takes another from the variable STRATEGY. With PROTOCOL=consumer the broker
assigns (KIP-848), INSTANCE makes the member static, and a TOPIC that begins with ^ is a pattern: librdkafka alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

SESSION_MS, HEARTBEAT_MS = 3000, 300
POLL_SECONDS = 0.1

stopping = False


def say(**event: Any) -> None:
    """One event, one line."""
    print(json.dumps(event), flush=True)


def say_read(records: list[tuple[int, int, bytes | None]]) -> None:
    """Say what was read."""
    for partition, offset, value in records:
        say(read=[partition, offset, (value or b"").decode()])


def next_offsets(records: list[tuple[int, int, bytes | None]]) -> dict[int, int]:
    """Where to continue in each partition."""
    return {partition: offset + 1 for partition, offset, _ in records}


def confluent(bootstrap: str, group: str, topic: str) -> None:
    """librdkafka."""
    from confluent_kafka import Consumer, KafkaException

    strategy = os.environ.get("STRATEGY", "roundrobin")
    owned: set[int] = set()

    def given(_: Consumer, partitions: list[Any]) -> None:
        owned.update(one.partition for one in partitions)
        say(assigned=sorted(owned))

    def taken(_: Consumer, partitions: list[Any]) -> None:
        owned.difference_update(one.partition for one in partitions)
        if strategy == "cooperative-sticky" or protocol == "consumer":  # else all are taken, and then given
            say(assigned=sorted(owned))

    protocol = os.environ.get("PROTOCOL", "classic")
    settings: dict[str, Any] = {
        "partition.assignment.strategy": strategy,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }
    if protocol == "consumer":
        # The broker has these settings now; a new topic of a pattern is found by the broker, and fetched at once.
        settings = {"group.protocol": "consumer", "topic.metadata.refresh.interval.ms": 500}
    if instance := os.environ.get("INSTANCE"):
        settings["group.instance.id"] = instance
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe([topic], on_assign=given, on_revoke=taken, on_lost=taken)
    while not stopping:
        found = [m for m in consumer.consume(100, timeout=POLL_SECONDS) if not m.error()]
        records = [(m.partition(), m.offset(), m.value()) for m in found]
        say_read(records)
        if records:
            try:
                consumer.commit(asynchronous=False)
                say(committed=next_offsets(records))
            except KafkaException as error:
                say(refused=str(error))
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str) -> None:
    """kafka-python with its round robin."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        """Says what it was given."""

        def on_partitions_revoked(self, revoked: Any) -> None:
            """Nothing is kept."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            """Say it."""
            say(assigned=[one.partition for one in assigned])

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[RoundRobinPartitionAssignor],
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=50,
    )
    consumer.subscribe([topic], listener=Listener())
    while not stopping:
        polled = consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
        records = [(r.partition, r.offset, r.value) for found in polled.values() for r in found]
        say_read(records)
        if records:
            try:
                consumer.commit()
                say(committed=next_offsets(records))
            except KafkaError as error:
                say(refused=str(error))
    consumer.close(autocommit=False)


def aiokafka(bootstrap: str, group: str, topic: str) -> None:
    """aiokafka with its round robin."""
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        """Says what it was given."""

        def on_partitions_revoked(self, revoked: Any) -> None:
            """Nothing is kept."""

        def on_partitions_assigned(self, assigned: Any) -> None:
            """Say it."""
            say(assigned=[one.partition for one in assigned])

    async def consume() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=50,
        )
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        while not stopping:
            polled = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
            records = [(r.partition, r.offset, r.value) for found in polled.values() for r in found]
            say_read(records)
            if records:
                places = {TopicPartition(topic, p): o for p, o in next_offsets(records).items()}
                try:
                    await consumer.commit(places)
                    say(committed=next_offsets(records))
                except KafkaError as error:
                    say(refused=str(error))
        await consumer.stop()

    asyncio.run(consume())


CLIENTS: dict[str, Callable[[str, str, str], None]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def stop(*_: object) -> None:
    """Leave at the next turn."""
    global stopping
    stopping = True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    CLIENTS[sys.argv[1]](*sys.argv[2:])
