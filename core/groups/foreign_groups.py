"""Consumer groups that live elsewhere: those of Kafka 0.7, whose consumers keep members, owners and offsets in
ZooKeeper and tell the broker nothing. They are shown beside our own groups, and changed by nobody here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

ZOOKEEPER = "kafka07-zookeeper"


class ByteOffset(NamedTuple):
    """Where a consumer of 0.7 goes on: a byte offset in the log of one partition of one broker."""

    topic: str
    broker_id: int
    partition: int
    offset: int


class ForeignMember(NamedTuple):
    """A consumer: its id, what it says it subscribes to (as it wrote it), the (topic, partition)s of this broker
    that it owns."""

    member_id: str
    subscription: str
    owned: tuple[tuple[str, int], ...]


class ForeignGroup(NamedTuple):
    """A group as it was found when somebody last looked."""

    group_id: str
    members: tuple[ForeignMember, ...]
    offsets: tuple[ByteOffset, ...]

    @property
    def state(self) -> str:
        """In the words of our own groups."""
        return "Stable" if self.members else "Empty"


class ForeignGroups:
    """The foreign groups by id, as they were last found."""

    def __init__(self) -> None:
        self._groups: dict[str, ForeignGroup] = {}

    def replace(self, groups: Iterable[ForeignGroup]) -> None:
        """Take what has been found now in place of what was found before."""
        self._groups = {group.group_id: group for group in groups}

    def list(self, states: Iterable[str] = ()) -> list[ForeignGroup]:
        """All of them, or those in these states, without regard to case."""
        wanted = {state.lower() for state in states}
        return [group for group in self._groups.values() if not wanted or group.state.lower() in wanted]

    def get(self, group_id: str) -> ForeignGroup | None:
        """The group of that id, if there is one."""
        return self._groups.get(group_id)
