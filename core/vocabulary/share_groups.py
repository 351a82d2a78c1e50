"""Share groups (KIP-932): heartbeats of their members, the answers, and views. Plain data.

A share group is a queue of the same name. Its members say which topics they read, and the group names partitions for
them to read from. Records are protected by locks, not by that assignment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from core.errors import ErrorCode

# Epochs of a heartbeat that are no epochs.
JOINING = 0
LEAVING = -1
# The one way of assignment, by Kafka's name.
ASSIGNOR = "simple"
EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"

Assignment = Mapping[UUID, Sequence[int]]
"""Partitions by topic id, in ascending order."""


@dataclass(slots=True)
class ShareHeartbeat:
    """ShareGroupHeartbeat. `topics` None means: as before. `member_epoch` is 0 to join, −1 to leave."""

    member_id: str
    member_epoch: int
    topics: Collection[str] | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class ShareReply:
    """The answer to a heartbeat. `assignment` is None if the member has it already; `message` says what is wrong."""

    error: ErrorCode
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    message: str | None = None


class ShareMemberView(NamedTuple):
    """A member as ShareGroupDescribe shows it. `topics` are sorted."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ShareGroupView:
    """A group as ShareGroupDescribe shows it."""

    group_id: str
    state: str
    epoch: int
    members: tuple[ShareMemberView, ...]


class ShareGroups(Protocol):
    """The members of share groups, as `broker.groups.shares`."""

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareReply:
        """Join, stay in or leave a group. An error of the member is in the reply."""
        ...

    def describe(self, group_id: str) -> ShareGroupView | None:
        """Return the group; None if there is none, or if it has another type."""
        ...
