"""What a Kafka 0.7 listener asks of the broker: messages without offsets, and reads by byte address.

The listeners of one magic see every log as 0.7 would have written it in that magic (`core.kafka07.view`). A view is
made when the first client of that magic asks. A FETCH or OFFSETS request waits until the log is measured as far as it
needs. Threads measure and read, slice by slice, with descriptors and numbers. Small reads at the end of a log are
done on the event loop, because a hop to a thread costs more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from core.broker.broker import Broker
from core.errors import BrokerError, ErrorCode
from core.kafka07.messages import parse_messages
from core.kafka07.tasks import Locating, Measuring, Reading
from core.kafka07.view import AddressView
from core.kafka07.views import Kafka07Views
from core.records.conversion import batches_of
from core.records.message_set import MessageGroup
from core.records.validation import ProduceBatches
from core.topic_config import TopicConfig
from core.types import TopicPartition
from core.vocabulary.partition import EARLIEST, LATEST
from core.vocabulary.topic import check_topic_name

# In a PRODUCE: the broker chooses the partition.
ANY_PARTITION = -1
# Bytes of log that are read on the loop, and bytes of messages that are opened there.
_AT_ONCE = 16 * 1024
_PARSED_AT_ONCE = 32 * 1024
# How long to wait for a view that cannot be made while a compaction ends: about an fsync.
_HELD_SECONDS = 0.005


class Kafka07Topics:
    """Topics as Kafka 0.7 sees them, in messages of one magic."""

    def __init__(self, broker: Broker, views: Kafka07Views, magic: int) -> None:
        self.magic = magic
        self._broker = broker
        self._views = views
        self._config = broker.config
        self._slots = asyncio.Semaphore(broker.config.legacy_threads)
        # Only one request at a time moves the frontier of a view.
        self._locks: WeakKeyDictionary[AddressView, asyncio.Lock] = WeakKeyDictionary()

    # --- produce -------------------------------------------------------------------------------------------

    def parse(self, messages: memoryview) -> list[MessageGroup] | None:
        """Return the messages of a small PRODUCE; None for a large one, which needs `parse_later`.

        Raises BrokerError as `parse_messages` does.
        """
        if len(messages) > _PARSED_AT_ONCE:
            return None
        return parse_messages(messages, max_bytes=self._config.max_decompressed_bytes)

    async def parse_later(self, messages: memoryview) -> list[MessageGroup]:
        """Return the messages of a PRODUCE, parsed in a thread. The caller must not change `messages` until then."""
        parse = partial(parse_messages, messages, max_bytes=self._config.max_decompressed_bytes)
        async with self._slots:
            return await asyncio.get_running_loop().run_in_executor(None, parse)

    def target(self, topic: str, partition: int) -> TopicPartition | None:
        """Return the partition of a PRODUCE; None if the topic must be created first (`create`).

        Raises INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION.
        """
        check_topic_name(topic)
        count = self._partitions(topic)
        if not (ANY_PARTITION <= partition < count):
            raise self._no_partition(topic, partition)
        if self._find(topic) is None:
            return None
        if partition == ANY_PARTITION:
            partition = self._broker.clock.randrange(count) if count > 1 else 0
        return TopicPartition(topic, partition)

    async def create(self, topic: str) -> None:
        """Create a topic with the broker's default number of partitions, if the broker may create topics."""
        await self._broker.topics.get_or_create(topic)

    def append(self, tp: TopicPartition, groups: list[MessageGroup], size: int) -> None:
        """Append parsed messages; `size` is their bytes on the wire. Raises BrokerError."""
        config = self._broker.partitions.log(tp).config
        self.appended(tp, batches_of(groups, size, config, now_ms=self._broker.clock.wall_ms()))

    async def append_later(self, tp: TopicPartition, groups: list[MessageGroup], size: int) -> None:
        """Append parsed messages as `append` does, but build the batches in a thread."""
        config: TopicConfig = self._broker.partitions.log(tp).config
        build = partial(batches_of, groups, size, config, now_ms=self._broker.clock.wall_ms())
        async with self._slots:
            checked = await asyncio.get_running_loop().run_in_executor(None, build)
        self.appended(tp, checked)

    def appended(self, tp: TopicPartition, checked: ProduceBatches) -> None:
        """Append batches, without waiting for the disk: 0.7 has no answer to a PRODUCE."""
        self._broker.partitions.append_checked(tp, checked)
        waiting = self._broker.partitions.durable(tp, 1)
        if waiting is not None:
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for the work. It continues if the caller is cancelled: a producer of 0.7 sends and disconnects."""
        task = asyncio.get_running_loop().create_task(work)
        self._broker.partitions.unattended.add(task)
        task.add_done_callback(self._ended)
        await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._broker.partitions.unattended.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that still waits gets it

    # --- fetch ---------------------------------------------------------------------------------------------

    async def fetch(self, topic: str, partition: int, address: int, max_size: int, limit: int) -> bytes:
        """Return the bytes of the log from `address` on, of one segment: at most `max_size`, and about `limit`.

        Empty at the end, and for a topic that does not exist. Raises BrokerError: OFFSET_OUT_OF_RANGE,
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_FETCH_SIZE, INVALID_TOPIC_EXCEPTION, CORRUPT_MESSAGE.
        """
        if max_size < 0:
            raise BrokerError(ErrorCode.INVALID_FETCH_SIZE, f"A fetch of {max_size} bytes.")
        tp = self._readable(topic, partition)
        while True:
            view = await self._view(tp) if tp else None
            start = await self._start(view) if view else 0
            if view is None or start is None:
                if start is None:
                    continue
                end = 0
            else:
                if view.frontier.address < address:
                    await self._measure(view, partial(_reaches, view, address))
                end = view.frontier.address
            if not start <= address <= end:
                raise _out_of_range(address, start, end)
            if view is None or not max_size or (address == end and view.complete()):
                return b""
            chunk = await self._read(view, address, min(max_size, limit), max_size)
            if chunk:
                return chunk

    async def _read(self, view: AddressView, address: int, limit: int, max_size: int) -> bytes:
        """Return what one segment has from `address` on; empty if the frontier moved on and met no messages."""
        if address < view.frontier.address:
            with _READING:
                task = view.begin_reading(address, limit, max_size)
            if task is None:
                return b""
            await self._run(task)
            view.finish_reading(task)
            if not task.chunk and address < view.frontier.address:
                raise BrokerError(
                    ErrorCode.CORRUPT_MESSAGE, f"The log cannot be read at the address {address}."
                )
            return task.chunk
        async with self._lock(view):
            if address != view.frontier.address or view.complete():
                return b""  # another request was faster
            with _READING:
                task = view.begin_reading(address, limit, max_size)
            if task is None:
                return b""
            await self._run(task)
            view.finish_reading(task)
        return task.chunk

    # --- offsets -------------------------------------------------------------------------------------------

    async def offsets(self, topic: str, partition: int, time_ms: int, limit: int) -> list[int]:
        """Return addresses of segments, newest first (`AddressView.segment_addresses`). Raises as `fetch` does."""
        tp = self._readable(topic, partition)
        if tp is None:
            return [0][: max(limit, 0)] if time_ms in (LATEST, EARLIEST) else []
        while True:
            view = await self._view(tp)
            start = await self._start(view)
            if start is None:
                continue
            if time_ms == EARLIEST:
                return [start][: max(limit, 0)]
            await self._measure(view, _never)
            if view.complete() and view.start_address is not None:
                return view.segment_addresses(time_ms, limit)

    # --- views ---------------------------------------------------------------------------------------------

    def _find(self, topic: str) -> object | None:
        try:
            return self._broker.topics.get(topic)
        except BrokerError:
            return None

    def _partitions(self, topic: str) -> int:
        """Return how many partitions a topic has, or would have."""
        try:
            return self._broker.topics.get(topic).partitions
        except BrokerError:
            return self._config.default_partitions

    def _readable(self, topic: str, partition: int) -> TopicPartition | None:
        """Return the partition to read; None if its topic does not exist but would have it."""
        check_topic_name(topic)
        if not 0 <= partition < self._partitions(topic):
            raise self._no_partition(topic, partition)
        return TopicPartition(topic, partition) if self._find(topic) is not None else None

    def _no_partition(self, topic: str, partition: int) -> BrokerError:
        return BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Topic {topic!r} has no partition {partition}; it has {self._partitions(topic)}.",
        )

    async def _view(self, tp: TopicPartition) -> AddressView:
        while True:
            with _READING:
                try:
                    return self._views.of(self._broker.partitions.led_log(tp), self.magic)
                except BlockingIOError:
                    await asyncio.sleep(_HELD_SECONDS)

    async def _start(self, view: AddressView) -> int | None:
        """Return the address of the first record; None if the log has changed during the search: try again."""
        start = view.start_address
        if start is not None:
            return start
        offset = view.log.offsets.log_start_offset
        await self._measure(view, lambda: view.frontier.offset >= offset)
        with _READING:
            task = view.begin_locating()
        if task is not None:
            await self._run(task)
            view.finish_locating(task)
        return view.start_address

    async def _measure(self, view: AddressView, enough: Callable[[], bool]) -> None:
        """Move the frontier on until `enough` or the end of the log."""
        while not enough() and not view.complete():
            async with self._lock(view):
                if enough():
                    return
                with _READING:
                    task = view.begin_measuring(self._config.legacy_slice_bytes)
                if task is None:
                    return
                await self._run(task)
                view.finish_measuring(task)

    def _lock(self, view: AddressView) -> asyncio.Lock:
        lock = self._locks.get(view)
        if lock is None:
            lock = self._locks[view] = asyncio.Lock()
        return lock

    async def _run(self, task: Measuring | Reading | Locating) -> None:
        with _READING:
            if task.place.end - task.place.start.position <= _AT_ONCE:
                task.run()
                return
            async with self._slots:
                await asyncio.get_running_loop().run_in_executor(None, task.run)


def _reaches(view: AddressView, address: int) -> bool:
    return view.frontier.address >= address


def _never() -> bool:
    return False


def _out_of_range(address: int, start: int, end: int) -> BrokerError:
    return BrokerError(
        ErrorCode.OFFSET_OUT_OF_RANGE, f"The address {address} is out of range: the log has {start} to {end}."
    )


class _Reading:
    """A context in which an OSError becomes KAFKA_STORAGE_ERROR."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            message = f"The disk refuses to read: {error.strerror}."
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error


_READING = _Reading()
