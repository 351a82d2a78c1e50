"""Committed offsets: what is kept of each, how long, and what a commit may carry.

How long, as in Kafka (KIP-211, guide section "Offset Commit Request"). An offset goes when its time is over
*and* its group no longer needs it:

- its time: with a retention of its own (OffsetCommit v2–v4) from the commit on; else the broker's retention,
  counted from the moment the group lost its last member, for a group without membership (simple consumers,
  admin tools) from the commit, whose time stamp a client may set (v1) to keep it longer;
- its group: while consumers are stable, offsets of topics that they subscribe to are kept however old they are,
  those of other topics go when the retention since their commit is over. In mid-rebalance, and while members
  of another protocol type are there, nothing goes.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from dataclasses import dataclass, field
from typing import NamedTuple

from core.groups.group import Group
from core.groups.subscription import CONSUMER_PROTOCOL_TYPE
from core.vocabulary.groups import CommittedOffset, State


class StoredOffset(NamedTuple):
    """A committed offset with its address, as it is kept."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


@dataclass(slots=True)
class OffsetsChange:
    """Offsets of one group that are saved or removed."""

    group_id: str
    saved: list[tuple[str, int, CommittedOffset]] = field(default_factory=list)
    removed: list[tuple[str, int]] = field(default_factory=list)


class GroupOffsets:
    """The committed offsets of one group, by topic and partition."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, CommittedOffset]] = {}

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._topics.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset of a partition; None if there is none."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def topics(self) -> KeysView[str]:
        """The topics that have committed offsets."""
        return self._topics.keys()

    def topic(self, topic: str) -> dict[int, CommittedOffset]:
        """The committed offsets of a topic, by partition."""
        return self._topics.get(topic, {})

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        """A committed offset as it was kept."""
        self._topics.setdefault(topic, {})[partition] = committed

    def apply(self, change: OffsetsChange) -> None:
        """What has been stored is now to be seen."""
        for topic, partition, committed in change.saved:
            partitions = self._topics.get(topic)
            if partitions is None:
                partitions = self._topics[topic] = {}
            partitions[partition] = committed
        for topic, partition in change.removed:
            partitions = self._topics.get(topic)
            if partitions is not None:
                partitions.pop(partition, None)
                if not partitions:
                    del self._topics[topic]


def expired(offsets: GroupOffsets, group: Group, now_ms: int, retention_ms: int) -> list[tuple[str, int]]:
    """The partitions whose committed offset may go now."""
    needed: frozenset[str] = frozenset()
    since = -1
    if group.protocol_type is not None:
        if group.state is State.EMPTY:
            since = group.empty_since_ms
        elif group.state is State.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
            if group.subscribed_topics is None:
                return []
            needed = group.subscribed_topics
        else:
            return []
    gone = []
    for topic, partition, committed in offsets:
        if committed.expire_ms >= 0:
            is_over = now_ms >= committed.expire_ms
        else:
            is_over = now_ms - (since if since >= 0 else committed.commit_ms) >= retention_ms
        if is_over and topic not in needed:
            gone.append((topic, partition))
    return gone
