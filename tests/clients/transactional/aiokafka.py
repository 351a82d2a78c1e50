"""aiokafka: transactions in version 0 of all requests, whose errors have no word for a fenced producer."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, ProducerFenced

from core.errors import ErrorCode
from tests.clients.driver import CALL_SECONDS, RefusedError
from tests.clients.transactional.serving import serve

T = TypeVar("T")


class Client:
    """aiokafka, on a loop in a thread of its own. It makes ProducerFenced of INVALID_PRODUCER_EPOCH."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()
        self._producers: dict[str, AIOKafkaProducer] = {}

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)
        except ProducerFenced as error:
            raise RefusedError(ErrorCode.PRODUCER_FENCED, str(error)) from error
        except KafkaError as error:
            raise RefusedError(error.errno, repr(error)) from error

    def open(self, producer: str, transactional_id: str, timeout_ms: int) -> None:
        async def start() -> None:
            made = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            self._producers[producer] = made
            await made.start()

        self._run(start())

    def begin(self, producer: str) -> None:
        self._run(self._producers[producer].begin_transaction())

    def send(self, producer: str, topic: str, values: list[str]) -> None:
        async def send() -> None:
            for value in values:
                await self._producers[producer].send_and_wait(topic, value.encode(), partition=0)

        self._run(send())

    def send_offset(self, producer: str, group: str, topic: str, offset: int) -> None:
        offsets = {TopicPartition(topic, 0): offset}
        self._run(self._producers[producer].send_offsets_to_transaction(offsets, group))

    def commit(self, producer: str) -> None:
        self._run(self._producers[producer].commit_transaction())

    def abort(self, producer: str) -> None:
        self._run(self._producers[producer].abort_transaction())

    def values(self, topic: str, committed: bool, last: str) -> list[str]:
        async def read() -> list[str]:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                isolation_level="read_committed" if committed else "read_uncommitted",
                fetch_max_wait_ms=100,
            )
            await consumer.start()
            asked = TopicPartition(topic, 0)
            consumer.assign([asked])
            consumer.seek(asked, 0)
            found: list[str] = []
            try:
                while last not in found:
                    found.append((await consumer.getone()).value.decode())
            finally:
                await consumer.stop()
            return found[:-1]

        return self._run(read())


if __name__ == "__main__":
    serve(Client(sys.argv[1]))
