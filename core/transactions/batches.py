"""The batches of one Produce request and the transaction that they belong to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol
from uuid import UUID

from core.records.header import BatchHeader
from core.types import TopicPartition
from core.vocabulary.transactions import ProducerIdAndEpoch


class Coordinator(Protocol):
    """What knows the transaction; `core.transactions.transactions`."""

    def check_records(
        self, transactional_id: str, tp: TopicPartition, header: BatchHeader, *, begins: bool
    ) -> None:
        """Raise unless a batch belongs to the open transaction of its producer."""
        ...

    def note_records(
        self, transactional_id: str, tp: TopicPartition, topic_id: UUID, offset: int, records: int
    ) -> None:
        """Take a batch that was appended at an offset into the transaction."""
        ...


class TransactionalBatches:
    """The transaction that the batches of one Produce request belong to."""

    __slots__ = ("_transactional_id", "_transactions", "begins")

    def __init__(self, transactions: Coordinator, transactional_id: str, begins: bool) -> None:
        self._transactions = transactions
        self._transactional_id = transactional_id
        self.begins = begins

    def unregistered(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Return nothing: the logs tell this broker alone what is open."""
        return ()

    async def register(self, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]) -> None:
        """Do nothing; see `unregistered`."""

    def check(self, tp: TopicPartition, header: BatchHeader) -> None:
        """See `Transactions.check_records`."""
        self._transactions.check_records(self._transactional_id, tp, header, begins=self.begins)

    def appended(self, tp: TopicPartition, topic_id: UUID, offset: int, records: int) -> None:
        """See `Transactions.note_records`."""
        self._transactions.note_records(self._transactional_id, tp, topic_id, offset, records)
