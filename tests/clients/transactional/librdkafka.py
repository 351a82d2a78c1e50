"""librdkafka under Python: transactions of the first kind, with EndTxn in version 1."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Received

from tests.clients.driver import CALL_SECONDS, RefusedError
from tests.clients.transactional.serving import serve


class Client:
    """confluent-kafka. It asks for no transaction that outlives the delivery of a record."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, Producer] = {}

    def open(self, producer: str, transactional_id: str, timeout_ms: int) -> None:
        made = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                # It would tell of each attempt to connect while the broker is away.
                "log_level": 0,
            }
        )
        _wait(made.init_transactions)
        self._producers[producer] = made

    def begin(self, producer: str) -> None:
        self._producers[producer].begin_transaction()

    def send(self, producer: str, topic: str, values: list[str]) -> None:
        found: list[KafkaError | None] = []

        def delivered(error: KafkaError | None, _: Received) -> None:
            found.append(error)

        for value in values:
            self._producers[producer].produce(topic, value.encode(), partition=0, on_delivery=delivered)
        self._producers[producer].flush(CALL_SECONDS)
        assert len(found) == len(values)
        for error in found:
            if error is not None:
                raise RefusedError(error.code(), error.str())

    def send_offset(self, producer: str, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        about = consumer.consumer_group_metadata()
        offsets = [TopicPartition(topic, 0, offset)]
        client = self._producers[producer]
        _wait(lambda seconds: client.send_offsets_to_transaction(offsets, about, seconds))
        consumer.close()

    def commit(self, producer: str) -> None:
        _wait(self._producers[producer].commit_transaction)

    def abort(self, producer: str) -> None:
        _wait(self._producers[producer].abort_transaction)

    def values(self, topic: str, committed: bool, last: str) -> list[str]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": uuid.uuid4().hex,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[str] = []
        deadline = time.monotonic() + CALL_SECONDS
        try:
            while last not in found and time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is not None:
                    assert message.error() is None, message.error()
                    found.append((message.value() or b"").decode())
        finally:
            consumer.close()
        assert last in found, found
        return found[:-1]


def _wait(call: Callable[[float], Any]) -> None:
    try:
        call(CALL_SECONDS)
    except KafkaException as error:
        raise RefusedError(error.args[0].code(), error.args[0].str()) from error


if __name__ == "__main__":
    serve(Client(sys.argv[1]))
