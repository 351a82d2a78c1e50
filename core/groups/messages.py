"""What goes into the group machine and what comes out of it: plain data, no behaviour.

Times: `Moment.monotonic` is in seconds and drives deadlines; `Moment.wall_ms` is only ever stored. A *waiter* is
whatever the caller wants back with its answer (the coordinator hands in a future); the machine never looks
into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from core.errors import ErrorCode

# What Kafka puts where a member or a generation is not known.
NO_MEMBER = ""
NO_GENERATION = -1


class State(StrEnum):
    """The states of a classic group, with the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Moment(NamedTuple):
    """One point in time, on both clocks."""

    monotonic: float
    wall_ms: int


# --- requests ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class JoinRequest:
    """JoinGroup, whatever the door. Timeouts in milliseconds.

    `new_member_id` is the id that the member gets if it has none: the machine owns no randomness.
    `member_id_required` and `can_skip_assignment` say what the client's version of the API understands
    (JoinGroup v4 and v9).
    """

    member_id: str
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str = ""
    client_host: str = ""
    group_instance_id: str | None = None
    new_member_id: str = ""
    member_id_required: bool = False
    can_skip_assignment: bool = False


@dataclass(slots=True)
class SyncRequest:
    """SyncGroup. Only the leader's `assignments` count; `protocol_type` and `protocol` are None before v5."""

    member_id: str
    generation: int
    assignments: Sequence[tuple[str, bytes]] = ()
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None


class Leaver(NamedTuple):
    """One member of a LeaveGroup; an empty `member_id` leaves by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None


# --- answers -----------------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    """A member as the leader sees it: with its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a join. `members` is empty for everybody but the leader."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The answer to a sync: the member's assignment, as the leader wrote it."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


class LeaveReply(NamedTuple):
    """What became of one leaver."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class Answer(NamedTuple):
    """An answer that is due, once the changes that came with it are durable."""

    waiter: object
    reply: JoinReply | SyncReply


# --- what must be kept ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as it is kept. `empty_since_ms` is wall time, −1 while the group has members."""

    group_id: str
    state: str
    protocol_type: str | None
    generation: int
    protocol: str | None
    leader_id: str | None
    empty_since_ms: int


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member as it is kept: all it takes to go on after a restart without a rejoin."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupChange:
    """One group is saved: its row, the members that changed, those that went.

    With `replace_members` the members given are all there are; whatever else is stored goes.
    """

    group: StoredGroup
    members: tuple[StoredMember, ...] = ()
    removed: tuple[str, ...] = ()
    replace_members: bool = False


@dataclass(slots=True)
class Effects:
    """All that one step of the machine asks for: keep `change` (if any) first, then give the answers."""

    change: GroupChange | None
    answers: list[Answer]


# --- views ---------------------------------------------------------------------------------------------------


class MemberView(NamedTuple):
    """A member as DescribeGroups shows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as DescribeGroups shows it: protocol, metadata and assignments only while it is stable."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberView, ...]
    generation: int = NO_GENERATION
    leader_id: str = ""
    group_type: str = "classic"


class GroupListing(NamedTuple):
    """A group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
