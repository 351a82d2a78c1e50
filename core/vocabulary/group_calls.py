"""The calls on groups that listeners and surfaces make: `broker.groups`. See `core.facade` for the rules of calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from core.errors import BrokerError, ErrorCode
from core.vocabulary.consumer_groups import (
    ConsumerGroupView,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    MemberKind,
)
from core.vocabulary.groups import (
    NO_MEMBER,
    CommitRequest,
    CommittedOffset,
    GroupListing,
    GroupView,
    Joining,
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    PartitionLag,
    Reset,
    SyncReply,
    SyncRequest,
    Target,
    TransactionalCommit,
)
from core.vocabulary.line_members import LineMembers
from core.vocabulary.settlements import OffsetToSettle
from core.vocabulary.share_groups import ShareGroups
from core.vocabulary.transactions import Settlement


class GroupPositions(Protocol):
    """The positions of groups, as `broker.groups.positions`."""

    def lag(self, group_id: str) -> list[PartitionLag]:
        """Return the lag of each partition that has a committed offset or an owner, by topic and partition.

        Raises GROUP_ID_NOT_FOUND.
        """

    async def set(self, group_id: str, request: CommitRequest) -> None:
        """Commit positions, all or none. A missing group is created, without members.

        Raises UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, NON_EMPTY_GROUP for a group with members if the
        call names no member, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS.
        """

    async def reset(
        self, group_id: str, target: Target, topics: Iterable[str] = (), *, dry_run: bool = False
    ) -> list[Reset]:
        """Move the positions of a group without members; return each before and after.

        Moves all partitions of `topics`, or the partitions in which the group has positions. A target outside of the
        bounds becomes the nearest bound. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION.
        """

    async def forget(self, group_id: str, topic: str, partition: int | None = None) -> None:
        """Delete the positions of a topic, or of one partition of it.

        Raises GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC while members read the topic.
        """


class HttpMembers(Protocol):
    """Group members that speak HTTP, as `broker.groups.members`. Each call raises what the group refuses."""

    async def join(
        self, group_id: str, request: JoinRequest, *, wait_ms: int, leads: bool = False
    ) -> Joining:
        """Join with the client's own protocols; wait for the end of the round, up to `wait_ms`.

        With `leads` the broker assigns if this member is elected leader.
        """

    async def join_topics(
        self, group_id: str, request: JoinRequest, topics: Sequence[str], *, wait_ms: int, assignor: str = ""
    ) -> Joining:
        """Join to read `topics`; the broker assigns. `assignor` is the protocol to vote for.

        Raises UNSUPPORTED_ASSIGNOR.
        """

    async def sync(self, group_id: str, request: SyncRequest, *, wait_ms: int) -> SyncReply | None:
        """Return the member's assignment; None if the leader has not sent it within `wait_ms`."""

    async def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> None:
        """Extend the session of a member. Raises REBALANCE_IN_PROGRESS if it has to join again."""

    async def leave(self, group_id: str, member_id: str, group_instance_id: str | None = None) -> None:
        """Leave the group. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""


class Groups(Protocol):
    """Consumer groups, as `broker.groups`. An error of a member is in the reply; other errors are raised."""

    @property
    def positions(self) -> GroupPositions:
        """Positions and lag, for people and tools."""

    @property
    def members(self) -> HttpMembers:
        """Members that speak HTTP."""

    @property
    def lines(self) -> LineMembers:
        """Members of the line protocol."""

    @property
    def shares(self) -> ShareGroups:
        """The members of share groups (KIP-932)."""
        ...

    @property
    def closed(self) -> ErrorCode:
        """The error of all requests before the groups are loaded and after the stop; NONE in between."""

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """JoinGroup: return at the end of the round."""

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """SyncGroup: return once the leader has sent the assignments."""

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Heartbeat: extend the session of a member."""

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """ConsumerGroupHeartbeat (KIP-848). Errors are in the reply."""

    def describe_consumer(self, group_id: str) -> ConsumerGroupView | None:
        """Return a group of KIP-848, or None if there is none of that id and type."""

    def member_kind(self, group_id: str, member_id: str) -> MemberKind | None:
        """Return the protocol of a member of a group of KIP-848; None for all others."""

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error of an OffsetFetch (v9) on behalf of a member."""

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[LeaveReply]:
        """LeaveGroup of one or more members. Raises INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE."""

    def describe(self, group_id: str) -> GroupView | None:
        """Return the group; None if there is none."""

    async def delete(self, group_id: str) -> None:
        """Delete a group and its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""

    def before_sync(self, group_id: str) -> ErrorCode:
        """Return REBALANCE_IN_PROGRESS while the members wait for the leader's assignment, else NONE."""

    def refusal(self, error: ErrorCode, group_id: str, member_id: str = NO_MEMBER) -> BrokerError:
        """Return the error of a member as a BrokerError with a sentence for people."""

    async def commit(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """OffsetCommit: return an error for each commit, in their order, once the accepted ones are durable."""

    def committed(
        self, group_id: str, topic: str, partition: int, *, register: bool = False
    ) -> CommittedOffset | None:
        """Return the committed offset of a partition; None if there is none."""

    def all_committed(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Return (topic, partition, committed offset) of a group; nothing for a missing group."""

    async def stage_transactional(self, group_id: str, request: TransactionalCommit) -> list[ErrorCode]:
        """TxnOffsetCommit: return an error for each commit, in their order, once the accepted ones are durable.

        The caller has checked that the transaction is open.
        """

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has staged an offset of the partition (KIP-447)."""

    def settle_offsets(self, offsets: Sequence[OffsetToSettle]) -> Settlement:
        """Check offsets; return their commit as a change for `commit_together`. Raises `RefusedError`, by index."""
        ...

    async def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        """OffsetDelete: return an error for each of `partitions`, in their order."""

    # Last, because annotations after it would mean this method.
    def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Return all groups, or those in one of `states` and of one of `types`, ignoring case."""
