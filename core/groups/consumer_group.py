"""A consumer group of KIP-848: a pure state machine. No I/O, no clock, no event loop.

Theory. The broker assigns. Three numbers say how far the group is:

    group epoch    rises when a member joins or leaves, when its subscription or its preferred assignor changes, and
                   when a topic that is subscribed to appears, grows, or is deleted
    target epoch   the group epoch for which the *target*, the assignment to reach, was computed
    member epoch   the target epoch that a member has reached

There is no barrier: each member reaches its target on its own, in the answers to its heartbeats
(`reconciliation.py`). A member that must give partitions up stays in its old epoch until its own list does not show
them any more; only then another member gets them. So a partition never has two owners, whatever the members do, and
a member that is slow holds up no more than the partitions that it has to give up.

    Empty         no member                     Reconciling   a member has not reached the target
    Assigning     group epoch > target epoch    Stable        all have
    Dead          final: the group is being deleted

The target is computed at most once in `assignment_interval`, by the assignor with the most votes; the first at once.
It is not stored, and is computed again after a restart: what members *have* is stored before they are told, so the
rule of one owner holds whatever the new target is. If all members had reached the target, what they have is the
target, and nothing moves.

Epochs of requests: 0 joins or joins again, and the member keeps what it has. A greater epoch than the member's is
FENCED_MEMBER_EPOCH. A smaller one as well, unless it is the previous one and the member shows no partition that it
does not have: then the last answer was lost, and it is given again. A member that does not give its partitions up
within its own rebalance timeout, or is silent for a session, is removed.

Static members: a client that joins under an instance id that is in use gets UNRELEASED_INSTANCE_ID, unless the
holder has left for a while (epoch −2); then it takes its place with all its partitions.

Members of the classic protocol may be in the same group; `classic_in_consumer.py` has their side, `migration.py` how
a group changes its type. Every call returns `Effects`: what must be durable, and the answers that may leave after
that. A heartbeat that changes nothing stores nothing. Sources: KIP-848, KIP-1082, KIP-1251, KIP-1263.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Protocol
from uuid import UUID

from core.errors import BrokerError, ErrorCode
from core.groups.commit_rules import check_commit, check_fetch, check_staged
from core.groups.consumer_member import ConsumerMember, MemberState, as_partitions
from core.groups.consumer_roster import ConsumerRoster
from core.groups.effects import ModernChange, Moment, StoredModern, StoredModernMember
from core.groups.heartbeat_rules import check_epoch, check_heartbeat
from core.groups.machines import CONSUMER, Catalog, Effects
from core.groups.reconciliation import NOTHING, MemberTarget, reconcile
from core.groups.target_assignment import ASSIGNORS, Subscriber, Target, assign
from core.types import TopicPartition
from core.vocabulary.consumer_groups import (
    AWAY,
    JOINING,
    ConsumerGroupState,
    ConsumerGroupView,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    ConsumerMemberView,
    Partitions,
    TopicShare,
)
from core.vocabulary.groups import NO_MEMBER, CommitRequest, GroupListing, GroupView, MemberView
from core.vocabulary.member_metadata import CONSUMER_PROTOCOL_TYPE, assignment_of, subscription_of

# After a pause the broker reads the requests that already are in its sockets within this time (seconds).
RESUME_GRACE = 1.0


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """Settings of a group. Times in seconds, size in members; the first assignor is the default."""

    session_timeout: float = 45.0
    heartbeat_interval: float = 5.0
    assignment_interval: float = 1.0
    max_size: int = 5_000
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    # What a group may become while it has members: a consumer group, a classic group again.
    may_upgrade: bool = True
    may_downgrade: bool = True


class Downgrade(Protocol):
    """Makes a classic group of a consumer group; see `migration.py`."""

    def __call__(self, group: ConsumerGroup, now: Moment) -> Effects:
        """Return the effects that replace the group."""
        ...


_NO_EFFECTS = Effects(None, [])


class ConsumerGroup:
    """The state of one consumer group. The rules are in the docstring of this module."""

    group_type = CONSUMER
    protocol_type = CONSUMER_PROTOCOL_TYPE

    __slots__ = (
        "_assign_at",
        "_converted",
        "_downgrade",
        "_is_dead",
        "_must_save",
        "_rewrite",
        "_unsettled",
        "assignor",
        "empty_since_ms",
        "epoch",
        "group_id",
        "roster",
        "settings",
        "subscribed_topics",
        "target",
        "target_epoch",
        "wake_at",
    )

    def __init__(
        self,
        group_id: str,
        settings: ConsumerGroupSettings,
        catalog: Catalog,
        downgrade: Downgrade | None = None,
        *,
        converted: bool = False,
    ) -> None:
        self.group_id = group_id
        self.settings = settings
        self.roster = ConsumerRoster(catalog)
        self.epoch = 0
        self.target_epoch = 0
        self.target: Target = {}
        self.assignor = settings.assignors[0]
        # Wall time (ms) since when the group has no members; −1 before it ever had one, and while it has.
        self.empty_since_ms = -1
        self.subscribed_topics: frozenset[str] | None = frozenset()
        # When `tick` must be called at the latest, in monotonic seconds.
        self.wake_at = inf
        # When the next target may be computed.
        self._assign_at = -inf
        # The members that have not reached the target.
        self._unsettled: set[str] = set()
        self._is_dead = False
        # What the present step has decided, until `effects` returns it.
        self._must_save = False
        self._rewrite = False
        # Whether the store has rows of another type of group.
        self._converted = converted
        # Makes a classic group of this one, when its last member of the consumer protocol is removed.
        self._downgrade = downgrade

    # --- heartbeats --------------------------------------------------------------------------------------------

    def beat(self, request: ConsumerHeartbeat, now: Moment) -> tuple[ConsumerHeartbeatReply, Effects]:
        """Handle ConsumerGroupHeartbeat. The answer may leave when the change is durable."""
        try:
            if self._is_dead:
                raise BrokerError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group is being deleted; try again."
                )
            check_heartbeat(request, self.settings.assignors)
            is_leaving = request.member_epoch < JOINING
            reply = self._leave(request, now) if is_leaving else self._update(request, now)
        except BrokerError as error:
            reply = ConsumerHeartbeatReply(error.code, message=error.message)
        return reply, self.effects(now)

    def _update(self, request: ConsumerHeartbeat, now: Moment) -> ConsumerHeartbeatReply:
        """Handle the heartbeat of a member that joins or stays."""
        roster = self.roster
        member_id = request.member_id or request.new_member_id
        if request.pattern:
            # Before anything changes.
            roster.catalog.matching(request.pattern)
        is_joining = request.member_epoch == JOINING
        member = self._joining(request, member_id) if is_joining else self._staying(request)
        # The last answer was lost, or it is the first one.
        is_told_again = is_joining or request.member_epoch < member.epoch
        self._adopt(member, request)
        self.assign_if_due(now.monotonic)
        reassigned = self.reconcile(member, request.owned, now.monotonic)
        self.touch(member, now.monotonic)
        is_full = (
            request.rebalance_timeout_ms >= 0
            and request.owned is not None
            and (request.topics is not None or request.pattern is not None)
        )
        return ConsumerHeartbeatReply(
            ErrorCode.NONE,
            member.member_id,
            member.epoch,
            int(self.settings.heartbeat_interval * 1000),
            as_partitions(member.assigned)
            if reassigned or is_told_again or is_full or not member.has_only(request.owned)
            else None,
        )

    def _joining(self, request: ConsumerHeartbeat, member_id: str) -> ConsumerMember:
        """Return the member that joins or joins again. Raises UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED."""
        roster, instance_id = self.roster, request.group_instance_id
        holder = None if instance_id is None else roster.static.get(instance_id)
        if holder is not None and holder != member_id:
            old = roster.members[holder]
            if not old.is_away and old.classic is None:
                raise BrokerError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"Instance {instance_id!r} is in use by the member {holder!r}; stop that client, or wait for"
                    " the end of its session.",
                )
            if member_id in roster.members:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"The group has another member {member_id!r}; join as {instance_id!r} under another member id.",
                )
            return self.replace_static(old, member_id)
        member = roster.members.get(member_id)
        if member is None:
            return self.add_member(member_id, instance_id)
        if instance_id is not None and holder is None:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"The member {member_id!r} has no instance id; join as {instance_id!r} under another member id.",
            )
        if member.is_away:
            member.epoch = 0
        return member

    def _staying(self, request: ConsumerHeartbeat) -> ConsumerMember:
        """Return the member that sent a heartbeat.

        Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH.
        """
        member = self.roster.known(request.member_id, request.group_instance_id)
        check_epoch(member, request.member_epoch, request.owned)
        return member

    def _adopt(self, member: ConsumerMember, request: ConsumerHeartbeat) -> None:
        """Adopt what a heartbeat says of the member; raise the group epoch if that matters to the assignment."""
        was_classic, assignor = member.classic is not None, member.assignor
        is_limited = request.may_describe is not None
        is_seen_otherwise = member.is_unresolved or is_limited != member.is_limited
        if member.update(request) or is_seen_otherwise:
            self.roster.mark(member)
            self.roster.classic -= was_classic
            if was_classic:
                # It was to join or to sync, and has joined with nothing to give up.
                member.rebalance_deadline = inf
            member.may_describe, member.is_limited = request.may_describe, is_limited
            member.is_unresolved = False
            self.roster.resolve(member)
            self.subscribe(member)
            if member.assignor != assignor:
                self.bump()
        else:
            member.may_describe = request.may_describe

    def _leave(self, request: ConsumerHeartbeat, now: Moment) -> ConsumerHeartbeatReply:
        """Handle the epochs −1 and −2."""
        member = self.roster.known(request.member_id, request.group_instance_id)
        if request.member_epoch == AWAY and member.instance_id is not None:
            self.roster.owners.free(member.revoking, member.member_id)
            member.revoking = {}
            member.state = MemberState.STABLE
            member.previous_epoch, member.epoch = member.epoch, AWAY
            member.rebalance_deadline = inf
            self._unsettled.add(member.member_id)
            self.roster.mark(member)
        else:
            self.remove_member(member, now.wall_ms)
        return ConsumerHeartbeatReply(ErrorCode.NONE, member.member_id, request.member_epoch)

    # --- members -----------------------------------------------------------------------------------------------

    def add_member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Add a new member. Raises GROUP_MAX_SIZE_REACHED."""
        if len(self.roster) >= self.settings.max_size:
            raise BrokerError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The group has {self.settings.max_size} members, which is the limit.",
            )
        member = ConsumerMember(member_id)
        member.instance_id = instance_id
        self.roster.add(member)
        self._unsettled.add(member_id)
        self.empty_since_ms = -1
        self.bump()
        return member

    def replace_static(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give the place of a static member to another member id, with its partitions."""
        member = ConsumerMember(member_id)
        self.roster.replace(old, member)
        self.target[member_id] = self.target.pop(old.member_id, NOTHING)
        self._unsettled.discard(old.member_id)
        self._unsettled.add(member_id)
        return member

    def remove_member(self, member: ConsumerMember, wall_ms: int) -> None:
        """Remove a member; others may have its partitions."""
        self._remove_members([member], wall_ms)

    def _remove_members(self, members: Iterable[ConsumerMember], wall_ms: int) -> None:
        for member in members:
            self.roster.remove(member)
            self.target.pop(member.member_id, None)
            self._unsettled.discard(member.member_id)
        self.roster.look_again()
        self.subscribed_topics = self.roster.topics
        self.bump()
        if not self.roster.members:
            self.empty_since_ms = wall_ms

    def subscribe(self, member: ConsumerMember) -> None:
        """Raise the group epoch if a member subscribes to other topics than before."""
        if self.roster.refresh(member):
            self.roster.look_again()
            self.subscribed_topics = self.roster.topics
            self.bump()

    def bump(self) -> None:
        """Raise the group epoch; a new target follows. Several reasons in one step are one."""
        if self._must_save and self.epoch > self.target_epoch:
            return
        self.epoch += 1
        self._must_save = True

    def touch(self, member: ConsumerMember, now: float) -> None:
        """Restart the session of a member."""
        classic = member.classic
        timeout = self.settings.session_timeout if classic is None else classic.session_timeout_ms / 1000
        member.deadline = now + timeout
        self.wake(member.deadline)

    def wake(self, deadline: float) -> None:
        """Have `tick` called at this time at the latest."""
        if deadline < self.wake_at:
            self.wake_at = deadline

    # --- target and reconciliation -----------------------------------------------------------------------------

    def assign_if_due(self, now: float) -> None:
        """Compute the target if the group epoch has risen and the interval since the last one is over."""
        if self.target_epoch == self.epoch:
            return
        if not self.roster.members:
            self.target, self.target_epoch = {}, self.epoch
        elif now < self._assign_at:
            self.wake(self._assign_at)
        else:
            self._assign()
            self._assign_at = now + self.settings.assignment_interval

    def _assign(self) -> None:
        roster = self.roster
        votes = Counter(vote for vote in roster.votes() if vote in self.settings.assignors)
        # Of equal votes the assignor that is configured first wins.
        self.assignor = max(self.settings.assignors, key=lambda name: votes[name])
        subscribers = [
            Subscriber(
                member.member_id,
                (member.instance_id is None, member.instance_id or member.member_id),
                roster.ids_of(member),
                self.target.get(member.member_id) or _held(member),
            )
            for member in roster.members.values()
        ]
        self.target = assign(self.assignor, subscribers, dict(roster.shapes.values()))
        self.target_epoch = self.epoch
        self._unsettled = set(roster.members)

    def reconcile(self, member: ConsumerMember, owned: Partitions | None, now: float) -> bool:
        """Take the next step of a member; return whether its assigned partitions change."""
        member_id = member.member_id
        target = self.target.get(member_id, NOTHING)
        step = reconcile(member, target, self.target_epoch, self.roster.owners, owned)
        if step.changed:
            self.roster.mark(member)
            if member.state is MemberState.UNREVOKED:
                member.rebalance_deadline = now + member.rebalance_timeout_ms / 1000
                self.wake(member.rebalance_deadline)
            else:
                member.rebalance_deadline = inf
        if member.state is MemberState.STABLE and member.epoch == self.target_epoch:
            self._unsettled.discard(member_id)
        return step.reassigned

    def topics_changed(self, catalog: Catalog, now: Moment) -> Effects:
        """Adopt another catalog of topics; raise the group epoch if a subscribed topic has changed."""
        roster = self.roster
        roster.catalog = catalog
        for member in roster.members.values():
            if member.pattern is not None and roster.resolve(member):
                roster.refresh(member)
                if member.is_limited:
                    roster.mark(member)
        if roster.look_again():
            self.subscribed_topics = roster.topics
            self.bump()
            self.assign_if_due(now.monotonic)
        return self.effects(now)

    # --- time ------------------------------------------------------------------------------------------------

    def tick(self, now: Moment) -> Effects:
        """Remove members whose session or rebalance timeout is over, and compute a target that is due."""
        time = now.monotonic
        late = [m for m in self.roster.members.values() if m.deadline <= time or m.rebalance_deadline <= time]
        if late:
            self._remove_members(late, now.wall_ms)
        self.assign_if_due(time)
        self.wake_at = self._next_deadline()
        return self.effects(now)

    def resume(self, now: float, paused: float) -> None:
        """Shift all deadlines after the broker process was paused for `paused` seconds and could read no request.

        Every member has a whole session again, as after a restart. A member that must give partitions up has the time
        that was left before the pause, and `RESUME_GRACE` in addition.
        """
        for member in self.roster.members.values():
            deadline = member.deadline
            self.touch(member, now)
            member.deadline = max(deadline, member.deadline)
            member.rebalance_deadline += paused + RESUME_GRACE
        self.wake_at = self._next_deadline()

    def _next_deadline(self) -> float:
        members = self.roster.members.values()
        deadline = min((min(m.deadline, m.rebalance_deadline) for m in members), default=inf)
        return min(deadline, self._assign_at) if self.target_epoch < self.epoch and members else deadline

    # --- offsets -----------------------------------------------------------------------------------------------

    def check_commit(self, request: CommitRequest, now: float) -> ErrorCode | list[ErrorCode]:
        """Check an OffsetCommit; see `commit_rules.py`. An accepted one extends the session of a classic member."""
        if self._is_dead:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        member, error = check_commit(self.roster, request)
        if member is not None and member.classic is not None and error is ErrorCode.NONE:
            self.touch(member, now)
        return error

    def check_staged(self, request: CommitRequest) -> ErrorCode | list[ErrorCode]:
        """Check a TxnOffsetCommit; see `commit_rules.py`."""
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if self._is_dead else check_staged(self.roster, request)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check an OffsetFetch; see `commit_rules.py`."""
        return check_fetch(self.roster, member_id, member_epoch)

    # --- deletion and restart --------------------------------------------------------------------------------

    def delete(self) -> ErrorCode:
        """Become dead, which is final. Return NON_EMPTY_GROUP while there are members."""
        if self._is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if self.roster.members:
            return ErrorCode.NON_EMPTY_GROUP
        self._is_dead = True
        return ErrorCode.NONE

    def revive(self) -> None:
        """Become empty again, because the deletion could not be stored."""
        self._is_dead = False

    @classmethod
    def restored(
        cls,
        stored: StoredModern,
        members: Iterable[StoredModernMember],
        settings: ConsumerGroupSettings,
        catalog: Catalog,
        now: float,
        downgrade: Downgrade | None = None,
    ) -> ConsumerGroup:
        """Restore a stored group. All deadlines restart; no member has to join again.

        If all members had reached the target, what they have is the target. If not, a new epoch begins, because the
        target of the present one may have been another.
        """
        group = cls(stored.group_id, settings, catalog, downgrade)
        group.epoch = stored.epoch
        group.empty_since_ms = stored.empty_since_ms
        group.admit([ConsumerMember.restored(row) for row in members], now)
        group.roster.take_changes(stored.group_id)
        return group

    def admit(self, members: Iterable[ConsumerMember], now: float) -> None:
        """Add members of an earlier run, or of the group's earlier type, with what they have."""
        roster = self.roster
        for member in members:
            roster.add(member)
            roster.resolve(member)
            roster.refresh(member)
            self.touch(member, now)
            if member.state is MemberState.UNREVOKED or (
                member.classic is not None and member.classic.awaits_sync
            ):
                member.rebalance_deadline = now + member.rebalance_timeout_ms / 1000
                self.wake(member.rebalance_deadline)
        roster.look_again()
        self.subscribed_topics = roster.topics
        self.target_epoch = self.epoch
        self.target = {member.member_id: _held(member) for member in roster.members.values()}
        self._unsettled = {
            member.member_id
            for member in roster.members.values()
            if member.epoch != self.epoch or member.state is not MemberState.STABLE
        }
        if self._unsettled or not self._is_complete():
            self.bump()
            self.wake(now)

    def _is_complete(self) -> bool:
        """Return whether the target has all partitions of all topics, and no others."""
        shared: Counter[UUID] = Counter()
        for mine in self.target.values():
            shared.update({topic_id: len(numbers) for topic_id, numbers in mine.items()})
        return shared == Counter(dict(self.roster.shapes.values()))

    def effects(self, now: Moment) -> Effects:
        """Return what the present step has decided."""
        if not self._must_save and not self.roster.is_changed:
            return _NO_EFFECTS
        if self._downgrade is not None and self.settings.may_downgrade and self._is_all_classic:
            return self._downgrade(self, now)
        saved, removed = self.roster.take_changes(self.group_id)
        row = StoredModern(self.group_id, self.group_type, self.epoch, self.empty_since_ms)
        change = ModernChange(row, saved, removed, self._rewrite, self._converted)
        self._must_save = self._rewrite = self._converted = False
        return Effects(change, [])

    @property
    def _is_all_classic(self) -> bool:
        return 0 < self.roster.classic == len(self.roster)

    def release(self, error: ErrorCode) -> Effects:
        """Do nothing: no request waits for another one."""
        return _NO_EFFECTS

    def resave(self) -> None:
        """Make the next effects carry the whole group, because the last change could not be stored."""
        self.roster.mark_all()
        self._must_save = self._rewrite = self._converted = True

    # --- views -----------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """See `Machine`."""
        return not self.roster.members

    @property
    def is_dead(self) -> bool:
        """See `Machine`."""
        return self._is_dead

    @property
    def is_unused(self) -> bool:
        """See `Machine`."""
        return not self.roster.members and not self._is_dead

    @property
    def is_stable(self) -> bool:
        """See `Machine`."""
        return bool(self.roster.members) and self.target_epoch == self.epoch and not self._unsettled

    @property
    def state(self) -> ConsumerGroupState:
        """Return the state of the group."""
        if self._is_dead:
            return ConsumerGroupState.DEAD
        if not self.roster.members:
            return ConsumerGroupState.EMPTY
        if self.target_epoch < self.epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.RECONCILING if self._unsettled else ConsumerGroupState.STABLE

    def is_subscribed(self, topic: str) -> bool:
        """Return whether members read this topic."""
        return topic in self.roster.topics

    def listing(self) -> GroupListing:
        """Return the group as ListGroups shows it."""
        return GroupListing(self.group_id, self.protocol_type, self.state.value, self.group_type)

    def view(self) -> GroupView:
        """Return the group in the form of DescribeGroups, with the generation for the epoch."""
        return GroupView(
            self.group_id,
            self.state.value,
            self.protocol_type,
            self.assignor if self.roster.members else "",
            tuple(
                MemberView(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    subscription_of(member.wanted),
                    self.encoded(member),
                )
                for member in self.roster.members.values()
            ),
            self.epoch,
            NO_MEMBER,
            self.group_type,
        )

    def encoded(self, member: ConsumerMember) -> bytes:
        """Return the assignment of a member in the form of SyncGroup; topics that are deleted are left out."""
        return assignment_of(
            TopicPartition(share.topic, number)
            for share in self._shares(as_partitions(member.assigned))
            for number in share.partitions
        )

    def described(self) -> ConsumerGroupView:
        """Return the group as ConsumerGroupDescribe shows it."""
        return ConsumerGroupView(
            self.group_id,
            self.state.value,
            self.epoch,
            self.target_epoch,
            self.assignor,
            tuple(self._member_view(member) for member in self.roster.members.values()),
        )

    def _member_view(self, member: ConsumerMember) -> ConsumerMemberView:
        return ConsumerMemberView(
            member.member_id,
            member.instance_id,
            member.rack_id,
            member.epoch,
            member.client_id,
            member.client_host,
            member.topics,
            member.pattern,
            self._shares(as_partitions(member.assigned)),
            self._shares(self.target.get(member.member_id, NOTHING)),
            member.kind,
        )

    def _shares(self, partitions: Partitions) -> tuple[TopicShare, ...]:
        named = ((self.roster.catalog.name_of(topic_id), topic_id) for topic_id in partitions)
        return tuple(
            TopicShare(topic_id, name, tuple(sorted(partitions[topic_id])))
            for name, topic_id in sorted((name, topic_id) for name, topic_id in named if name is not None)
        )


def _held(member: ConsumerMember) -> MemberTarget:
    return {topic_id: frozenset(numbers) for topic_id, numbers in member.assigned.items()}
