"""What a managed consumer reads: where it begins, one sweep over its partitions, the same batch once more.

A sweep visits each partition once and stops when the batch is full. The next one begins behind the partition that
was served last, so that a busy partition does not starve the others. Everything here happens in one turn of the
event loop.
"""

from __future__ import annotations

from typing import NamedTuple

from core.consumers.state import Consumer
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.groups.groups import Groups
from core.records.record import Record
from core.types import LogOffsets, TopicPartition
from core.vocabulary.consumers import LATEST, NONE, Range
from core.vocabulary.records import FetchRead

# What a record counts for beside its key, value and headers, against the bytes of a batch.
_RECORD_BYTES = 20

Records = list[tuple[TopicPartition, list[Record]]]


class Found(NamedTuple):
    """What a sweep has found: records by partition, and the offsets that they cover."""

    records: Records
    ranges: tuple[Range, ...]


class ConsumerReading:
    """Reads for managed consumers."""

    def __init__(self, broker: Logs, groups: Groups) -> None:
        self._broker = broker
        self._groups = groups

    # --- where to begin ------------------------------------------------------------------------------------

    def place(self, consumer: Consumer, address: TopicPartition) -> int | None:
        """Where a consumer begins in a partition: at the committed offset, else where its `start` says.

        None where the partition does not exist (any more), and with `none`, for which there is no beginning.
        """
        try:
            bounds = self._broker.partitions.offsets(address)
            committed = self._groups.committed(consumer.group_id, *address)
            if committed is not None:
                return committed.offset
            return self._start(consumer, address, bounds)
        except BrokerError:
            return None

    def _start(self, consumer: Consumer, address: TopicPartition, bounds: LogOffsets) -> int | None:
        start = consumer.options.start
        if isinstance(start, int):
            found = self._broker.partitions.offset_for_time(address, start).offset
            return found if found >= 0 else bounds.high_watermark
        if start == NONE:
            return None
        return bounds.high_watermark if start == LATEST else bounds.log_start_offset

    def _position(self, consumer: Consumer, address: TopicPartition, bounds: LogOffsets) -> int:
        """Where to go on, within the bounds of the partition.

        What retention has taken is gone: the next record that is left comes next. A position behind the end
        belongs to records that are no more (power was lost before they were durable): back to what is committed,
        or, if that is behind the end as well, to where `start` says.
        """
        position = consumer.positions.get(address)
        if position is None:
            position = self.place(consumer, address)
        elif position < bounds.log_start_offset and consumer.options.start != NONE:
            position = bounds.log_start_offset
        elif position > bounds.high_watermark and consumer.options.start != NONE:
            position = self.place(consumer, address)
            if position is not None and position > bounds.high_watermark:
                position = self._start(consumer, address, bounds)
        elif bounds.log_start_offset <= position <= bounds.high_watermark:
            return position
        else:
            position = None
        if position is None:
            raise _no_position(address, bounds)
        position = min(max(position, bounds.log_start_offset), bounds.high_watermark)
        consumer.move(address, position)
        return position

    # --- reading -------------------------------------------------------------------------------------------

    def ready(self, consumer: Consumer, min_bytes: int) -> bool:
        """Whether a sweep would find something: anything, or so many bytes; also when it would find an error."""
        reads = []
        most = self._broker.config.fetch_max_bytes
        for address in consumer.assigned:
            if consumer.is_paused(address):
                continue
            try:
                bounds = self._broker.partitions.offsets(address)
                position = self._position(consumer, address, bounds)
            except BrokerError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                return True
            if position < bounds.high_watermark:
                if min_bytes <= 1:
                    return True
                reads.append(FetchRead(address, position, most))
        if not reads:
            return False
        # Nothing is read here. Were `min_bytes` the limit, a batch above it would hide behind a small one.
        _, size, refused, _ = self._broker.partitions.fetch_now(reads, max_bytes=most)
        return refused or size >= min_bytes

    def sweep(self, consumer: Consumer, limit: int, max_bytes: int) -> Found:
        """The next records, at most `limit`; of `max_bytes`, but at least one record.

        Positions move over offsets that hold nothing for readers. An error of a partition is raised if no other
        has anything to give.
        """
        records: Records = []
        ranges: list[Range] = []
        failure: BrokerError | None = None
        count = len(consumer.assigned)
        first = consumer.turn_index
        for step in range(count):
            index = (first + step) % count
            address = consumer.assigned[index]
            if consumer.is_paused(address):
                continue
            try:
                position, found, behind = self._read(consumer, address, limit, max_bytes)
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    failure = failure or _at(error, address)
                continue
            if not found:
                continue
            if records and size_of(found[0]) > max_bytes:
                break
            found, behind = _cut(found, behind, max_bytes)
            records.append((address, found))
            ranges.append(Range(*address, position, behind))
            limit -= len(found)
            max_bytes -= sum(map(size_of, found))
            consumer.turn_index = (index + 1) % count
            if limit <= 0 or max_bytes <= 0:
                break
        if failure is not None and not records:
            # Next time another partition is asked first.
            consumer.turn_index = (first + 1) % count
            raise failure
        return Found(records, tuple(ranges))

    def _read(
        self, consumer: Consumer, address: TopicPartition, limit: int, max_bytes: int
    ) -> tuple[int, list[Record], int]:
        """The position, what comes from there on, and the offset behind it."""
        bounds = self._broker.partitions.offsets(address)
        position = self._position(consumer, address, bounds)
        while position < bounds.high_watermark:
            result = self._broker.records.read_now(address, position, max_bytes=max_bytes, max_records=limit)
            if result.records:
                return position, result.records, result.next_offset
            if result.next_offset <= position:
                break
            position = result.next_offset
            consumer.move(address, position)
        return position, [], position

    def trim(self, consumer: Consumer) -> None:
        """Forget of what is outstanding what a loss of power has taken from the end of a log.

        Its offsets will be given to other records, which nobody must acknowledge unseen.
        """
        for address, one in list(consumer.outstanding.items()):
            try:
                end = self._broker.partitions.offsets(address).high_watermark
            except BrokerError:
                continue
            if one.next_offset > end:
                consumer.cut(address, end)

    def again(self, consumer: Consumer) -> Records:
        """What is outstanding, as it was delivered; less what retention or compaction has taken since."""
        records: Records = []
        for address, one in consumer.outstanding.items():
            found: list[Record] = []
            try:
                bounds = self._broker.partitions.offsets(address)
            except BrokerError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                raise
            offset = max(one.first, bounds.log_start_offset)
            end = min(one.next_offset, bounds.high_watermark)
            while offset < end:
                result = self._broker.records.read_now(
                    address,
                    offset,
                    max_bytes=self._broker.config.fetch_max_bytes,
                    max_records=end - offset,
                )
                found += [record for record in result.records if record.offset < end]
                if result.next_offset <= offset:
                    break
                offset = result.next_offset
            if found:
                records.append((address, found))
        return records


def size_of(record: Record) -> int:
    """What a record counts for, in bytes."""
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


def _cut(records: list[Record], behind: int, max_bytes: int) -> tuple[list[Record], int]:
    """The first records that fit into `max_bytes`, one at least, and the offset behind them."""
    size = 0
    for index, record in enumerate(records):
        size += size_of(record)
        if size > max_bytes and index:
            return records[:index], record.offset
    return records, behind


def _at(error: BrokerError, address: TopicPartition) -> BrokerError:
    return BrokerError(
        error.code,
        error.message,
        **(error.details | {"topic": address.topic, "partition": address.partition}),
    )


def _no_position(address: TopicPartition, bounds: LogOffsets) -> BrokerError:
    return BrokerError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"There is no position in {address} to go on from, and the consumer's start is 'none': seek first.",
        log_start_offset=bounds.log_start_offset,
        high_watermark=bounds.high_watermark,
    )
