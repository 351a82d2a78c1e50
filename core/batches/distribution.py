"""Records on their way in: the partition of each, and batches below the limit of the topic."""

from __future__ import annotations

from collections.abc import Sequence

from core.batches.chunks import chunks_below
from core.records.batch import build_batch
from core.records.partitioner import StickyPartitions, partition_for_key
from core.records.record import NewRecord
from core.types import AppendResult
from core.vocabulary.records import ProduceResult

_FIRST_OR_ANY = {0, None}


class Distribution:
    """Distributes the records of a call over partitions and batches. Remembers whose turn it is in each topic."""

    def __init__(self, sticky: StickyPartitions) -> None:
        self._sticky = sticky

    def by_partition(
        self,
        topic: str,
        partitions: int,
        records: Sequence[NewRecord],
        partition: int | None = None,
        sticky: int = -1,
    ) -> dict[int, Sequence[int]]:
        """Return the indexes of the records for each partition; see `facade.Records.by_partition`."""
        if partitions == 1 and {record.partition for record in records} <= _FIRST_OR_ANY:
            return {0: range(len(records))}
        groups: dict[int, list[int]] = {}
        for index, record in enumerate(records):
            number = record.partition if record.partition is not None else partition
            if number is None and record.key is not None:
                number = partition_for_key(record.key, partitions)
            elif number is None:
                if sticky < 0:
                    sticky = self.next_in_turn(topic, partitions)
                number = sticky
            group = groups.get(number)
            if group is None:
                groups[number] = [index]
            else:
                group.append(index)
        return dict(groups)

    def next_in_turn(self, topic: str, partitions: int) -> int:
        """Return the partition for the next records without a key."""
        return self._sticky.choose(topic, partitions)

    def batches_below(
        self, limit: int, records: Sequence[NewRecord], indexes: Sequence[int], now: int
    ) -> list[tuple[Sequence[int], bytearray]]:
        """Build batches of at most `limit` bytes with the indexes of their records; a larger record is alone."""
        whole = build_batch(
            records if len(indexes) == len(records) else [records[i] for i in indexes], now_ms=now
        )
        if len(whole) <= limit or len(indexes) == 1:
            return [(indexes, whole)]
        chunks = chunks_below(limit, records, indexes)
        return [(chunk, build_batch([records[i] for i in chunk], now_ms=now)) for chunk in chunks]


def take_results(
    results: list[ProduceResult],
    records: Sequence[NewRecord],
    indexes: Sequence[int],
    partition: int,
    done: AppendResult,
    now: int,
) -> None:
    """Set the results of the records of one batch that was appended; `now` is the time of records without one."""
    first, append_time = done.base_offset, done.log_append_time
    if append_time >= 0:
        made = [ProduceResult(partition, first + i, append_time) for i in range(len(indexes))]
    else:
        chosen = records if len(indexes) == len(records) else [records[index] for index in indexes]
        made = [
            ProduceResult(partition, offset, now if record.timestamp is None else record.timestamp)
            for offset, record in enumerate(chosen, first)
        ]
    if len(made) == len(results):
        results[:] = made
        return
    for index, result in zip(indexes, made, strict=True):
        results[index] = result
