"""The message sets of Produce v0–2 as batches of today, before anything is appended.

A small set without compression is converted at once. A large one, or one with a wrapper, of which nobody knows how
much is in it, is converted in a thread: the event loop goes on meanwhile, and threads get bytes alone.
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
from core.types import TopicPartition

T = TypeVar("T")


class Conversions:
    """Runs conversions in threads of its own, which begin with the first one.

    Each may hold a whole decompressed set, and a thread keeps some of the memory that it has had: so they are few,
    and not those that everything else runs in.
    """

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="convert")

    async def run(self, work: Callable[[], T]) -> T:
        """The result of `work`, or what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


class MessageSets:
    """The sets of one request. `of` gives what each has become, once `finish` has returned where it is `slow`."""

    def __init__(self, broker: Broker, request: ProduceRequest) -> None:
        self._broker = broker
        self._converted: dict[int, ProduceBatches | BrokerError] = {}
        self._slow: list[tuple[int, Callable[[], ProduceBatches]]] = []
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records is not None:
                    try:
                        self._convert(topic.name, data, data.records)
                    except BrokerError as error:
                        self._converted[id(data)] = error

    @property
    def slow(self) -> bool:
        """Whether there are sets that a thread must convert."""
        return bool(self._slow)

    async def finish(self, conversions: Conversions) -> None:
        """Convert those, one after the other."""
        for place, work in self._slow:
            try:
                self._converted[place] = await conversions.run(work)
            except BrokerError as error:
                self._converted[place] = error

    def of(self, data: PartitionProduceData) -> ProduceBatches:
        """The batches that the set of a partition has become; raises what is wrong with it."""
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
        # The request lies in a buffer that is used again.
        self._slow.append((id(data), partial(convert, bytes(records))))
