"""What steps of the groups ask for: what must be stored, and the answers to give after that. Plain data.

Times: `Moment.monotonic` is in seconds and drives deadlines; `Moment.wall_ms` is only stored. A *waiter* is the
object that the caller wants back with its answer (the coordinator passes a future); the machine never looks into it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from core.errors import ErrorCode
from core.groups.pending_offsets import PendingChange, StoredPending
from core.vocabulary.groups import CommittedOffset


class Moment(NamedTuple):
    """One point in time, on both clocks."""

    monotonic: float
    wall_ms: int


class Reply(Protocol):
    """What a waiting request gets."""

    @property
    def error(self) -> ErrorCode:
        """The error, NONE if the request is served."""
        ...

    def unavailable(self) -> Reply:
        """Return the answer if the change cannot be stored."""
        ...


class Answer(NamedTuple):
    """An answer to send once the change of the same step is durable."""

    waiter: object
    reply: Reply


# --- what must be stored -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The row of a group. `empty_since_ms` is wall time, −1 while the group has members."""

    group_id: str
    state: str
    protocol_type: str | None
    generation: int
    protocol: str | None
    leader_id: str | None
    empty_since_ms: int


@dataclass(frozen=True, slots=True)
class StoredMember:
    """The row of a member: all that it needs to continue after a restart without a rejoin."""

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
    """Store a group: its row, the members that changed, the ids of those that left.

    With `replace_members` these are all members; other stored members are deleted. With `converted` the group had
    another type, whose rows are deleted.
    """

    group: StoredGroup
    members: tuple[StoredMember, ...] = ()
    removed: tuple[str, ...] = ()
    replace_members: bool = False
    converted: bool = False


@dataclass(frozen=True, slots=True)
class StoredModern:
    """The row of a group to whose members the broker assigns (KIP-848, KIP-932). `details` belong to the machine."""

    group_id: str
    group_type: str
    epoch: int
    empty_since_ms: int
    details: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredModernMember:
    """The row of a member of such a group. `details` belong to the machine."""

    group_id: str
    member_id: str
    details: bytes


@dataclass(frozen=True, slots=True)
class ModernChange:
    """Store a group to whose members the broker assigns; as `GroupChange`."""

    group: StoredModern
    members: tuple[StoredModernMember, ...] = ()
    removed: tuple[str, ...] = ()
    replace_members: bool = False
    converted: bool = False


class StoredOffset(NamedTuple):
    """The row of a committed offset."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


@dataclass(slots=True)
class OffsetsChange:
    """Store and delete committed offsets of one group, and those that transactions have staged."""

    group_id: str
    saved: list[tuple[str, int, CommittedOffset]] = field(default_factory=list)
    removed: list[tuple[str, int]] = field(default_factory=list)
    pending: PendingChange | None = None


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """Delete a group with its members and offsets."""

    group_id: str


Change = GroupChange | ModernChange | GroupDeleted | OffsetsChange


@dataclass(frozen=True, slots=True)
class StoredState:
    """All that is stored. Members are in the order in which they were first stored."""

    groups: Iterable[StoredGroup]
    members: Iterable[StoredMember]
    offsets: Iterable[StoredOffset]
    pending: Iterable[StoredPending] = ()
    modern: Iterable[StoredModern] = ()
    modern_members: Iterable[StoredModernMember] = ()
