"""Queues, which a gateway over a cluster does not have, as `broker.queues`.

The cluster's own coordinator has the share groups of Kafka clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from core.errors import ErrorCode
from core.types import TopicPartition
from core.vocabulary.capabilities import unsupported
from core.vocabulary.queues import (
    AcknowledgeBatch,
    Acquired,
    DeadLetters,
    InFlight,
    Leased,
    QueueSettings,
    QueueStats,
    QueueView,
    Receive,
    Received,
    Settle,
    Settled,
    Start,
)
from core.vocabulary.webhooks import Attempt, Signing, WebhookMade, WebhookSettings, WebhookView


def refuse_queues() -> NoReturn:
    """Raise UNSUPPORTED_VERSION with what a client can do instead."""
    raise unsupported(
        "This server is a gateway over a Kafka cluster and has no queues. Use a managed consumer, or share groups of "
        "a Kafka client at the addresses of GET /api/v1/brokers."
    )


class NoQueues:
    """Refuses every call of `core.vocabulary.queues.Queues` with UNSUPPORTED_VERSION; lists none."""

    @property
    def dead_letters(self) -> DeadLetters:
        """Refuse."""
        refuse_queues()

    async def put(self, name: str, settings: QueueSettings, *, if_version: int | None = None) -> QueueView:
        """Refuse."""
        refuse_queues()

    def get(self, name: str) -> QueueView:
        """Refuse."""
        refuse_queues()

    def names(self) -> Sequence[str]:
        """Return nothing."""
        return ()

    def topics(self, name: str) -> Sequence[str]:
        """Refuse."""
        refuse_queues()

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Refuse."""
        refuse_queues()

    async def receive(self, name: str, request: Receive) -> Received:
        """Refuse."""
        refuse_queues()

    async def take_back(self, name: str, lease: int) -> None:
        """Refuse."""
        refuse_queues()

    async def settle(self, name: str, items: Sequence[Settle]) -> Sequence[Settled]:
        """Refuse."""
        refuse_queues()

    async def pause(self, name: str) -> QueueView:
        """Refuse."""
        refuse_queues()

    async def resume(self, name: str) -> QueueView:
        """Refuse."""
        refuse_queues()

    async def seek(self, name: str, start: Start, *, force: bool = False) -> None:
        """Refuse."""
        refuse_queues()

    async def peek(self, name: str, limit: int, max_bytes: int) -> Sequence[Leased]:
        """Refuse."""
        refuse_queues()

    async def look(self, name: str) -> None:
        """Refuse."""
        refuse_queues()

    def stats(self, name: str) -> QueueStats:
        """Refuse."""
        refuse_queues()

    def in_flight(
        self, name: str, *, after: tuple[TopicPartition, int] | None = None, limit: int = 100
    ) -> Sequence[InFlight]:
        """Refuse."""
        refuse_queues()

    def record(self, name: str, tp: TopicPartition, offset: int) -> InFlight:
        """Refuse."""
        refuse_queues()

    async def subscribe(self, name: str, topics: Sequence[str], create: QueueSettings) -> QueueView:
        """Refuse."""
        refuse_queues()

    async def move(
        self, name: str, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Refuse."""
        refuse_queues()

    async def forget(self, name: str, topics: Sequence[str]) -> Sequence[ErrorCode]:
        """Refuse."""
        refuse_queues()

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
        """Refuse."""
        refuse_queues()

    async def acknowledge(
        self, name: str, tp: TopicPartition, member_id: str, batches: Sequence[AcknowledgeBatch]
    ) -> ErrorCode:
        """Refuse."""
        refuse_queues()

    async def release_member(self, name: str, member_id: str) -> None:
        """Do nothing: no member holds anything."""


class NoWebhooks:
    """Refuses every call of `core.vocabulary.webhooks.Webhooks` with UNSUPPORTED_VERSION."""

    async def put(
        self,
        queue: str,
        name: str,
        settings: WebhookSettings,
        *,
        secret: str | None = None,
        signing: Signing = Signing.HMAC,
        if_version: int | None = None,
    ) -> WebhookMade:
        """Refuse."""
        refuse_queues()

    def get(self, queue: str, name: str) -> WebhookView:
        """Refuse."""
        refuse_queues()

    def of_queue(self, queue: str) -> Sequence[WebhookView]:
        """Refuse."""
        refuse_queues()

    async def delete(self, queue: str, name: str) -> None:
        """Refuse."""
        refuse_queues()

    async def rotate_secret(
        self, queue: str, name: str, *, secret: str | None = None, signing: Signing | None = None
    ) -> WebhookMade:
        """Refuse."""
        refuse_queues()

    async def enable(self, queue: str, name: str) -> WebhookView:
        """Refuse."""
        refuse_queues()

    async def test(self, queue: str, name: str) -> Attempt:
        """Refuse."""
        refuse_queues()

    def attempts(self, queue: str, name: str) -> Sequence[Attempt]:
        """Refuse."""
        refuse_queues()
