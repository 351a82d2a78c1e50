"""Producer ids that writes under idempotency keys borrow, one write after the other.

A log remembers an idempotent producer for a day, and a bounded number of them. A new id for each key would push the
ids of Kafka clients out of the log's memory, and their retries would be appended as duplicates. So ids are lent: one
write has an id alone until the outcome of its batches is certain. An id that is not given back is never lent again;
after a crash none is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from core.errors import BrokerError, ErrorCode

# One id keeps the next sequence number of this many partitions in memory; after that it retires.
MAX_PARTITIONS = 1_000
# Sequence numbers wrap to 0 after 2^31 − 1; an id retires well before.
MAX_SEQUENCE = 2**30


class ProducerIds(Protocol):
    """Hands out producer ids."""

    async def next(self) -> int:
        """Return a producer id that no producer has had. Raises KAFKA_STORAGE_ERROR."""
        ...


class LentProducer:
    """One producer id at epoch 0, and the next sequence number of each partition that it wrote to."""

    __slots__ = ("_next", "_spent", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self._next: dict[tuple[UUID, int], int] = {}
        self._spent = False

    def sequence(self, topic_id: UUID, partition: int) -> int:
        """Return the sequence number of its next record in a partition."""
        return self._next.get((topic_id, partition), 0)

    def advance(self, topic_id: UUID, partition: int, sequence: int) -> None:
        """Set the sequence number of the next record in a partition."""
        self._next[topic_id, partition] = sequence

    def spend(self) -> None:
        """Let the id retire: a log does not take its next sequence number."""
        self._spent = True

    @property
    def used_up(self) -> bool:
        """Whether the id has written to too many partitions, or too much to one, or is spent."""
        return (
            self._spent
            or len(self._next) > MAX_PARTITIONS
            or max(self._next.values(), default=0) > MAX_SEQUENCE
        )


class ProducerPool:
    """Lends at most `limit` producer ids at a time, the most recently returned first."""

    def __init__(self, ids: ProducerIds, limit: int) -> None:
        self._ids = ids
        self._limit = limit
        self._idle: list[LentProducer] = []
        self.lent = 0

    async def borrow(self, count: int) -> list[LentProducer]:
        """Lend this many producers. Raises THROTTLING_QUOTA_EXCEEDED if too many are lent, KAFKA_STORAGE_ERROR."""
        if self.lent + count > self._limit:
            raise BrokerError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"Too many writes with an idempotency key are under way; {self._limit} batches is the limit.",
                limit=self._limit,
            )
        self.lent += count
        taken = [self._idle.pop() for _ in range(min(count, len(self._idle)))]
        try:
            while len(taken) < count:
                taken.append(LentProducer(await self._ids.next()))
        except BaseException:
            self.give_back(taken)
            self.lent -= count - len(taken)
            raise
        return taken

    def give_back(self, producers: Iterable[LentProducer]) -> None:
        """Take producers back to be lent again: the outcome of all their batches is known."""
        for producer in producers:
            self.lent -= 1
            if not producer.used_up:
                self._idle.append(producer)

    def retire(self, producers: Iterable[LentProducer]) -> None:
        """Take producers back and never lend them again: one of their batches may be sent again."""
        for _ in producers:
            self.lent -= 1
