"""A queue in memory for tests of webhooks: leases, counts and delays as a plain dictionary has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from core.clock import Clock
from core.errors import BrokerError, ErrorCode
from core.records.record import CREATE_TIME, Headers, Record
from core.types import TopicPartition
from core.vocabulary.queues import (
    Leased,
    Outcome,
    Queues,
    QueueSettings,
    QueueView,
    Receipt,
    Receive,
    Received,
    Settle,
    Settled,
    Verb,
)

TOPIC_ID = UUID(int=7)
TP = TopicPartition("orders", 0)


@dataclass
class Cell:
    """A record of the queue."""

    record: Record
    count: int = 0
    until: float = 0.0
    lease: int = 0
    state: str = "available"
    verbs: list[str] = field(default_factory=list)


class PlainQueue:
    """One queue, `mail`. `refusals` are errors that the next settlements raise."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.cells: dict[int, Cell] = {}
        self.view = QueueView("mail", QueueSettings(topics=("orders",)), 1, False, 1_000)
        self.deleted = False
        self.receives = 0
        # How often a receive that waits looks for records.
        self.look_seconds = 0.05
        self.extended = 0
        self.refusals: list[BrokerError] = []
        self._lease = 0

    def as_queues(self) -> Queues:
        """Return it as `broker.queues`; calls that webhooks do not make are missing."""
        return cast(Queues, self)

    def add(
        self,
        count: int = 1,
        *,
        value: bytes | None = b'{"a":1}',
        key: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        """Append records."""
        for _ in range(count):
            offset = len(self.cells)
            record = Record(offset, self.clock.wall_ms(), CREATE_TIME, key, value, headers)
            self.cells[offset] = Cell(record)

    def states(self) -> list[str]:
        """Return the state of each record."""
        return [cell.state for cell in self.cells.values()]

    def counts(self) -> list[int]:
        """Return the delivery count of each record."""
        return [cell.count for cell in self.cells.values()]

    def get(self, name: str) -> QueueView:
        """See `Queues.get`."""
        if self.deleted:
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, "There is no such queue.")
        return self.view

    def _due(self) -> list[Cell]:
        now = self.clock.monotonic()
        for cell in self.cells.values():
            if cell.state in ("leased", "delayed") and cell.until <= now:
                cell.state = "available"
        return [cell for cell in self.cells.values() if cell.state == "available"]

    async def receive(self, name: str, request: Receive) -> Received:
        """See `Queues.receive`."""
        self.receives += 1
        end = self.clock.monotonic() + request.wait_ms / 1000
        while True:
            self.get(name)
            found = self._due()[: request.max_records]
            if found or self.clock.monotonic() >= end:
                break
            await asyncio.sleep(self.look_seconds)
        self._lease += 1
        until = self.clock.monotonic() + (request.lock_ms or 30_000) / 1000
        leased = []
        for cell in found:
            cell.state, cell.until, cell.lease, cell.count = "leased", until, self._lease, cell.count + 1
            receipt = Receipt(1, self._lease, TOPIC_ID, 0, cell.record.offset)
            leased.append(Leased(TP, cell.record, cell.count, receipt))
        return Received(self._lease if leased else None, 0, leased)

    async def take_back(self, name: str, lease: int) -> None:
        """See `Queues.take_back`."""
        for cell in self.cells.values():
            if cell.state == "leased" and cell.lease == lease:
                cell.state, cell.count = "available", cell.count - 1

    async def settle(self, name: str, items: Sequence[Settle]) -> Sequence[Settled]:
        """See `Queues.settle`."""
        await asyncio.sleep(0.001)
        if self.refusals:
            raise self.refusals.pop(0)
        return [Settled(self._settle(item)) for item in items]

    def _settle(self, item: Settle) -> Outcome:
        self._due()
        assert item.receipt is not None
        cell = self.cells[item.receipt.offset]
        if cell.state != "leased" or cell.lease != item.receipt.lease:
            return Outcome.LEASE_LOST
        now = self.clock.monotonic()
        cell.verbs.append(item.verb.value)
        if item.verb is Verb.EXTEND:
            self.extended += 1
            cell.until = now + (item.lock_ms or 0) / 1000
        elif item.verb is Verb.RELEASE:
            cell.state, cell.until = "delayed", now + (item.delay_ms or 0) / 1000
            cell.count -= not item.counted
        else:
            cell.state = {Verb.ACCEPT: "accepted", Verb.REJECT: "rejected"}[item.verb]
        return Outcome.SETTLED
