"""Convert the message sets of Produce v0–2 to record batches, before anything is appended.

A small set without compression is converted on the event loop. A large one is converted in a thread, and so is one
with a wrapper, because its decompressed size is unknown. Threads get bytes and no other state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from core.broker.broker import Broker
from core.errors import BrokerError
from core.protocol.messages.produce import PartitionProduceData, ProduceRequest
from core.records.conversion import up_convert
from core.records.message_set import WrapperError
from core.records.validation import ProduceBatches
from core.security.acl import Operation, ResourceType
from core.security.authorizer import Rights
from core.types import TopicPartition

T = TypeVar("T")


class Conversions:
    """Runs conversions in a small thread pool of its own, which starts with the first conversion.

    Each conversion may hold a whole decompressed set, and a thread keeps some memory after it. So the threads are
    few, and no other work runs in them.
    """

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="convert")

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread; return its result or raise its error."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


class MessageSets:
    """The message sets of one request. If `slow`, await `finish` before `of`, which returns the batches of a set."""

    def __init__(self, broker: Broker, rights: Rights, request: ProduceRequest) -> None:
        self._broker = broker
        self._converted: dict[int, ProduceBatches | BrokerError] = {}
        self._slow: list[tuple[int, Callable[[], ProduceBatches]]] = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    try:
                        # Nothing is decompressed for a client that may not write it.
                        rights.require(Operation.WRITE, ResourceType.TOPIC, topic.name)
                        self._convert(topic.name, data, data.records)
                    except BrokerError as error:
                        self._converted[id(data)] = error

    @property
    def slow(self) -> bool:
        """Whether there are sets that a thread must convert."""
        return bool(self._slow)

    async def finish(self, conversions: Conversions) -> None:
        """Convert these sets, one after the other."""
        for place, work in self._slow:
            try:
                self._converted[place] = await conversions.run(work)
            except BrokerError as error:
                self._converted[place] = error

    def of(self, data: PartitionProduceData) -> ProduceBatches:
        """Return the batches made from the set of a partition; raise the error of its conversion."""
        found = self._converted[id(data)]
        if isinstance(found, BrokerError):
            raise found
        return found

    def _convert(self, topic: str, data: PartitionProduceData, records: memoryview) -> None:
        config = self._broker.config
        convert = partial(
            up_convert,
            config=self._broker.partitions.log(TopicPartition(topic, data.index)).config,
            now_ms=self._broker.clock.wall_ms(),
            max_bytes=config.max_decompressed_bytes,
        )
        if len(records) <= config.convert_on_loop_bytes:
            try:
                self._converted[id(data)] = convert(records, open_wrappers=False)
            except WrapperError:
                pass
            else:
                return
        # The buffer of the request is used again.
        self._slow.append((id(data), partial(convert, bytes(records))))
