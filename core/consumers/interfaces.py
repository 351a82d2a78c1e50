"""What managed consumers need of the broker: topics, records, the store and the waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from core.clock import Clock
from core.config import Config
from core.metadata.store import Store
from core.purgatory import Purgatory
from core.types import LogOffsets, TimestampOffset, TopicPartition
from core.vocabulary.records import Fetched, FetchRead, ReadResult


class Topic(Protocol):
    """A topic."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def partitions(self) -> int:
        """The number of its partitions."""
        ...


class PartitionLog(Protocol):
    """The log of a partition."""

    @property
    def offsets(self) -> LogOffsets:
        """Log start offset, high watermark and log end offset."""
        ...


class Broker(Protocol):
    """The calls and parts of the broker that managed consumers use."""

    config: Config
    clock: Clock
    store: Store
    purgatory: Purgatory
    # Rises whenever a topic is created, deleted or changed.
    metadata_version: int

    def topics(self) -> Iterable[Topic]:
        """Return all topics, by name."""
        ...

    async def topic_or_create(self, name: str, /) -> Topic:
        """Return a topic; create it where the settings allow that. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        ...

    def log(self, tp: TopicPartition, /) -> PartitionLog:
        """Return the log of a partition. Raises UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER."""
        ...

    def partition(self, tp: TopicPartition, /) -> object:
        """Return a partition. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        ...

    def offset_for_time(self, tp: TopicPartition, timestamp: int, /) -> TimestampOffset:
        """Return the first record that is not older than `timestamp` (ms); offset −1 if there is none."""
        ...

    def fetch_now(self, reads: Sequence[FetchRead], /, *, max_bytes: int) -> tuple[list[Fetched], int, bool]:
        """Read batches that are there; return them, their size in bytes, and whether a read was refused."""
        ...

    def read_now(self, tp: TopicPartition, offset: int, /, *, max_bytes: int, max_records: int) -> ReadResult:
        """Read records that are there from `offset` on, at least one if there is any."""
        ...
