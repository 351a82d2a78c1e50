"""Count what the broker holds, and the lag of groups, without opening a log.

Of a log that is closed the numbers are those of when it was closed; after a start they are those of the
checkpoint, and its size is looked up once, in a thread. All of it is done in slices, so that a broker of
10,000 partitions answers others meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from core.clock import Clock, TimeSlice
from core.groups.groups import Groups
from core.log.manager import LogManager
from core.types import TopicPartition
from core.vocabulary.holdings import GroupLag, Holdings, TopicTotals, UnstablePartition
from core.vocabulary.topic import TopicInfo

# A longer name is no label of a metric.
_MAX_LABEL = 249


async def holdings(
    clock: Clock, logs: LogManager, topics: list[TopicInfo], groups: Groups, max_topics: int, max_lags: int
) -> Holdings:
    """Count everything; the oldest topics first if there are more than `max_topics`.

    At most as many partitions with open transactions are returned, the farthest from their high watermark first.
    """
    task = logs.begin_sizes()
    if task is not None:
        await asyncio.get_running_loop().run_in_executor(None, task.run)
        logs.finish_sizes(task)
    time_slice = TimeSlice(clock)
    partitions = sum(topic.partitions for topic in topics)
    topics.sort(key=lambda topic: (topic.created_ms, topic.name))
    totals = []
    for topic in topics[:max_topics]:
        totals.append(_totals(logs, topic))
        await time_slice.give_way()
    lags: list[GroupLag] = []
    left_out = count = 0
    for group in [listing.group_id for listing in groups.list()]:
        count += 1
        for lag in _lags(logs, groups, group):
            if len(lags) < max_lags and len(group) <= _MAX_LABEL:
                lags.append(lag)
            else:
                left_out += 1
        await time_slice.give_way()
    unstable = await _unstable(logs, time_slice)
    return Holdings(
        totals,
        max(0, len(topics) - max_topics),
        partitions,
        logs.open_count,
        count,
        lags,
        left_out,
        unstable[:max_topics],
        max(0, len(unstable) - max_topics),
        groups.pending_offsets(),
    )


async def _unstable(logs: LogManager, time_slice: TimeSlice) -> list[UnstablePartition]:
    """Return the partitions whose last stable offset is below the high watermark, the farthest first."""
    found = []
    for tp, log in list(logs.opened()):
        _, end, _, stable = log.offsets
        if stable < end:
            found.append(UnstablePartition(tp.topic, tp.partition, end - stable))
        await time_slice.give_way()
    return sorted(found, key=lambda one: (-one.offsets, one))


def _totals(logs: LogManager, topic: TopicInfo) -> TopicTotals:
    size = offsets = kept = 0
    for partition in range(topic.partitions):
        known = logs.known(TopicPartition(topic.name, partition))
        if known is not None:
            start, end, bytes_ = known
            size += bytes_
            offsets += end
            kept += end - start
    return TopicTotals(topic.name, topic.partitions, size, offsets, kept)


def _lags(logs: LogManager, groups: Groups, group: str) -> Iterator[GroupLag]:
    by_topic: dict[str, int] = {}
    for topic, partition, committed in groups.all_committed(group):
        end = logs.stable_end(TopicPartition(topic, partition))
        if end is not None:
            by_topic[topic] = by_topic.get(topic, 0) + max(0, end - committed.offset)
    for topic, lag in by_topic.items():
        yield GroupLag(group, topic, lag)
