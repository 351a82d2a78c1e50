"""Leaders, followers and the quorum of the metadata."""

from __future__ import annotations

from typing import Literal, NamedTuple
from uuid import UUID

from core.errors import BrokerError
from core.types import LogRead, TopicPartition

Role = Literal["leader", "follower"]
# The high watermark of a follower that does not name the one it knows: it waits for records alone.
UNSAID = 0x7FFF_FFFF_FFFF_FFFF
# The changes of topics, groups and offsets, as a partition of its own (Kafka's name and topic id for it).
METADATA = TopicPartition("__cluster_metadata", 0)
METADATA_ID = UUID(int=1)


class Placement(NamedTuple):
    """The leader of a partition (−1: none), its epoch (−1: not known here), the replicas, and those in sync.

    Only the leader knows the in-sync replicas; another broker shows the newest set that it knows, and the leader.
    """

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class FollowerRead(NamedTuple):
    """One partition of a follower's fetch, by topic id. Its offset says that the follower has everything below.

    `high_watermark` is the one that the follower knows; a newer one is answered at once (KIP-1166).
    """

    topic_id: UUID
    partition: int
    leader_epoch: int
    offset: int
    max_bytes: int
    high_watermark: int = UNSAID


class FollowerFetched(NamedTuple):
    """The answer for one partition: batches up to the end of the log, or the error.

    `news`: a newer high watermark than the follower knows. `urgent`: records, or the error.
    """

    read: LogRead | None
    error: BrokerError | None = None
    news: bool = False

    @property
    def urgent(self) -> bool:
        """Whether the follower must not wait for the answer."""
        return self.read is None or self.read.slice is not None


class Voter(NamedTuple):
    """A broker that holds the metadata: the end of its log, and when it last fetched, and last had everything.

    Both are milliseconds of the wall clock; −1 if not known.
    """

    broker_id: int
    log_end_offset: int
    fetched_ms: int
    caught_up_ms: int


class Quorum(NamedTuple):
    """The brokers that hold the metadata, as their leader sees them."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: list[Voter]
