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
from core.vocabulary.holdings import GroupLag, Holdings, TopicTotals
from core.vocabulary.topic import TopicInfo

# A longer name is no label of a metric.
_MAX_LABEL = 249


async def holdings(
    clock: Clock, logs: LogManager, topics: list[TopicInfo], groups: Groups, max_topics: int, max_lags: int
) -> Holdings:
    """Count everything; the oldest topics first if there are more than `max_topics`."""
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
    return Holdings(
        totals, max(0, len(topics) - max_topics), partitions, logs.open_count, count, lags, left_out
    )


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
        known = logs.known(TopicPartition(topic, partition))
        if known is not None:
            by_topic[topic] = by_topic.get(topic, 0) + max(0, known[1] - committed.offset)
    for topic, lag in by_topic.items():
        yield GroupLag(group, topic, lag)
