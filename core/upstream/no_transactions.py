"""Transactions over HTTP, which a gateway over a cluster does not have, as `broker.transactions`.

The cluster's own coordinator has the transactions of Kafka clients; readers of committed records see them as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, NoReturn, TypeVar

from core.types import TopicPartition
from core.vocabulary.capabilities import unsupported
from core.vocabulary.transactions import (
    NO_PRODUCER,
    OwnTransaction,
    Participant,
    ProducerIdAndEpoch,
    Settlement,
    TransactionalWrite,
    TransactionInfo,
)

T = TypeVar("T")


def refuse_transactions() -> NoReturn:
    """Raise UNSUPPORTED_VERSION with what a client can do instead."""
    raise unsupported(
        "This server is a gateway over a Kafka cluster and has no transactions over HTTP. Use an Idempotency-Key, or "
        "a Kafka client at the addresses of GET /api/v1/brokers."
    )


class NoTransactions:
    """Refuses every call of `facade` on transactions with UNSUPPORTED_VERSION; lists none."""

    async def init(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdAndEpoch = NO_PRODUCER
    ) -> ProducerIdAndEpoch:
        """Refuse."""
        refuse_transactions()

    def is_newest(
        self,
        transactional_id: str,
        connection: int,
        producer: ProducerIdAndEpoch | None = None,
        *,
        of_group: bool = False,
    ) -> bool:
        """Return True: there is no older request."""
        return True

    async def join(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition] = (),
    ) -> None:
        """Refuse."""
        refuse_transactions()

    async def stage(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        work: Callable[[], Coroutine[Any, Any, T]],
        *,
        begins: bool,
    ) -> T:
        """Refuse."""
        refuse_transactions()

    def writing(self, transactional_id: str, *, begins: bool) -> TransactionalWrite:
        """Refuse."""
        refuse_transactions()

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, raises: bool
    ) -> ProducerIdAndEpoch:
        """Refuse."""
        refuse_transactions()

    async def commit_together(
        self, participants: Sequence[Participant], also: Callable[[], Sequence[Settlement]]
    ) -> list[ProducerIdAndEpoch]:
        """Refuse."""
        refuse_transactions()

    async def abort_leftovers(
        self, prefix: str, keep: Collection[str] = (), *, forget: bool = False
    ) -> list[str]:
        """Return nothing: none is open."""
        return []

    async def begin_own(self) -> OwnTransaction:
        """Refuse."""
        refuse_transactions()

    async def abort(self, producer: ProducerIdAndEpoch, tp: TopicPartition) -> None:
        """Refuse."""
        refuse_transactions()

    async def terminate(self, transactional_id: str) -> None:
        """Refuse."""
        refuse_transactions()

    def get(self, transactional_id: str) -> TransactionInfo:
        """Refuse."""
        refuse_transactions()

    def all(self) -> Collection[TransactionInfo]:
        """Refuse."""
        refuse_transactions()
