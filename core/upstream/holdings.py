"""Count what the cluster holds, for the metrics of a gateway, from what is at hand: nothing is asked of a broker.

Sizes are not known. Offsets are those that reads have told last, so that a topic that this gateway never reads has
none. The lag of groups is not counted here: it would be the same at every gateway.
"""

from __future__ import annotations

from core.clock import Clock, TimeSlice
from core.types import TopicPartition
from core.upstream.bounds import Bounds
from core.upstream.topics import Topics
from core.vocabulary.holdings import Holdings, TopicTotals


async def holdings(clock: Clock, topics: Topics, bounds: Bounds, max_topics: int) -> Holdings:
    """Return the topics by name, at most `max_topics`."""
    time_slice = TimeSlice(clock)
    every = topics.list(include_internal=True)
    totals = []
    for topic in every[:max_topics]:
        offsets = kept = 0
        for partition in range(topic.partitions):
            known = bounds.find(TopicPartition(topic.name, partition))
            if known is not None:
                offsets += known.log_end_offset
                kept += known.log_end_offset - known.log_start_offset
        totals.append(TopicTotals(topic.name, topic.partitions, None, offsets, kept))
        await time_slice.give_way()
    partitions = sum(topic.partitions for topic in every)
    left_out = max(0, len(every) - max_topics)
    return Holdings(totals, left_out, partitions, 0, 0, [], 0, [], 0, 0)
