"""What operators see of a queue: counts, and records in flight. Partitions that are not loaded have no counts yet."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.queues.registry import Registry
from core.queues.share import Queue, Share
from core.queues.share_changes import ARCHIVING, AVAILABLE, CAUSES, DELAYED, LEASED, SETTLED, Cell
from core.types import LogOffsets, TopicPartition
from core.vocabulary.queues import InFlight, PartitionStats, QueueStats

_STATES = {
    AVAILABLE: "available",
    LEASED: "leased",
    SETTLED: "settled",
    ARCHIVING: "archiving",
    DELAYED: "delayed",
}


class Views:
    """Looks at queues; changes nothing but what time has changed."""

    def __init__(self, broker: Logs, registry: Registry) -> None:
        self._broker = broker
        self._registry = registry

    def stats(self, queue: Queue) -> QueueStats:
        """See `Queues.stats`."""
        partitions = [self._partition(queue, share) for share in sorted(queue.shares.values(), key=_by_tp)]
        waiting = sum(not receiver.given.done() for receiver in queue.waiters)
        return QueueStats(partitions, waiting, dict(queue.totals))

    def _partition(self, queue: Queue, share: Share) -> PartitionStats:
        self._registry.expire(queue, share)
        machine = share.machine
        bounds = self._registry.reading.bounds(share.tp)
        if bounds is None:
            end = machine.tracked_end
            return PartitionStats(
                share.tp, machine.start, end, machine.available, machine.leased, machine.delayed,
                machine.archiving, None, served=False,
            )  # fmt: skip
        end = bounds.end(committed=queue.settings.read_committed)
        start = max(machine.start, bounds.log_start_offset)
        new = max(0, end - max(machine.tracked_end, bounds.log_start_offset))
        return PartitionStats(
            share.tp, start, end, machine.available + new, machine.leased, machine.delayed, machine.archiving,
            self._oldest(share, bounds, start, end),
        )  # fmt: skip

    def _oldest(self, share: Share, bounds: LogOffsets, start: int, end: int) -> int | None:
        """Return the timestamp of the oldest record that is not settled."""
        if start >= end:
            return None
        if share.oldest[0] != start:
            try:
                read = self._broker.records.read_now(
                    share.tp, start, max_bytes=1, max_records=1, committed=False
                )
            except BrokerError:
                return None
            share.oldest = (start, read.records[0].timestamp if read.records else -1)
        return share.oldest[1] if share.oldest[1] >= 0 else None

    def in_flight(
        self, queue: Queue, after: tuple[TopicPartition, int] | None, limit: int
    ) -> Sequence[InFlight]:
        """See `Queues.in_flight`."""
        found: list[InFlight] = []
        for share in sorted(queue.shares.values(), key=_by_tp):
            if len(found) >= limit:
                break
            if after is not None and share.tp < after[0]:
                continue
            from_offset = after[1] if after is not None and share.tp == after[0] else -1
            self._registry.expire(queue, share)
            found += [
                self._shown(share, offset, cell)
                for offset, cell in share.machine.in_flight(from_offset, limit - len(found))
            ]
        return found

    def record(self, queue: Queue, tp: TopicPartition, offset: int) -> InFlight:
        """See `Queues.record`."""
        share = self._registry.share_of(queue, tp)
        if share is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The queue {queue.name!r} does not read {tp}."
            )
        if not self._registry.reading.leads(tp):
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"This broker does not lead {tp}.")
        self._registry.expire(queue, share)
        machine = share.machine
        if offset < machine.start:
            return InFlight(tp, offset, "settled", 0, None, None)
        if offset >= machine.tracked_end:
            return InFlight(tp, offset, "available", 0, None, None)
        return self._shown(share, offset, machine.cell(offset))

    def _shown(self, share: Share, offset: int, cell: Cell) -> InFlight:
        return InFlight(
            share.tp,
            offset,
            _STATES[cell.state],
            cell.deliveries,
            cell.lease if cell.state == LEASED else None,
            self._registry.clock.shown(cell.time) if cell.state in (LEASED, DELAYED) else None,
            CAUSES[cell.time] if cell.state == ARCHIVING else None,
        )


def _by_tp(share: Share) -> TopicPartition:
    return share.tp
