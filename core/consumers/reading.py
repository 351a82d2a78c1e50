"""What a managed consumer reads: where it begins, one sweep over its partitions, the outstanding batch once more.

A sweep visits each partition once and stops when the batch is full. The next sweep begins after the partition that
was served last, so that a busy partition does not starve the others. Each call here runs in one turn of the event
loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from core.consumers.consumer import Consumer
from core.consumers.interfaces import MemberGroups
from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.records.record import Record
from core.types import LogOffsets, TopicPartition
from core.vocabulary.consumers import EARLIEST, LATEST, NONE, Range, Seek
from core.vocabulary.records import FetchRead

# What a record counts for besides its key, value and headers, against the bytes of a batch.
_RECORD_BYTES = 20
# Seconds that a position may lie beyond the high watermark of a cluster's partition: a new leader learns of it late.
_AHEAD_SECONDS = 30.0
# Reads of one partition in one sweep that find nothing but markers and records of aborted transactions.
_MOST_READS = 8

Records = list[tuple[TopicPartition, list[Record]]]


class Found(NamedTuple):
    """The records of a sweep by partition, and the ranges of offsets that they cover.

    `more` says that the sweep ended early, after many batches that no consumer may see: sweep again.
    """

    records: Records
    ranges: tuple[Range, ...]
    more: bool = False


class Reading:
    """Reads for managed consumers."""

    def __init__(self, broker: Logs, groups: MemberGroups) -> None:
        self._broker = broker
        self._groups = groups

    # --- at hand -------------------------------------------------------------------------------------------

    async def bring(self, consumer: Consumer, max_bytes: int, *, fresh: bool) -> None:
        """Bring to hand what `ready` and `sweep` need in the same turn of the event loop.

        Partitions without a position get theirs. `fresh` asks the cluster; else what a wait has brought will do.
        Raises BrokerError if the cluster cannot be asked.
        """
        if self._groups.at_hand:
            return
        await self.bring_beginnings(
            consumer, [tp for tp in consumer.assigned if tp not in consumer.positions]
        )
        turn = consumer.turn_index
        reads = [
            FetchRead(tp, consumer.positions[tp], max_bytes, committed=consumer.options.committed)
            for tp in consumer.assigned[turn:] + consumer.assigned[:turn]
            if not consumer.is_paused(tp) and tp in consumer.positions
        ]
        if reads:
            await self._broker.bring(reads, max_bytes=max_bytes, fresh=fresh)

    async def bring_beginnings(self, consumer: Consumer, partitions: Collection[TopicPartition]) -> None:
        """Set the positions of these partitions, which a cluster has to be asked for. See `begin`."""
        if self._groups.at_hand or not partitions:
            return
        await self.bring_offsets(consumer, partitions)
        self.begin(
            consumer, [tp for tp in partitions if tp in consumer.assigned and tp not in consumer.positions]
        )

    async def bring_offsets(self, consumer: Consumer, partitions: Collection[TopicPartition]) -> None:
        """Bring to hand what `begin` needs in the same turn of the event loop."""
        if self._groups.at_hand or not partitions:
            return
        await self._groups.bring(consumer.group_id, partitions, fresh=True)
        committed = consumer.options.committed
        if isinstance(consumer.options.start, int):
            await self._broker.look(partitions=partitions, moment=consumer.options.start, committed=committed)
        await self._broker.look(partitions=partitions)

    async def bring_targets(self, consumer: Consumer, seeks: Sequence[Seek]) -> None:
        """Bring to hand what `target` needs for these seeks."""
        if self._groups.at_hand:
            return
        moments: dict[int | None, list[TopicPartition]] = {}
        for seek in seeks:
            moments.setdefault(seek.time_ms, []).append(TopicPartition(seek.topic, seek.partition))
        for moment, partitions in moments.items():
            if moment is not None:
                committed = consumer.options.committed
                await self._broker.look(partitions=partitions, moment=moment, committed=committed)
        await self._broker.look(partitions=[TopicPartition(one.topic, one.partition) for one in seeks])

    # --- where to begin ------------------------------------------------------------------------------------

    def begin(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        """Set the position in partitions that are new to the consumer, where it is known."""
        for tp in partitions:
            try:
                position = self._beginning(consumer, tp)
            except BrokerError:
                continue
            if position is not None:
                consumer.move(tp, position)

    def target(self, consumer: Consumer, tp: TopicPartition, seek: Seek) -> int:
        """Return the offset that a seek names. Raises OFFSET_OUT_OF_RANGE with the `offset` and the bounds."""
        bounds = self._broker.partitions.offsets(tp)
        if seek.time_ms is not None:
            return self._at_time(consumer, tp, seek.time_ms, bounds)
        if isinstance(seek.to, str):
            return {EARLIEST: bounds.log_start_offset, LATEST: _end(consumer, bounds)}[seek.to]
        if bounds.log_start_offset <= seek.to <= bounds.high_watermark:
            return seek.to
        raise BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{tp} holds offsets from {bounds.log_start_offset} to {bounds.high_watermark}; {seek.to} lies "
            "outside.",
            topic=tp.topic,
            partition=tp.partition,
            offset=seek.to,
            log_start_offset=bounds.log_start_offset,
            high_watermark=bounds.high_watermark,
        )

    def _beginning(self, consumer: Consumer, tp: TopicPartition) -> int | None:
        """Return the committed offset, else the offset of the consumer's `start`.

        None if the partition does not exist, or if there is no committed offset and `start` is `none`. Raises errors
        that another attempt may heal.
        """
        try:
            bounds = self._broker.partitions.offsets(tp)
            committed = self._groups.committed(consumer.group_id, *tp)
            if committed is not None:
                return committed.offset
            return self._start(consumer, tp, bounds)
        except BrokerError as error:
            if error.code.retriable and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return None

    def _start(self, consumer: Consumer, tp: TopicPartition, bounds: LogOffsets) -> int | None:
        start = consumer.options.start
        if isinstance(start, int):
            return self._at_time(consumer, tp, start, bounds)
        if start == NONE:
            return None
        return _end(consumer, bounds) if start == LATEST else bounds.log_start_offset

    def _at_time(self, consumer: Consumer, tp: TopicPartition, time_ms: int, bounds: LogOffsets) -> int:
        """Return the offset of the first record that is not older, else the end for this consumer."""
        committed = consumer.options.committed
        found = self._broker.partitions.offset_for_time(tp, time_ms, committed=committed).offset
        return found if found >= 0 else _end(consumer, bounds)

    def _position(self, consumer: Consumer, tp: TopicPartition, bounds: LogOffsets) -> int:
        """Return the position of a consumer, moved into the bounds of the partition.

        Below the log start offset (retention has deleted records) it moves to the log start offset. Beyond the high
        watermark (a power loss took records before they were durable) it moves to the committed offset, or, if that
        is beyond it too, to the offset of `start`. With `start` `none` it raises OFFSET_OUT_OF_RANGE instead.
        """
        position = consumer.positions.get(tp)
        if position is None:
            position = self._beginning(consumer, tp)
        elif position < bounds.log_start_offset and consumer.options.start != NONE:
            position = bounds.log_start_offset
        elif position > bounds.high_watermark and self._may_be_late(consumer, tp):
            raise _late(tp)
        elif position > bounds.high_watermark and consumer.options.start != NONE:
            position = self._beginning(consumer, tp)
            if position is not None and position > bounds.high_watermark:
                position = self._start(consumer, tp, bounds)
        elif bounds.log_start_offset <= position <= bounds.high_watermark:
            if consumer.ahead:
                consumer.ahead.pop(tp, None)
            return position
        else:
            position = None
        if position is None:
            raise _no_position(tp, bounds)
        position = min(max(position, bounds.log_start_offset), bounds.high_watermark)
        consumer.move(tp, position)
        return position

    def _may_be_late(self, consumer: Consumer, tp: TopicPartition) -> bool:
        """Return whether the high watermark may still reach the position: the partition has a new leader.

        An embedded broker knows its own high watermark.
        """
        if self._groups.at_hand:
            return False
        now = self._broker.clock.monotonic()
        return now - consumer.ahead.setdefault(tp, now) < _AHEAD_SECONDS

    def _has_nothing_yet(self, error: BrokerError) -> bool:
        """Return whether a partition has no records for now, while others may have some.

        It is deleted, or it belongs to a cluster and has no leader at the moment.
        """
        return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or (
            error.code.retriable and not self._groups.at_hand
        )

    # --- reading -------------------------------------------------------------------------------------------

    def ready(self, consumer: Consumer, min_bytes: int) -> bool:
        """Return whether a sweep would find at least `min_bytes` (0 and 1: any record), or an error."""
        reads = []
        most = self._broker.config.fetch_max_bytes
        for tp in consumer.assigned:
            if consumer.is_paused(tp):
                continue
            try:
                bounds = self._broker.partitions.offsets(tp)
                position = self._position(consumer, tp, bounds)
            except BrokerError as error:
                if self._has_nothing_yet(error):
                    continue
                return True
            if position < _end(consumer, bounds):
                if min_bytes <= 1:
                    return True
                reads.append(FetchRead(tp, position, most, committed=consumer.options.committed))
        if not reads:
            return False
        # This only sums sizes. With `min_bytes` as the limit, a large batch after a small one would not be counted.
        _, size, refused, _ = self._broker.partitions.fetch_now(reads, max_bytes=most)
        return refused or size >= min_bytes

    def sweep(self, consumer: Consumer, limit: int, max_bytes: int) -> Found:
        """Return the next records: at most `limit`, and of at most `max_bytes`, but at least one.

        Positions move past offsets without records for consumers. The error of a partition is raised if no other
        partition has records.
        """
        records: Records = []
        ranges: list[Range] = []
        failure: BrokerError | None = None
        more = False
        count = len(consumer.assigned)
        first = consumer.turn_index
        for step in range(count):
            index = (first + step) % count
            tp = consumer.assigned[index]
            if consumer.is_paused(tp):
                continue
            try:
                position, found, after = self._read(consumer, tp, limit, max_bytes)
            except BrokerError as error:
                if not self._has_nothing_yet(error):
                    failure = failure or _at(error, tp)
                continue
            if not found:
                more = more or after < 0
                continue
            if records and size_of(found[0]) > max_bytes:
                break
            found, after = _cut(found, after, max_bytes)
            records.append((tp, found))
            ranges.append(Range(*tp, position, after))
            limit -= len(found)
            max_bytes -= sum(map(size_of, found))
            consumer.turn_index = (index + 1) % count
            if limit <= 0 or max_bytes <= 0:
                break
        if failure is not None and not records:
            # The next sweep asks another partition first.
            consumer.turn_index = (first + 1) % count
            raise failure
        return Found(records, tuple(ranges), more)

    def _read(
        self, consumer: Consumer, tp: TopicPartition, limit: int, max_bytes: int
    ) -> tuple[int, list[Record], int]:
        """Return the position, the records from there on, and the offset after them.

        No records and −1 if there is more to look at.
        """
        bounds = self._broker.partitions.offsets(tp)
        position = self._position(consumer, tp, bounds)
        end, committed, reads = _end(consumer, bounds), consumer.options.committed, 0
        while position < end:
            if reads == _MOST_READS:
                return position, [], -1
            reads += 1
            result = self._broker.records.read_now(
                tp, position, max_bytes=max_bytes, max_records=limit, committed=committed
            )
            if result.records:
                return position, result.records, result.next_offset
            if result.next_offset <= position:
                break
            position = result.next_offset
            consumer.move(tp, position)
        return position, [], position

    def trim(self, consumer: Consumer) -> None:
        """Remove outstanding offsets that a power loss has taken from the end of a log.

        Other records will get these offsets, and the client must not acknowledge records that it has not seen. Over a
        cluster nothing is removed: what was below a high watermark stays.
        """
        if not self._groups.at_hand:
            return
        for tp, one in list(consumer.outstanding.items()):
            try:
                end = self._broker.partitions.offsets(tp).high_watermark
            except BrokerError:
                continue
            if one.next_offset > end:
                consumer.cut(tp, end)

    async def again(self, consumer: Consumer) -> Records:
        """Return the outstanding records again, without those that retention or compaction has removed since."""
        records: Records = []
        for tp, one in list(consumer.outstanding.items()):
            try:
                found = await self._range(tp, one, consumer.options.committed)
            except BrokerError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                raise
            if found:
                records.append((tp, found))
        return records

    async def _range(self, tp: TopicPartition, one: Range, committed: bool) -> list[Record]:
        """Return the records of a range that are left."""
        found: list[Record] = []
        most, offset = self._broker.config.fetch_max_bytes, one.first
        while True:
            if not self._groups.at_hand:
                await self._broker.bring([FetchRead(tp, offset, most, committed=committed)], max_bytes=most)
            bounds = self._broker.partitions.offsets(tp)
            if one.next_offset > bounds.high_watermark and not self._groups.at_hand:
                # A new leader that does not know the high watermark yet: to return less would lose records.
                raise _late(tp)
            offset = max(offset, bounds.log_start_offset)
            end = min(one.next_offset, bounds.high_watermark)
            if offset >= end:
                return found
            result = self._broker.records.read_now(
                tp, offset, max_bytes=most, max_records=end - offset, committed=committed
            )
            found += [record for record in result.records if record.offset < end]
            if result.next_offset <= offset:
                return found
            offset = result.next_offset


def _end(consumer: Consumer, bounds: LogOffsets) -> int:
    """Return where the records end that a consumer may read."""
    return bounds.end(committed=consumer.options.committed)


def size_of(record: Record) -> int:
    """Return what a record counts for, in bytes."""
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


def _cut(records: list[Record], after: int, max_bytes: int) -> tuple[list[Record], int]:
    """Return the first records that fit into `max_bytes`, at least one, and the offset after them."""
    size = 0
    for index, record in enumerate(records):
        size += size_of(record)
        if size > max_bytes and index:
            return records[:index], record.offset
    return records, after


def _at(error: BrokerError, tp: TopicPartition) -> BrokerError:
    return BrokerError(
        error.code,
        error.message,
        **(error.details | {"topic": tp.topic, "partition": tp.partition}),
    )


def _late(tp: TopicPartition) -> BrokerError:
    return BrokerError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"{tp} has a new leader that does not know all committed records yet; try again.",
        topic=tp.topic,
        partition=tp.partition,
    )


def _no_position(tp: TopicPartition, bounds: LogOffsets) -> BrokerError:
    return BrokerError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"There is no position in {tp} to continue from, and the consumer's start is 'none': seek first.",
        log_start_offset=bounds.log_start_offset,
        high_watermark=bounds.high_watermark,
    )
