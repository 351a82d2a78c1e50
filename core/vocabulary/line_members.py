"""Members of groups that speak the line protocol, as `broker.groups.lines`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from core.vocabulary.groups import LineAssignment


class LineMembers(Protocol):
    """Group members of the line protocol, as `broker.groups.lines`. Each reads one topic."""

    async def join(
        self, group_id: str, topic: str, member_id: str, assignor: str = "", host: str = ""
    ) -> LineAssignment:
        """Join to read a topic, or wait for the end of a round that began meanwhile; return the assignment."""

    async def sync(self, group_id: str, topic: str, member_id: str, generation: int) -> LineAssignment:
        """Return the assignment in this generation."""

    def heartbeat(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """Extend the session of a member."""

    async def leave(self, group_id: str, topic: str, member_id: str, generation: int) -> None:
        """Leave the group."""

    async def commit(
        self, group_id: str, topic: str, member_id: str, generation: int, partition: int, offset: int
    ) -> None:
        """Commit the next offset to read; durable when it returns.

        Raises UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION (also for a partition that the member does not own),
        REBALANCE_IN_PROGRESS, INVALID_REQUEST for an offset below 0.
        """

    def committed(self, group_id: str, topic: str, partition: int) -> int:
        """Return the committed offset, −1 if there is none."""

    async def take_over(
        self, group_id: str, topic: str, generation: int, assignor: str, members: Mapping[str, Sequence[int]]
    ) -> bool:
        """Continue a group of another broker in its generation, with members (id → partitions) that need not rejoin.

        Return False if the group is here already in this generation or a later one. Durable when it returns. Raises
        NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_ASSIGNOR, INVALID_REQUEST.
        """
