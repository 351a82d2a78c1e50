"""What keyed writes need of the broker: topics, logs, appends, batches, producer ids and the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from core.clock import Clock
from core.config import Config
from core.log.log import Log
from core.metadata.store import Store
from core.records.record import NewRecord
from core.topic_config import TopicConfig
from core.types import AppendResult, TopicPartition


class Topic(Protocol):
    """A topic."""

    @property
    def topic_id(self) -> UUID:
        """Its id."""
        ...

    @property
    def partitions(self) -> int:
        """The number of its partitions."""
        ...

    @property
    def config(self) -> TopicConfig:
        """Its settings."""
        ...


class ProducerIds(Protocol):
    """Hands out producer ids."""

    async def next(self) -> int:
        """Return a producer id that no producer has had. Raises KAFKA_STORAGE_ERROR."""
        ...


class Broker(Protocol):
    """The calls and parts of the broker that keyed writes use."""

    config: Config
    clock: Clock
    store: Store

    @property
    def producer_ids(self) -> ProducerIds:
        """The producer ids of this broker."""
        ...

    def topic(self, name: str, /) -> Topic:
        """Return a topic. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        ...

    def topic_name(self, topic_id: UUID, /) -> str:
        """Return the name of the topic with this id. Raises UNKNOWN_TOPIC_ID."""
        ...

    async def topic_or_create(self, name: str, /) -> Topic:
        """Return a topic; create it where the settings allow that. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        ...

    def log(self, tp: TopicPartition, /) -> Log:
        """Return the log of a partition. Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER."""
        ...

    def append(self, tp: TopicPartition, records: memoryview, /, *, acks: int) -> AppendResult:
        """Append a record batch; return its offsets. Raises what refuses it."""
        ...

    def durable(self, tp: TopicPartition, acks: int, /) -> asyncio.Future[None] | None:
        """Return a future that is done when what was appended is as durable as `acks` asks; None if it is now."""
        ...

    def by_partition(
        self, topic: str, partitions: int, records: Sequence[NewRecord], /, *, sticky: int
    ) -> dict[int, Sequence[int]]:
        """Return the indexes of the records of each partition. `sticky` is the partition of records without a key."""
        ...

    def next_in_turn(self, topic: str, partitions: int, /) -> int:
        """Return the partition of the next records without a key."""
        ...

    def batches_below(
        self, limit: int, records: Sequence[NewRecord], indexes: Sequence[int], now: int, /
    ) -> list[tuple[Sequence[int], bytearray]]:
        """Build batches of at most `limit` bytes, each with the indexes of its records; a larger record is alone."""
        ...
