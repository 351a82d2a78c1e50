"""Producer ids that writes under idempotency keys borrow, one after the other.

A log remembers an idempotent producer for a day, and a bounded number of them: an id for each key would push the
ids of Kafka clients out, whose retries would then be stored twice. So ids are lent: whoever borrows one has it
alone, until it is certain what became of its batches. An id that is not given back is never lent again; a crash
gives none back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

from core.errors import BrokerError, ErrorCode

# Partitions whose next sequence number one id keeps in memory; beyond it a new id is taken.
MAX_PARTITIONS = 1_000
# Sequence numbers go on from 0 after 2^31 − 1; an id retires well before.
MAX_SEQUENCE = 2**30


class NewProducerIds(Protocol):
    """The source of producer ids."""

    async def next(self) -> int:
        """Return a producer id that was never given before."""
        ...


class LentProducer:
    """One producer id at epoch 0, and the next sequence number of each partition that it wrote to."""

    __slots__ = ("_next", "producer_id")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self._next: dict[tuple[UUID, int], int] = {}

    def sequence(self, topic_id: UUID, partition: int) -> int:
        """The sequence number of its next record in a partition."""
        return self._next.get((topic_id, partition), 0)

    def advance(self, topic_id: UUID, partition: int, sequence: int) -> None:
        """The next record of that partition will have this number."""
        self._next[topic_id, partition] = sequence

    @property
    def used_up(self) -> bool:
        """Whether the id has written to too many partitions, or too much to one."""
        return len(self._next) > MAX_PARTITIONS or max(self._next.values(), default=0) > MAX_SEQUENCE


class ProducerPool:
    """Lends producer ids, `limit` at the same time. Those that were lent last are lent first."""

    def __init__(self, ids: NewProducerIds, limit: int) -> None:
        self._ids = ids
        self._limit = limit
        self._idle: list[LentProducer] = []
        self.lent = 0

    async def borrow(self, count: int) -> list[LentProducer]:
        """So many producers; THROTTLING_QUOTA_EXCEEDED if too many are lent, KAFKA_STORAGE_ERROR."""
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
        """These may be lent again: all that they wrote is known."""
        for producer in producers:
            self.lent -= 1
            if not producer.used_up:
                self._idle.append(producer)

    def retire(self, producers: Iterable[LentProducer]) -> None:
        """These may not: a batch of theirs may come again."""
        for _ in producers:
            self.lent -= 1
