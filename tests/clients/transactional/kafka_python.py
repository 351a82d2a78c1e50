"""kafka-python 3: transactions of the first kind, with requests in newer versions than librdkafka's."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.clients.driver import CALL_SECONDS, RefusedError
from tests.clients.transactional.serving import serve


class Client:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, KafkaProducer] = {}

    def open(self, producer: str, transactional_id: str, timeout_ms: int) -> None:
        made = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self._producers[producer] = made
        _wait(made.init_transactions)

    def begin(self, producer: str) -> None:
        _wait(self._producers[producer].begin_transaction)

    def send(self, producer: str, topic: str, values: list[str]) -> None:
        client = self._producers[producer]
        for sent in [client.send(topic, value=value.encode(), partition=0) for value in values]:
            _wait(lambda sent=sent: sent.get(CALL_SECONDS))

    def send_offset(self, producer: str, group: str, topic: str, offset: int) -> None:
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        _wait(lambda: self._producers[producer].send_offsets_to_transaction(offsets, group))

    def commit(self, producer: str) -> None:
        _wait(self._producers[producer].commit_transaction)

    def abort(self, producer: str) -> None:
        _wait(self._producers[producer].abort_transaction)

    def values(self, topic: str, committed: bool, last: str) -> list[str]:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed else "read_uncommitted",
            fetch_max_wait_ms=100,
        )
        asked = TopicPartition(topic, 0)
        consumer.assign([asked])
        found: list[str] = []
        deadline = time.monotonic() + CALL_SECONDS
        try:
            while last not in found and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=1000)
                found += [record.value.decode() for record in polled.get(asked, ())]
        finally:
            consumer.close()
        assert last in found, found
        return found[:-1]


def _wait(call: Callable[[], Any]) -> None:
    try:
        call()
    except KafkaError as error:
        raise RefusedError(getattr(error, "errno", None), repr(error)) from error


if __name__ == "__main__":
    serve(Client(sys.argv[1]))
