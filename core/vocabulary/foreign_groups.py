"""Consumer groups that this broker does not coordinate: those of Kafka 0.7.

Their consumers keep members, owners and offsets in ZooKeeper and tell the broker nothing. They are listed with the
broker's own groups and cannot be changed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

ZOOKEEPER = "kafka07-zookeeper"


class ByteOffset(NamedTuple):
    """The position of a Kafka 0.7 consumer: a byte offset in the log of one partition of one broker."""

    topic: str
    broker_id: int
    partition: int
    offset: int


class ForeignMember(NamedTuple):
    """A consumer: its id, its subscription as it wrote it, and the partitions of this broker that it owns."""

    member_id: str
    subscription: str
    owned: tuple[tuple[str, int], ...]


class ForeignGroup(NamedTuple):
    """A group as ZooKeeper had it when it was last read."""

    group_id: str
    members: tuple[ForeignMember, ...]
    offsets: tuple[ByteOffset, ...]

    @property
    def state(self) -> str:
        """Return the state in the words of the broker's own groups."""
        return "Stable" if self.members else "Empty"


class ForeignGroups:
    """The foreign groups by id, as they were when they were last read."""

    def __init__(self) -> None:
        self._groups: dict[str, ForeignGroup] = {}

    def replace(self, groups: Iterable[ForeignGroup]) -> None:
        """Replace all groups."""
        self._groups = {group.group_id: group for group in groups}

    def list(self, states: Iterable[str] = ()) -> list[ForeignGroup]:
        """List all groups, or those in one of these states, ignoring case."""
        wanted = {state.lower() for state in states}
        return [group for group in self._groups.values() if not wanted or group.state.lower() in wanted]

    def get(self, group_id: str) -> ForeignGroup | None:
        """Return the group of that id, or None."""
        return self._groups.get(group_id)
