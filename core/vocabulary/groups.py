"""Groups: requests, answers, views, committed offsets, and positions with their lag. Plain data.

Timeouts are in milliseconds; a position and a committed offset are the next offset to read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from core.errors import ErrorCode
from core.types import LogOffsets

# Kafka's values for an unknown member and an unknown generation.
NO_MEMBER = ""
NO_GENERATION = -1
# The committed offset that OffsetFetch returns, without an error, where nothing was committed.
NO_OFFSET = -1
# Names of the assignors by which the broker assigns for a member that leads and cannot, in the order in which a
# member that names none offers them. The first four are Kafka's; the last is kafkajs's name for roundrobin.
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky", "RoundRobinAssigner")


class State(StrEnum):
    """The states of a classic group, with the names that DescribeGroups shows."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# --- requests ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class JoinRequest:
    """JoinGroup of any listener. Timeouts in milliseconds.

    `new_member_id` is the id that a member without an id gets, because the machine has no randomness.
    `member_id_required` and `can_skip_assignment` say what the client's version of the API supports (JoinGroup v4
    and v9).
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
    """SyncGroup. Only the leader's `assignments` are used; `protocol_type` and `protocol` are None before v5."""

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


class Resumption(NamedTuple):
    """A member of an earlier run that continues without a join, if its group still knows it in this generation."""

    member_id: str
    generation: int
    group_instance_id: str | None


# --- answers -----------------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    """A member as the leader sees it, with its metadata for the elected protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The answer to a join. Only the leader's has `members`."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False

    def unavailable(self) -> JoinReply:
        """Return the answer if the change cannot be stored."""
        return JoinReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, self.member_id)


@dataclass(frozen=True, slots=True)
class SyncReply:
    """The answer to a sync, with the member's assignment as the leader wrote it."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None

    def unavailable(self) -> SyncReply:
        """Return the answer if the change cannot be stored."""
        return SyncReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class LeaveReply(NamedTuple):
    """The result of a LeaveGroup for one member."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class Joining(NamedTuple):
    """The state of a join over HTTP. `reply` is None while the round continues; ask again with `member_id`."""

    member_id: str
    reply: JoinReply | None


class LineAssignment(NamedTuple):
    """The partitions of its topic that a member of the line protocol reads in one generation."""

    generation: int
    partitions: list[int]


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


class Standing(NamedTuple):
    """What is known of a member and of its group.

    `stable`: its assignment in `generation` is in force. `leads`: it has to join again when a topic of the group gets
    more partitions. `topics` are those that members of the group read.
    """

    known: bool
    stable: bool = False
    generation: int = -1
    assignment: bytes = b""
    leads: bool = False
    topics: Collection[str] = ()


# --- offsets -------------------------------------------------------------------------------------------------


class Commit(NamedTuple):
    """One partition of an OffsetCommit. `commit_ms` is −1 unless the client sets the time (v1)."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    commit_ms: int = -1


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """OffsetCommit of any listener, on behalf of a member, or of a simple consumer or admin tool (no generation).

    `retention_ms` (v2–v4) is −1 for the broker's own. With `any_partition` (v0–2) only the topics have to exist. With
    `register` (v0) the offsets are kept for OffsetFetch v0 too, without metadata.
    """

    commits: Sequence[Commit]
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    group_instance_id: str | None = None
    retention_ms: int = -1
    register: bool = False
    any_partition: bool = False


@dataclass(frozen=True, slots=True)
class TransactionalCommit:
    """TxnOffsetCommit: offsets that are committed when the transaction of the producer is."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: CommitRequest


class CommittedOffset(NamedTuple):
    """A committed offset. Times in wall ms; `expire_ms` is −1 unless the commit named a retention."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int


class Cut(NamedTuple):
    """A position that was beyond the log end offset, and the log end offset to which it was moved."""

    group_id: str
    topic: str
    partition: int
    before: int
    after: int


class PartitionLag(NamedTuple):
    """The lag of a group in one partition. `next_offset` and `lag` are None where nothing was committed.

    A partition that has been deleted has no offsets and no lag.
    """

    topic: str
    partition: int
    next_offset: int | None
    offsets: LogOffsets | None
    member_id: str | None

    @property
    def lag(self) -> int | None:
        """Return the offsets between the position and the last stable offset, at least 0."""
        if self.next_offset is None or self.offsets is None:
            return None
        return max(0, self.offsets.last_stable_offset - self.next_offset)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a reset: exactly one of these. `time` is in wall ms, `shift` may be negative."""

    earliest: bool = False
    latest: bool = False
    time: int | None = None
    offset: int | None = None
    shift: int | None = None


class Reset(NamedTuple):
    """One partition of a reset: its position before (None if there was none) and after."""

    topic: str
    partition: int
    before: int | None
    after: int
