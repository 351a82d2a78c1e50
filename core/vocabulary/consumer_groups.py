"""Groups whose members the broker assigns to (KIP-848): heartbeats, their answers, and views. Plain data.

Partitions are by topic id, because an assignment must not survive the deletion of its topic. Timeouts are in
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import NamedTuple
from uuid import UUID

from core.errors import ErrorCode

# Epochs of a heartbeat that are no epochs.
JOINING = 0
LEAVING = -1
# A static member leaves for a while; its instance keeps the assignment until the session expires.
AWAY = -2
# No epoch: a commit or fetch without a member.
NO_EPOCH = -1

# Partitions by topic id, in ascending order.
Partitions = Mapping[UUID, Collection[int]]


class ConsumerGroupState(StrEnum):
    """The states of a group of KIP-848, with the names that ConsumerGroupDescribe shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberKind(IntEnum):
    """The protocol of a member, with the numbers of ConsumerGroupDescribe v1 (KIP-1099)."""

    CLASSIC = 0
    CONSUMER = 1


@dataclass(slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat of any listener. None means: as before.

    `member_epoch` is 0 to join, −1 to leave, −2 when a static member leaves for a while. `new_member_id` is the id
    that a member without one gets; only v0 has such members, so that the listener sets it for v0 alone. `owned` are
    the partitions that the member has now. `pattern` is an RE2 expression; the empty text removes it.
    `may_describe(topic)` says whether the client may see a topic; a pattern never names any other. None: all.
    """

    member_id: str
    member_epoch: int
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Collection[str] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    new_member_id: str = ""
    may_describe: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatReply:
    """The answer to a heartbeat. `assignment` is None if it is unchanged; `message` says why it was refused."""

    error: ErrorCode
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None
    message: str | None = None

    def unavailable(self) -> ConsumerHeartbeatReply:
        """Return the answer if the change cannot be stored."""
        return replace(
            self,
            error=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            assignment=None,
            message="The group could not be stored; try again.",
        )


class TopicShare(NamedTuple):
    """Partitions of one topic that a member has."""

    topic_id: UUID
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMemberView:
    """A member as ConsumerGroupDescribe shows it. `topics` are sorted; `target` is what it will have."""

    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    assignment: tuple[TopicShare, ...]
    target: tuple[TopicShare, ...]
    kind: MemberKind = MemberKind.CONSUMER

    def all_topics(self) -> set[str]:
        """Return all topics that the view names."""
        return {*self.topics, *(share.topic for share in (*self.assignment, *self.target))}


@dataclass(frozen=True, slots=True)
class ConsumerGroupView:
    """A group as ConsumerGroupDescribe shows it."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberView, ...]
    group_type: str = "consumer"
