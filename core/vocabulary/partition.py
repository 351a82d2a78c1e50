"""One partition: its bounds, its leader and its replicas; the special timestamps of ListOffsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.types import LogOffsets, TopicPartition

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
# Tiered storage: this broker has none. All of a log is local, and nothing will be uploaded.
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The offsets of one partition, its size on disk in bytes (None: not known), its replicas as broker ids.

    `leader` is −1 if no leader is known. Only the leader knows `isr`; a follower shows the newest one that it knows.
    `leads`: this broker is the leader.
    """

    tp: TopicPartition
    offsets: LogOffsets
    size: int | None
    leader_epoch: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leads: bool

    @property
    def role(self) -> Literal["leader", "follower"]:
        """The role of this broker."""
        return "leader" if self.leads else "follower"

    @property
    def under_replicated(self) -> bool:
        """Whether a replica is not in sync."""
        return len(self.isr) < len(self.replicas)

    @property
    def order(self) -> tuple[int, ...]:
        """The leader, then the other replicas as assigned."""
        first = (self.leader,) if self.leader in self.replicas else ()
        return (*first, *(r for r in self.replicas if r != self.leader))
