"""Limit the records of a micro-batch. Pure functions: offsets in, offsets out."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pipeline.wire.cluster import TopicPartition


def new_offsets(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Offsets between start and end, over all partitions; a partition that is not in `start` counts from 0."""
    return sum(max(offset - start.get(tp, 0), 0) for tp, offset in end.items())


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """The end of a batch of about `most` offsets, shared among partitions by what they have (as Spark does).

    Each partition that has something gets one offset at least, so that none starves; so a batch may be larger
    than `most` by the number of partitions.
    """
    total = new_offsets(start, end)
    if total <= most:
        return dict(end)
    taken = {}
    for tp, last in end.items():
        first = start.get(tp, 0)
        share = most * (last - first) / total
        taken[tp] = last if last <= first else min(last, first + max(math.floor(share), 1))
    return taken
