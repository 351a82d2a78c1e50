"""The offsets of partitions as the cluster has told them last, and what waits for a change.

Three sources tell of bounds: ListOffsets, which is asked for them; each Fetch; and the acknowledgement of an append,
after which the high watermark is above the records at least with acks=all. They arrive in any order, so that an older
answer must not take back what a newer one has told. A last stable offset is never inferred: nothing would take back
one that is too high, and committed reads would wait for records that they may not see.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection

from core.changes import TopicChanges
from core.client.cluster import ClusterClient
from core.client.offsets import EARLIEST, LATEST, list_offsets
from core.errors import BrokerError
from core.purgatory import Purgatory
from core.types import LogOffsets, TimestampOffset, TopicPartition
from core.upstream.failures import NotAtHandError, about

# Answers of searches by time that are kept for the synchronous call which follows.
_MAX_FOUND = 10_000

Moment = tuple[TopicPartition, int, bool]


class Bounds:
    """What is known of the offsets of partitions."""

    def __init__(self, cluster: ClusterClient, changes: TopicChanges, purgatory: Purgatory) -> None:
        self._cluster = cluster
        self._changes = changes
        self._purgatory = purgatory
        self._known: dict[TopicPartition, LogOffsets] = {}
        self._refused: dict[TopicPartition, BrokerError] = {}
        # Partitions whose high watermark is known to be higher than when the last stable offset was told.
        self._unsure: set[TopicPartition] = set()
        self._found: OrderedDict[Moment, TimestampOffset | BrokerError] = OrderedDict()

    # --- at hand -------------------------------------------------------------------------------------------

    def find(self, tp: TopicPartition) -> LogOffsets | None:
        """Return the bounds of a partition; None if they are not known."""
        return self._known.get(tp)

    def get(self, tp: TopicPartition) -> LogOffsets:
        """Return the bounds of a partition. Raises what the cluster has refused them with."""
        refused = self._refused.get(tp)
        if refused is not None:
            raise refused
        found = self._known.get(tp)
        if found is None:
            raise NotAtHandError(f"The offsets of {tp}")
        return found

    def refusal(self, tp: TopicPartition) -> BrokerError | None:
        """Return what the cluster has refused the last question about a partition with."""
        return self._refused.get(tp)

    def is_unsure(self, tp: TopicPartition) -> bool:
        """Return whether the last stable offset may be higher by now: records were acknowledged since it was told."""
        return tp in self._unsure

    def at(self, moment: Moment) -> TimestampOffset:
        """Return the answer of a search by time. Raises what the cluster has refused it with."""
        found = self._found.get(moment)
        if found is None:
            raise NotAtHandError(f"The offsets of {moment[0]} at that time")
        if isinstance(found, BrokerError):
            raise found
        return found

    # --- what is told --------------------------------------------------------------------------------------

    def learn(self, tp: TopicPartition, found: LogOffsets) -> None:
        """Take the bounds of a Fetch; wake what waits for the partition if its end has moved."""
        before = self._known.get(tp)
        if self._refused:
            self._refused.pop(tp, None)
        if before == found:
            return
        self._known[tp] = found
        if (
            before is None
            or before.high_watermark != found.high_watermark
            or before.last_stable_offset != found.last_stable_offset
        ):
            self._purgatory.notify(tp)
            self._changes.touch(tp.topic)

    def arrived(self, tp: TopicPartition, found: LogOffsets) -> None:
        """Take the bounds of a Fetch. It may be older than an acknowledged append, and does not lower the end.

        The end is lower after a log was cut (unclean election). The leader epoch shows that to the fetcher, and then
        `look` replaces what is known.
        """
        known = self._known.get(tp)
        if self._unsure and (known is None or found.high_watermark >= known.high_watermark):
            self._unsure.discard(tp)
        if known is not None:
            found = LogOffsets(*map(max, known, found))
        self.learn(tp, found)

    def begin(self, tp: TopicPartition) -> None:
        """Take a partition that its topic has got since: its log begins at 0."""
        self._known.setdefault(tp, LogOffsets(0, 0, 0, 0))

    def appended(self, tp: TopicPartition, next_offset: int) -> None:
        """Take the offset after records that all in-sync replicas have: the high watermark is not below it.

        The last stable offset stays: a transaction may have begun before these records.
        """
        known = self._known.get(tp)
        if known is None or known.high_watermark >= next_offset:
            return
        self._unsure.add(tp)
        self.learn(tp, known._replace(high_watermark=next_offset, log_end_offset=next_offset))

    def start_moved(self, tp: TopicPartition, log_start_offset: int) -> None:
        """Take the log start offset after a deletion of records."""
        known = self._known.get(tp)
        if known is not None:
            self.learn(tp, known._replace(log_start_offset=max(known.log_start_offset, log_start_offset)))

    def refuse(self, tp: TopicPartition, error: BrokerError) -> None:
        """Take the error of a partition; the next answer without one replaces it."""
        self._refused[tp] = about(tp, error)

    def forget(self, topic: str, partitions: int) -> None:
        """Forget a deleted topic."""
        for partition in range(partitions):
            tp = TopicPartition(topic, partition)
            self._known.pop(tp, None)
            self._refused.pop(tp, None)
            self._unsure.discard(tp)

    # --- ask -----------------------------------------------------------------------------------------------

    async def look(self, tps: Collection[TopicPartition]) -> None:
        """Ask for the bounds of partitions: three requests for each leader at the same time."""
        if not tps:
            return
        before = {tp: self._known.get(tp) for tp in tps}
        # Started in this order, so that a start is never above the end that is told with it.
        starts, stables, ends = await asyncio.gather(
            list_offsets(self._cluster, dict.fromkeys(tps, EARLIEST)),
            list_offsets(self._cluster, dict.fromkeys(tps, LATEST), committed=True),
            list_offsets(self._cluster, dict.fromkeys(tps, LATEST)),
        )
        for tp in tps:
            start, stable, end = starts[tp], stables[tp], ends[tp]
            if isinstance(end, BrokerError):
                self.refuse(tp, end)
            elif isinstance(start, BrokerError):
                self.refuse(tp, start)
            elif isinstance(stable, BrokerError):
                self.refuse(tp, stable)
            else:
                found = LogOffsets(start.offset, end.offset, end.offset, min(stable.offset, end.offset))
                if self._known.get(tp) is before[tp]:
                    self._unsure.discard(tp)
                self._merge(tp, found, before[tp])

    async def look_at_ends(self, tps: Collection[TopicPartition], *, committed: bool) -> None:
        """Ask where reads end in partitions whose bounds are known; if committed, they are no longer unsure."""
        before = {tp: self._known.get(tp) for tp in tps}
        for tp, end in (
            await list_offsets(self._cluster, dict.fromkeys(tps, LATEST), committed=committed)
        ).items():
            known = before[tp]
            if committed and self._known.get(tp) is known:
                self._unsure.discard(tp)
            if isinstance(end, BrokerError):
                self.refuse(tp, end)
            elif known is not None and end.offset > known.end(committed=committed):
                high = max(known.high_watermark, end.offset)
                stable = end.offset if committed else known.last_stable_offset
                self._merge(tp, LogOffsets(known.log_start_offset, high, high, stable), known)
                if not committed:
                    self._unsure.add(tp)

    def _merge(self, tp: TopicPartition, found: LogOffsets, before: LogOffsets | None) -> None:
        """Take an answer, but nothing of it that was overtaken since the question by a newer one."""
        known = self._known.get(tp)
        if known is not None and known is not before:
            found = LogOffsets(*map(max, known, found))
        self.learn(tp, found)

    async def look_at_moment(self, tps: Collection[TopicPartition], moment: int, *, committed: bool) -> None:
        """Search by time in partitions."""
        found = await list_offsets(self._cluster, dict.fromkeys(tps, moment), committed=committed)
        for tp, result in found.items():
            key = tp, moment, committed
            self._found[key] = about(tp, result) if isinstance(result, BrokerError) else result
            self._found.move_to_end(key)
        while len(self._found) > _MAX_FOUND:
            self._found.popitem(last=False)
