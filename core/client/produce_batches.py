"""What a producer has to send to one partition: the records of its callers, and the batches made of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from core.errors import BrokerError
from core.records.header import INT32_MAX, NO_PRODUCER_ID
from core.records.record import NewRecord
from core.types import AppendResult, TopicPartition

# What a record takes in a batch beyond key, value and headers, at most, and what a batch takes itself.
RECORD_BYTES = 24
BATCH_BYTES = 61


class Part(Struct, frozen=True, gc=False):
    """The result of `count` records of a `send`, from number `first` on: offsets, or the error that refused them.

    An error INVALID_RECORD or INVALID_TIMESTAMP may have `record_errors` in its details: pairs of a position, counted
    from `first`, and the reason.
    """

    first: int
    count: int
    result: AppendResult | None
    error: BrokerError | None = None


class Identity(NamedTuple):
    """The id and epoch of an idempotent producer (KIP-98)."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(NO_PRODUCER_ID, -1)


class Call:
    """One `send`, until all parts of it have a result."""

    __slots__ = ("future", "left", "parts")

    def __init__(self, future: asyncio.Future[list[Part]], count: int) -> None:
        self.future = future
        self.left = count
        self.parts: list[Part] = []

    def add(self, part: Part) -> None:
        """Take the result of some of the records."""
        self.parts.append(part)
        self.left -= part.count
        if not self.left and not self.future.done():
            self.future.set_result(self.parts if len(self.parts) == 1 else sorted(self.parts, key=_first))


def _first(part: Part) -> int:
    return part.first


class Entry:
    """Records of one `send`, from number `first` of it on, that stay in one batch unless they must be split."""

    __slots__ = ("alone", "call", "first", "now_ms", "records", "size")

    def __init__(
        self,
        call: Call,
        records: Sequence[NewRecord],
        first: int,
        now_ms: int,
        size: int,
        *,
        alone: bool = False,
    ) -> None:
        self.call = call
        self.records = records
        self.first = first
        self.now_ms = now_ms
        self.size = size
        # Not to be merged with others again: one of them was refused.
        self.alone = alone

    def done(self, result: AppendResult | None, error: BrokerError | None = None) -> None:
        """Set the result of these records."""
        self.call.add(Part(self.first, len(self.records), result, error))

    def halves(self) -> tuple[Entry, Entry]:
        """Return two entries with half of the records each."""
        middle = len(self.records) // 2
        front, back = self.records[:middle], self.records[middle:]
        size = size_of(front)
        rest = max(self.size - size, 0)
        return (
            Entry(self.call, front, self.first, self.now_ms, size, alone=True),
            Entry(self.call, back, self.first + middle, self.now_ms, rest, alone=True),
        )


class Batch:
    """One batch, from the moment when it is made until it has a result.

    `entries` are what it was made of; a batch that came as one has none but a `future`. `order` sorts the batches of
    a partition. `maybe`: an attempt has ended without an answer, so that the batch may lie in the log.
    """

    __slots__ = (
        "acks",
        "attempts",
        "count",
        "data",
        "deadline",
        "displaced",
        "entries",
        "error",
        "future",
        "identity",
        "maybe",
        "order",
        "sequence",
        "size",
    )

    def __init__(
        self,
        data: bytearray,
        count: int,
        *,
        acks: int,
        deadline: float,
        size: int,
        order: tuple[int, ...] = (),
        entries: Sequence[Entry] = (),
        future: asyncio.Future[AppendResult] | None = None,
    ) -> None:
        self.data = data
        self.count = count
        self.acks = acks
        self.deadline = deadline
        self.size = size
        self.order = order
        self.entries = entries
        self.future = future
        # None: the batch brought a producer id of its own.
        self.identity: Identity | None = NO_IDENTITY
        self.sequence = -1
        self.attempts = 0
        self.maybe = False
        # The broker expected another sequence number.
        self.displaced = False
        self.error: BrokerError | None = None

    @property
    def next_sequence(self) -> int:
        """Return the sequence number after this batch; 0 follows 2³¹−1."""
        return (self.sequence + self.count) & INT32_MAX

    def done(self, result: AppendResult) -> None:
        """Set the offsets of all records."""
        if self.future is not None and not self.future.done():
            self.future.set_result(result)
        base = result.base_offset
        for entry in self.entries:
            count = len(entry.records)
            if base < 0:
                entry.done(result)
                continue
            entry.done(result._replace(base_offset=base, last_offset=base + count - 1))
            base += count

    def refuse(self, error: BrokerError) -> None:
        """Refuse all records."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)
            # A caller that was cancelled never asks for it.
            self.future.exception()
        for entry in self.entries:
            entry.done(None, error)

    @property
    def unwanted(self) -> bool:
        """Whether every caller was cancelled."""
        futures = [entry.call.future for entry in self.entries]
        if self.future is not None:
            futures.append(self.future)  # type: ignore[arg-type]
        return all(future.cancelled() for future in futures)


class Waiting(NamedTuple):
    """Records or a batch that were not sent yet."""

    entry: Entry | None
    batch: Batch | None
    acks: int
    deadline: float
    size: int


class PartitionQueue:
    """What one partition still has to get, in order.

    `again` are batches that were sent, or are parts of those, and must be sent again before anything else. `stale`:
    the partition needs another producer id, because the broker's sequence number differs from ours.
    """

    __slots__ = (
        "again",
        "home",
        "identity",
        "linger",
        "next_sequence",
        "order",
        "proven_until",
        "retry_at",
        "stale",
        "tp",
        "under_way",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.waiting: deque[Waiting] = deque()
        self.waiting_bytes = 0
        self.again: list[Batch] = []
        self.under_way: list[Batch] = []
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.order = 0
        self.stale = False
        # Until then the broker knows the producer id here. It takes any number of an id that it does not know, so
        # that a batch after a lost one would be appended before it.
        self.proven_until = 0.0
        self.linger: asyncio.TimerHandle | None = None
        # The time before which `again` rests, and whether the queue is on the list of a broker.
        self.retry_at = 0.0
        self.home = False

    @property
    def in_flight(self) -> int:
        """Return how many batches are under way."""
        return len(self.under_way)

    def full(self, most: int) -> bool:
        """Whether another batch would be the one after `most` batches, counted from the oldest without an answer.

        A broker recognizes the last five batches of a producer (KIP-98). The oldest may be with a former leader that
        does not answer, while the others come and are answered.
        """
        if not self.under_way:
            return False
        oldest = min([batch.order[0] for batch in self.under_way])
        return len(self.under_way) >= most or self.order - oldest >= most - 1

    @property
    def empty(self) -> bool:
        """Whether nothing is left to be sent."""
        return not (self.waiting or self.again)

    def put_back(self, batch: Batch) -> None:
        """Keep a batch to be sent again, in its place."""
        at = len(self.again)
        while at and self.again[at - 1].order > batch.order:
            at -= 1
        self.again.insert(at, batch)


def size_of(records: Sequence[NewRecord]) -> int:
    """Return about how many bytes records take in a batch, rather more than less."""
    size = RECORD_BYTES * len(records)
    for record in records:
        size += len(record.value or b"") + len(record.key or b"")
        for name, value in record.headers:
            size += len(name) + len(value or b"") + 10
    return size
