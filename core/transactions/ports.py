"""What the coordinator of transactions needs of the logs and of the groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from core.metadata.store import Effect
from core.records.control import EndMarker
from core.transactions.transaction import Part
from core.types import OpenTransaction, TopicPartition
from core.vocabulary.idempotency import KeyedRequest
from core.vocabulary.transactions import ProducerIdAndEpoch, Settlement


class PartitionLogs(Protocol):
    """The logs of the partitions; `core.broker.transaction_logs` has them."""

    def topic_id(self, tp: TopicPartition) -> UUID:
        """Return the id of the topic of a partition."""
        ...

    def open_transactions(self) -> Iterable[OpenTransaction]:
        """Return the transactions that are open in the logs that are open."""
        ...

    def watch(self, found: Callable[[OpenTransaction], None]) -> None:
        """Report the transactions that are open in a log whenever one is opened from now on."""
        ...

    def is_open(self, tp: TopicPartition, topic_id: UUID, producer_id: int, first_offset: int) -> bool:
        """Return whether a transaction is open in a partition."""
        ...

    def durable(self, tp: TopicPartition, topic_id: UUID) -> asyncio.Future[None] | None:
        """Return a future for the disk, for all that a partition holds now."""
        ...

    def append_marker(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        producer_id: int,
        epoch: int,
        marker: EndMarker,
        *,
        raised: bool,
    ) -> int:
        """Append a marker and return its offset; −1 if there is nothing to mark."""
        ...

    def located(
        self, parts: Mapping[TopicPartition, Part], producer_id: int
    ) -> Mapping[TopicPartition, Part]:
        """Return the parts of a transaction with the offsets of their first records, without those that have none.

        An offset of −1 means that only another broker can know it.
        """
        ...

    def last_offset(self, tp: TopicPartition, topic_id: UUID) -> int:
        """Return the offset of the last record of a partition."""
        ...

    def is_durable(self, tp: TopicPartition, topic_id: UUID, offset: int) -> bool:
        """Return whether the batch at an offset is on the disk."""
        ...


class KeptAnswers(Protocol):
    """The answers of requests, which are kept for as long as idempotency keys; `core.idempotency.keys` has them."""

    def keep(self, request: KeyedRequest, answer: bytes) -> Sequence[Effect]:
        """Return what stores the answer of a request with a decision."""
        ...

    async def hold(self, request: KeyedRequest) -> None:
        """Keep the key of a request in an open transaction until `release`; refuse it if it is in use."""
        ...

    def release(self, request: KeyedRequest) -> None:
        """Let others use a key that was held."""
        ...

    async def kept(self, request: KeyedRequest) -> bytes | None:
        """Return the stored answer of a request; None if there is none."""
        ...


class GroupOffsets(Protocol):
    """The offsets of groups that wait for the end of a transaction; `core.groups.groups` has them."""

    def settle_transaction(self, producer_id: int, producer_epoch: int, commit: bool) -> Settlement:
        """Return what the end of a transaction does to the offsets that it holds."""
        ...

    def groups_of(self, producer_id: int) -> Sequence[str]:
        """Return the groups in which a producer has staged offsets."""
        ...

    def staging_producers(self) -> Sequence[ProducerIdAndEpoch]:
        """Return the producers that have staged offsets, under each epoch."""
        ...
