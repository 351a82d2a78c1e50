"""One share group (KIP-932): its members and which partitions each of them reads. A pure state machine.

    group epoch     rises when members, their topics, or the partitions of those topics change; the assignment is
                    computed in the same step
    member epoch    the group epoch of the assignment that the member has been told

Members do not revoke anything: a partition may have several members, and each record is locked by the queue for the
member that has acquired it. So a member takes its new assignment with its next heartbeat, and there is no state
between. An answer may be lost: the epoch before is accepted, and then the assignment is sent again (Kafka accepts it
without that).

Nothing of a share group is stored here: the queue of the same name is. After a restart members are unknown, and
join again on UNKNOWN_MEMBER_ID, as Kafka's clients do; the locks and counts of the queue do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple
from uuid import UUID

from core.errors import ErrorCode
from core.groups.effects import Moment
from core.groups.machines import SHARE, Catalog, Effects
from core.groups.share_assignor import assign
from core.vocabulary.groups import CommitRequest, GroupListing, GroupView
from core.vocabulary.share_groups import (
    DEAD,
    EMPTY,
    JOINING,
    LEAVING,
    STABLE,
    ShareGroupView,
    ShareHeartbeat,
    ShareMemberView,
    ShareReply,
)

# The protocol type by which ListGroups shows a share group.
PROTOCOL_TYPE = "share"
_MAX_EPOCH = 2**31 - 1


Shape = tuple[UUID, Sequence[int]]
"""The id of a topic, and those of its partitions that can be assigned."""


class ShareSettings(NamedTuple):
    """The limits of one group. Times in seconds."""

    session_timeout: float
    heartbeat_interval_ms: int
    max_size: int


class _Place(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int


@dataclass(slots=True)
class _Member:
    member_id: str
    epoch: int
    previous: int
    deadline: float
    topics: tuple[str, ...]
    rack_id: str | None
    client_id: str
    client_host: str
    # What it has, and what it was told last.
    places: set[_Place] = field(default_factory=set)
    told: set[_Place] = field(default_factory=set)


class ShareGroup:
    """The members of one share group."""

    group_type = SHARE
    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.wake_at = inf
        self.empty_since_ms = -1
        # Whether a queue of this name exists: its id is taken, also without members.
        self.is_kept = False
        self._dead = False
        self._members: dict[str, _Member] = {}
        # The topics of all members, as the last assignment saw them; None is missing.
        self._shapes: dict[str, Shape | None] = {}

    # --- members -----------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ShareHeartbeat,
        shape: Callable[[str], Shape | None],
        settings: ShareSettings,
        now: Moment,
    ) -> ShareReply:
        """Let a member join, stay or leave. `shape(topic)` says what a topic is now.

        The request has been checked: ids are not empty, and a join names topics. Errors: GROUP_ID_NOT_FOUND,
        UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED.
        """
        if self._dead:
            return _refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {self.group_id} not found.")
        member = self._members.get(request.member_id)
        if request.member_epoch == JOINING:
            if member is None and len(self._members) >= settings.max_size:
                return _refused(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {settings.max_size} members.",
                )
        elif member is None:
            return _refused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {self.group_id}.",
            )
        if request.member_epoch == LEAVING:
            self._remove((request.member_id,), now)
            return ShareReply(ErrorCode.NONE, request.member_id, LEAVING)
        if member is not None and (refusal := _fenced(member, request.member_epoch)) is not None:
            return refusal
        lost = member is not None and request.member_epoch != member.epoch
        member = self._take(request, member, shape, settings, now)
        told = None
        if request.member_epoch == JOINING or lost or member.told != member.places:
            member.told = set(member.places)
            told = _by_topic(member.places)
        if member.epoch != self.epoch:
            member.previous, member.epoch = member.epoch, self.epoch
        return ShareReply(
            ErrorCode.NONE, member.member_id, member.epoch, settings.heartbeat_interval_ms, told
        )

    def _take(
        self,
        request: ShareHeartbeat,
        member: _Member | None,
        shape: Callable[[str], Shape | None],
        settings: ShareSettings,
        now: Moment,
    ) -> _Member:
        """Take over what a heartbeat says; assign again if that changes anything."""
        deadline = now.monotonic + settings.session_timeout
        topics = None if request.topics is None else tuple(sorted(set(request.topics)))
        changed = any(shape(topic) != known for topic, known in self._shapes.items())
        if member is None:
            member = _Member(
                request.member_id,
                JOINING,
                JOINING,
                deadline,
                topics or (),
                request.rack_id,
                request.client_id,
                request.client_host,
            )
            self._members[member.member_id] = member
            self.empty_since_ms = -1
            changed = True
        elif topics is not None and topics != member.topics:
            member.topics = topics
            changed = True
        member.deadline = deadline
        member.client_id, member.client_host = request.client_id, request.client_host
        if request.rack_id is not None:
            member.rack_id = request.rack_id
        self.wake_at = min(self.wake_at, deadline)
        if changed:
            self._assign(shape)
        return member

    def _assign(self, shape: Callable[[str], Shape | None]) -> None:
        """Compute which member reads what, as of a new epoch."""
        self.epoch = 1 if self.epoch >= _MAX_EPOCH else self.epoch + 1
        topics = sorted({topic for member in self._members.values() for topic in member.topics})
        self._shapes = {topic: shape(topic) for topic in topics}
        places: dict[str, list[_Place]] = {topic: [] for topic in topics}
        for topic, known in self._shapes.items():
            if known is not None:
                places[topic] = [_Place(topic, known[0], partition) for partition in known[1]]
        shared: dict[tuple[str, ...], list[_Place]] = {}
        wanted: dict[str, Sequence[_Place]] = {}
        for member in self._members.values():
            if member.topics not in shared:
                shared[member.topics] = [place for topic in member.topics for place in places[topic]]
            wanted[member.member_id] = shared[member.topics]
        before = {member.member_id: member.places for member in self._members.values()}
        order = [place for topic in topics for place in places[topic]]
        for member_id, mine in assign(wanted, before, order).items():
            self._members[member_id].places = mine

    def _remove(self, member_ids: Sequence[str], now: Moment) -> None:
        for member_id in member_ids:
            del self._members[member_id]
        self._assign(self._shapes.get)
        if not self._members:
            self.empty_since_ms = now.wall_ms
            self.wake_at = inf

    # --- time and topics ---------------------------------------------------------------------------------------

    def tick(self, now: Moment) -> Effects:
        """See `Machine`: remove members whose session is over."""
        late = [one.member_id for one in self._members.values() if one.deadline <= now.monotonic]
        if late:
            self._remove(late, now)
        self.wake_at = min((one.deadline for one in self._members.values()), default=inf)
        return _nothing()

    def resume(self, now: float, paused: float) -> None:
        """See `Machine`."""
        for member in self._members.values():
            member.deadline += paused
        self.wake_at = min((one.deadline for one in self._members.values()), default=inf)

    def topics_changed(self, catalog: Catalog, now: Moment) -> Effects:
        """See `Machine`: the next heartbeat of any member looks at the topics."""
        return _nothing()

    def release(self, error: ErrorCode) -> Effects:
        """See `Machine`: no request waits."""
        return _nothing()

    # --- life --------------------------------------------------------------------------------------------------

    def resave(self) -> None:
        """See `Machine`: nothing is stored."""

    def delete(self) -> ErrorCode:
        """See `Machine`."""
        if self._dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self._members:
            return ErrorCode.NON_EMPTY_GROUP
        self._dead = True
        return ErrorCode.NONE

    def revive(self) -> None:
        """See `Machine`."""
        self._dead = False

    @property
    def is_empty(self) -> bool:
        """See `Machine`."""
        return not self._members

    @property
    def is_dead(self) -> bool:
        """See `Machine`."""
        return self._dead

    @property
    def is_stable(self) -> bool:
        """See `Machine`: a share group has no state between two assignments."""
        return True

    @property
    def is_unused(self) -> bool:
        """See `Machine`: a queue of this name keeps its id."""
        return not self._members and not self.is_kept

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        """See `Machine`."""
        return frozenset(topic for member in self._members.values() for topic in member.topics)

    def is_subscribed(self, topic: str) -> bool:
        """See `Machine`."""
        return any(topic in member.topics for member in self._members.values())

    # --- offsets: a share group commits none -------------------------------------------------------------------

    def check_commit(self, request: CommitRequest, now: float) -> ErrorCode:
        """See `Machine`: a share group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_staged(self, request: CommitRequest) -> ErrorCode:
        """See `Machine`."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """See `Machine`."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    # --- views -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """The name of the state, as ShareGroupDescribe shows it."""
        if self._dead:
            return DEAD
        return STABLE if self._members else EMPTY

    def view(self) -> GroupView:
        """See `Machine`: as DescribeGroups shows a group that is not classic, without members."""
        return GroupView(self.group_id, self.state, PROTOCOL_TYPE, "", (), group_type=SHARE)

    def listing(self) -> GroupListing:
        """See `Machine`."""
        return GroupListing(self.group_id, PROTOCOL_TYPE, self.state, SHARE)

    def share_view(self) -> ShareGroupView:
        """Return the group as ShareGroupDescribe shows it."""
        members = tuple(
            ShareMemberView(
                one.member_id,
                one.rack_id,
                one.epoch,
                one.client_id,
                one.client_host,
                one.topics,
                _by_topic(one.told),
            )
            for one in sorted(self._members.values(), key=lambda one: one.member_id)
        )
        return ShareGroupView(self.group_id, self.state, self.epoch, members)


def _fenced(member: _Member, epoch: int) -> ShareReply | None:
    """Return the refusal of an epoch that is neither the member's nor the one before (KIP-932)."""
    if epoch in (JOINING, member.epoch, member.previous):
        return None
    kind = "greater" if epoch > member.epoch else "smaller"
    return _refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {kind} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _refused(error: ErrorCode, message: str) -> ShareReply:
    return ShareReply(error, message=message)


def _nothing() -> Effects:
    return Effects(None, [])


def _by_topic(places: set[_Place]) -> Mapping[UUID, Sequence[int]]:
    found: dict[UUID, list[int]] = {}
    for place in sorted(places):
        found.setdefault(place.topic_id, []).append(place.partition)
    return found
