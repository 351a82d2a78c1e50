"""How much the broker holds and how far behind groups are, counted without opening a log.

Of a log that is closed the numbers are those of when it was closed; after a start they are those of the
checkpoint, and its size is looked up once, in a thread. All of it is done in slices, so that a broker of
10,000 partitions answers others meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from core.broker.broker import Broker
from core.clock import TimeSlice
from core.types import TopicPartition
from core.vocabulary.topic import TopicInfo

# A longer name is no label for anybody.
_MAX_LABEL = 249


class TopicTotals(NamedTuple):
    """One topic over all its partitions. `offsets` are records ever written, `kept` those still there."""

    name: str
    partitions: int
    size: int
    offsets: int
    kept: int


class GroupLag(NamedTuple):
    """How far a group is behind in one topic, over the partitions for which it has committed."""

    group: str
    topic: str
    lag: int


class Holdings(NamedTuple):
    """What the broker holds. `…_left_out` are those beyond the limits."""

    topics: list[TopicTotals]
    topics_left_out: int
    partitions: int
    open_logs: int
    groups: int
    lags: list[GroupLag]
    lags_left_out: int


async def holdings(broker: Broker, max_topics: int, max_lags: int) -> Holdings:
    """All of it; the oldest topics first where there are more than may be shown."""
    task = broker.logs.begin_sizes()
    if task is not None:
        await asyncio.get_running_loop().run_in_executor(None, task.run)
        broker.logs.finish_sizes(task)
    time_slice = TimeSlice(broker.clock)
    topics = broker.topics.list(include_internal=True)
    partitions = sum(topic.partitions for topic in topics)
    topics.sort(key=lambda topic: (topic.created_ms, topic.name))
    totals = []
    for topic in topics[:max_topics]:
        totals.append(_totals(broker, topic))
        await time_slice.give_way()
    lags: list[GroupLag] = []
    left_out = groups = 0
    for group in [listing.group_id for listing in broker.groups.list()]:
        groups += 1
        for lag in _lags(broker, group):
            if len(lags) < max_lags and len(group) <= _MAX_LABEL:
                lags.append(lag)
            else:
                left_out += 1
        await time_slice.give_way()
    return Holdings(
        totals, max(0, len(topics) - max_topics), partitions, broker.logs.open_count, groups, lags, left_out
    )


def _totals(broker: Broker, topic: TopicInfo) -> TopicTotals:
    size = offsets = kept = 0
    for partition in range(topic.partitions):
        known = broker.logs.known(TopicPartition(topic.name, partition))
        if known is not None:
            start, end, bytes_ = known
            size += bytes_
            offsets += end
            kept += end - start
    return TopicTotals(topic.name, topic.partitions, size, offsets, kept)


def _lags(broker: Broker, group: str) -> Iterator[GroupLag]:
    by_topic: dict[str, int] = {}
    for topic, partition, committed in broker.groups.all_committed(group):
        known = broker.logs.known(TopicPartition(topic, partition))
        if known is not None:
            by_topic[topic] = by_topic.get(topic, 0) + max(0, known[1] - committed.offset)
    for topic, lag in by_topic.items():
        yield GroupLag(group, topic, lag)
