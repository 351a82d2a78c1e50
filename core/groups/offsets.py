"""The committed offsets of one group, and when they expire.

As in Kafka (KIP-211, guide section "Offset Commit Request"), an offset expires when its retention is over *and* its
group no longer needs it:

- retention: of the commit, if it named one (OffsetCommit v2–v4), from the commit on. Otherwise the broker's. It
  counts from the time at which the group lost its last member; for a group without membership (simple consumers,
  admin tools) from the commit, whose timestamp a client may set (v1).
- group: while consumers are stable, offsets of the topics that they subscribe to do not expire; those of other topics
  expire when the retention since their commit is over. During a rebalance, and while there are members of another
  protocol type, no offset expires.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView

from core.groups.effects import OffsetsChange
from core.groups.machines import Machine
from core.vocabulary.groups import CommittedOffset
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE


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
        """Return the committed offset of a partition, or None."""
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def topics(self) -> KeysView[str]:
        """Return the topics that have committed offsets."""
        return self._topics.keys()

    def topic(self, topic: str) -> dict[int, CommittedOffset]:
        """Return the committed offsets of a topic, by partition."""
        return self._topics.get(topic, {})

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Set a committed offset that was loaded."""
        self._topics.setdefault(topic, {})[partition] = committed

    def apply(self, change: OffsetsChange) -> None:
        """Apply a change that is durable."""
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


def expired(offsets: GroupOffsets, group: Machine, now_ms: int, retention_ms: int) -> list[tuple[str, int]]:
    """Return the partitions whose committed offset expires now. `retention_ms` is the broker's."""
    needed: frozenset[str] = frozenset()
    since = -1
    if group.protocol_type is not None:
        if group.is_empty:
            since = group.empty_since_ms
        elif group.is_stable and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
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
