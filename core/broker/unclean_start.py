"""What must happen between a start after a crash and the first append.

Theory. A record can be read before it is fsynced. A power loss can take it after a group has committed its offset, or
while it is outstanding at a managed consumer. The log then ends before the group's committed offset. Once the log has
grown past that offset, the broker cannot tell the difference any more, and the group never reads the records in
between. So while the logs still end where recovery has found their ends:

    1  the leader epoch rises. Clients with KIP-320 notice: their fetches are fenced, and OffsetForLeaderEpoch
       tells them where the epoch ended that they have read last
    2  committed offsets of all groups, also those of v0, that lie beyond the end of their log move back to it
    3  so do positions and outstanding batches of managed consumers

All of it is on the disk before listeners open. If the disk refuses, the broker comes up for reading: appends are
refused until it is done. Whether power was lost, or only the process died, cannot be told; in the latter case the
logs are as long as they were, and nothing moves.

A partition with one replica has the broker's own epoch, one number for all of them: a start costs one write, not one
for each partition. The epoch list of a log notes it with the first append.

In a cluster offsets live with the broker that keeps groups, and partitions with their leaders. Positions are cut
back where one broker is both: when it begins to keep groups, and when it begins to lead a partition.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from core.counters import Counters
from core.groups.offsets import Cut
from core.types import TopicPartition

logger = logging.getLogger(__name__)

# This many positions are logged one by one; of the others only their number by group.
MAX_LINES = 20


class Positions(Protocol):
    """A part of the broker that keeps offsets of records: committed offsets, or positions of consumers."""

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Move offsets beyond these log end offsets back to them; durable when it returns. Return what was moved.

        Raises KAFKA_STORAGE_ERROR; it may be tried again.
        """
        ...


async def cut_back_groups(groups: Positions, ends: Mapping[TopicPartition, int], counters: Counters) -> None:
    """Move committed offsets back to these log end offsets, durably, and log it. Raises KAFKA_STORAGE_ERROR."""
    _report("committed offset", await groups.cut_back(ends), counters)


async def cut_back_consumers(
    consumers: Positions, ends: Mapping[TopicPartition, int], counters: Counters
) -> None:
    """Move positions and outstanding batches of managed consumers back to these log end offsets, durably, and log it.

    Raises KAFKA_STORAGE_ERROR.
    """
    _report("position of a managed consumer", await consumers.cut_back(ends), counters)


def _report(what: str, cuts: list[Cut], counters: Counters) -> None:
    counters.positions_cut_back += len(cuts)
    for cut in cuts[:MAX_LINES]:
        logger.warning(
            "group %r, %s-%d: the %s was %d; the log ends at %d now, and it is moved there",
            cut.group_id, cut.topic, cut.partition, what, cut.before, cut.after,
        )  # fmt: skip
    more = Counter(cut.group_id for cut in cuts[MAX_LINES:])
    if more:
        named = ", ".join(f"{group!r} {count}" for group, count in more.most_common(MAX_LINES))
        logger.warning(
            "%d more of %d groups (%s) were beyond the end of their log and are moved to it: %s%s",
            more.total(), len(more), what, named, " and others" if len(more) > MAX_LINES else "",
        )  # fmt: skip
