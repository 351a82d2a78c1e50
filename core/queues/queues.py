"""Queues over the logs of this broker: leases, settlements, waits, and what is stored of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.errors import BrokerError, ErrorCode
from core.facade import Logs
from core.metadata.store import Store
from core.types import TopicPartition
from core.vocabulary.groups import Cut
from core.vocabulary.queues import (
    AcknowledgeBatch,
    Acquired,
    DeadLetters,
    InFlight,
    Leased,
    QueueIds,
    QueueSettings,
    QueueStats,
    QueueView,
    Receive,
    Received,
    Settle,
    Settled,
    Start,
)


def _not_yet() -> BrokerError:
    return BrokerError(ErrorCode.UNSUPPORTED_VERSION, "Queues are not built yet.")


class Queues:
    """Implements `core.vocabulary.queues.Queues`. Open it where groups are served, and close it where they leave."""

    def __init__(self, broker: Logs, store: Store, ids: QueueIds) -> None:
        self._broker = broker
        self._store = store
        self._ids = ids

    # --- life ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load the names and settings of queues; the state of a partition is loaded at its first use."""

    def elsewhere(self) -> None:
        """Refuse every call from now on: another broker serves queues."""

    def drain(self) -> None:
        """Answer every receiver that waits; none waits afterwards."""

    async def close(self) -> None:
        """Wait for the writes under way."""

    def topic_deleted(self, name: str) -> None:
        """Forget the partitions of a topic."""

    async def cut_back(self, ends: Mapping[TopicPartition, int]) -> list[Cut]:
        """Forget what is known of offsets from these ends of logs on, durably. Raises KAFKA_STORAGE_ERROR."""
        return []

    # --- the facade ----------------------------------------------------------------------------------------

    async def put(self, name: str, settings: QueueSettings, *, if_version: int | None = None) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    def get(self, name: str) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    def names(self) -> Sequence[str]:
        """See `core.vocabulary.queues.Queues`."""
        return ()

    def topics(self, name: str) -> Sequence[str]:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def delete(self, name: str, *, force: bool = False) -> None:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def receive(self, name: str, request: Receive) -> Received:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def take_back(self, name: str, lease: int) -> None:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def settle(self, name: str, items: Sequence[Settle]) -> Sequence[Settled]:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def pause(self, name: str) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def resume(self, name: str) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def seek(self, name: str, start: Start, *, force: bool = False) -> None:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def peek(self, name: str, limit: int, max_bytes: int) -> Sequence[Leased]:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    def stats(self, name: str) -> QueueStats:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    def in_flight(
        self, name: str, *, after: tuple[TopicPartition, int] | None = None, limit: int = 100
    ) -> Sequence[InFlight]:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    def record(self, name: str, tp: TopicPartition, offset: int) -> InFlight:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    @property
    def dead_letters(self) -> DeadLetters:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def subscribe(self, name: str, topics: Sequence[str], create: QueueSettings) -> QueueView:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def move(
        self, name: str, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def forget(self, name: str, topics: Sequence[str]) -> Sequence[ErrorCode]:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def acquire(
        self,
        name: str,
        tp: TopicPartition,
        member_id: str,
        *,
        max_records: int,
        max_bytes: int,
        batch_size: int,
        strict: bool,
    ) -> Acquired:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def acknowledge(
        self, name: str, tp: TopicPartition, member_id: str, batches: Sequence[AcknowledgeBatch]
    ) -> ErrorCode:
        """See `core.vocabulary.queues.Queues`."""
        raise _not_yet()

    async def release_member(self, name: str, member_id: str) -> None:
        """See `core.vocabulary.queues.Queues`."""
