"""What managed consumers need of groups: those of this broker, or those of a cluster that is reached as a client."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from core.errors import BrokerError, ErrorCode
from core.groups.hosted import HostedMembers
from core.types import TopicPartition
from core.vocabulary.groups import (
    NO_MEMBER,
    CommitRequest,
    CommittedOffset,
    GroupView,
    Leaver,
    LeaveReply,
    Standing,
)
from core.vocabulary.settlements import OffsetToSettle
from core.vocabulary.transactions import Settlement


class MemberGroups(Protocol):
    """The groups of managed consumers. Synchronous calls answer from what is at hand."""

    @property
    def at_hand(self) -> bool:
        """Whether all groups, partitions and records are always at hand, so that there is nothing to wait for."""
        ...

    @property
    def heartbeat_seconds(self) -> float:
        """The longest time between two heartbeats: by its answer a member learns of a rebalance."""
        ...

    @property
    def hosted(self) -> HostedMembers:
        """The join loops of members."""
        ...

    async def look(self, group_id: str) -> None:
        """Bring the group to hand, for `describe` in the same turn of the event loop."""

    async def bring(
        self, group_id: str, partitions: Collection[TopicPartition], *, fresh: bool = False
    ) -> None:
        """Bring the committed offsets of partitions to hand, for `committed`. Raises BrokerError.

        `fresh`: another member may have committed; else the last commit that went through here will do.
        """

    def standing(self, group_id: str, member_id: str) -> Standing | None:
        """Return what is known of a member; None if it is not at hand: then only the coordinator knows."""
        ...

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Extend the session of a member; return what the coordinator says, or has said last."""
        ...

    async def commit(self, group_id: str, request: CommitRequest) -> list[ErrorCode]:
        """OffsetCommit: return an error for each commit, in their order, once the accepted ones are durable."""
        ...

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return the committed offset of a partition; None if there is none. Raises if it is not at hand."""
        ...

    async def leave(self, group_id: str, leavers: Sequence[Leaver]) -> list[LeaveReply]:
        """LeaveGroup of one or more members."""
        ...

    def describe(self, group_id: str) -> GroupView | None:
        """Return the group; None if there is none."""
        ...

    def settle_offsets(self, offsets: Sequence[OffsetToSettle]) -> Settlement:
        """Check offsets; return their commit as a change of a decision. Raises `RefusedError`, by index."""
        ...

    def require_name(self, group_id: str) -> None:
        """Raise INVALID_GROUP_ID for the empty id, and the error of groups that are not served now."""

    def refusal(self, error: ErrorCode, group_id: str, member_id: str = NO_MEMBER) -> BrokerError:
        """Return the error of a member with a message for people."""
        ...
