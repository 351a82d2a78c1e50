"""A transactional writer for `promote_loop`: each of its transactions writes one number to two partitions.

Whatever is killed and promoted meanwhile, a read_committed consumer finds a number in both partitions or in none: all
whose commit was answered, and none that was aborted. A number whose outcome the writer was not told may be either.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

TOPIC, PARTITIONS = "ended", 2
SECONDS = 120.0


@dataclass
class Outcomes:
    """What the writer was told."""

    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)


def write(bootstrap: str, outcomes: Outcomes) -> None:
    """Write one transaction after the other, and abort every fourth. After a fatal error a new producer continues."""
    number = 0
    while not outcomes.stop.is_set():
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "promoted",
                "transaction.timeout.ms": 60_000,
                "message.timeout.ms": 60_000,
                "request.timeout.ms": 5_000,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        try:
            _until_done(outcomes, lambda: producer.init_transactions(10))  # noqa: B023 - called at once
            while not outcomes.stop.is_set():
                number += 1
                _transaction(producer, outcomes, number)
        except KafkaException as error:
            found = error.args[0]
            if not found.fatal() and not outcomes.stop.is_set():
                outcomes.failures.append(f"transaction {number}: {error}")
                return


def _transaction(producer: Producer, outcomes: Outcomes, number: int) -> None:
    producer.begin_transaction()
    try:
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, str(number).encode(), partition=partition)
        if number % 4:
            _until_done(outcomes, lambda: producer.commit_transaction(10))
            outcomes.committed.add(number)
            return
        producer.flush(10)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
    _until_done(outcomes, lambda: producer.abort_transaction(10))
    outcomes.aborted.add(number)


def _until_done(outcomes: Outcomes, call: object) -> None:
    """Repeat a call as long as its error says that it may be repeated."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            call()  # type: ignore[operator]
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def read(bootstrap: str) -> list[list[int]]:
    """All numbers that a read_committed consumer gets from each partition up to its end, in order.

    The end is the one of the call. While a quick writer writes, a consumer may find none of its own: each of its
    fetches returns what was committed meanwhile.
    """
    ends = _ends(bootstrap)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
    )
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    with contextlib.closing(consumer):
        consumer.assign(
            [TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)]
        )
        ended: set[int] = set()
        deadline = time.monotonic() + SECONDS
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"partitions ended: {ended}"
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[message.partition()].append(int(message.value()))
                if message.offset() >= ends[message.partition()]:
                    ended.add(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    return found


def _ends(bootstrap: str) -> list[int]:
    """The last stable offset of each partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = {TopicPartition(TOPIC, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=30)
    return [answers[place].result().offset for place in asked]


def check(found: list[list[int]], committed: set[int], aborted: set[int], *, whole: bool) -> None:
    """Each partition has all of a transaction or nothing. `whole`: the writer has ended."""
    for numbers in found:
        assert numbers == sorted(set(numbers)), "numbers are duplicates, or not in order"
        assert committed <= set(numbers), (
            f"{sorted(committed - set(numbers))[:5]} were committed and are lost"
        )
        assert not aborted & set(numbers), f"{sorted(aborted & set(numbers))[:5]} were aborted and are read"
    # The partitions are not read in the same moment; up to here both readings are complete.
    until = max(map(max, found)) if whole else min(max(numbers, default=0) for numbers in found)
    first, second = ({n for n in numbers if n <= until} for numbers in found)
    assert first == second, f"half of the transactions {sorted(first ^ second)[:5]} is read"
