"""Settlements: receipts and leases become changes of partitions, stored with one commit for the whole call."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from core.errors import BrokerError, ErrorCode
from core.queues.registry import Registry
from core.queues.share import Held, Queue, Share
from core.queues.share_changes import VOLATILE, Change
from core.queues.share_partition import SettledRange
from core.vocabulary.queues import (
    MAX_LOCK_MS,
    MAX_SETTLE,
    MIN_LOCK_MS,
    Outcome,
    Receipt,
    Settle,
    Settled,
    Verb,
)

# How an item of a whole lease is answered: the first of these that any of its records has.
_OF_A_LEASE = (Outcome.SETTLED, Outcome.LATE, Outcome.LEASE_LOST, Outcome.GONE, Outcome.ALREADY_SETTLED)
# Outcomes that rest on a change which may be on its way to the store.
_RESTING = (Outcome.ALREADY_SETTLED, Outcome.LEASE_LOST)
_TOTALS = {
    Verb.ACCEPT: "accepted",
    Verb.RELEASE: "released",
    Verb.REJECT: "rejected",
    Verb.EXTEND: "extended",
}


@dataclass(slots=True)
class _Same:
    """Neighbors that are settled with one call: receipts in a row with the same verb. `at` is the first item's index.

    `end` is the end of what is tracked of the partition.
    """

    share: Share
    lease: int
    first: int
    last: int
    at: int
    end: int

    def takes(self, items: Sequence[Settle], index: int) -> bool:
        """Return whether an item, a receipt, continues the run; what was checked of the first holds for it."""
        item, first = items[index], items[self.at]
        receipt = item.receipt
        assert receipt is not None and first.receipt is not None
        return (
            receipt.offset == self.last + 1 < self.end
            and self.at + self.last - self.first + 1 == index
            and receipt[:4] == first.receipt[:4]
            and _alike(first, item)
        )


class Settling:
    """Settlements for queues."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def settle(self, queue: Queue, items: Sequence[Settle]) -> Sequence[Settled]:
        """See `Queues.settle`. Items with receipts come before those with leases, so that a lease means the rest."""
        if len(items) > MAX_SETTLE:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"{len(items)} items are too many; send at most {MAX_SETTLE}."
            )
        changes: list[tuple[Share, Change | None]] = []
        outcomes: list[Settled] = [Settled(Outcome.INVALID)] * len(items)
        now = self._registry.clock.now_ms()
        touched: dict[Share, None] = {}
        self._require_leading(queue, items)
        self._receipts(queue, items, outcomes, changes, touched, now)
        held = self._held(queue, items)
        for index, item in enumerate(items):
            if item.receipt is None and item.lease is not None:
                outcomes[index] = self._lease(queue, item, item.lease, held, changes, touched, now)
        try:
            await self._store(queue, changes, touched, outcomes)
        except BrokerError:
            for item in items:
                if item.receipt is not None:
                    # What it holds is looked up in the partitions from now on.
                    queue.leases.pop(item.receipt.lease, None)
            raise
        self._count(queue, items, outcomes)
        return outcomes

    def _require_leading(self, queue: Queue, items: Sequence[Settle]) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER, before anything is settled, for a receipt of a partition led elsewhere."""
        places = {
            (item.receipt.topic_id, item.receipt.partition): item.receipt.nonce
            for item in items
            if item.receipt
        }
        for place, nonce in places.items():
            share = queue.shares.get(place)
            if (
                share is not None
                and share.machine.nonce == nonce
                and not self._registry.reading.leads(share.tp)
            ):
                raise BrokerError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"This broker does not lead {share.tp}; send the settlement to its leader.",
                )

    # --- receipts ------------------------------------------------------------------------------------------

    def _receipts(
        self,
        queue: Queue,
        items: Sequence[Settle],
        outcomes: list[Settled],
        changes: list[tuple[Share, Change | None]],
        touched: dict[Share, None],
        now: int,
    ) -> None:
        run: _Same | None = None
        for index, item in enumerate(items):
            receipt = item.receipt
            if receipt is None:
                continue
            if run is not None and run.takes(items, index):
                run.last = receipt.offset
                continue
            share = self._share(queue, item, receipt, outcomes, index)
            if share is None:
                continue
            if run is not None:
                self._run(queue, items, run, outcomes, changes, touched, now)
            offset = receipt.offset
            run = _Same(share, receipt.lease, offset, offset, index, share.machine.tracked_end)
        if run is not None:
            self._run(queue, items, run, outcomes, changes, touched, now)

    def _share(
        self, queue: Queue, item: Settle, receipt: Receipt, outcomes: list[Settled], index: int
    ) -> Share | None:
        """Return the partition that a receipt names; None if its outcome is clear without a look."""
        share = queue.shares.get((receipt.topic_id, receipt.partition))
        if share is None or share.machine.nonce != receipt.nonce:
            outcomes[index] = Settled(Outcome.GONE)
            return None
        known = 0 < receipt.lease < VOLATILE or receipt.lease in queue.leases
        if not known or not 0 <= receipt.offset < share.machine.tracked_end or not self._valid(queue, item):
            return None
        return share

    def _valid(self, queue: Queue, item: Settle) -> bool:
        if item.verb is Verb.RELEASE and item.delay_ms is not None:
            return 0 <= item.delay_ms <= queue.settings.max_delay_ms
        if item.verb is Verb.EXTEND and item.lock_ms is not None:
            return MIN_LOCK_MS <= item.lock_ms <= MAX_LOCK_MS
        return True

    def _run(
        self,
        queue: Queue,
        items: Sequence[Settle],
        run: _Same,
        outcomes: list[Settled],
        changes: list[tuple[Share, Change | None]],
        touched: dict[Share, None],
        now: int,
    ) -> None:
        found, change = self._settle(queue, items[run.at], run.share, run.lease, run.first, run.last, now)
        changes.append((run.share, change))
        touched[run.share] = None
        lease = queue.leases.get(run.lease)
        if lease is not None and items[run.at].verb is not Verb.EXTEND:
            lease.take_out(run.share, run.first, run.last)
        base = run.at - run.first
        for first, last, outcome in found:
            settled = Settled(outcome)
            for offset in range(first, last + 1):
                outcomes[base + offset] = settled

    def _settle(
        self, queue: Queue, item: Settle, share: Share, lease: int, first: int, last: int, now: int
    ) -> tuple[list[SettledRange], Change | None]:
        if item.verb is Verb.EXTEND:
            return share.machine.extend(now, lease, first, last, item.lock_ms or queue.settings.lock_ms)
        return share.machine.settle(
            now, item.verb, lease, first, last,
            delay_ms=item.delay_ms, counted=item.counted, reason=item.reason,
        )  # fmt: skip

    # --- leases --------------------------------------------------------------------------------------------

    def _lease(
        self,
        queue: Queue,
        item: Settle,
        number: int,
        unknown: Mapping[int, Sequence[Held]],
        changes: list[tuple[Share, Change | None]],
        touched: dict[Share, None],
        now: int,
    ) -> Settled:
        """Settle what is left of a lease."""
        if not self._valid(queue, item):
            return Settled(Outcome.INVALID)
        lease = queue.leases.get(number)
        if lease is None and not 0 < number < VOLATILE:
            return Settled(Outcome.INVALID)
        held = lease.held if lease is not None else unknown.get(number, ())
        counts: Counter[Outcome] = Counter()
        for share, nonce, first, last in held:
            if share.machine.nonce != nonce or queue.shares.get(share.key) is not share:
                counts[Outcome.GONE] += last - first + 1
                continue
            found, change = self._settle(queue, item, share, number, first, last, now)
            changes.append((share, change))
            touched[share] = None
            for low, high, outcome in found:
                counts[outcome] += high - low + 1
        for outcome in _OF_A_LEASE:
            if counts[outcome]:
                records = counts[Outcome.SETTLED] + counts[Outcome.LATE]
                return Settled(outcome, records if outcome in _OF_A_LEASE[:2] else counts[outcome])
        # Nothing is left of it, or it was never given.
        return Settled(Outcome.ALREADY_SETTLED if number < queue.next_lease else Outcome.INVALID, 0)

    def _held(self, queue: Queue, items: Sequence[Settle]) -> dict[int, list[Held]]:
        """Return what leases hold whose places are not remembered: one look at the partitions for all of them."""
        held: dict[int, list[Held]] = {
            item.lease: []
            for item in items
            if item.receipt is None and item.lease is not None and item.lease not in queue.leases
        }
        if held:
            for share in queue.shares.values():
                for lease, first, last in share.machine.leases_of(held):
                    held[lease].append(Held(share, share.machine.nonce, first, last))
        return held

    # --- the store -----------------------------------------------------------------------------------------

    async def _store(
        self,
        queue: Queue,
        changes: list[tuple[Share, Change | None]],
        touched: dict[Share, None],
        outcomes: Sequence[Settled],
    ) -> None:
        """Return once all of it is durable, also what outcomes rest on. Raises KAFKA_STORAGE_ERROR."""
        resting = []
        if any(settled.outcome in _RESTING for settled in outcomes):
            resting = [share.last_write for share in touched if share.last_write is not None]
        written = self._registry.writes.submit(queue, changes)
        for share in touched:
            self._registry.changed(queue, share)
            self._registry.wake(queue, share)
        for future in (*resting, written):
            if future is not None:
                await asyncio.shield(future)

    def _count(self, queue: Queue, items: Sequence[Settle], outcomes: Sequence[Settled]) -> None:
        for item, settled in zip(items, outcomes, strict=True):
            if settled.outcome in (Outcome.SETTLED, Outcome.LATE):
                queue.totals[_TOTALS[item.verb]] += settled.records
            else:
                queue.totals[settled.outcome.value] += 1


def _alike(one: Settle, other: Settle) -> bool:
    """Return whether two items say the same of their records."""
    return one[0] is other[0] and one[3:] == other[3:]
