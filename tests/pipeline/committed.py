"""What a reader of committed records finds in a topic: librdkafka, which knows nothing of us."""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

SECONDS = 60.0


def committed(servers: str, topic: str, partitions: int) -> dict[int, list[bytes]]:
    """Return the values of every partition up to its last stable offset, in their order."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "reader",
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    found: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
    ended: set[int] = set()
    deadline = time.monotonic() + SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in found])
        while len(ended) < partitions:
            assert time.monotonic() < deadline, (
                f"{topic}: the ends of {found.keys() - ended} were not reached"
            )
            for message in consumer.consume(1000, 0.05):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    found[partition].append(message.value() or b"")
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(partition)
    finally:
        consumer.close()
    return found
