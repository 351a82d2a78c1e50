"""What the registry needs of a group's machine, whatever its type.

The types share one space of ids: classic groups (`group.py`), consumer groups of KIP-848 (`consumer_group.py`) and
share groups of KIP-932 (`share_group.py`). A machine is pure: no I/O, no clock, no event loop. Each step returns
`Effects`. A step may replace the machine by one of another type (`Effects.becomes`); the id and the committed offsets
stay.

A new type needs a class with the members of `Machine` and another `group_type`; rows (`effects.StoredModern`,
`ModernChange`); how it is made of them (`GroupRegistry.register`); and a coordinator of its requests. That looks for
the entry of a group, makes it with `GroupRegistry.create(group_id, machine)` if there is none, or gives an empty
group of another type the new machine with `GroupRegistry.convert(entry, machine)`; then it calls `settle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from core.errors import ErrorCode
from core.groups.effects import Answer, GroupChange, ModernChange, Moment
from core.vocabulary.groups import (
    CommitRequest,
    GroupListing,
    GroupView,
    JoinRequest,
    Leaver,
    LeaveReply,
    Standing,
    SyncRequest,
)

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"


class Catalog(Protocol):
    """The topics as they are at one time. It never changes: a change of topics makes another one."""

    def shape(self, topic: str) -> tuple[UUID, int] | None:
        """Return the id and the number of partitions of a topic, or None."""
        ...

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, or None."""
        ...

    def matching(self, pattern: str) -> frozenset[str]:
        """Return the topics whose whole name matches an RE2 expression. Raises INVALID_REGULAR_EXPRESSION."""
        ...


@dataclass(slots=True)
class Effects:
    """The result of one step of a machine: store `change` (if any) first, then send the answers.

    `becomes` replaces the machine, at once: the group has another type from here on.
    """

    change: GroupChange | ModernChange | None
    answers: list[Answer]
    becomes: Machine | None = None


class Machine(Protocol):
    """One group of any type."""

    @property
    def group_type(self) -> str:
        """`classic`, `consumer` or `share`, as ListGroups shows it."""
        ...

    @property
    def group_id(self) -> str:
        """The id of the group."""
        ...

    @property
    def wake_at(self) -> float:
        """When `tick` must be called at the latest, in monotonic seconds."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """`consumer` for groups of consumers; None before a first member."""
        ...

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members read; None where the broker cannot know."""
        ...

    @property
    def empty_since_ms(self) -> int:
        """Wall time since when the group has no members; −1 before it ever had one, and while it has."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether the group is being deleted."""
        ...

    @property
    def is_stable(self) -> bool:
        """Whether every member has its target. While it is not, watchers are called after each step."""
        ...

    @property
    def is_unused(self) -> bool:
        """Whether the group has no members, and none that has got an id and may join."""
        ...

    def tick(self, now: Moment) -> Effects:
        """Do what is due, and compute `wake_at` again."""
        ...

    def resume(self, now: float, paused: float) -> None:
        """Shift all deadlines after a pause of the process of `paused` seconds."""
        ...

    def topics_changed(self, catalog: Catalog, now: Moment) -> Effects:
        """Adopt another catalog of topics."""
        ...

    def release(self, error: ErrorCode) -> Effects:
        """Answer all waiting requests with `error`: the broker stops."""
        ...

    def resave(self) -> None:
        """Make the next effects carry the whole group, because the last change could not be stored."""
        ...

    def delete(self) -> ErrorCode:
        """Become dead. Return NON_EMPTY_GROUP while there are members, GROUP_ID_NOT_FOUND if it is dead."""
        ...

    def revive(self) -> None:
        """Become empty again, because the deletion could not be stored."""
        ...

    def check_commit(self, request: CommitRequest, now: float) -> ErrorCode | list[ErrorCode]:
        """Return the error of an OffsetCommit, or one for each commit. An accepted commit extends the session."""
        ...

    def check_staged(self, request: CommitRequest) -> ErrorCode | list[ErrorCode]:
        """Return the error of a TxnOffsetCommit, or one for each commit."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Return the error of an OffsetFetch (v9) on behalf of a member."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Return whether members read this topic."""
        ...

    def view(self) -> GroupView:
        """Return the group as DescribeGroups shows it."""
        ...

    def listing(self) -> GroupListing:
        """Return the group as ListGroups shows it."""
        ...


class ClassicMembers(Protocol):
    """A group that has members of the classic protocol: a classic group, or a consumer group (KIP-848, migration)."""

    def join(self, request: JoinRequest, waiter: object, now: Moment) -> Effects:
        """Handle JoinGroup. The answer is in the effects of this call or of a later one."""
        ...

    def sync(self, request: SyncRequest, waiter: object, now: Moment) -> Effects:
        """Handle SyncGroup. The answer is in the effects of this call or of a later one."""
        ...

    def abandon_join(self, waiter: object, now: Moment) -> Effects:
        """Forget a waiting join whose client has disconnected."""
        ...

    def abandon_sync(self, waiter: object, now: Moment) -> Effects:
        """Forget a waiting sync whose client has disconnected."""
        ...

    def heartbeat(
        self, member_id: str, generation: int, now: float, group_instance_id: str | None = None
    ) -> ErrorCode:
        """Extend the session of a member."""
        ...

    def leave(self, leavers: Sequence[Leaver], now: Moment) -> tuple[list[LeaveReply], Effects]:
        """Handle LeaveGroup of one or more members."""
        ...

    def standing(self, member_id: str) -> Standing:
        """Return what the group knows of a member."""
        ...
